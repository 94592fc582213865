"""Kernels that return the wrong thing, states that belong elsewhere, arguments that are no numbers: each is refused in
a sentence that says what was expected, what came, and what to do."""

import re

import equinox as eqx
import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest

import thalweg as tw
from thalweg import samplers as ts
from thalweg.core import Info, Kernel, State

SENTENCE = re.compile(r"(\w+: )?expected .+, got .+; .+", re.DOTALL)
PLANE = tw.energies.Gaussian(jnp.zeros(2), jnp.eye(2))
START = jnp.zeros((3, 2))


class Point(State):
    x: jax.Array


class Held(State):
    x: jax.Array
    value: jax.Array


class Mine(Kernel):
    """A right kernel, of which the others are made."""

    def init(self, key, energy, x):
        return Point(x)

    def step(self, key, energy, state):
        return Point(state.x), Info()


class BareState(Mine):
    def init(self, key, energy, x):
        return x


class BareStep(Mine):
    def step(self, key, energy, state):
        return state.x, Info()


class NoInfo(Mine):
    def step(self, key, energy, state):
        return state


class DictInfo(Mine):
    def step(self, key, energy, state):
        return state, {"acceptance": jnp.ones(3)}


class OneAcceptance(Mine):
    def step(self, key, energy, state):
        return state, Info(acceptance=jnp.ones(()))


class TypeChange(Mine):
    def step(self, key, energy, state):
        return Point(state.x.astype(jnp.float16)), Info()


class ShapeChange(Mine):
    def step(self, key, energy, state):
        return Point(state.x[:, :1]), Info()


class NoLeadingAxis(Mine):
    def init(self, key, energy, x):
        return Held(x, jnp.zeros(()))

    def step(self, key, energy, state):
        return state, Info()


class NoRetarget(Mine):
    """A state with more than positions, and no word about another energy."""

    def init(self, key, energy, x):
        return Held(x, jax.vmap(energy)(x))

    def step(self, key, energy, state):
        return state, Info()


class Loose(eqx.Module):
    """No `Kernel`, but it has what is asked for, except `retarget`."""

    def init(self, key, energy, x):
        return Point(x)

    def step(self, key, energy, state):
        return state, Info()


def run(energy=PLANE, kernel=None, init=START, key=None, draws=2, **options):
    kernel = ts.MALA(0.1) if kernel is None else kernel
    tw.sample(energy, kernel, init, key=jax.random.key(0) if key is None else key, draws=draws, **options)


def state(kernel=None, energy=PLANE, x=START):
    return (ts.MALA(0.1) if kernel is None else kernel).init(jax.random.key(1), energy, x)


def ladder(kernel):
    return ts.ParallelTempering(kernel, [1.0, 2.0])


