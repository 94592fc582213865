import jax
import jax.numpy as jnp
import pytest

import thalweg as tw

TARGET = tw.energies.GaussianMixture(jnp.array([0.7, 0.3]), jnp.array([[0.0], [3.0]]), jnp.array([1.0, 0.3]))
GAMMA = tw.as_energy(lambda x: jnp.sum(x - 2 * jnp.log(x)), tw.Positive(1))  # Gamma(3, 1)


def exact_gamma(key, shape):
    return jax.random.gamma(key, 3.0, (*shape, 1))


class Scale(tw.samplers.Proposal):
    """Multiply by a log-normal factor: ``q(x|x')/q(x'|x) = x'/x``."""

    correction: float = 1.0

    def propose(self, key, x):
        return x * jnp.exp(0.6 * jax.random.normal(key, x.shape))

    def log_ratio(self, x, proposed):
        return self.correction * jnp.sum(jnp.log(proposed) - jnp.log(x))


@pytest.mark.slow
def test_an_uneven_proposal_is_right_with_its_correction_and_wrong_without(key):
    right = tw.samplers.MetropolisHastings(Scale())
    verdict = tw.check_sampler(right, GAMMA, key=key, exact=exact_gamma, chains=20_000)
    assert verdict.passed, verdict
    wrong = tw.samplers.MetropolisHastings(Scale(0.0))
    assert not tw.check_sampler(wrong, GAMMA, key=key, exact=exact_gamma, chains=20_000).passed


def test_independence_is_right(key):
    kernel = tw.samplers.Independence(tw.energies.Gaussian(jnp.ones(1), 9.0))
    verdict = tw.check_sampler(kernel, TARGET, key=key, chains=20_000)
    assert verdict.passed, verdict


def test_what_is_no_density_is_refused():
    with pytest.raises(ValueError, match=r"expected a density, got .* without sample"):
        tw.samplers.Independence(lambda x: x)
