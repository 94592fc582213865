"""Noise that learns: its densities, its turns, and that at fixed noise it is noise-contrastive estimation."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.noise import NeuralSampler
from thalweg.objectives import NCE, AdversarialNCE, FlowNCE

MODEL = tw.energies.Gaussian(jnp.array([0.5, -1.0]), jnp.array([[1.0, 0.4], [0.4, 0.7]]))
BATCH = 0.3 + jax.random.normal(jax.random.key(5), (64, 2))
SPINS = tw.energies.Ising(jnp.array([[0.0, 0.6, -0.4], [0.6, 0.0, 0.5], [-0.4, 0.5, 0.0]]), jnp.array([0.3, -0.2, 0.1]))
LINE = tw.energies.Gaussian(jnp.array([1.0]), jnp.array([[0.5]]))


@functools.cache
def flow():
    return tw.noise.flow(2, key=jax.random.key(1), layers=1, width=8, knots=4)


@eqx.filter_jit
def evaluate(objective, energy, params, state, batch, key):
    @eqx.filter_value_and_grad(has_aux=True)
    def loss(pair):
        return objective.loss(key, pair[0], pair[1], state, batch)

    return loss((energy, params))


def trainable_leaves(noise):
    return jax.tree.leaves(tw.core.partition_trainable(noise)[0])


def largest_change(before, after):
    return max(
        float(jnp.max(jnp.abs(a - b))) for a, b in zip(trainable_leaves(before), trainable_leaves(after), strict=True)
    )


def test_with_a_flow_that_stays_it_is_nce_with_that_flow(key):
    objective = FlowNCE(flow(), learning_rate=0.0, nu=0.5)
    params, state = objective.init(key, MODEL, BATCH)
    (value, step), gradient = evaluate(objective, MODEL, params, state, BATCH, key)
    # the model's noise is drawn with the second half of the key
    nce = NCE(flow(), nu=0.5)
    held = nce.init(key, MODEL, BATCH)[1]
    (right, _), slope = evaluate(nce, MODEL, params, held, BATCH, jax.random.split(key)[1])
    assert float(value) == pytest.approx(float(right), rel=1e-5)
    for one, other in zip(jax.tree.leaves(gradient), jax.tree.leaves(slope), strict=True):
        assert np.allclose(one, other, rtol=1e-4, atol=1e-5)
    assert largest_change(state.noise, step.state.noise) == 0
    assert float(step.metrics["log_likelihood_flow"]) == pytest.approx(
        float(jnp.mean(jax.vmap(flow().log_prob)(BATCH)))
    )


@pytest.mark.slow
def test_a_warm_flow_goes_up_its_likelihood_and_then_up_the_models_loss(key):
    held_out = BATCH[:10] + 0.1
    found = {}
    for name, warm in {"likelihood": 1, "confusion": 0}.items():
        objective = FlowNCE(flow(), learning_rate=1e-3, warm_start=warm, held_out=held_out)
        params, state = objective.init(key, MODEL, BATCH)
        (_, step), _ = evaluate(objective, MODEL, params, state, BATCH, key)
        found[name] = step.state.noise
        assert step.state.updates == 1
        told = step.metrics["log_likelihood_model"]
        assert float(told) == pytest.approx(float(jnp.mean(-jax.vmap(MODEL)(held_out)) - params.log_z), rel=1e-5)
    likelihood = lambda noise: float(jnp.mean(jax.vmap(noise.log_prob)(BATCH)))
    assert likelihood(found["likelihood"]) > likelihood(flow())

    # the noise's step is made with the first half of the key
    key_noise = jax.random.split(key)[0]
    loss = lambda noise: float(
        objective.gain(key_noise, noise, MODEL, params.log_z, BATCH, jnp.asarray(5))  # past the warm start
    )
    assert loss(found["confusion"]) > loss(flow())
    assert 0 < largest_change(flow(), found["confusion"]) < 2e-3


def test_the_density_of_a_sampler_is_between_its_two_estimates(key):
    data = LINE.sample(jax.random.key(3), (500,))
    sampler = NeuralSampler(data, key=key, latent=1, width=8)
    # the truth: z integrated on a fine grid
    z = jnp.linspace(-8, 8, 801)[:, None]
    weights = jax.nn.log_softmax(-0.5 * z[:, 0] ** 2)
    own = sampler.draw_with_latents(jax.random.key(4), 400)
    law = sampler._law(z)
    right = jax.nn.logsumexp(jax.vmap(lambda row: sampler._log_given(row, law))(own.x) + weights, axis=1)
    grid = jnp.linspace(-40, 42, 8201)[:, None]
    total = (
        jnp.sum(jnp.exp(jax.nn.logsumexp(jax.vmap(lambda row: sampler._log_given(row, law))(grid) + weights, axis=1)))
        * 0.01
    )
    assert float(total) == pytest.approx(1.0, abs=1e-3)
    few = jax.vmap(lambda key: sampler.log_probs(own.x, sampler.latents(key, 4)))(jax.random.split(key, 20))
    many = sampler.log_probs(own.x, sampler.latents(key, 10_000))
    above = jax.vmap(lambda key: sampler.own_log_probs(own, sampler.latents(key, 4)))(jax.random.split(key, 20))
    assert float(jnp.mean(few)) < float(jnp.mean(right)) < float(jnp.mean(above))
    # in the tails few values of z count
    assert np.quantile(np.abs(many - right), 0.95) < 0.05


def test_a_discrete_samplers_probabilities_sum_to_one(key):
    states = SPINS.space.states(0, 8)
    sampler = NeuralSampler(states, SPINS.space, key=key, latent=2, width=8)
    z = sampler.latents(key, 50)
    assert float(jnp.sum(jnp.exp(sampler.log_probs(states, z)))) == pytest.approx(1.0, rel=1e-5)
    # what it draws has those frequencies
    drawn = sampler.sample(jax.random.key(7), (20_000,))
    shares = jnp.bincount(jax.vmap(SPINS.space.index)(drawn), length=8) / 20_000
    right = jnp.exp(sampler.log_probs(states, sampler.latents(key, 20_000)))
    assert np.allclose(shares, right, atol=0.02)


@pytest.mark.slow
@pytest.mark.parametrize("finite", [False, True], ids=["line", "spins"])
def test_the_samplers_gradient_is_that_of_the_exact_gain(finite, key):
    """With one law for all z the sampler's density is known, and so is what it brings."""
    energy = SPINS if finite else LINE
    data = exact_samples(energy, jax.random.key(3), 500)
    objective = AdversarialNCE(entropy=0.3, share=0.4, many=2, latent=1, width=4)
    params, state = objective.init(key, energy, data)
    noise = without_latents(state.noise)
    trained, rest = tw.core.partition_trainable(noise)

    def estimate(trained, key):
        whole = tw.core.combine(trained, rest)
        return objective.gain(key, whole, energy, params.log_z, data, jnp.asarray(0))

    keys = jax.random.split(jax.random.key(11), 2000)
    gradients = jax.vmap(eqx.filter_grad(estimate), (None, 0))(trained, keys)
    right = eqx.filter_grad(
        lambda trained: exact_gain(objective, tw.core.combine(trained, rest), energy, params, data)
    )(trained)
    looked = 0
    for one, other in zip(jax.tree.leaves(gradients), jax.tree.leaves(right), strict=True):
        error = jnp.std(one, axis=0) / np.sqrt(len(keys))
        assert np.all(np.abs(jnp.mean(one, axis=0) - other) <= 5 * error + 1e-5)
        looked += int(np.sum(np.abs(other) > 10 * error + 1e-5))
    assert looked > 0


