import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Energy, HasPosterior
from thalweg.objectives.exact_likelihood import ExactLikelihood
from thalweg.objectives.latent import LatentLikelihood


class Factors(Energy):
    """Probabilistic principal components: ``x = Wz + b + N(0, s²)`` with ``z ~ N(0, I)``, so ``x ~ N(b, WWᵀ + s²)``."""

    loadings: jax.Array
    bias: jax.Array
    log_scale: jax.Array
    space: tw.Real = eqx.field(static=True, default=tw.Real(3))

    def __call__(self, x, z):
        return 0.5 * jnp.sum(((x - self.loadings @ z - self.bias) * jnp.exp(-self.log_scale)) ** 2) + 0.5 * jnp.sum(
            z**2
        )


def posterior_precision(energy):
    return jnp.eye(2) + energy.loadings.T @ energy.loadings * jnp.exp(-2 * energy.log_scale)


def draw_factors(key, energy, x):
    root = jnp.linalg.cholesky(posterior_precision(energy))
    return mean_factors(key, energy, x) + jax.scipy.linalg.solve_triangular(
        root.T, jax.random.normal(key, (2,)), lower=False
    )


class Mixed(Energy):
    """Bits with two latent bits or labels: small enough to be summed over everything."""

    couplings: jax.Array
    bias: jax.Array
    offsets: jax.Array
    space: tw.Binary = eqx.field(static=True, default=tw.Binary(3))

    def __call__(self, x, z):
        return -x @ self.couplings @ z - self.bias @ x - self.offsets @ z - 0.3 * x[0] * x[1] * z[0]


class Marginal(Energy):
    """``-log Σ_z exp(-E(x, z))``."""

    joint: Mixed

    @property
    def space(self):
        return self.joint.space

    def __call__(self, x):
        states = tw.Binary(2).states(0, 4)
        return -jax.nn.logsumexp(-jax.vmap(lambda z: self.joint(x, z))(states))


FACTORS = Factors(jnp.array([[1.0, 0.2], [-0.5, 0.8], [0.3, -0.4]]), jnp.array([0.5, 0.0, -1.0]), jnp.asarray(-0.3))
MIXED = Mixed(jnp.array([[1.0, -0.5], [0.4, 0.8], [-1.2, 0.3]]), jnp.array([0.2, -0.4, 0.1]), jnp.array([-0.3, 0.5]))


def exactly(marginal):
    """Chains that start at exact samples: with invariant kernels they stay exact, whatever the number of steps."""
    return tw.samplers.from_noise(lambda key, shape: marginal(key, shape[:1]))


@eqx.filter_jit
def mean_and_error(objective, energy, batch, keys):
    def one(key):
        return eqx.filter_grad(lambda e: objective.loss(key, e, None, None, batch)[0])(energy)

    leaves = jax.tree.leaves(jax.vmap(one)(keys))
    return [(jnp.mean(leaf, axis=0), jnp.std(leaf, axis=0) / len(keys) ** 0.5) for leaf in leaves]


def assert_unbiased(told, right, seen):
    """Within 5.5 standard errors, a false alarm in 1e-6 of all seeds; a bias of ``seen`` would have shown."""
    for (mean, error), leaf in zip(told, jax.tree.leaves(right), strict=True):
        assert np.all(np.abs(np.asarray(mean) - np.asarray(leaf)) < 5.5 * np.asarray(error) + 1e-6)
        assert np.max(5.5 * np.asarray(error)) < seen


def sample_factors(key, shape):
    noise = jax.random.normal(key, (*shape, 5))
    return noise[..., :2] @ FACTORS.loadings.T + FACTORS.bias + jnp.exp(FACTORS.log_scale) * noise[..., 2:]


def mean_factors(key, energy, x):
    return jnp.linalg.solve(
        posterior_precision(energy), energy.loadings.T @ (x - energy.bias) * jnp.exp(-2 * energy.log_scale)
    )


@pytest.mark.slow
@pytest.mark.parametrize(("posterior", "right"), [(draw_factors, True), (mean_factors, False)])
def test_draws_of_the_posterior_pass_the_check_and_its_mean_fails(posterior, right, key):
    kernel, start = tw.samplers.MALA(0.3), tw.samplers.from_data()
    objective = LatentLikelihood(tw.Real(2), kernel, 2, start, posterior=posterior)
    verdict = tw.check_objective(objective, key=key, energy=FACTORS, exact=sample_factors, batch_size=500, batches=200)
    assert verdict.passed is right, verdict.text


