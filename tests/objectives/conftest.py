"""What several tests of objectives share."""

import equinox as eqx
import jax
import optax
import pytest


def _descend(objective, energy, data, key, steps=100, rate=0.1):
    """Steps of Adam on the whole of the data, as one compiled program."""
    params, state = objective.init(key, energy, data)
    trained, fixed = eqx.partition((energy, params), eqx.is_inexact_array)
    optimizer = optax.adam(optax.cosine_decay_schedule(rate, steps))

    def update(carry, key):
        trained, state, memory = carry

        def loss(trained):
            energy, params = eqx.combine(trained, fixed)
            return objective.loss(key, energy, params, state, data)

        gradient, step = jax.grad(loss, has_aux=True)(trained)
        change, memory = optimizer.update(gradient, memory)
        return (optax.apply_updates(trained, change), step.state, memory), None

    arrays, others = eqx.partition(state, eqx.is_array)
    assert not jax.tree.leaves(others)
    carry = (trained, arrays, optimizer.init(trained))
    (trained, _, _), _ = jax.jit(lambda carry, keys: jax.lax.scan(update, carry, keys))(
        carry, jax.random.split(key, steps)
    )
    return eqx.combine(trained, fixed)[0]


@pytest.fixture
def descend():
    """``descend(objective, energy, data, key)``: the energy after a short training, `tw.fit` aside."""
    return _descend
