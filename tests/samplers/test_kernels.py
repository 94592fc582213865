"""Every kernel against the laws it must obey."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.core import Info
from thalweg.samplers.metropolis import EnergyState, RandomWalk

CORRELATED = tw.energies.Gaussian(jnp.array([1.0, -2.0]), jnp.array([[2.0, 1.2], [1.2, 1.0]]))
SKEWED = tw.energies.GaussianMixture(
    jnp.array([0.7, 0.3]),
    jnp.array([[0.0, 0.0], [2.0, 1.0]]),
    jnp.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0], [0, 1.5]]]),
)
TARGETS = {
    "correlated": CORRELATED,
    "skewed": SKEWED,
    "multimodal": tw.energies.DoubleWell(1.0),
    "curved": tw.energies.Banana(),
}
EXACT_KERNELS = {
    "MALA": tw.samplers.MALA(0.4),
    "HMC": tw.samplers.HMC(0.3, steps=5),
    "HMC dense mass": tw.samplers.HMC(0.3, steps=5, mass_matrix=jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "NUTS": tw.samplers.NUTS(0.5, max_doublings=4),
    "RandomWalk": tw.samplers.RandomWalk(0.8),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", EXACT_KERNELS)
def test_exact_kernels_leave_the_target_as_it_is(key, kernel, target):
    verdict = tw.check_sampler(EXACT_KERNELS[kernel], TARGETS[target], key=key, chains=20_000, steps=10)
    assert verdict.passed, verdict
    assert verdict.detectable < 0.1


class NoAccept(RandomWalk):
    def step(self, key, energy, state):
        x = state.x + self.scale * jax.random.normal(key, state.x.shape)
        return EnergyState(x, jax.vmap(energy)(x)), Info()


class NoHastings(tw.samplers.MALA):
    """Accepts by energies alone, as if the Langevin proposal were symmetric."""

    def step(self, key, energy, state):
        key_move, key_accept = jax.random.split(key)
        x = state.x - self.step_size / 2 * state.gradient
        x = x + jnp.sqrt(self.step_size) * jax.random.normal(key_move, x.shape)
        new = self.init(energy, x)
        accept = jnp.log(jax.random.uniform(key_accept, state.energy.shape)) < state.energy - new.energy
        return jax.tree.map(lambda a, b: jnp.where(accept.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, state), Info()


class StaleGradient(tw.samplers.MALA):
    """Right but for the gradient it carries, which is that of the state before."""

    def step(self, key, energy, state):
        new, info = super().step(key, energy, state)
        return eqx.tree_at(lambda s: s.gradient, new, state.gradient), info


class NoisyBySquareRootTwo(tw.samplers.MALA):
    """Draws its noise too large, and accepts as if it had not."""

    def step(self, key, energy, state):
        kicked = eqx.tree_at(lambda s: s.x, state, state.x + 0.2 * jax.random.normal(key, state.x.shape))
        return super().step(key, energy, kicked)


@pytest.mark.parametrize(
    "kernel", [NoAccept(0.1), NoHastings(0.4), StaleGradient(0.4), NoisyBySquareRootTwo(0.4), tw.samplers.Langevin(0.2)]
)
def test_the_check_catches_wrong_kernels(key, kernel):
    verdict = tw.check_sampler(kernel, SKEWED, key=key, chains=20_000, steps=10)
    assert not verdict.passed, verdict


@pytest.mark.parametrize("step_size", [0.2, 1.0])
def test_langevin_has_its_own_stationary_variance(key, step_size):
    """On N(0, 1) the recursion x ← (1 - τ/2) x + √τ ε has variance 1 / (1 - τ/4)."""
    variance = 1 / (1 - step_size / 4)
    own = tw.energies.Gaussian(jnp.zeros(1), jnp.array([variance]))
    target = lambda x: 0.5 * jnp.sum(x**2)
    verdict = tw.check_sampler(tw.samplers.Langevin(step_size), target, key=key, exact=own.sample, chains=50_000)
    assert verdict.passed, verdict


def test_langevin_bias_has_slope_one():
    """E[x²] under the chain's own law, by the exact recursion of the variance, against 1: first order in τ."""
    steps = np.array([0.4, 0.2, 0.1, 0.05])
    bias = []
    for step_size in steps:
        kernel = tw.samplers.Langevin(step_size)
        shrink = kernel.step(
            jax.random.key(0), lambda x: 0.5 * jnp.sum(x**2), kernel.init(lambda x: 0.0, jnp.ones((1, 1)))
        )
        still = kernel.step(jax.random.key(0), lambda x: 0.0 * jnp.sum(x), kernel.init(lambda x: 0.0, jnp.ones((1, 1))))
        drift = float(still[0].x[0, 0] - shrink[0].x[0, 0])  # (τ/2)·∇E at x = 1
        bias.append(float(kernel.noise_scale) ** 2 / (1 - (1 - drift) ** 2) - 1)
    slope = np.polyfit(np.log(steps), np.log(bias), 1)[0]
    assert abs(slope - 1) < 0.1