FOUR = tw.core.PerChain(lambda _, c: lambda x: jnp.sum((x - c) ** 2), None, jnp.zeros(4), tw.Real(2))
GAMMA = tw.energies.Gamma(jnp.ones(2), 1.0)
RETARGET = "to define how its state continues when the energy changes"
ELSEWHERE = "expected a state of MALA, got"
CASES = {
    # a kernel of the user's own
    "a bare array as state": (
        lambda: run(kernel=BareState()),
        "expected BareState.init to return a tw.core.State, got",
    ),
    "a bare array from a step": (
        lambda: run(kernel=BareStep()),
        "expected BareStep.step to return a state like",
    ),
    "no info": (lambda: run(kernel=NoInfo()), "expected NoInfo.step to return (state, tw.core.Info), got Point"),
    "a dictionary as info": (lambda: run(kernel=DictInfo()), "to return (state, tw.core.Info), got dict"),
    "an info of one number": (
        lambda: run(kernel=OneAcceptance()),
        "expected the 3 chains as the leading axis of every",
    ),
    "another type": (lambda: run(kernel=TypeChange()), "expected TypeChange.step to keep the shapes and types"),
    "another shape": (lambda: run(kernel=ShapeChange()), "expected ShapeChange.step to keep the shapes and types"),
    "no leading axis": (lambda: run(kernel=NoLeadingAxis()), "expected the 3 chains as the leading axis of every"),
    "no retarget, tempered": (lambda: run(kernel=ladder(NoRetarget())), f"expected NoRetarget {RETARGET}"),
    "no retarget, annealed": (
        lambda: run(kernel=ts.SimulatedAnnealing(NoRetarget())),
        f"expected NoRetarget {RETARGET}",
    ),
    "no Kernel, tempered": (lambda: run(kernel=ladder(Loose())), f"expected Loose {RETARGET}"),
    "no Kernel, annealed": (lambda: run(kernel=ts.SimulatedAnnealing(Loose())), f"expected Loose {RETARGET}"),
    "no Kernel, going on": (lambda: run(kernel=Loose(), init=Point(START)), f"expected Loose {RETARGET}"),
    # states that belong elsewhere
    "a state of another kernel": (lambda: run(init=state(ts.UnderdampedLangevin(0.1))), ELSEWHERE),
    "a state of a wrapped kernel": (lambda: run(init=state(ladder(ts.MALA(0.1)))), ELSEWHERE),
    "a state of another space": (lambda: run(init=state(energy=GAMMA, x=jnp.ones((3, 2)))), ELSEWHERE),
    "a state of other points": (lambda: run(init=state(energy=jnp.sum, x=jnp.ones((3, 5)))), "of shape"),
    "a state of fewer chains": (lambda: run(energy=FOUR, init=state()), "expected 4 chains for 4 energies, got 3"),
    "starts of fewer chains": (lambda: run(energy=FOUR), "expected 4 starts for 4 energies, got 3"),
    # arguments
    "a class": (lambda: run(kernel=ts.MALA), "got the class MALA; create an instance"),
    "a number for a kernel": (lambda: run(kernel=0.1), "expected a kernel, got 0.1"),
    "the class of an energy": (lambda: run(energy=tw.energies.Banana), "got the class Banana; create an instance"),
    "a number for an energy": (lambda: run(energy=1.0), "expected an energy, a callable"),
    "an energy of no scalar": (lambda: run(energy=lambda x: x), "expected an energy to return a scalar"),
    "an energy of two points": (lambda: run(energy=lambda x, c: jnp.sum(x)), "expected an energy of one point x"),
    "a number for a key": (lambda: run(key=0), "expected a random key, got 0; write key=jax.random.key(0)"),
    "many keys": (lambda: run(key=jax.random.split(jax.random.key(0), 3)), "expected one random key, got an array"),
    "draws nan": (lambda: run(draws=float("nan")), "expected draws to be a whole number >= 1, got nan"),
    "draws 10.5": (lambda: run(draws=10.5), "expected draws to be a whole number >= 1, got 10.5"),
    "draws True": (lambda: run(draws=True), "expected draws to be a whole number >= 1, got True"),
    "draws 2^40": (lambda: run(draws=2**40), "expected draws to be a whole number below 2^31"),
    "draws zero": (lambda: run(draws=0), "expected draws to be a whole number >= 1, got 0"),
    "draws a text": (lambda: run(draws="10"), "expected draws to be a whole number >= 1, got '10'"),
    "burn_in below zero": (lambda: run(burn_in=-1), "expected burn_in to be a whole number >= 0, got -1"),
    "thin zero": (lambda: run(thin=0), "expected thin to be a whole number >= 1, got 0"),
    "a text for points": (lambda: run(init="zeros"), "expected arrays of numbers in init, got the text"),
    "no points": (lambda: run(init=None), "expected"),
    "no axis of chains": (lambda: run(init=jnp.zeros(2)), "expected init of shape"),
    "complex points": (lambda: run(init=jnp.zeros((3, 2), complex)), "expected real numbers in init"),
    "masked points": (lambda: run(init=np.ma.masked_equal(np.zeros((3, 2)), 0)), "got a masked array"),
    "a text in a tree": (lambda: run(energy=lambda x: jnp.sum(x["a"]), init={"a": START, "b": "zeros"}), "in init"),
    "points that are not finite": (
        lambda: run(init=jnp.full((3, 2), jnp.nan)),
        "expected a finite energy at every start",
    ),
    "tempering inside tempering": (lambda: ladder(ladder(ts.MALA(0.1))), "got ParallelTempering, which changes"),
    "a class inside tempering": (lambda: ladder(ts.MALA), "got the class MALA"),
    "falling temperatures": (
        lambda: ts.ParallelTempering(ts.MALA(0.1), [1.0, 0.5]),
        "expected temperatures rising from 1",
    ),
    "a NaN among scales": (lambda: ts.RandomWalk(jnp.array([1.0, jnp.nan])), "expected scale > 0"),
    "a progress bar under jit": (
        lambda: jax.jit(lambda key: run(key=key, progress=True))(jax.random.key(0)),
        "expected no progress bar under jit",
    ),
}


