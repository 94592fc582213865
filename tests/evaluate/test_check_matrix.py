"""The exact part of `check_sampler`: what a transition matrix says of a kernel."""

import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact
from thalweg.evaluate.check_matrix import check_matrix

SPINS = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2)], [0.8, -0.5]), 0.3)


class FirstSpinOnly(tw.samplers.Gibbs):
    """Leaves the target invariant, and all spins but the first where they are."""

    def transition_matrix(self, energy):
        return exact.gibbs_matrix(energy, jnp.arange(energy.space.shape[0]) == 0)


class Warmer(tw.samplers.Gibbs):
    def transition_matrix(self, energy):
        return super().transition_matrix(tw.tempered(energy, 1.01))


def test_a_right_kernel_is_described():
    holds, text = check_matrix(tw.samplers.Gibbs(scan="random"), SPINS)
    matrix = np.asarray(tw.samplers.Gibbs(scan="random").transition_matrix(SPINS), float)
    gap = 1 - np.sort(np.abs(np.linalg.eigvals(matrix)))[-2]
    assert holds and text.startswith(" Exactly, πT = π")
    assert text.endswith(f" The chain is irreducible, aperiodic and reversible, with spectral gap {gap:.3g}.")
    assert "aperiodic and not reversible" in check_matrix(tw.samplers.Gibbs(), SPINS)[1]


def test_a_chain_that_cannot_reach_all_states_fails(key):
    holds, text = check_matrix(FirstSpinOnly(), SPINS)
    assert not holds and "πT = π" in text and "not irreducible" in text
    assert text.endswith("It cannot reach all states of positive probability from all others.")
    verdict = tw.check_sampler(FirstSpinOnly(), SPINS, key=key, chains=1000, steps=1)
    assert not verdict.passed and verdict.text.startswith("FAILED") and verdict.text.endswith(text)


def test_a_wrong_law_fails_and_the_text_begins_with_it(key):
    assert not check_matrix(Warmer(), SPINS)[0]
    verdict = tw.check_sampler(Warmer(), SPINS, key=key, chains=1000, steps=1)
    assert not verdict.passed and verdict.text.startswith("FAILED") and "πT ≠ π" in verdict.text


def test_a_periodic_chain_is_said_to_be_one_and_passes():
    """One spin without a field: every flip is accepted, forth and back."""
    flat = tw.as_energy(lambda x: 0.0 * jnp.sum(x), tw.Spin(1))
    holds, text = check_matrix(tw.samplers.GibbsWithGradients(), flat)
    assert holds and "irreducible, not aperiodic and reversible, with spectral gap 0." in text
    assert "It is periodic" in text


@pytest.mark.parametrize(
    "kernel, energy",
    [
        (tw.samplers.MALA(0.1), tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))),
        (tw.samplers.Gibbs(), tw.energies.GaussianField(tw.energies.Graph([(0, 1)], 0.4), 1.0, [1.0, 0.0])),
        (tw.samplers.Gibbs(), tw.energies.Ising(tw.energies.Grid((4, 4), 0.1))),
    ],
)
def test_where_there_is_no_matrix_nothing_is_said(kernel, energy):
    assert check_matrix(kernel, energy) == (True, "")