def test_thesis_setting_is_a_gradient_coefficient_of_one_with_noise_of_its_own(key):
    kernel = tw.samplers.Langevin(step_size=2, noise_scale=0.005)
    energy = lambda x: 3.0 * jnp.sum(x)
    new, info = kernel.step(key, energy, kernel.init(energy, jnp.zeros((5000, 2))))
    assert abs(float(jnp.mean(new.x)) + 3.0) < 5 * 0.005 / 100
    assert abs(float(jnp.std(new.x)) / 0.005 - 1) < 0.05
    assert jnp.allclose(info.gradient_norm, 3 * jnp.sqrt(2.0))


def test_clipping_of_x_and_of_gradients(key):
    energy = lambda x: 100.0 * x[0] - 0.1 * x[1]
    kernel = tw.samplers.Langevin(1.0, noise_scale=0.0, clip_gradient=0.5)
    new, _ = kernel.step(key, energy, kernel.init(energy, jnp.zeros((1, 2))))
    assert jnp.allclose(new.x[0], jnp.array([-0.25, 0.05]))
    boxed = tw.samplers.Langevin(1.0, clip_x=(-1.0, 0.01))
    chains = tw.sample(energy, boxed, jnp.zeros((10, 2)), key=key, draws=20)
    assert jnp.all((chains.draws >= -1) & (chains.draws <= 0.01))


@pytest.mark.parametrize("kernel, expected", [(tw.samplers.Langevin(0.1), 30), (tw.samplers.MALA(0.1), 31)])
def test_one_gradient_evaluation_per_step(key, kernel, expected):
    """Counted as the program runs: 30 steps, and for MALA one more for the first state."""
    calls = []

    @jax.custom_jvp
    def energy(x):
        return 0.5 * jnp.sum(x**2)

    @energy.defjvp
    def _(primals, tangents):
        jax.debug.callback(lambda: calls.append(1))
        return energy(primals[0]), jnp.sum(primals[0] * tangents[0])

    state = jax.jit(lambda x: tw.samplers.advance(key, kernel, energy, kernel.init(energy, x), 30)[0])(jnp.ones((1, 2)))
    jax.block_until_ready(state)
    jax.effects_barrier()
    assert len(calls) == expected


def test_non_finite_proposals_are_rejected_and_counted(key):
    cliff = lambda x: jnp.where(x[0] > 0, x[0], jnp.nan)  # an exponential density with nothing below 0
    for kernel in (tw.samplers.RandomWalk(1.0), tw.samplers.MALA(1.0), tw.samplers.HMC(0.5, steps=4)):
        chains = tw.sample(cliff, kernel, jnp.ones((500, 1)), key=key, draws=200)
        assert jnp.all(chains.draws > 0)
        assert jnp.sum(chains.stats["divergences"]) > 0
    exact = lambda key, shape: jax.random.exponential(key, (*shape, 1))
    verdict = tw.check_sampler(tw.samplers.RandomWalk(1.0), cliff, key=key, exact=exact, chains=20_000)
    assert verdict.passed, verdict


