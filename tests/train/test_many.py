"""Many seeds at once are the seeds one by one."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import Objective, Step

DATA = np.asarray(jax.random.normal(jax.random.key(0), (50, 2)))
KEYS = jax.random.split(jax.random.key(8), 4)


class Noisy(Objective):
    """Random at every update, with parameters and a state that the key decides."""

    def init(self, key, energy, batch):
        return {"offset": jax.random.normal(key)}, jax.random.normal(key, (3,))

    def loss(self, key, energy, params, state, batch):
        noise = 0.1 * jax.random.normal(key, batch.shape)
        value = jnp.mean(jax.vmap(energy)(batch + noise)) + params["offset"] ** 2
        return value, Step(state + noise[0, 0], {"first": batch[0, 0]})


class Quadratic(eqx.Module):
    centre: jax.Array
    label: str = "mine"

    def __call__(self, x):
        return jnp.sum((x - self.centre) ** 2)


def make(key):
    return Quadratic(jax.random.normal(key, (2,)))


SETTINGS = {"optimizer": optax.adam(1e-2), "steps": 12, "batch_size": 16}


def many(energy=make, **settings):
    return tw.train.fit_many(energy, DATA, Noisy(), **{"keys": KEYS, **SETTINGS, **settings})


@pytest.mark.parametrize("ema", [None, 0.9])
@pytest.mark.parametrize("energy", [make, Quadratic(jnp.ones(2))], ids=["own weights", "the same weights"])
def test_each_run_is_the_fit_of_its_key(energy, ema):
    runs = many(energy, ema=ema)
    for key, run in zip(KEYS, runs, strict=True):
        start = make(key) if energy is make else energy
        alone = tw.fit(start, DATA, Noisy(), key=key, ema=ema, **SETTINGS)
        assert type(run.energy) is Quadratic and run.energy.label == "mine" and run.step == 12
        for ours, theirs in zip(jax.tree.leaves(run), jax.tree.leaves(alone), strict=True):
            assert ours == theirs if isinstance(ours, str) else np.allclose(ours, theirs, rtol=1e-5, atol=1e-6)
    assert not np.allclose(runs[0].history["loss"], runs[1].history["loss"])


def test_all_seeds_are_one_program(compilations):
    many()
    with compilations() as made:
        many(optimizer=optax.adam(1e-2))
    assert not made
    with compilations() as made:
        many(optimizer=optax.adam(3e-2))
    assert len(made) == 1


def test_keys_of_either_kind_or_a_list_of_them(unchecked):
    typed = many(steps=2)
    for keys in (jax.random.key_data(KEYS), list(KEYS), np.asarray(jax.random.key_data(KEYS))):
        again = many(steps=2, keys=keys)
        assert [run.history["loss"].tolist() for run in again] == [run.history["loss"].tolist() for run in typed]


def test_conditions_and_the_real_objectives():
    energy = lambda key: tw.energies.MLP(2, key=key)
    objective = tw.objectives.MaximumLikelihood(tw.samplers.Langevin(0.1), 3, tw.samplers.ReplayBuffer(100, 0.1))
    runs = tw.train.fit_many(energy, DATA, objective, keys=KEYS[:2], **SETTINGS)
    alone = tw.fit(energy(KEYS[1]), DATA, objective, key=KEYS[1], **SETTINGS)
    assert np.allclose(runs[1].history["loss"], alone.history["loss"], rtol=1e-3, atol=1e-4)


def test_a_seed_that_diverges_is_named():
    def wild(key):
        return Quadratic(jnp.where(key == KEYS[2], 1e30, 0.0) * jnp.ones(2))

    with pytest.raises(tw.train.DivergedError, match=r"expected a finite loss, got .* at update 1 of seed 2"):
        many(wild)


@pytest.mark.parametrize(
    "change, sentence",
    [
        ({"keys": 0}, r"expected an array of random keys \(seeds,\), got 0; write keys=jax.random.split"),
        ({"keys": jax.random.key(0)}, "expected an array of random keys"),
        ({"keys": []}, "expected an array of random keys"),
        ({"energy": lambda key: 3.0}, "expected a function key -> energy .* got one that returns float"),
        ({"energy": lambda x: jnp.sum(jax.random.normal(x))}, "expected a function key -> energy"),
        ({"energy": 3.0}, "expected an energy"),
        ({"energy": lambda key: Quadratic(jnp.ones(2), str(key))}, "of one form from all seeds"),
        ({"steps": 2.5}, "expected steps to be a whole number"),
        ({"optimizer": "adam"}, "expected an optax optimiser, got 'adam'"),
    ],
)
def test_bad_input_gets_one_sentence(change, sentence, unchecked):
    with pytest.raises(ValueError, match=sentence):
        many(**change)


def test_vmap_around_fit_names_fit_many(unchecked):
    own = KEYS[0]
    sentence = r"expected numbers in key that can be looked at, .* tw.train.fit_many\(..., keys=keys\)"
    with pytest.raises(ValueError, match=sentence):
        jax.vmap(lambda key: tw.fit(Quadratic(jnp.ones(2)), DATA, Noisy(), key=key, **SETTINGS).energy.centre)(KEYS)
    with pytest.raises(ValueError, match="expected numbers in energy that can be looked at"):
        jax.vmap(lambda at: tw.fit(Quadratic(at), DATA, Noisy(), key=own, **SETTINGS).energy.centre)(jnp.ones((3, 2)))
    model = Quadratic(jnp.ones(2))
    with pytest.raises(ValueError, match="expected numbers in data that can be looked at"):
        jax.jit(lambda x: tw.fit(model, x, Noisy(), key=own, **SETTINGS).params)(DATA)