def exact_samples(energy, key, count):
    if isinstance(energy, tw.energies.Gaussian):
        return energy.sample(key, (count,))
    return tw.exact.sample(energy, (count,), key=key)


def without_latents(noise):
    """The sampler with a first layer that ignores z."""
    first = noise.sampler.layers[0].weight
    return eqx.tree_at(lambda n: n.sampler.layers[0].weight, noise, jax.tree.map(jnp.zeros_like, first))


def exact_gain(objective, noise, energy, params, data):
    z = jnp.zeros((1, 1))
    if noise.sampler.levels is None:
        points = jnp.linspace(-8, 10, 3001)[:, None]
        volume = 18 / 3000
    else:
        points, volume = energy.space.states(0, energy.space.size), 1.0
    log_own = noise.sampler.log_probs(points, z)
    both = lambda x, log_own: objective._mixture_log_probs(noise, x, log_own)
    g = lambda x, log_own: -jax.vmap(energy)(x) - params.log_z - both(x, log_own)
    ratios = g(points, log_own)
    density = jnp.exp(both(points, log_own))
    at_data = jnp.mean(jax.nn.softplus(-g(data, noise.sampler.log_probs(data, z))))
    at_noise = volume * jnp.sum(density * jax.nn.softplus(ratios))
    log_base = jax.vmap(noise.base.log_prob)(points)
    own, base = (-volume * jnp.sum(jnp.exp(logs) * logs) for logs in (log_own, log_base))
    return at_data + at_noise - objective.entropy * jnp.maximum(0.0, base - own)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["flow", "adversary", "spins"])