def test_leapfrog_energy_error_has_slope_two(key):
    """The acceptance of HMC on a Gaussian falls as the energy error: 1 - a ∝ ε⁴ in the mean, so |ΔH| ∝ ε²."""
    target = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
    start = target.sample(key, (20_000,))
    sizes = np.array([0.4, 0.2, 0.1])
    rejected = []
    for size in sizes:
        kernel = tw.samplers.HMC(size, steps=round(1.2 / size))
        _, info = jax.jit(lambda x, kernel=kernel: kernel.step(key, target, kernel.init(target, x)))(start)
        rejected.append(1 - float(jnp.mean(info.acceptance)))
    # the mean of max(0, 1 - exp(-ΔH)) is of the first order in |ΔH|
    assert abs(np.polyfit(np.log(sizes), np.log(rejected), 1)[0] - 2) < 0.2


def test_per_chain_lifts_a_kernel_of_one_chain(key):
    class Single(eqx.Module):
        kernel: tw.samplers.NUTS

        def init(self, energy, x):
            return self.kernel.init_one(energy, x)

        def step(self, key, energy, state):
            return self.kernel.step_one(key, energy, state)

    init = jnp.zeros((3, 2))
    lifted = tw.sample(
        SKEWED, tw.samplers.per_chain(Single(tw.samplers.NUTS(0.3, max_doublings=3))), init, key=key, draws=5
    )
    ours = tw.sample(SKEWED, tw.samplers.NUTS(0.3, max_doublings=3), init, key=key, draws=5)
    assert jnp.array_equal(lifted.draws, ours.draws)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda: tw.samplers.Langevin(0.0), "expected step_size > 0, got 0.0"),
        (lambda: tw.samplers.Langevin(0.1, noise_scale=-1.0), "expected noise_scale >= 0"),
        (lambda: tw.samplers.Langevin(0.1, clip_x=(1.0, -1.0)), "expected clip_x"),
        (lambda: tw.samplers.MALA(-1.0), "expected step_size > 0"),
        (lambda: tw.samplers.HMC(0.1, steps=0), "expected steps to be a whole number >= 1"),
        (
            lambda: tw.samplers.HMC(0.1, mass_matrix=jnp.array([[1.0, 2.0], [2.0, 1.0]])),
            "positive-definite mass matrix",
        ),
        (lambda: tw.samplers.HMC(0.1, mass_matrix=jnp.zeros((2, 3))), "expected a mass matrix"),
        (lambda: tw.samplers.RandomWalk(-0.1), "expected scale > 0"),
    ],
)
def test_bad_settings_get_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.parametrize("kernel", [*EXACT_KERNELS.values(), tw.samplers.Langevin(0.1)])
def test_bad_pairings_are_refused_by_name(key, kernel):
    spins = tw.as_energy(lambda x: jnp.sum(x), tw.Spin(2))
    name = type(kernel).__name__
    with pytest.raises(ValueError, match=f"continuous space for {name}, got Spin"):
        tw.sample(spins, kernel, jnp.ones((2, 2), int), key=key, draws=1)
    with pytest.raises(ValueError, match=f"floating-point numbers for {name}"):
        tw.sample(lambda x: jnp.sum(x), kernel, jnp.ones((2, 2), int), key=key, draws=1)
    if kernel in EXACT_KERNELS.values():
        with pytest.raises(ValueError, match=f"{name}: expected an energy, got the score network"):
            tw.sample(tw.as_score(lambda x: -x), kernel, jnp.ones((2, 2)), key=key, draws=1)


def test_a_mass_matrix_of_the_wrong_size_is_refused(key):
    kernel = tw.samplers.HMC(0.1, mass_matrix=jnp.ones(3))
    with pytest.raises(ValueError, match="expected a mass matrix for 2 coordinates"):
        tw.sample(SKEWED, kernel, jnp.zeros((1, 2)), key=key, draws=1)
