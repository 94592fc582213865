"""What `fit` refuses, in one sentence with the way out, before anything is compiled or at the first trace."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import Energy, Objective, Space, Step, as_conditional

DATA = np.asarray(jax.random.normal(jax.random.key(0), (64, 2)))


class Quadratic(Energy):
    centre: jax.Array
    space: Space | None = eqx.field(static=True, default=tw.Real(2))

    def __call__(self, x):
        return 0.5 * jnp.sum((x - self.centre) ** 2)


class Returns(Objective):
    """An objective that returns what it is told to."""

    make: object = eqx.field(static=True)
    first: object = eqx.field(static=True, default=lambda: (None, jnp.zeros(2)))

    def init(self, key, energy, batch):
        return self.first()

    def loss(self, key, energy, params, state, batch):
        return self.make(jnp.mean(jax.vmap(energy)(batch)), state)


GOOD = Returns(lambda value, state: (value, Step(state, {})))


def on(space):
    def energy(weight, x):
        return weight * sum(jnp.sum(leaf.astype(float)) for leaf in jax.tree.leaves(x))

    return tw.as_energy(jax.tree_util.Partial(energy, jnp.ones(())), space)


def refusal(**change):
    settings = {"energy": Quadratic(jnp.ones(2)), "data": DATA, "objective": GOOD, "optimizer": optax.adam(1e-2)}
    settings |= {"steps": 2, "batch_size": 4, "key": jax.random.key(0)}
    with pytest.raises(ValueError) as caught:
        tw.fit(**{**settings, **change})
    text = str(caught.value)
    assert re.fullmatch(r"(\w+: )?expected .+, got .+; .+", text, re.DOTALL), text
    assert len(text) < 400 and not text.endswith(".")
    return text


@pytest.mark.parametrize("name", ["steps", "batch_size", "checkpoint_every"])
@pytest.mark.parametrize("value", [0, -1, 10.5, float("nan"), True, "ten", 2**31, 2**70, np.ones(2), [3]])
def test_whole_numbers(name, value, unchecked):
    assert f"expected {name}" in refusal(**{name: value})


@pytest.mark.parametrize("value", [1.0, -0.1, float("nan"), "0.9", np.ones(2) / 2, 2**70])
def test_averages(value, unchecked):
    assert "expected ema in [0, 1), got" in refusal(ema=value)


@pytest.mark.parametrize("interval", [0, 1.5, True, "often"])
def test_intervals_of_callbacks(interval, unchecked):
    with pytest.raises(ValueError, match="expected interval to be a whole number >= 1, got"):
        tw.train.every(interval, print)
    with pytest.raises(ValueError, match="expected a function of the run, got int"):
        tw.train.every(1, 3)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"key": 0}, "expected a random key, got 0; write key=jax.random.key(0)"),
        ({"key": jax.random.split(jax.random.key(0))}, "expected one random key, got an array of keys"),
        ({"optimizer": optax.adam}, "expected an optax optimiser, got adam; write optax.adam(1e-3)"),
        ({"optimizer": "adam"}, "got 'adam'; write optax.adam(1e-3)"),
        ({"optimizer": 1e-3}, "got 0.001; write optax.adam(1e-3)"),
        ({"optimizer": None}, "expected an optax optimiser, got None"),
        ({"optimizer": optax.GradientTransformation}, "expected an optax optimiser, got GradientTransformation"),
        ({"optimizer": optax.lbfgs()}, "expected an optimiser that needs the gradient alone"),
        ({"objective": Returns}, "got the class Returns; create an instance: Returns(...)"),
        ({"objective": "likelihood"}, "expected an objective, got 'likelihood' without init"),
        ({"energy": Quadratic}, "got the class Quadratic; create an instance: Quadratic(...)"),
        ({"energy": 3.0}, "expected an energy, a callable x -> scalar, got float"),
        ({"energy": lambda x: jnp.sum(x**2)}, "expected an energy with parameters to train, got none"),
        (
            {"callbacks": [print]},
            "got the bare function print; say how often to call it: callbacks=[tw.train.every(100",
        ),
        ({"callbacks": print}, "got the bare function print; say how often to call it"),
        ({"callbacks": [lambda run: None]}, "got the bare function <lambda>; say how often"),
        ({"callbacks": [3]}, "expected a list of callbacks, got 3; write callbacks=[tw.train.every(100, function)]"),
        ({"callbacks": None}, "expected a list of callbacks, got NoneType"),
        ({"callbacks": tw.train.every(1, print)}, "expected a list of callbacks, got Callback"),
        ({"energy": "MLP"}, "expected an energy, a callable x -> scalar, got str"),
        ({"energy": tw.energies.MLP}, "got the class MLP; create an instance: MLP(...)"),
        ({"objective": tw.objectives.MaximumLikelihood}, "got the class MaximumLikelihood; create an instance"),
        ({"doctor": "no"}, "expected doctor to be True or False, got 'no'"),
        ({"callbacks": [tw.train.every(1, lambda run: 3.0)]}, "a dictionary of numbers or nothing, got float"),
        ({"callbacks": [tw.train.every(1, lambda run: {"a": DATA})]}, "got ndarray under 'a'"),
        ({"callbacks": [tw.train.every(1, lambda run: {"step": 1})]}, "got int under 'step'"),
        ({"run_dir": 3}, "expected run_dir to be a path, got 3"),
        ({"resume": "run"}, "expected resume to be True or False, got 'run'"),
        ({"resume": True}, "expected a run_dir to resume from, got none"),
        ({"progress": "yes"}, "expected progress to be True or False, got 'yes'"),
    ],
)
def test_arguments(change, sentence, unchecked):
    assert sentence in refusal(**change)


@pytest.mark.parametrize(
    "make, sentence",
    [
        (lambda value, state: value, "expected Returns.loss to return (loss, tw.core.Step(state, metrics)), got"),
        (lambda value, state: (value, state), "got a tuple of 2"),
        (lambda value, state: (value, Step(state, {}), 1), "got a tuple of 3"),
        (lambda value, state: None, "got NoneType"),
        (
            lambda value, state: (state, Step(state, {})),
            "as the loss of Returns, got an array of float32 (2,)",
        ),
        (lambda value, state: (3, Step(state, {})), "expected a real scalar as the loss of Returns, got a int"),
        (lambda value, state: ("low", Step(state, {})), "got a str"),
        (lambda value, state: (value, Step(state, {"a": state})), "got an array of float32 (2,) under 'a'"),
        (lambda value, state: (value, Step(state, {"a": "b"})), "got a str under 'a'"),
        (lambda value, state: (value, Step(state, {3: value})), "under 3"),
        (lambda value, state: (value, Step(state, {"loss": value})), "got 'loss', which is taken; rename it"),
        (lambda value, state: (value, Step(state, {"weight_norm": value})), "got 'weight_norm', which is taken"),
        (lambda value, state: (value, Step(state, [value])), "expected a dictionary of metrics from Returns, got list"),
        (lambda value, state: (value, Step((state, state), {})), "another one from Returns"),
        (lambda value, state: (value, Step(None, {})), "another one from Returns"),
        (lambda value, state: (value, Step(state[:1], {})), "got float32 (1,) for float32 (2,) from Returns"),
        (lambda value, state: (value, Step(state.astype(int), {})), "got int32 (2,) for float32 (2,) from Returns"),
    ],
)
def test_what_a_users_loss_returns(make, sentence, unchecked):
    assert sentence in refusal(objective=Returns(make))


@pytest.mark.parametrize("first", [lambda: None, lambda: (1, 2, 3), lambda: jnp.ones(2)])
def test_what_a_users_init_returns(first, unchecked):
    assert "expected Returns.init to return (params, state), got" in refusal(objective=Returns(GOOD.make, first))


def test_a_state_that_is_no_array_or_a_plain_number_is_carried():
    plain = Returns(lambda value, state: (value, Step({**state, "count": 2.0}, {})), lambda: (None, PLAIN))
    run = tw.fit(
        Quadratic(jnp.ones(2)), DATA, plain, optimizer=optax.sgd(0.1), steps=3, batch_size=4, key=jax.random.key(0)
    )
    assert run.state["name"] == "chain" and run.state["count"] == 2.0
    assert run.state["module"].size == 3 and isinstance(run.state["module"].size, int)


class Sized(eqx.Module):
    size: int


# a number in a module is left alone: it may be a shape
PLAIN = {"name": "chain", "count": 0.0, "module": Sized(3)}


class Static(Quadratic):
    table: np.ndarray = eqx.field(static=True, default_factory=lambda: np.ones(3))


class Texts(Quadratic):
    words: np.ndarray = eqx.field(default_factory=lambda: np.array(["a"]))


def test_models_that_cannot_be_compiled():
    with pytest.warns(UserWarning, match="static"):
        static = Static(jnp.ones(2))
    assert "expected static fields in the energy that can be compared, got one that cannot" in refusal(energy=static)
    assert "expected arrays of numbers in a model, got one of <U1" in refusal(energy=Texts(jnp.ones(2)))


BOTH = tw.Product(tw.Real(2), tw.Binary(3))
CONDITIONAL = as_conditional(lambda x, c: jnp.sum(x) + c, tw.Real(2), tw.Categorical((), 3))


@pytest.mark.parametrize(
    "energy, data, sentence",
    [
        (None, None, "got nothing"),
        (None, [], "got nothing"),
        (None, "moons", "got"),
        (None, np.zeros((0, 2), np.float32), "expected at least one row"),
        (None, np.zeros((20, 3), np.float32), "expected rows of shape (2,)"),
        (None, np.full((8, 2), np.nan, np.float32), "expected finite numbers, got nan"),
        (None, jnp.full((8, 2), jnp.nan), "expected finite numbers, got nan"),
        (None, np.full((8, 2), 1e300), "expected points of Real"),
        (None, np.zeros((20, 2), int), "expected floats, got int64"),
        (None, np.zeros((20, 2), object), "got object"),
        (None, np.ma.masked_array(DATA, DATA > 0), "masked"),
        (None, (DATA, DATA), "got a tuple of 2 arrays; give one, or train p(x|c)"),
        (None, {"x": DATA}, "got a dict of 1 arrays"),
        (on(None), np.full((8, 2), 2**40), "whole numbers below 2^31"),
        (on(None), np.ma.masked_array(DATA, DATA > 0), "masked"),
        (on(None), {"x": jnp.full((8, 2), jnp.nan)}, "expected finite numbers"),
        (on(None), (DATA, DATA[:19]), "expected the same number of points in all parts of data, got 19, 64"),
        (on(tw.Binary(3)), np.full((8, 3), 2, np.uint8), "expected points of Binary"),
        (on(tw.Spin(3)), np.zeros((8, 3)), "expected points of Spin"),
        (on(tw.Spin(3)), np.full((8, 3), 0.5), "expected whole numbers"),
        (on(tw.Positive(3)), -np.ones((8, 3), np.float32), "expected points of Positive"),
        (on(BOTH), DATA, "expected a tuple of 2 arrays in data"),
        (on(BOTH), (jnp.full((8, 2), jnp.inf), np.zeros((8, 3))), "expected points of Real"),
        (on(BOTH), (DATA, np.full((64, 3), 5)), "expected points of Binary"),
        (on(BOTH), (DATA, np.zeros((63, 3))), "expected the same number of points"),
        (CONDITIONAL, (DATA,), "expected data (x, c) for a conditional energy, got 1 parts"),
        (CONDITIONAL, (DATA, np.zeros(19, int)), "expected the same number of rows in all data, got [64, 19]"),
        (CONDITIONAL, (DATA, np.full(64, 3)), "in conditions"),
        (CONDITIONAL, tw.data.Dataset(DATA), "expected labels in the data set of a conditional energy"),
        (tw.as_score(lambda x: x, tw.Binary(3)), np.zeros((8, 3)), "expected a continuous space for a score network"),
    ],
)
def test_data(energy, data, sentence, unchecked):
    assert sentence in refusal(data=data, **({} if energy is None else {"energy": energy}))


@pytest.mark.parametrize("dtype", [np.uint8, bool, np.int64, np.float32])
def test_whole_data_become_whole_numbers(dtype):
    seen = []

    def keep(value, state):
        return value, Step(state, {})

    class Sees(Returns):
        def init(self, key, energy, batch):
            seen.append(batch.dtype)
            return None, None

    data = (np.arange(24) % 2).reshape(8, 3).astype(dtype)
    settings = {"optimizer": optax.adam(1e-2), "steps": 1, "batch_size": 4, "key": jax.random.key(0)}
    tw.fit(on(tw.Binary(3)), data, Sees(keep), **settings)
    assert seen == [jnp.int32]


def test_batches_larger_than_the_data():
    assert "batch_size between 1 and the 64 rows of data, got 65" in refusal(batch_size=65)