def test_at_fixed_noise_the_truth_is_where_the_gradient_vanishes(name, key):
    energy = SPINS if name == "spins" else None
    noise = tw.noise.flow(3, key=key, layers=1, width=8, knots=4)
    # one law for all z: only then is the density of a sampler known
    objective = FlowNCE(noise, learning_rate=0.0) if name == "flow" else Blind(learning_rate=0.0, many=2)
    verdict = tw.check_objective(objective, key=key, energy=energy, batch_size=200, batches=200)
    assert verdict.passed, verdict


class Blind(AdversarialNCE):
    def first(self, key, energy, batch):
        return without_latents(super().first(key, energy, batch))


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: FlowNCE(learning_rate=-1.0), "learning_rate >= 0"),
        (lambda: FlowNCE(nu=0.0), "nu > 0"),
        (lambda: AdversarialNCE(share=1.0), "share strictly between"),
        (lambda: AdversarialNCE(entropy=-1.0), "entropy >= 0"),
        (lambda: AdversarialNCE(many=0), "expected many to be a whole number >= 1, got 0"),
        (
            lambda: AdversarialNCE(latent=0).init(jax.random.key(0), MODEL, BATCH),
            "expected latent to be a whole number >= 1, got 0",
        ),
        (lambda: FlowNCE(flow()).init(jax.random.key(0), LINE, BATCH[:, :1]), r"\(1,\)"),
        (lambda: FlowNCE().init(jax.random.key(0), SPINS, jnp.ones((4, 3), int)), "real points"),
        (lambda: FlowNCE(flow(), held_out=jnp.ones((4, 3))).init(jax.random.key(0), MODEL, BATCH), "held_out rows"),
    ],
)
def test_bad_input_gets_one_sentence(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


@pytest.mark.slow
def test_an_adversary_learns_the_density_and_reports_on_its_sampler(key):
    data = MODEL.sample(key, (5000,))
    start = tw.energies.Gaussian(jnp.zeros(2), 2.0 * jnp.eye(2))
    objective = AdversarialNCE(learning_rate=2e-3)
    run = tw.fit(start, data, objective, optimizer=optax.adam(0.02), steps=800, batch_size=250, key=key)
    assert float(tw.exact.kl(MODEL, run.energy)) < 0.05
    assert np.allclose(run.energy.mean, MODEL.mean, atol=0.15)
    made = run.state.noise.sampler.sample(jax.random.key(9), (4000,))
    assert np.allclose(jnp.mean(made, axis=0), MODEL.mean, atol=0.3)
    assert np.all(np.isfinite(run.history["log_prob_bias"]))
    assert run.history["log_prob_bias"][-100:].mean() >= 0
