"""Chains cut where they are looked at: the same law as a chain in one piece, and other noise in every piece."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.train import drawing
from thalweg.train.drawing import draw, frames

CHAINS = 4000
LIKE = np.zeros((1, 1))


def normal(x):
    return 0.5 * jnp.sum(x**2)


def drawn(energy, kernel, steps, key, **options):
    counts = []
    result = draw(energy, kernel, LIKE, key, counts.append, chains=CHAINS, steps=steps, **options)
    assert sum(counts) == steps
    return result


@pytest.mark.parametrize(
    "kernel", [tw.samplers.UnderdampedLangevin(0.1), tw.samplers.HMC(0.9, 2)], ids=["momenta", "none"]
)
def test_a_chain_in_pieces_has_the_variance_of_one_in_a_piece(kernel, key):
    """From N(0, 0.01), of which nothing is left after the run; momenta lost at every cut would leave much less than 1.

    The variance of 4000 chains has a standard error of 0.022: 0.1 is a false alarm in 10^5 seeds, with what the
    unadjusted kernel is off by itself; in pieces without their momenta it was 0.109.
    """
    near = lambda key, shape: 0.1 * jax.random.normal(key, shape)
    pieces = drawn(normal, kernel, 100, key, noise=near)
    assert len(pieces.path) == len(frames(100)) == 26
    assert np.var(pieces.path[0]) < 0.05
    assert np.var(pieces.x) == pytest.approx(1.0, abs=0.1)


def test_pieces_are_of_one_chain_and_each_has_noise_of_its_own(key):
    """Steps of Langevin on a flat energy add noise of variance τ, independent of that of every other piece."""
    flat = lambda x: 0.0 * jnp.sum(x)
    pieces = drawn(flat, tw.samplers.Langevin(0.25), 50, key).path[:, :, 0]
    moves = np.diff(pieces, axis=0)  # (25, followed), two steps each
    assert moves.shape == (25, 16)
    # 400 numbers of variance 0.5: a standard error of 0.035; and 24·16 products of neighbours, of 0.0255
    assert np.var(moves) == pytest.approx(0.5, abs=0.14)
    assert abs(np.mean(moves[1:] * moves[:-1])) < 0.1


def test_the_state_goes_on_from_piece_to_piece(key, monkeypatch):
    """Every piece begins with the state the one before ended with, on a key that no other piece has."""
    begun, ended, keys = [], [], []

    def watched(energy, kernel, init, *, key, **options):
        begun.append(init)
        keys.append(tuple(np.asarray(jax.random.key_data(key)).tolist()))
        chains = tw.sample(energy, kernel, init, key=key, **options)
        ended.append(chains.state)
        return chains

    monkeypatch.setattr(drawing, "sample", watched)
    result = drawn(normal, tw.samplers.UnderdampedLangevin(0.1), 7, key)
    assert len(begun) == 7 and len(set(keys)) == 7
    assert all(isinstance(each, tw.core.State) for each in begun)
    assert all(before is after for before, after in zip(ended, begun[1:], strict=False))
    assert np.array_equal(result.x, np.asarray(ended[-1].x))


def test_chains_that_run_off_are_refused_with_what_to_lower(key):
    with pytest.raises(ValueError, match=r"of 4000 chains that ran off .* lower sample.kernel.step_size"):
        drawn(lambda x: jnp.sum(x**4), tw.samplers.Langevin(50.0), 30, key)


@pytest.mark.parametrize("options", [{"chains": 0}, {"steps": 0}])
def test_too_few_are_refused(options, key):
    with pytest.raises(ValueError, match="expected at least 1, got 0"):
        draw(normal, tw.samplers.MALA(0.1), LIKE, key, lambda count: None, **options)
