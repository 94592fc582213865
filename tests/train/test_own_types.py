"""What goes into `fit` comes out as itself, and a second training of the same shapes compiles nothing."""

import gc
from functools import lru_cache

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import Objective, Step, as_conditional
from thalweg.train import update

DATA = np.asarray(jax.random.normal(jax.random.key(0), (64, 2)))


class MeanEnergy(Objective):
    """Bring the data's energy down; its scale is an array, its power is not."""

    scale: jax.Array = eqx.field(default=1.0, converter=jnp.asarray)
    power: int = 1

    def loss(self, key, energy, params, state, batch):
        energies = jax.vmap(lambda row: energy(*row) if isinstance(row, tuple) else energy(row))(batch)
        return self.scale * jnp.mean(energies**self.power), Step(state, {})


class LearnsOffset(Objective):
    """All that is trained is its own."""

    def init(self, key, energy, batch):
        return {"offset": 1.0}, 0

    def loss(self, key, energy, params, state, batch):
        return jnp.mean(jax.vmap(energy)(batch)) + params["offset"] ** 2, Step(state + 1, {})


class Named(eqx.Module):
    """A user's own module: no subclass of ours, with fields that are not numbers."""

    centre: jax.Array
    label: str
    activation: object
    table: np.ndarray
    sizes: tuple[int, ...] = eqx.field(static=True, default=(1, 2))

    def __call__(self, x):
        return jnp.sum(self.activation(x - self.centre) ** 2) + 0.0 * jnp.sum(self.table)


def named(centre=0.0):
    return Named(jnp.full(2, centre), "mine", jnp.tanh, np.zeros(3, np.int32))


def quadratic(centre, x):
    return jnp.sum((x - centre) ** 2)


def fit(energy, data=DATA, objective=None, **settings):
    settings = {"optimizer": optax.adam(1e-2), "steps": 3, "batch_size": 16, "key": jax.random.key(1), **settings}
    return tw.fit(energy, data, objective or MeanEnergy(), **settings)


@pytest.mark.parametrize(
    "energy",
    [
        named(),
        tw.as_energy(named(), tw.Real(2)),
        jax.tree_util.Partial(quadratic, jnp.ones(2)),
        tw.as_energy(jax.tree_util.Partial(quadratic, jnp.ones(2)), tw.Real(2)),
        Named(np.ones(2, np.float32), "numpy", jnp.tanh, np.zeros(3)),
    ],
    ids=["module", "module with a space", "closure with parameters", "the same with a space", "numpy weights"],
)
def test_fit_gives_back_the_users_own_type(energy):
    seen = []
    run = fit(energy, callbacks=[tw.train.every(2, lambda run: seen.append((run.energy, run.last)))], ema=0.9)
    for model in (run.energy, run.last, *seen[0], *seen[1]):
        assert type(model) is type(energy)
        assert jax.tree.structure(model) == jax.tree.structure(energy)
    assert tw.space_of(run.energy) == tw.space_of(energy)
    assert not np.array_equal(jax.tree.leaves(run.energy)[0], jax.tree.leaves(energy)[0])


def test_fields_that_are_no_numbers_stay():
    run = fit(named())
    assert run.energy.label == "mine" and run.energy.activation is jnp.tanh and run.energy.sizes == (1, 2)
    assert run.energy.table.dtype == jnp.int32


def test_a_plain_function_is_trained_where_the_objective_has_parameters():
    def energy(x):
        return jnp.sum(x**2)

    run = fit(energy, objective=LearnsOffset(), ema=0.5)
    assert run.energy is energy
    assert run.params["offset"] < 1.0 and run.state == 3


def test_a_second_fit_compiles_nothing(compilations):
    objective = MeanEnergy(jnp.array(2.0))
    fit(named(), objective=objective, ema=0.9)
    with compilations() as made:
        fit(named(3.0), objective=MeanEnergy(jnp.array(0.5)), key=jax.random.key(7), ema=0.8)
    assert not made
    with compilations() as made:
        fit(named(3.0), objective=MeanEnergy(power=2))  # what is not an array is part of the program
    assert made


