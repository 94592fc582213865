import jax.numpy as jnp
import numpy as np
import pytest
from scipy import stats

import thalweg as tw


def test_inversion_draws_from_the_law_of_the_quantile_function(key):
    x = np.asarray(tw.samplers.inversion(lambda u: jnp.log(u / (1 - u)), (20_000,), key=key))
    assert stats.kstest(x, "logistic").pvalue > 1e-6
    assert np.all(np.isfinite(x))


def test_rejection_draws_from_the_target(key):
    target = tw.energies.two_bumps()
    x = np.asarray(
        tw.samplers.rejection(target, tw.energies.Gaussian(jnp.zeros(1), 16.0), jnp.log(40.0), (20_000,), key=key)
    )
    law = lambda v: 0.6 * stats.norm.cdf(v, -2, 1) + 0.4 * stats.norm.cdf(v, 4, 2)
    assert stats.kstest(x[:, 0], law).pvalue > 1e-6


@pytest.mark.slow
def test_a_bound_that_is_none_is_refused(key):
    wide = tw.energies.Gaussian(jnp.zeros(1), 16.0)
    with pytest.raises(ValueError, match="above the bound in log; raise log_bound"):
        tw.samplers.rejection(tw.energies.two_bumps(), wide, jnp.log(10.0), (1000,), key=key)


def test_the_old_order_of_arguments_warns_and_gives_the_same(key):
    target, wide = tw.energies.two_bumps(), tw.energies.Gaussian(jnp.zeros(1), 16.0)
    with pytest.warns(DeprecationWarning, match="is now rejection"):
        old = tw.samplers.rejection(key, target, wide, jnp.log(40.0), (5,))
    np.testing.assert_array_equal(old, tw.samplers.rejection(target, wide, jnp.log(40.0), (5,), key=key))
    with pytest.warns(DeprecationWarning, match="is now inversion"):
        old = tw.samplers.inversion(key, jnp.sqrt, (5,))
    np.testing.assert_array_equal(old, tw.samplers.inversion(jnp.sqrt, (5,), key=key))


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (lambda key, q: tw.samplers.rejection(lambda x: jnp.nan * x[0], q, 1.0, (3,), key=key), "got NaN"),
        (lambda key, q: tw.samplers.rejection(q, tw.energies.Gaussian, 1.0, key=key), "got the class Gaussian"),
        (lambda key, q: tw.samplers.rejection(q, q, jnp.nan, key=key), "expected log_bound to be finite"),
        (lambda key, q: tw.samplers.rejection(q, q, 5.0, key=0), "expected a random key, got 0"),
        (lambda key, q: tw.samplers.inversion(3.0, key=key), "expected a quantile function"),
    ],
)
def test_bad_input_gets_one_sentence(key, call, sentence):
    with pytest.raises(ValueError, match=sentence):
        call(key, tw.energies.Gaussian(jnp.zeros(1), 1.0))
