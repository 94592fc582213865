"""Every public energy keeps every promise of the contract; a name without a row fails."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg import energies as te
from thalweg.core import ConditionalEnergy, HasFreeEnergy, Objective, ScoreNetwork, Step, partition_trainable

IMAGE = (8, 8, 1)
GRAPH = te.Graph([(0, 1), (1, 2)], 0.3)


def key():
    return jax.random.key(0)


class Centre(ConditionalEnergy):
    """``x ~ N(c + shift, 1)``."""

    shift: jax.Array
    space = tw.Real(2)
    condition_space = tw.Real(2)

    def __call__(self, x, c):
        tw.core.check_point(x, (2,))
        tw.core.check_point(c, (2,))
        return 0.5 * jnp.sum((x - c - self.shift) ** 2)


class Sign(HasFreeEnergy):
    """``x ~ N(±shift, 1)``, the sign being latent."""

    shift: jax.Array
    space = tw.Real(2)
    latent_space = tw.Spin(())

    def __call__(self, x, z):
        return 0.5 * jnp.sum((x - z * self.shift) ** 2)

    def free_energy(self, x):
        tw.core.check_point(x, (2,))
        return -jax.nn.logsumexp(jnp.stack([-self(x, 1), -self(x, -1)]))


SHIFT = jnp.array([0.5, -0.5])
PATTERNS = jnp.array([[1, 1, -1, -1, 1], [1, -1, 1, -1, -1]])
ROWS = {
    "MLP": lambda: te.MLP(2, 8, key=key()),
    "RBM": lambda: te.RBM(3, 2, key=key()),
    "Banana": te.Banana,
    "Bernoulli": lambda: te.Bernoulli(jnp.array([0.3, 0.6])),
    "Beta": lambda: te.Beta(jnp.array([2.0, 1.5]), 1.5),
    "BoltzmannMachine": lambda: te.BoltzmannMachine(3, 2, key=key()),
    "ConvNet": lambda: te.ConvNet("digits", 0.1, key=key()),
    "Dirichlet": lambda: te.Dirichlet(jnp.array([1.0, 2.0, 3.0])),
    "DoubleWell": te.DoubleWell,
    "Exponential": lambda: te.Exponential(jnp.array([1.0, 2.0])),
    "Funnel": te.Funnel,
    "Gamma": lambda: te.Gamma(jnp.array([2.0, 1.5]), 1.0),
    "Gaussian": lambda: te.Gaussian(jnp.zeros(2), jnp.eye(2)),
    "GaussianField": lambda: te.GaussianField(GRAPH, 1.0),
    "GaussianMixture": lambda: te.GaussianMixture(jnp.ones(2), jnp.eye(2), 1.0),
    "Hopfield": lambda: te.Hopfield(jnp.ones((3, 3)) - jnp.eye(3), 0.1),
    "Ising": lambda: te.Ising(GRAPH, 0.1),
    "LabelledMLP": lambda: te.LabelledMLP(2, 3, 8, key=key()),
    "MaximumEntropy": lambda: te.MaximumEntropy(jnp.sum, 0.5, tw.Spin(3)),
    "ModernHopfield": lambda: te.ModernHopfield(jnp.eye(2), 1.5),
    "NoiseConditionalMLP": lambda: te.NoiseConditionalMLP(2, 8, key=key()),
    "NoiseConditionalScoreMLP": lambda: te.NoiseConditionalScoreMLP(2, 8, key=key()),
    "NoiseConditionalScoreUNet": lambda: te.NoiseConditionalScoreUNet(IMAGE, (4,), key=key()),
    "NoiseConditionalUNet": lambda: te.NoiseConditionalUNet(IMAGE, (4,), key=key()),
    "Normal": lambda: te.Normal(jnp.zeros(2), jnp.ones(2)),
    "Poisson": lambda: te.Poisson(jnp.array([3.0, 1.0])),
    "PositiveForm": lambda: te.PositiveForm(te.MLP(2, 8, key=key()), "square"),
    "Potts": lambda: te.Potts(GRAPH, 3, 0.1),
    "ResNet": lambda: te.ResNet(3, (4,), key=key()),
    "Ring": te.Ring,
    "ScoreMLP": lambda: te.ScoreMLP(2, 8, key=key()),
    "Wishart": lambda: te.Wishart(4.0, jnp.eye(2)),
    "clamp": lambda: tw.clamp(te.MLP(2, 8, key=key()), jnp.array([True, False]), jnp.zeros(2)),
    "confined": lambda: te.confined(te.MLP(2, 8, key=key()), scale=2.0),
    "hebb": lambda: te.hebb(PATTERNS),
    "joint": lambda: te.joint(Centre(SHIFT)),
    "marginal": lambda: te.marginal(Sign(SHIFT)),
    "pseudo_inverse": lambda: te.pseudo_inverse(PATTERNS),
    "smoothed": lambda: te.smoothed(te.Ring()),
    "storkey": lambda: te.storkey(PATTERNS),
    "swapped": lambda: te.swapped(Centre(SHIFT)),
    "tempered": lambda: te.tempered(te.MLP(2, 8, key=key()), 2.0),
    "two_bumps": te.two_bumps,
}
# a coupling or a layer of units is a part of an energy and none itself, a recall is what a Hopfield network returns
PARTS = {"Graph", "Grid", "Matrix", "Recall", "BernoulliUnits", "CategoricalUnits", "GaussianUnits", "ReLUUnits"}
PARTS |= {"ReplicatedSoftmaxUnits", "SpinUnits"}
# these take seconds to compile
SLOW = {"ConvNet", "ResNet", "NoiseConditionalUNet", "NoiseConditionalScoreUNet"}
NAMES = [pytest.param(name, marks=pytest.mark.slow) if name in SLOW else name for name in ROWS]


def test_every_public_energy_has_a_row():
    assert set(ROWS) | PARTS == set(te.__all__)


def conditions_of(energy, rows):
    """Conditions of a model of two variables, as a tuple of none or one."""
    space = getattr(energy, "condition_space", None)
    if space is not None:
        return (space.noise(jax.random.key(3), (rows,)),)
    return (jnp.ones(rows),) if isinstance(energy, ScoreNetwork) and "Noise" in type(energy).__name__ else ()


@pytest.mark.parametrize("name", NAMES)
def test_a_batch_is_refused(name):
    energy = ROWS[name]()
    space = tw.space_of(energy)
    assert space is not None
    points = space.noise(jax.random.key(1), (5,))
    conditions = [condition[0] for condition in conditions_of(energy, 5)]
    with pytest.raises(ValueError, match="expected"):
        energy(points, *conditions)
    value = jax.eval_shape(energy, jax.tree.map(lambda leaf: leaf[0], points), *conditions)
    assert value.shape == (space.shape if isinstance(energy, ScoreNetwork) else ())


class Lower(Objective):
    """The mean of what a model returns, as a loss: the least that `fit` needs."""

    conditional = True

    def loss(self, key, energy, params, state, batch):
        given = batch if isinstance(energy, ConditionalEnergy) else (batch,)
        if isinstance(energy, ScoreNetwork):  # at noise levels of this objective's own, where it takes any
            given = (batch, *conditions_of(energy, len(batch)))
        values = jax.vmap(energy)(*given)
        return jnp.mean(values), Step(state, {})


@pytest.mark.parametrize("name", NAMES)
def test_fit_gives_the_own_type_back(name):
    energy = ROWS[name]()
    rows = 8
    points = tw.space_of(energy).noise(jax.random.key(1), (rows,))
    conditions = conditions_of(energy, rows)
    data = (points, *conditions) if isinstance(energy, ConditionalEnergy) else points
    settings = dict(optimizer=optax.sgd(1e-3), steps=1, batch_size=4, key=key())
    trained = tw.fit(energy, data, Lower(), **settings).energy
    assert type(trained) is type(energy)
    assert jax.tree.structure(trained) == jax.tree.structure(energy)
    assert tw.space_of(trained) == tw.space_of(energy)
    moved = jax.tree.leaves(jax.tree.map(lambda a, b: bool(jnp.any(a != b)), *parts_of(trained, energy)))
    assert moved and (any(moved) or name == "Bernoulli")


def parts_of(*models):
    return [partition_trainable(model)[0] for model in models]


TIED = te.Ising(te.Matrix(0.5 * (jnp.ones((4, 4)) - jnp.eye(4)) * jnp.array([1, -1, 1, 1])[:, None] ** 2), 0.3)
LABELS = te.Potts(te.Graph([(0, 1), (1, 2), (0, 2)], jnp.array([1.0, -0.5, 0.7])), 3, jnp.arange(3) / 2)
ZEROS = {
    "Ising": (TIED, lambda: te.Ising(jnp.zeros((4, 4)))),
    "Potts": (LABELS, lambda: te.Potts(jnp.zeros((3, 3)), 3)),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ZEROS)
def test_lattices_learn_from_weights_of_zero(name):
    """Chains of `Gibbs` on a model without ties, which training then ties: its blocks must not be those of no ties."""
    truth, start = ZEROS[name]
    data = tw.exact.sample(truth, (8000,), key=jax.random.key(5))
    objective = tw.objectives.MaximumLikelihood(tw.samplers.Gibbs(), 2, tw.samplers.persistent())
    schedule = optax.cosine_decay_schedule(0.05, 300)
    settings = dict(optimizer=optax.adam(schedule), steps=300, batch_size=1000, key=key())
    learned = tw.fit(start(), data, objective, **settings).energy
    law, own = (np.asarray(tw.exact.probabilities(energy), float) for energy in (truth, learned))
    assert np.sum(law * np.log(law / own)) < 0.01


def test_a_user_s_module_stays_what_it_is():
    class Mine(eqx.Module):
        centre: jax.Array
        name: str = "mine"

        def __call__(self, x):
            return jnp.sum((x - self.centre) ** 2)

    settings = dict(optimizer=optax.sgd(1e-3), steps=1, batch_size=4, key=key())
    trained = tw.fit(Mine(jnp.ones(2)), jnp.zeros((8, 2)), Lower(), **settings).energy
    assert type(trained) is Mine and trained.name == "mine" and bool(jnp.any(trained.centre != 1))
