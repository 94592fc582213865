import equinox as eqx
import jax
import jax.numpy as jnp
import optax
import pytest

import thalweg as tw
from thalweg.core import Info, Kernel
from thalweg.samplers.states import Position


class ExactDraw(Kernel):
    """A kernel that draws from the energy exactly: what an infinitely long chain would give."""

    def init(self, key, energy, x):
        return Position(x)

    def step(self, key, energy, state):
        return Position(energy.sample(key, state.x.shape[:1])), Info()


TRUTH = tw.energies.Gaussian(jnp.array([1.0, -1.0]), jnp.array([[1.5, 0.4], [0.4, 0.8]]))


def gradient(objective, key, energy, batch):
    params, state = objective.init(key, energy, batch)
    return eqx.filter_grad(lambda e: objective.loss(key, e, params, state, batch)[0])(energy)


def test_the_gradient_is_that_of_the_two_means(key):
    """Against autodiff of the formula on the very samples the objective drew."""
    batch = TRUTH.sample(key, (50,))
    energy = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
    objective = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(0.1), steps=3, start=tw.samplers.from_data())
    kernel = objective.kernel
    key_start, key_chain, _ = jax.random.split(key, 3)
    negatives = tw.samplers.advance(energy, kernel, kernel.init(key_start, energy, batch), key=key_chain, steps=3)[0].x
    formula = eqx.filter_grad(
        lambda e: jnp.mean(jax.vmap(e)(batch)) - jnp.mean(jax.vmap(e)(jax.lax.stop_gradient(negatives)))
    )(energy)
    ours = gradient(objective, key, energy, batch)
    for left, right in zip(jax.tree.leaves(ours), jax.tree.leaves(formula), strict=True):
        assert jnp.allclose(left, right, rtol=1e-5, atol=1e-6)


def test_the_gradient_vanishes_at_the_truth_with_exact_samples(key):
    objective = tw.objectives.MaximumLikelihood(ExactDraw(), steps=1, start=tw.samplers.from_noise())

    def one(key):
        key_data, key_loss = jax.random.split(key)
        return gradient(objective, key_loss, TRUTH, TRUTH.sample(key_data, (100,)))

    gradients = jax.jit(jax.vmap(one))(jax.random.split(key, 400))
    for leaf in jax.tree.leaves(eqx.filter(gradients, eqx.is_array)):
        error = jnp.std(leaf, axis=0) / jnp.sqrt(leaf.shape[0])
        # 5.5 standard errors: a false alarm in 1e-6 of all seeds
        assert jnp.all(jnp.abs(jnp.mean(leaf, axis=0)) < 5.5 * error + 1e-6)
        assert jnp.max(error) < 0.05


@pytest.mark.parametrize("start", ["from_noise", "from_data", "persistent", "buffer"])
def test_every_start_learns_the_mean_of_a_gaussian(key, start):
    starts = {
        "from_noise": tw.samplers.from_noise(),
        "from_data": tw.samplers.from_data,
        "persistent": tw.samplers.persistent,
        "buffer": tw.samplers.ReplayBuffer(1000, 0.1),
    }
    data = TRUTH.sample(key, (2000,))
    energy = tw.energies.Gaussian(jnp.zeros(2), jnp.array([[1.5, 0.4], [0.4, 0.8]]))
    objective = tw.objectives.MaximumLikelihood(tw.samplers.HMC(0.3, steps=5), steps=10, start=starts[start])
    optimizer = optax.adam(optax.cosine_decay_schedule(0.05, 300))
    run = tw.fit(energy, data, objective, optimizer=optimizer, steps=300, batch_size=200, key=key)
    assert jnp.allclose(run.energy.mean, jnp.mean(data, axis=0), atol=0.2)


def test_the_penalty_is_the_mean_square_of_both_energies(key):
    batch = TRUTH.sample(key, (20,))
    plain = tw.objectives.MaximumLikelihood(ExactDraw(), steps=1, start=tw.samplers.from_noise())
    penalised = tw.objectives.MaximumLikelihood(ExactDraw(), 1, tw.samplers.from_noise(), energy_penalty=0.1)
    loss, _ = plain.loss(key, TRUTH, None, None, batch)
    more, _ = penalised.loss(key, TRUTH, None, None, batch)
    key_chain = jax.random.split(key, 3)[1]
    negatives = tw.samplers.advance(TRUTH, ExactDraw(), Position(batch), key=key_chain, steps=1)[0].x
    squares = jnp.mean(jax.vmap(TRUTH)(batch) ** 2) + jnp.mean(jax.vmap(TRUTH)(negatives) ** 2)
    assert jnp.allclose(more - loss, 0.1 * squares, rtol=1e-5)


def test_metrics_contain_the_gap_and_the_chain(key):
    batch = TRUTH.sample(key, (20,))
    objective = tw.objectives.MaximumLikelihood(tw.samplers.MALA(0.1), steps=4)
    params, state = objective.init(key, TRUTH, batch)
    loss, step = objective.loss(key, TRUTH, params, state, batch)
    assert set(step.metrics) == {
        "energy_gap", "energy_data", "energy_samples", "gradient_norm", "acceptance", "divergences",
    }  # fmt: skip
    assert loss == step.metrics["energy_gap"] == step.metrics["energy_data"] - step.metrics["energy_samples"]
    assert step.state.state.x.shape == (10_000, 2)
    assert int(step.state.used.sum()) == 20


def test_bad_settings_get_one_sentence():
    for steps in (0, True):
        with pytest.raises(ValueError, match="expected steps to be a whole number >= 1"):
            tw.objectives.MaximumLikelihood(steps=steps)
    with pytest.raises(ValueError, match="expected a kernel, got the class MALA"):
        tw.objectives.MaximumLikelihood(tw.samplers.MALA)
    with pytest.raises(ValueError, match="expected energy_penalty >= 0"):
        tw.objectives.MaximumLikelihood(energy_penalty=-1.0)
