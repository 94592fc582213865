"""What a person sees: ``repr`` shows numbers, ``help`` shows types by their names."""

import importlib
import inspect
import pydoc
import re
import tomllib
from pathlib import Path
from typing import get_type_hints

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest
from jaxtyping import Array

import thalweg as tw
from thalweg import energies, noise, objectives, samplers
from thalweg.core import Module

PACKAGES = sorted(tw._MODULES)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: samplers.HMC(0.3, steps=5), "HMC(step_size=0.3, steps=5)"),
        (lambda: samplers.HMC(0.3, mass_matrix=jnp.ones(2)), "HMC(step_size=0.3, mass_matrix=f32[2])"),
        (lambda: samplers.MALA(1e-6), "MALA(step_size=1e-06)"),
        (lambda: samplers.Langevin(0.1, 0.0), "Langevin(step_size=0.1, noise_scale=0.0)"),
        (lambda: samplers.ReplayBuffer(100), "ReplayBuffer(size=100)"),
        (lambda: energies.Banana(0.3), "Banana(curvature=0.3, scale=2.0)"),
        (
            lambda: tw.tempered(energies.Banana(), 2.0),
            "Tempered(energy=Banana(curvature=0.5, scale=2.0), temperature=2.0)",
        ),
        (lambda: energies.Matrix(jnp.zeros((100, 100))), "Matrix(weights=f32[100,100])"),
        (lambda: objectives.NCE(nu=2.0), "NCE(nu=2.0)"),
        (lambda: objectives.BregmanRatio(objectives.Power(0.5)), "BregmanRatio(psi=Power(beta=0.5))"),
        (lambda: noise.Jitter(0.1), "Jitter(sigma=0.1)"),
        (lambda: tw.Real(2), "Real(shape=(2,))"),
        (lambda: tw.Interval(0.0, 1.0), "Interval(low=0.0, high=1.0)"),
        (lambda: tw.Categorical(3, 4), "Categorical(shape=(3,), k=4)"),
    ],
)
def test_repr_shows_scalars(make, text):
    assert repr(make()) == text


class Holder(eqx.Module):
    kernel: samplers.HMC


def test_a_user_s_module_shows_the_scalars_of_ours():
    assert repr(Holder(samplers.HMC(0.3))) == "Holder(kernel=HMC(step_size=0.3))"


def test_repr_of_values_that_cannot_be_looked_at():
    seen = []
    jax.jit(lambda kernel: seen.append(repr(kernel)) or kernel.step_size)(samplers.HMC(0.3))
    jax.vmap(lambda size: seen.append(repr(samplers.MALA(size))) or size)(jnp.ones(3))
    given_away = samplers.MALA(0.3)
    given_away.step_size.delete()
    seen.append(repr(given_away))
    assert seen == [
        "HMC(step_size=f32[], steps=weak_i32[], mass_matrix=f32[])",
        "MALA(step_size=f32[])",
        "MALA(step_size=f32[])",
    ]


def test_keys_are_no_numbers_and_whole_numbers_stay_whole():
    class Mine(Module):
        key: Array
        count: Array
        flag: Array

    assert repr(Mine(jax.random.key(0), jnp.array(3), jnp.array(True))) == "Mine(key=key<fry>[], count=3, flag=True)"


@pytest.mark.parametrize("name", PACKAGES)
def test_signatures_name_types_and_no_modules(name):
    package = importlib.import_module(f"thalweg.{name}")
    exported = [getattr(package, each) for each in package.__all__]
    # an exception without a constructor of its own has no signature
    errors = [value for value in exported if isinstance(value, type) and issubclass(value, Exception)]
    values = [value for value in exported if callable(value) and value not in errors]
    methods = [
        member
        for value in values
        if isinstance(value, type)
        for member in vars(value).values()
        if inspect.isfunction(member) and not member.__name__.startswith("_")
    ]
    texts = [str(inspect.signature(value)) for value in (*values, *methods)]
    assert [text for text in texts if re.search(r"jaxtyping|jaxlib|typing\.|thalweg|UInt32| at 0x", text)] == []


def test_help_and_type_hints():
    shown = pydoc.render_doc(energies.MLP, renderer=pydoc.plaintext)  # pyright: ignore[reportAttributeAccessIssue]
    assert "*, key: PRNGKeyArray, activation: str | Callable[[Array], Array] | None = None" in shown
    # what type checkers and configurations read is the type itself
    assert get_type_hints(tw.sample)["return"] is tw.Chains
    assert inspect.signature(tw.sample).return_annotation is tw.Chains
    assert inspect.signature(tw.sample).parameters["draws"].annotation is int


def test_a_subclass_has_its_own_signature():
    class Shorter(samplers.MALA):
        def __init__(self):
            super().__init__(0.1)

    assert str(inspect.signature(Shorter)) == "()"


def test_the_package_says_that_it_is_typed():
    root = Path(tw.__file__).parent
    packaged = tomllib.loads((root.parent.parent / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert (root / "py.typed").is_file() and "py.typed" in packaged["thalweg"]
