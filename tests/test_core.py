import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from flowjax.distributions import Normal

import thalweg as tw
from thalweg.core import Estimate, Refreshable, positive, refresh


def quadratic(x):
    return 0.5 * jnp.sum(x**2)


def test_a_plain_function_is_an_energy_and_an_energy_passes_through():
    energy = tw.as_energy(quadratic, tw.Real(2))
    assert energy(jnp.array([3.0, 4.0])) == 12.5
    assert tw.as_energy(energy) is energy
    assert tw.as_energy(tw.as_energy(quadratic), tw.Real(2)).space == tw.Real(2)


def test_a_second_space_is_refused():
    with pytest.raises(ValueError, match=r"got Real\(shape=\(3,\)\) for an energy that lives on Real\(shape=\(2,\)\)"):
        tw.as_energy(tw.as_energy(quadratic, tw.Real(2)), tw.Real(3))


def test_a_model_that_is_not_an_energy_is_refused_by_name():
    with pytest.raises(ValueError, match="got the score network"):
        tw.as_energy(tw.as_score(lambda x: -x))
    with pytest.raises(ValueError, match="expected an energy, a callable"):
        tw.as_energy(3.0)


def test_the_arrays_of_a_module_stay_parameters():
    class Scaled(eqx.Module):
        scale: jax.Array

        def __call__(self, x):
            return self.scale * jnp.sum(x**2)

    energy = tw.as_energy(Scaled(jnp.array(2.0)))
    gradient = eqx.filter_grad(lambda e: e(jnp.ones(3)))(energy)
    assert [float(leaf) for leaf in jax.tree.leaves(eqx.filter(gradient, eqx.is_array))] == [3.0]


def test_score_is_minus_the_gradient_of_an_energy_and_a_network_itself():
    x = jnp.array([1.0, -2.0])
    assert jnp.array_equal(tw.score(quadratic, x), -x)
    assert jnp.array_equal(tw.score(tw.as_score(lambda x: 3 * x), x), 3 * x)


def test_given_fixes_the_condition_without_recompiling():
    conditional = lambda x, sigma: 0.5 * jnp.sum(x**2) / sigma**2
    traces = []

    @eqx.filter_jit
    def evaluate(energy, x):
        traces.append(1)
        return energy(x)

    for sigma, expected in ((1.0, 1.0), (0.5, 4.0), (2.0, 0.25)):
        assert evaluate(tw.given(conditional, sigma), jnp.ones(2)) == expected
    assert len(traces) == 1
    noisy = tw.given(tw.as_score(lambda x, sigma: -x / sigma**2), 0.5)
    assert jnp.array_equal(tw.score(noisy, jnp.ones(2)), jnp.full(2, -4.0))


def test_a_density_is_an_energy_with_log_z_zero(key):
    energy = tw.from_density(Normal(jnp.array([1.0]), jnp.array([2.0])))
    assert energy.log_z == 0
    assert energy(jnp.array([1.0])) == pytest.approx(jnp.log(2.0 * jnp.sqrt(2 * jnp.pi)))
    assert energy.sample(key, (5,)).shape == (5, 1)
    with pytest.raises(ValueError, match="without log_prob"):
        tw.from_density(object())


def test_refresh_reaches_any_depth():
    class Counter(Refreshable):
        count: jax.Array

        def refresh(self):
            return Counter(self.count + 1)

    tree = {"a": [Counter(jnp.array(0))], "b": (jnp.array(5), Counter(jnp.array(3)))}
    new = refresh(tree)
    assert (new["a"][0].count, new["b"][0], new["b"][1].count) == (1, 5, 4)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_positive_refuses(value):
    with pytest.raises(ValueError, match="expected step > 0"):
        positive("step", value)


def test_an_estimate_reads_well():
    estimate = Estimate(1.5, 1.0, 2.0, 0.95, "ais", warning="the two directions disagree")
    assert str(estimate) == "1.5  [1, 2] at 95%, ais; the two directions disagree"
