import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thalweg as tw


def test_inversion_draws_from_the_law_of_the_quantile_function(key):
    x = np.asarray(tw.samplers.inversion(key, lambda u: jnp.log(u / (1 - u)), (20_000,)))
    assert stats.kstest(x, "logistic").pvalue > 1e-6
    assert np.all(np.isfinite(x))


def test_rejection_draws_from_the_target(key):
    target = tw.energies.two_bumps()
    x = np.asarray(
        tw.samplers.rejection(key, target, tw.energies.Gaussian(jnp.zeros(1), 16.0), jnp.log(40.0), (20_000,))
    )
    law = lambda v: 0.6 * stats.norm.cdf(v, -2, 1) + 0.4 * stats.norm.cdf(v, 4, 2)
    assert stats.kstest(x[:, 0], law).pvalue > 1e-6


@pytest.mark.slow
def test_a_bound_that_is_none_is_refused(key):
    wide = tw.energies.Gaussian(jnp.zeros(1), 16.0)
    with pytest.raises(ValueError, match="above the bound in log; raise log_bound"):
        tw.samplers.rejection(key, tw.energies.two_bumps(), wide, jnp.log(10.0), (1000,))