def test_a_whole_number_and_a_real_one_are_different_settings():
    class Shows(MeanEnergy):
        power: float = 1

        def loss(self, key, energy, params, state, batch):
            value, step = super().loss(key, energy, params, state, batch)
            return value, Step(step.state, {"whole": jnp.asarray(isinstance(self.power, int))})

    assert fit(named(), objective=Shows(power=1)).history["whole"][0] == 1
    assert fit(named(), objective=Shows(power=1.0)).history["whole"][0] == 0


def test_another_learning_rate_in_the_optimisers_state_compiles_nothing(compilations):
    def rate(value):
        return optax.inject_hyperparams(optax.adam)(learning_rate=value)

    slow = fit(named(), optimizer=rate(1e-3))
    with compilations() as made:
        fast = fit(named(), optimizer=rate(1e-1))
    assert not made
    change = [jnp.abs(run.energy.centre).max() for run in (slow, fast)]
    assert change[1] > 10 * change[0]


def test_many_fits_keep_the_program_they_share():
    fit(named())
    before = update._program.cache_info().currsize
    for _ in range(30):
        fit(named(), optimizer=optax.adam(1e-2), objective=MeanEnergy())
    assert update._program.cache_info().currsize == before


def test_fits_that_share_none_keep_a_bounded_number(monkeypatch):
    monkeypatch.setattr(update, "_program", lru_cache(4)(update._program.__wrapped__))
    client = jax.devices()[0].client
    counts = []
    for number in range(20):
        # a new function is a new program
        fit(jax.tree_util.Partial(lambda centre, x: jnp.sum((x - centre) ** 2), jnp.ones(2)), steps=1)
        if number % 10 == 9:
            gc.collect()
            counts.append(len(client.live_executables()))
    assert counts[1] <= counts[0]


def test_keys_of_a_training_are_not_those_a_user_splits():
    seen = []

    class Shows(MeanEnergy):
        def loss(self, key, energy, params, state, batch):
            value, step = super().loss(key, energy, params, state, batch)
            return value, Step(step.state, {"word": jax.random.key_data(key)[0] // 2})

    key = jax.random.key(3)
    run = fit(named(), objective=Shows(), key=key, steps=5)
    seen = set(run.history["word"].tolist())
    assert len(seen) == 5
    users = {float(words[0] // 2) for words in jax.random.key_data(jax.random.split(key, 50))}
    assert not seen & users


def test_points_that_are_trees_and_conditions():
    both = {"place": DATA, "spin": np.ones((64, 3), np.int8)}
    space = tw.Product(place=tw.Real(2), spin=tw.Spin(3))
    model = jax.tree_util.Partial(lambda w, x: jnp.sum((x["place"] - w) ** 2) + jnp.sum(x["spin"]), jnp.ones(2))
    assert fit(tw.as_energy(model, space), both).step == 3
    assert fit(model, both).step == 3

    class Shifted(eqx.Module):
        shift: jax.Array

        def __call__(self, x, c):
            return jnp.sum((x - self.shift - c[..., None]) ** 2)

    conditional = as_conditional(Shifted(jnp.ones(2)), tw.Real(2), tw.Categorical((), 3))
    labels = np.arange(64, dtype=np.uint8) % 3
    run = fit(conditional, (DATA, labels))
    assert isinstance(run.energy.function, Shifted)
    again = fit(conditional, tw.data.Dataset(DATA, labels))
    assert np.array_equal(run.history["loss"], again.history["loss"])
    assert np.array_equal(fit(named(), tw.data.Dataset(DATA)).history["loss"], fit(named()).history["loss"])


def test_weights_of_low_precision_stay_of_their_type():
    run = fit(jax.tree_util.Partial(quadratic, jnp.ones(2, jnp.bfloat16)), ema=0.9)
    assert run.energy.args[0].dtype == run.last.args[0].dtype == jnp.bfloat16
