"""Optimisers are told apart by what they compute."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from thalweg.train.optimizer import TracedOptimizer

WEIGHTS = {"weight": jnp.ones((3, 2)), "bias": jnp.zeros(3)}
MAKERS = {
    "sgd": lambda: optax.sgd(0.1),
    "momentum": lambda: optax.sgd(0.1, momentum=0.9),
    "adam": lambda: optax.adam(1e-3),
    "adamw": lambda: optax.adamw(1e-3),
    "adabelief": lambda: optax.adabelief(1e-3),
    "adafactor": lambda: optax.adafactor(1e-3),
    "lamb": lambda: optax.lamb(1e-3),
    "lion": lambda: optax.lion(1e-3),
    "rmsprop": lambda: optax.rmsprop(1e-3),
    "muon": lambda: optax.contrib.muon(1e-3),
    "schedule": lambda: optax.adam(optax.cosine_decay_schedule(1e-3, 100)),
    "clipped": lambda: optax.chain(optax.clip_by_global_norm(1.0), optax.adam(1e-3)),
    "accumulated": lambda: optax.MultiSteps(optax.adam(1e-3), 2),
    "noisy": lambda: optax.noisy_sgd(0.1, 0.1, 0.55, jax.random.key(0)),
    "finite": lambda: optax.apply_if_finite(optax.adam(1e-3), 3),
    "injected": lambda: optax.inject_hyperparams(optax.adam)(1e-3),
}


def traced(optimizer, weights=WEIGHTS):
    return TracedOptimizer(optimizer, optimizer.init(weights), weights)


@pytest.mark.parametrize("name", MAKERS)
def test_the_same_settings_are_the_same_optimiser(name):
    first, second = traced(MAKERS[name]()), traced(MAKERS[name]())
    assert first == second and hash(first) == hash(second)


def test_others_are_others():
    made = [traced(make()) for make in MAKERS.values()]
    made += [traced(optax.adam(rate)) for rate in (2e-3, np.nextafter(np.float32(1e-3), np.float32(1)))]
    made += [traced(optax.adam(1e-3), jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), WEIGHTS))]
    assert len(set(made)) == len(made)


def test_numbers_inside_inner_functions_count():
    def scaled(by):
        inner = jax.jit(lambda gradient: gradient * jnp.asarray(by))
        return optax.stateless(lambda gradients, _: jax.tree.map(inner, gradients))

    weights = jnp.ones(2000)
    table = np.linspace(0, 1, 2000, dtype=np.float32)
    other = table.copy()
    other[1000] += 1
    assert traced(scaled(table), weights) == traced(scaled(table.copy()), weights)
    assert traced(scaled(table), weights) != traced(scaled(other), weights)


def test_it_computes_what_the_optimiser_does():
    optimizer = optax.adamw(1e-2)
    state, gradient = optimizer.init(WEIGHTS), jax.tree.map(lambda leaf: leaf + 2.0, WEIGHTS)
    ours, theirs = (each.update(gradient, state, WEIGHTS) for each in (traced(optimizer), optimizer))
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.allclose(a, b, rtol=1e-6)), ours, theirs))


def test_an_optimiser_that_returns_something_else_is_refused():
    forgets = optax.GradientTransformation(lambda weights: {"count": 0}, lambda gradients, state, _: (gradients, None))
    with pytest.raises(ValueError, match="a change for every parameter and a state like the one before, got others"):
        traced(forgets)
