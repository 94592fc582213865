"""One-call training: every type of unit learns what independent units cannot."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw

KEY = jax.random.key(0)
G = np.random.default_rng(0)
SIGN = G.integers(0, 2, (1000, 1))  # one hidden cause that all units share
ROWS = {
    "BernoulliUnits": np.where(G.uniform(size=(1000, 6)) < 0.9, SIGN, 1 - SIGN),
    "SpinUnits": np.where(G.uniform(size=(1000, 6)) < 0.9, 2 * SIGN - 1, 1 - 2 * SIGN),
    "CategoricalUnits": np.where(G.uniform(size=(1000, 4)) < 0.8, 2 * SIGN, 1),
    "GaussianUnits": G.normal(4.0 * SIGN - 2, 1.0, (1000, 2)) * [1.0, 3.0],
    "ReplicatedSoftmaxUnits": G.multinomial(20, np.where(SIGN, [0.6, 0.3, 0.1], [0.1, 0.3, 0.6])),
}


def log_likelihood(rbm, rows):
    rows = tw.spaces.as_points(rbm.space, rows)
    log_z = rbm.exact_log_z(20) if isinstance(rbm.space, tw.Counts) else rbm.exact_log_z()
    return float(jnp.mean(-jax.vmap(rbm)(rows)) - log_z)


def gain(model, rows):
    """The log-likelihood beyond that of independent units, in nats per row."""
    alone = tw.energies.RBM(tw.energies.RBM.from_data(rows, 2, key=KEY).visible, 2, 0.0)
    return log_likelihood(model, rows) - log_likelihood(alone, rows)


# what two hidden units can gain, within a few percent
GAINS = {"BernoulliUnits": 1.5, "SpinUnits": 1.4, "CategoricalUnits": 1.3, "GaussianUnits": 0.85}
GAINS["ReplicatedSoftmaxUnits"] = 3.0


@pytest.mark.parametrize("name", ROWS)
def test_every_type_of_visible_unit_learns_a_common_cause(name):
    rate = 0.03 if name == "ReplicatedSoftmaxUnits" else 0.3
    run = tw.machines.train_rbm(ROWS[name], hidden=2, key=KEY, epochs=60, learning_rate=rate)
    assert type(run.energy.visible).__name__ == name
    assert gain(run.energy, ROWS[name]) > GAINS[name]


@pytest.mark.slow
@pytest.mark.parametrize("name", ROWS)
def test_the_defaults_work_for_every_type_of_unit(name):
    run = tw.machines.train_rbm(ROWS[name], hidden=2, key=KEY)
    assert gain(run.energy, ROWS[name]) > GAINS[name]


def test_documents_of_different_lengths_are_learned_from_chains_that_start_at_them():
    lengths = np.random.default_rng(1).integers(10, 30, 1000)
    causes = np.where(SIGN, [0.6, 0.3, 0.1], [0.1, 0.3, 0.6])
    rows = np.stack([G.multinomial(n, p) for n, p in zip(lengths, causes, strict=True)])
    run = tw.machines.train_rbm(rows, hidden=2, key=KEY, epochs=60, learning_rate=0.03)
    assert run.energy.visible.length is None
    same = rows[lengths == 20]
    assert gain(run.energy, same) > 2.5
    with pytest.raises(ValueError, match="expected chains that start at documents"):
        run.energy.space.noise(KEY, (3,))


@pytest.mark.parametrize("units", [tw.energies.SpinUnits, tw.energies.GaussianUnits, tw.energies.ReLUUnits])
def test_every_type_of_hidden_unit_learns(units):
    rows = ROWS["BernoulliUnits"]
    run = tw.machines.train_rbm(rows, hidden=units(2), key=KEY, epochs=60, learning_rate=0.2)
    assert gain(run.energy, rows) > 1.2


@pytest.mark.parametrize("method", ["auto", "mean_field", "gibbs"])
def test_a_boltzmann_machine_learns(method):
    rows = ROWS["BernoulliUnits"]
    run = tw.machines.train_boltzmann(rows, hidden=1, key=KEY, epochs=40, method=method)
    assert gain(run.energy, rows) > 1.2


def test_pictures_are_flattened_and_runs_are_written(tmp_path):
    pictures = ROWS["BernoulliUnits"].reshape(1000, 2, 3)
    run = tw.machines.train_rbm(pictures, hidden=2, key=KEY, epochs=1, run_dir=tmp_path / "run")
    assert run.energy.weights.shape == (6, 2)
    again = tw.load_run(tmp_path / "run")
    np.testing.assert_array_equal(again.energy.weights, run.energy.weights)
    assert run.sample(key=KEY, chains=5).draws.shape[-1] == 6


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tw.machines.train_rbm(np.zeros(5), key=KEY), "expected data as numbers"),
        (lambda: tw.machines.train_rbm(np.zeros((5, 2)), key=KEY, epochs=0), "expected epochs to be a whole number"),
        (lambda: tw.machines.train_rbm(np.zeros((5, 2)), 2, key=KEY, learning_rate=-1), "expected learning_rate > 0"),
        (
            lambda: tw.machines.train_rbm([[0, 2], [1, 7]], 2, key=KEY, visible=tw.energies.CategoricalUnits(2, k=5)),
            "in row 1, column 1",
        ),
        (lambda: tw.machines.train_boltzmann([[0, 1], [2, 0]], key=KEY), "in row 1, column 0"),
        (lambda: tw.machines.train_boltzmann([[0, 1]], 30, key=KEY, method="exact"), "expected at most 25 units"),
        (lambda: tw.machines.train_boltzmann([[0, 1]], key=KEY, method="best"), "expected method to be one of"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(call, words):
    with pytest.raises(ValueError, match=words):
        call()
