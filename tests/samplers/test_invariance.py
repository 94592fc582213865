"""Every exactly invariant kernel on R^d leaves four targets as they are; finite spaces are in `test_discrete.py`."""

import math

import jax
import jax.numpy as jnp
import pytest

import thalweg as tw

MEANS = jnp.array([[0.0, 0.0], [2.0, 1.0]])
COVARIANCES = jnp.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0.0], [0.0, 1.5]]])
WEIGHTS = jnp.array([0.7, 0.3])
MEAN, COVARIANCE = jnp.array([1.0, -2.0]), jnp.array([[2.0, 1.2], [1.2, 1.0]])
TARGETS = {
    "correlated": tw.energies.Gaussian(MEAN, COVARIANCE),
    "skewed": tw.energies.GaussianMixture(WEIGHTS, MEANS, COVARIANCES),
    "multimodal": tw.energies.DoubleWell(1.0),
    "curved": tw.energies.Banana(),
}


class OneOf(tw.core.Energy):
    """One of the four targets; which of them is an array, so a kernel is compiled once for all."""

    which: jax.Array
    space = tw.Real(2)

    def __init__(self, name):
        self.which = jnp.array(list(TARGETS).index(name))

    def __call__(self, x):
        return jax.lax.switch(self.which, [lambda x, target=target: target(x) for target in TARGETS.values()], x)


def correlated(temperature):
    return tw.energies.Gaussian(MEAN, temperature * COVARIANCE).sample


def skewed(temperature):
    """By rejection: ``(Σ w_k N_k)^β ≤ Σ (w_k N_k)^β`` for β ≤ 1, and the right side is a mixture again."""
    beta = 1 / temperature
    log_norms = -0.5 * jnp.linalg.slogdet(2 * math.pi * COVARIANCES)[1]
    wider = -0.5 * jnp.linalg.slogdet(2 * math.pi * temperature * COVARIANCES)[1]
    log_weights = beta * (jnp.log(WEIGHTS) + log_norms) - wider
    bound = jax.nn.logsumexp(log_weights)
    above = tw.energies.GaussianMixture(jnp.exp(log_weights - bound), MEANS, temperature * COVARIANCES)
    colder = tw.tempered(TARGETS["skewed"], temperature)
    # a hair above, for the rounding of both sides where they are equal
    return lambda key, shape: tw.samplers.rejection(colder, above, bound + 1e-4, shape, key=key)


def multimodal(temperature):
    return tw.energies.DoubleWell(1.0 / temperature).sample


def curved(temperature):
    def sample(key, shape):
        noise = math.sqrt(temperature) * jax.random.normal(key, (*shape, 2))
        first = 2.0 * noise[..., 0]
        return jnp.stack([first, 0.5 * (first**2 - 4.0) + noise[..., 1]], axis=-1)

    return sample


# exact samples of exp(-E/T), for the rungs of tempered chains
AT = {"correlated": correlated, "skewed": skewed, "multimodal": multimodal, "curved": curved}
LADDER = (1.0, 2.0, 5.0)


class Uneven(tw.samplers.Proposal):
    """Steps that are longer the farther out one is: ``x' ~ N(x, s(x)²)``, which is not symmetric."""

    def width(self, x):
        return 0.5 + 0.2 * jnp.sqrt(jnp.sum(x**2))

    def propose(self, key, x):
        return x + self.width(x) * jax.random.normal(key, x.shape)

    def log_ratio(self, x, proposed):
        square, here, there = jnp.sum((x - proposed) ** 2), self.width(x), self.width(proposed)
        return 0.5 * square * (1 / here**2 - 1 / there**2) + x.size * jnp.log(here / there)


KERNELS = {
    "RandomWalk": tw.samplers.RandomWalk(0.8),
    "RandomWalk, a width each": tw.samplers.RandomWalk(jnp.array([0.5, 1.5])),
    "Independence": tw.samplers.Independence(tw.energies.Gaussian(jnp.array([0.5, 0.0]), jnp.array([6.0, 9.0]))),
    "MetropolisHastings": tw.samplers.MetropolisHastings(Uneven()),
    "MALA": tw.samplers.MALA(0.4),
    "HMC, scalar mass": tw.samplers.HMC(0.4, steps=5, mass_matrix=2.0),
    "HMC, diagonal mass": tw.samplers.HMC(0.3, steps=5, mass_matrix=jnp.array([0.5, 2.0])),
    "HMC, dense mass": tw.samplers.HMC(0.3, steps=5, mass_matrix=jnp.array([[2.0, 0.5], [0.5, 1.0]])),
    "NUTS": tw.samplers.NUTS(0.5, max_doublings=4),
    "NUTS, dense mass": tw.samplers.NUTS(0.5, mass_matrix=jnp.array([[2.0, 0.5], [0.5, 1.0]]), max_doublings=4),
    "ParallelTempering over MALA": tw.samplers.ParallelTempering(tw.samplers.MALA(0.4), LADDER),
    "ParallelTempering over RandomWalk": tw.samplers.ParallelTempering(tw.samplers.RandomWalk(0.8), LADDER),
}


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("kernel", KERNELS)
def test_exact_kernels_leave_the_target_as_it_is(key, kernel, target):
    tempered = isinstance(KERNELS[kernel], tw.samplers.ParallelTempering)
    exact = [AT[target](temperature) for temperature in LADDER] if tempered else TARGETS[target].sample
    verdict = tw.check_sampler(KERNELS[kernel], OneOf(target), key=key, exact=exact, chains=20_000, steps=10)
    assert verdict.passed, verdict
    assert verdict.detectable < 0.1


@pytest.mark.parametrize("target", TARGETS)
def test_the_laws_of_the_rungs_are_those_of_quadrature(key, target):
    """The exact samples that tempered chains start from: their energies have the mean they should."""
    hot = tw.tempered(TARGETS[target], LADDER[-1])
    points = AT[target](LADDER[-1])(key, (20_000,))
    energies = jax.jit(lambda points: jax.vmap(TARGETS[target])(points))(points)
    expected = float(tw.exact.expectation(hot, TARGETS[target]))
    error = float(jnp.std(energies)) / math.sqrt(len(energies))
    assert abs(float(jnp.mean(energies)) - expected) < 5 * error


@pytest.mark.parametrize("scan", ["systematic", "random"])
def test_gibbs_leaves_a_gaussian_field_as_it_is(key, scan):
    """A 3×3 torus needs three colours; a chain of four sites two, each drawn as one block."""
    field = tw.energies.GaussianField(tw.energies.Graph([(0, 1), (1, 2), (2, 3)], 0.3), 1.0, [0.5, 0.0, -1.0, 2.0])
    assert len(field.blocks) == 2
    verdict = tw.check_sampler(tw.samplers.Gibbs(scan), field, key=key, chains=20_000, steps=5)
    assert verdict.passed, verdict
