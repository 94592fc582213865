"""model.json: every public energy comes back as itself, and nothing but models can be named in it."""

import functools
import json

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from paramax import NonTrainable
from tests.contracts.test_energies import ROWS, Centre, Sign

import thalweg as tw
from thalweg import energies as te
from thalweg import objectives as to
from thalweg.core import ConditionalEnergy, ScoreNetwork
from thalweg.train.model_names import find_class, find_function
from thalweg.train.model_tree import UnwritableError, from_json, number_arrays, to_json

PARTS = {"Graph": lambda: te.Graph([(0, 1), (1, 2)], 0.3), "Grid": lambda: te.Grid((3, 4), 0.2)}
UNITS = {"GaussianUnits": lambda: te.GaussianUnits(3), "ReplicatedSoftmaxUnits": lambda: te.ReplicatedSoftmaxUnits(3)}
UNITS |= {"BernoulliUnits": lambda: te.BernoulliUnits(3), "SpinUnits": lambda: te.SpinUnits(3)}
UNITS |= {"ReLUUnits": lambda: te.ReLUUnits(3), "CategoricalUnits": lambda: te.CategoricalUnits(3, 4)}
PARTS |= UNITS
PARTS["Matrix"] = lambda: te.Matrix(jnp.zeros((3, 3)), np.array([[0, 1, 0], [1, 0, 1], [0, 1, 0]], bool))


def round_trip(model, types=()):
    """Through text and back, with other arrays than those written down."""
    text = json.dumps(to_json(number_arrays(model)), allow_nan=False)
    arrays = [leaf for leaf in jax.tree.leaves(model) if isinstance(leaf, (jax.Array, np.ndarray))]
    return from_json(json.loads(text), arrays, types)


def values(model, point):
    """What a model says at a point, whatever it is a model of."""
    if isinstance(model, te.couplings.AbstractCoupling):
        return model.field(jnp.arange(1.0, model.sites + 1))
    if type(model).__name__ in UNITS:
        return model.bias
    space = getattr(model, "condition_space", None)
    if isinstance(model, ScoreNetwork) and space is None:
        return model(point) if type(model) is te.ScoreMLP else model(point, 0.5)
    if isinstance(model, ConditionalEnergy):
        return model(point, space.noise(jax.random.key(1), ()))
    return model(point)


@pytest.mark.parametrize("name", sorted(set(te.__all__) - {"Recall"}))  # a result, not a model
def test_every_public_energy_comes_back(name):
    model = (ROWS | PARTS)[name]()
    again = round_trip(model, [Centre, Sign])
    assert type(again) is type(model)
    # static fields are part of the structure, so that the two share one compiled program
    assert jax.tree.structure(again) == jax.tree.structure(model)
    point = None if name in PARTS else model.space.noise(jax.random.key(0), ())
    assert np.array_equal(values(again, point), values(model, point))


@pytest.mark.parametrize("name", sorted(to.__all__))
def test_objectives_come_back(name):
    given = {
        "Power": (2.0,),
        "ExplicitScoreMatching": (te.Gaussian(jnp.zeros(2), jnp.eye(2)),),
        "Custom": (jnp.square,),
        "Centred": (to.MaximumLikelihood(),),
        "Sparse": (to.MaximumLikelihood(), 0.1, 1.0),
    }
    objective = getattr(to, name)(*given.get(name, ()))
    again = round_trip(objective)
    assert type(again) is type(objective)
    assert jax.tree.structure(again) == jax.tree.structure(objective)


class Mine(eqx.Module):
    """A user's own class, with one of equinox's inside."""

    network: eqx.nn.MLP
    fixed: NonTrainable
    power: float = eqx.field(static=True)
    names: dict
    space = tw.Real(2)

    def __call__(self, x):
        return self.network(x) ** self.power + jnp.sum(self.fixed.tree)


def mine():
    network = eqx.nn.MLP(2, "scalar", 4, 2, activation=jax.nn.softplus, key=jax.random.key(0))
    return Mine(network, NonTrainable(jnp.arange(3.0)), float("inf"), {"a": (1, None, [jnp.float32]), "b": 1.5})


def test_a_class_of_ones_own_must_be_given():
    model = mine()
    with pytest.raises(LookupError, match="the class Mine"):
        round_trip(model)
    again = round_trip(model, [Mine])
    assert type(again) is Mine and again.power == float("inf")
    assert jax.tree.structure(again.network) == jax.tree.structure(model.network)
    assert again.names["a"][:2] == (1, None) and again.names["b"] == 1.5


def test_a_space_given_to_a_module_comes_back_with_it():
    model = tw.as_energy(eqx.nn.MLP(2, "scalar", 4, 2, key=jax.random.key(0)), tw.Real(2))
    again = round_trip(model)
    assert type(again) is type(model) and again.space == tw.Real(2)
    assert again(jnp.ones(2)) == model(jnp.ones(2))


@pytest.mark.parametrize(
    ("part", "says"),
    [
        (lambda x: x, r"model\.function is the function .*<lambda>"),
        (functools.partial(lambda x, a: x, a=1), r"model\.function is the function .*<lambda>"),
        (print, "model.function is the function print"),
        (json.dumps, "model.function is the function dumps"),
        (object(), "model.function is a object"),
    ],
)
def test_what_has_no_name_is_said(part, says):
    class Holder(eqx.Module):
        function: object

    Holder.__qualname__ = "Holder"
    with pytest.raises(UnwritableError, match=says):
        to_json(Holder(part))


@pytest.mark.parametrize(
    "name",
    [
        "subprocess:Popen",
        "builtins:eval",
        "os:system",
        "thalweg.cli.main:run",
        "thalweg.core.files:write_whole",
        "thalweg.energies.neural:math.floor",
        "thalweg.energies.neural:jax.config.update",
        "jax.numpy:save",
        "jax.numpy:load",
        "equinox.nn._mlp:jax",
        "thalweg.data:load",
        "no_such_module:Thing",
        "thalweg.energies.no_such:Thing",
    ],
)
def test_nothing_but_models_and_mathematics_can_be_named(name):
    assert find_class(name) is None
    assert find_function(name) is None
    with pytest.raises((ValueError, LookupError)):
        from_json({"function": name})
    with pytest.raises((ValueError, LookupError)):
        from_json({"class": name, "fields": {}})
    with pytest.raises((ValueError, LookupError)):
        from_json({"tuple": [1], "class": name})


def test_no_module_is_imported_for_a_name(tmp_path, monkeypatch):
    (tmp_path / "trap.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    assert find_class("trap:Thing") is None and find_function("trap:thing") is None


def test_fields_that_a_class_does_not_have_are_refused():
    written = to_json(tw.Real(2))
    written["fields"]["__class__"] = "x"
    with pytest.raises(ValueError, match="expected fields of Real"):
        from_json(written)
