"""Random misuses of the whole library end in a sentence or in a right answer: a few hundred cases of `fuzz_misuse`."""

import random

import jaxtyping
import numpy as np
import pytest
from tests.contracts import fuzz_misuse as fuzz


@pytest.fixture
def unchecked():
    """Types as a user has them, without the checker of the tests, which would refuse bad input before us."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.slow
@pytest.mark.vmapped_keys
def test_random_misuses_end_in_a_sentence(unchecked):
    chance, table = random.Random(7), fuzz.calls()
    cases = [fuzz.random_case(chance, table) for _ in range(300)]
    outcomes = [(str(case), *fuzz.outcome(case, table)) for case in cases]
    assert not [outcome for outcome in outcomes if outcome[1] in fuzz.FAULTS]
    assert sum(kind == "refused" for _, kind, _ in outcomes) > 200


def test_the_fuzzer_sees_a_raw_exception_and_a_text_that_is_no_sentence(unchecked):
    def raw(x):
        return x.nothing

    def plain(x):
        raise ValueError("bad")

    table = {"raw": fuzz.Call(raw, {"x": 0}), "plain": fuzz.Call(plain, {"x": 0}), "fine": fuzz.Call(np.sum, {"a": 0})}
    kinds = [fuzz.outcome(fuzz.Case(name, {}), table)[0] for name in table]
    assert kinds == ["raw", "no sentence", "accepted"]


# what the fuzzer found once: each was a raw exception, a hang, or accepted with a wrong result
FOUND = [
    fuzz.Case("exact.sample", {"shape": "huge shape"}),
    fuzz.Case("exact.gibbs_matrix", {"block": "-2^70"}),
    fuzz.Case("given", {"condition": "numpy texts"}),
    fuzz.Case("noise.fit_independent", {"data": "-2^70"}),
    fuzz.Case("rejection", {"energy": "no arguments"}),
    fuzz.Case("exact.metropolis_matrix", {"log_proposal": "text function"}),
    fuzz.Case("working_memory", {"objective": "nested list", "batch": "tree of mixed keys"}),
    fuzz.Case("samplers.NUTS", {"step_size": "dates"}),
    fuzz.Case("samplers.MALA", {"step_size": "empty list"}),
    fuzz.Case("samplers.Langevin", {"noise_scale": "tuple with zero"}),
    fuzz.Case("Gaussian.sample", {"key": "-1"}),
    fuzz.Case("Beta.sample", {"shape": "1.5"}),
    fuzz.Case("MLP(x)", {"x": "list"}),
    fuzz.Case("Uniform.log_prob", {"x": "one axis"}),
    fuzz.Case("sample", {"key": "class of a space"}),
    fuzz.Case("sample", {"progress": "text"}),
    fuzz.Case("samplers.ParallelTempering", {"all_rungs": "range"}),
    fuzz.Case("objectives.AdaNCE", {"stein": "empty dict"}),
    fuzz.Case("objectives.NCE", {"noise": "object"}),
    fuzz.Case("score", {"x": "text"}),
    fuzz.Case("advance", {"kernel": "0"}),
    fuzz.Case("advance", {"energy": "identity"}),
    fuzz.Case("given", {"model": "no arguments"}),
    fuzz.Case("check_objective", {"exact": "conditional energy"}),
    fuzz.Case("objectives.DenoisingScoreMatching", {"sigma": "no arguments"}),
    fuzz.Case("objectives.AdaNCE", {"start": "network"}),
    fuzz.Case("fit spins", {"data": "key"}),
    fuzz.Case("data.two_moons", {"n": "text"}),
    fuzz.Case("data.checkerboard_log_prob", {"half_width": "-0.5"}),
    fuzz.Case("data.to_pixels", {"x": "nan"}),
    fuzz.Case("data.read_csv", {"path": "range"}),
    fuzz.Case("noise.flow", {"knots": "text"}),
    fuzz.Case("noise.Reshaped", {"density": "None function"}),
    fuzz.Case("exact.transition_matrix", {"log_kernel": "identity"}),
    fuzz.Case("energies.PositiveForm", {"space": "spins"}),
    fuzz.Case("spaces.Interval", {"low": "key"}),
    fuzz.Case("spaces.Simplex", {"n": "2^40"}),
]


@pytest.mark.parametrize("case", FOUND, ids=str)
def test_what_was_found_is_refused(unchecked, table, case):
    kind, text = fuzz.outcome(case, table)
    assert kind == "refused", text


@pytest.fixture(scope="module")
def table():
    return fuzz.calls()