@pytest.fixture
def unchecked():
    """Types as a user has them, without the checker of the tests, which would refuse bad input before us."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.mark.parametrize("name", CASES)
def test_every_misuse_is_refused_in_a_sentence(unchecked, name):
    call, sentence = CASES[name]
    with pytest.raises(ValueError) as caught:
        call()
    text = str(caught.value)
    assert sentence in text and SENTENCE.fullmatch(text), text


def test_a_kernel_of_positions_alone_needs_no_retarget(key):
    chains = tw.sample(PLANE, ladder(Mine()), START, key=key, draws=2)
    assert chains.draws.shape == (3, 2, 2)


WANTS_A_KERNEL = {
    "sample": lambda kernel, key: tw.sample(PLANE, kernel, START, key=key, draws=2),
    "warm_up": lambda kernel, key: ts.warm_up(PLANE, kernel, START, key=key, steps=20),
    "check_sampler": lambda kernel, key: tw.check_sampler(kernel, PLANE, key=key, chains=100, steps=2),
    "advance": lambda kernel, key: ts.advance(PLANE, kernel, Point(START), key=key, steps=2),
    "tune_ladder": lambda kernel, key: ts.tune_ladder(PLANE, kernel, START, key=key, hottest=2.0, rungs=2),
}


@pytest.mark.parametrize("name", WANTS_A_KERNEL)
@pytest.mark.parametrize(
    ("kernel", "got"),
    [
        (ts.MALA, r"the class MALA; create an instance: MALA\(...\)"),
        ("mala", r"'mala' without init; give for example tw.samplers.MALA\(0.1\)"),
        (None, "None without init; give for example"),
        (ts.from_blackjax, "the function from_blackjax without init; give for example"),
        (lambda x: x, "a lambda without init; give for example"),
    ],
)
def test_what_is_no_kernel_is_refused_in_a_sentence(name, kernel, got, key):
    with pytest.raises(ValueError, match=f"^expected a kernel( inside ParallelTempering)?, got {got}"):
        WANTS_A_KERNEL[name](kernel, key)


@pytest.mark.parametrize(
    ("objective", "got"),
    [
        (tw.objectives.NCE, r"the class NCE; create an instance: NCE\(...\)"),
        ("nce", r"'nce' without init; give for example tw.objectives.NCE\(\)"),
        (None, "None without init; give for example"),
        (lambda *arguments: 0.0, "a lambda without init; give for example"),
    ],
)
def test_what_is_no_objective_is_refused_in_a_sentence(objective, got, key):
    with pytest.raises(ValueError, match=f"^expected an objective, got {got}"):
        tw.check_objective(objective, key=key)


@pytest.mark.parametrize("name", ["sample", "warm_up", "check_sampler"])
@pytest.mark.parametrize("energy", [tw.energies.Banana, "banana", None])
def test_what_is_no_energy_is_refused_in_a_sentence(name, energy, key):
    calls = {
        "sample": lambda: tw.sample(energy, ts.MALA(0.1), START, key=key, draws=2),
        "warm_up": lambda: ts.warm_up(energy, ts.MALA(0.1), START, key=key, steps=20),
        "check_sampler": lambda: tw.check_sampler(ts.MALA(0.1), energy, key=key, chains=100, steps=2),
    }
    with pytest.raises(ValueError, match=r"^\w+: expected an energy, .*got .+; .+"):
        calls[name]()


def test_points_are_no_state(key):
    with pytest.raises(ValueError, match=r"^expected a state, got ArrayImpl; make one by kernel.init"):
        ts.advance(PLANE, ts.MALA(0.1), START, key=key, steps=2)