@pytest.mark.slow
def test_with_a_closed_form_the_gradient_is_that_of_the_marginal_gaussian(key):
    batch = 1.5 * np.random.default_rng(3).normal(size=(50, 3)).astype(np.float32)
    kernel, start = tw.samplers.RandomWalk(0.5), exactly(sample_factors)
    objective = LatentLikelihood(tw.Real(2), kernel, 3, start, posterior=draw_factors)
    assert objective.init(key, FACTORS, jnp.asarray(batch)) == (None, None)
    told = mean_and_error(objective, FACTORS, batch, jax.random.split(key, 300))
    # -log N(x; b, C) with C = WWᵀ + s²: its derivative in C is ½(C⁻¹ - C⁻¹SC⁻¹), S the mean of (x - b)(x - b)ᵀ
    loadings, bias, scale = (np.asarray(leaf, float) for leaf in jax.tree.leaves(FACTORS))
    precision = np.linalg.inv(loadings @ loadings.T + np.exp(2 * scale) * np.eye(3))
    centred = batch - bias
    slope = 0.5 * (precision - precision @ (centred.T @ centred / 50) @ precision)
    right = (2 * slope @ loadings, -precision @ centred.mean(axis=0), 2 * np.exp(2 * scale) * np.trace(slope))
    assert max(np.max(np.abs(leaf)) for leaf in right) > 0.5
    assert_unbiased(told, right, 0.2)


@pytest.mark.slow
def test_with_chains_the_gradient_of_bits_is_that_of_the_enumerated_marginal(key):
    batch = jnp.array([[1, 1, 0], [0, 1, 1], [1, 1, 1], [0, 0, 1], [1, 1, 0], [0, 1, 0]] * 3000, jnp.int32)
    states = MIXED.space.states(0, 8)
    law = jnp.log(tw.exact.probabilities(Marginal(MIXED)))
    start = exactly(lambda key, shape: states[jax.random.categorical(key, law, shape=shape)])
    # twenty single flips of two bits forget the noise they started from
    objective = LatentLikelihood(tw.Binary(2), steps=2, start=start, latent_steps=20)
    assert objective.init(key, MIXED, batch) == (None, None)
    gradient = eqx.filter_jit(eqx.filter_grad(lambda e, objective: objective.loss(key, e, None, None, batch)[0]))
    ours = gradient(MIXED, objective)

    def exact(energy):
        return ExactLikelihood().loss(key, Marginal(energy), None, None, batch)[0]

    right = eqx.filter_jit(eqx.filter_grad(exact))(MIXED)
    # derivatives are 0 or -1, so the difference of two means of n has an error below 1/√(2n); 5.5 of them
    limit = 5.5 / (2 * len(batch)) ** 0.5
    assert max(np.max(np.abs(leaf)) for leaf in jax.tree.leaves(right)) > 5 * limit
    for left, leaf in zip(jax.tree.leaves(ours), jax.tree.leaves(right), strict=True):
        assert np.max(np.abs(left - leaf)) < limit


@pytest.mark.slow
def test_real_points_with_discrete_latents_and_persistent_chains(key):
    """A mixture of two Gaussians with unequal weights, z being the bit that chooses."""

    class Mixture(Energy):
        gap: jax.Array
        space: tw.Real = eqx.field(static=True, default=tw.Real(1))

        def __call__(self, x, z):
            return 0.5 * jnp.sum((x - self.gap * z) ** 2) - 0.5 * jnp.sum(z)

    objective = LatentLikelihood(tw.Spin(1), tw.samplers.RandomWalk(0.5), 2, tw.samplers.persistent(), latent_steps=5)
    energy, batch = Mixture(jnp.asarray(1.0)), jnp.linspace(-2.0, 2.0, 40)[:, None]
    _, memory = objective.init(key, energy, batch)
    assert memory.state.points.x.shape == memory.state.latents.x.shape == batch.shape
    loss, step = eqx.filter_jit(objective.loss)(key, energy, None, memory, batch)
    assert np.any(step.state.state.points.x != memory.state.points.x)
    assert {"acceptance", "latent_acceptance", "energy_gap"} <= set(step.metrics)
    assert all(np.ndim(value) == 0 for value in step.metrics.values())
    assert loss == step.metrics["energy_gap"]
    assert np.allclose(loss, step.metrics["energy_data"] - step.metrics["energy_samples"], atol=1e-6)


