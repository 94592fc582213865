"""Every public energy refuses a batch given for a point, and works as one under vmap, jit and grad."""

import jax
import jax.numpy as jnp
import pytest

import thalweg as tw

KEY = jax.random.key(0)
E = tw.energies
IMAGE = (8, 8, 1)
ENERGIES = {
    "MLP": lambda: E.MLP(2, 8, key=KEY),
    "Banana": E.Banana,
    "ConvNet": lambda: E.ConvNet("digits", 0.1, key=KEY),
    "DoubleWell": E.DoubleWell,
    "Funnel": E.Funnel,
    "Gaussian": lambda: E.Gaussian(jnp.zeros(2), jnp.eye(2)),
    "GaussianField": lambda: E.GaussianField(jnp.zeros((3, 3)), 1.0),
    "GaussianMixture": lambda: E.GaussianMixture(jnp.ones(2), jnp.eye(2), 1.0),
    "Ising": lambda: E.Ising(jnp.zeros((3, 3))),
    "NoiseConditionalMLP": lambda: E.NoiseConditionalMLP(2, 8, key=KEY),
    "NoiseConditionalScoreMLP": lambda: E.NoiseConditionalScoreMLP(2, 8, key=KEY),
    "NoiseConditionalScoreUNet": lambda: E.NoiseConditionalScoreUNet(IMAGE, (4,), key=KEY),
    "NoiseConditionalUNet": lambda: E.NoiseConditionalUNet(IMAGE, (4,), key=KEY),
    "Potts": lambda: E.Potts(jnp.zeros((3, 3)), k=4),
    "ResNet": lambda: E.ResNet(3, (4,), key=KEY),
    "Ring": E.Ring,
    "ScoreMLP": lambda: E.ScoreMLP(2, 8, key=KEY),
    "clamp": lambda: tw.clamp(E.Banana(), jnp.array([True, False]), jnp.zeros(2)),
    "confined": lambda: E.confined(E.MLP(2, 8, key=KEY)),
    "joint": lambda: E.joint(tw.as_conditional(lambda x, c: E.Banana()(x) + c, tw.Real(2), tw.Real(()))),
    "marginal": lambda: E.marginal(Summed()),
    "smoothed": lambda: E.smoothed(E.Ring()),
    "swapped": lambda: E.swapped(tw.as_conditional(lambda x, c: E.Banana()(c), tw.Real(()), tw.Real(2))),
    "tempered": lambda: E.tempered(E.Banana(), 2.0),
    "two_bumps": E.two_bumps,
}
# couplings are parts of energies; other files of the family have their own rows
PARTS = {"Graph", "Grid", "Matrix"}


class Summed(tw.core.HasFreeEnergy):
    space = tw.Real(2)
    latent_space = tw.Binary(())

    def __call__(self, x, z):
        return E.Banana()(x) + 0.0 * z

    def free_energy(self, x):
        return E.Banana()(x) - jnp.log(2.0)


def arguments(energy, points):
    """Points and, for a model of two variables, conditions."""
    if isinstance(energy, tw.core.ConditionalEnergy | tw.core.ScoreNetwork) and "Noise" in type(energy).__name__:
        return points, jnp.ones(5)
    if isinstance(energy, tw.core.ConditionalEnergy):
        return points, energy.condition_space.noise(KEY, (5,))
    return (points,)


@pytest.mark.parametrize("name", sorted(ENERGIES))
def test_a_batch_is_no_point(name):
    energy = ENERGIES[name]()
    points = energy.space.noise(KEY, (5,))
    given = arguments(energy, points)
    with pytest.raises(ValueError, match=r"expected one point .*vmap"):
        energy(points, *(condition[0] for condition in given[1:]))
    values = jax.jit(lambda *given: jax.vmap(energy)(*given))(*given)
    assert values.shape == (points.shape if isinstance(energy, tw.core.ScoreNetwork) else (5,))


@pytest.mark.parametrize("name", ["Banana", "Gaussian", "GaussianMixture", "MLP", "Ring", "DoubleWell", "Funnel"])
def test_gradients_of_one_point(name):
    energy = ENERGIES[name]()
    points = energy.space.noise(KEY, (5,))
    assert jax.jit(jax.vmap(jax.grad(energy)))(points).shape == points.shape


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: E.Banana(scale=jnp.array([1.0, -1.0])), "expected scale > 0"),
        (lambda: E.Banana(scale=jnp.ones(2)), "expected scale to be one number"),
        (lambda: E.Banana(curvature=jnp.nan), "expected curvature to be finite"),
        (lambda: E.Ring(radius=-1.0), "expected radius > 0"),
        (lambda: E.DoubleWell(jnp.nan), "expected barrier > 0"),
        (lambda: E.DoubleWell(dim=1.5), "expected dim to be a whole number"),
        (lambda: E.Funnel(1), "expected dim to be a whole number >= 2"),
        (lambda: E.Gaussian(jnp.array([jnp.nan]), 1.0), "expected mean to be finite"),
        (lambda: E.Gaussian(jnp.zeros(2), jnp.array([1.0, -1.0])), "expected every variance > 0"),
        (lambda: E.Gaussian(jnp.zeros(2), "wide"), "expected covariance to be real numbers"),
        (lambda: E.GaussianMixture(jnp.array([1.0, -1.0]), jnp.eye(2), 1.0), "expected every weight > 0"),
        (lambda: E.MLP(2, 0, key=KEY), "expected width to be a whole number"),
        (lambda: E.ResNet(2, (), key=KEY), "at least one stage"),
    ],
)
def test_parameters_that_make_no_sense_are_refused(make, sentence):
    with pytest.raises(ValueError, match=sentence):
        make()


# joint, swapped, marginal


def test_one_energy_of_two_variables_read_in_three_ways():
    energy = tw.as_conditional(lambda x, c: 0.5 * jnp.sum(x**2) * (1 + c), tw.Real(2), tw.Binary(()))
    both, other = E.joint(energy), E.swapped(energy)
    x, c = jnp.array([1.0, 2.0]), jnp.array(1)
    assert float(both((x, c))) == float(other(c, x)) == float(energy(x, c)) == 5.0
    assert both.space == tw.Product(tw.Real(2), tw.Binary(()))
    assert (other.space, other.condition_space) == (tw.Binary(()), tw.Real(2))
    assert E.swapped(other) is energy
    # p(c | x) sums the two labels
    assert float(tw.exact.log_z(tw.given(other, x))) == pytest.approx(float(jnp.logaddexp(-2.5, -5.0)), abs=1e-5)
    assert E.joint(tw.as_conditional(lambda x, c: x + c)).space is None
    for wrong in (E.joint, E.swapped):
        with pytest.raises(ValueError, match="expected a conditional energy"):
            wrong(E.Banana())
    with pytest.raises(ValueError, match="expected a latent energy with free_energy"):
        E.marginal(E.Banana())