def test_bad_inputs_get_one_sentence(key):
    rows = jnp.zeros((4, 3))
    with pytest.raises(ValueError, match="expected steps to be a whole number >= 1, got 0"):
        LatentLikelihood(tw.Real(2), steps=0)
    with pytest.raises(ValueError, match="a posterior or a latent_kernel, got both"):
        LatentLikelihood(tw.Real(2), posterior=draw_factors, latent_kernel=tw.samplers.MALA(0.1))
    with pytest.raises(ValueError, match=r"points of shapes \(3,\) and \(2,\), got shape \(3,\)"):
        LatentLikelihood(tw.Real(2)).init(key, lambda x, z: x * jnp.sum(z), rows)
    with pytest.raises(ValueError, match=r"returns z of shape and type \(\(2,\), 'float32'\), got \(\(3,\),"):
        LatentLikelihood(tw.Real(2), posterior=lambda key, energy, x: x).init(key, FACTORS, rows)
    with pytest.raises(ValueError, match="expected a latent_kernel for Counts"):
        LatentLikelihood(tw.Counts(2)).init(key, lambda x, z: jnp.sum(x) + jnp.sum(z), rows)


class Loading(HasPosterior):
    """``x = wz + N(0, 1)``, ``z ~ N(0, 1)``: its posterior is known, and it has a field of its own."""

    w: jax.Array
    name: str = eqx.field(static=True, default="mine")
    space: tw.Real = eqx.field(static=True, default=tw.Real(1))
    latent_space: tw.Real = eqx.field(static=True, default=tw.Real(1))

    def __call__(self, x, z):
        return 0.5 * jnp.sum((x - self.w * z) ** 2) + 0.5 * jnp.sum(z**2)

    def posterior(self, x):
        precision = 1 + self.w**2
        return tw.energies.Gaussian(self.w * x / precision, jnp.eye(1) / precision)


WIDE = jnp.sqrt(5.0) * jax.random.normal(jax.random.key(9), (1000, 1))


@pytest.mark.parametrize("moved", [False, True])
def test_a_latent_energy_says_its_space_and_posterior(key, moved, descend):
    """w = ±√(var x - 1) by its own posterior, and by chains in z that go on with those in x."""
    latent = {"latent_kernel": tw.samplers.MALA(0.5)} if moved else {}
    objective = LatentLikelihood(
        kernel=tw.samplers.MALA(1.0), steps=4, start=tw.samplers.persistent(), latent_steps=10, **latent
    )
    run = descend(objective, Loading(jnp.asarray(1.0)), WIDE, key, steps=120)
    assert float(run.w) == pytest.approx(float(jnp.sqrt(jnp.var(WIDE) - 1)), abs=0.25)
    memory = objective.init(key, run, WIDE)[1]
    assert memory.state.latents.x.shape == (1000, 1)


def test_a_posterior_sees_the_users_own_type(key):
    seen = []

    def posterior(key, energy, x):
        seen.append((type(energy), energy.name))
        return energy.posterior(x).sample(key)

    objective = LatentLikelihood(posterior=posterior, start=tw.samplers.from_data())
    energy = Loading(jnp.asarray(1.0))
    _, state = objective.init(key, energy, WIDE[:20])
    objective.loss(key, energy, None, state, WIDE[:20])
    assert set(seen) == {(Loading, "mine")}


def test_chains_of_x_and_z_continue(key):
    """With kernels that count calls of `init`: an update with a persistent start makes none."""
    begun = []

    class Counted(tw.samplers.MALA):
        def init(self, key, energy, x):
            begun.append(1)
            return super().init(key, energy, x)

    kernel = Counted(0.3)
    objective = LatentLikelihood(kernel=kernel, start=tw.samplers.persistent(), latent_kernel=kernel, latent_steps=2)
    energy = Loading(jnp.asarray(1.0))
    _, state = objective.init(key, energy, WIDE[:20])
    begun.clear()
    objective.loss(key, energy, None, state, WIDE[:20])
    assert len(begun) == 1  # the z of the data


def test_a_model_that_is_not_a_latent_energy_is_refused(key):
    with pytest.raises(ValueError, match="expected a LatentEnergy, or the space of z, got"):
        LatentLikelihood().init(key, lambda x, z: jnp.sum(x) + jnp.sum(z), WIDE)
    with pytest.raises(ValueError, match="expected one space of z"):
        LatentLikelihood(tw.Real(2)).init(key, Loading(jnp.asarray(1.0)), WIDE)
