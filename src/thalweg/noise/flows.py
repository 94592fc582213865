"""Normalising flows of flowjax as noise densities that can be trained."""

import functools
import math
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray
from paramax import non_trainable

from thalweg.core import finite, positive, static_number, typed_key, whole_number
from thalweg.noise.densities import flatten_points, reshape_density, variances
from thalweg.spaces.checks import as_shape


def flow(
    shape: int | tuple[int, ...],
    *,
    key: PRNGKeyArray,
    layers: int = 6,
    width: int = 64,
    knots: int = 8,
    mean: Any = 0.0,
    deviation: Any = 1.0,
) -> Any:
    r"""A coupling flow with rational-quadratic splines on points of ``shape``; on one coordinate a stack of splines.

    The splines act within four standard deviations of the mean; outside, a layer is the identity. References: Dinh,
    Sohl-Dickstein and Bengio (2017), ICLR; Durkan et al. (2019), NeurIPS.

    Args:
        shape: the shape of a point.
        key: the random key of the weights.
        layers: the number of coupling layers, each with a permutation.
        width: the number of hidden units of a conditioner.
        knots: the number of knots of a spline.
        mean: the mean of the data, a number or an array of the point's shape; it is not trained.
        deviation: the standard deviation of the data, likewise.

    Returns:
        A flowjax distribution; `Reshaped` if points are not vectors.

    >>> import jax, thalweg as tw
    >>> noise = tw.noise.flow((4, 4, 1), key=jax.random.key(0), layers=2, width=8)
    >>> noise.sample(jax.random.key(1), (3,)).shape
    (3, 4, 4, 1)
    """
    # imported here because it takes a quarter of a second and only flows need it
    from flowjax import bijections, distributions

    shape = as_shape(shape)
    size = math.prod(shape)
    layers, width, knots = whole_number("layers", layers), whole_number("width", width), whole_number("knots", knots, 2)
    mean, deviation = _of_shape("mean", mean, shape), _of_shape("deviation", positive("deviation", deviation), shape)
    made = _splines(typed_key(key), size, layers, width, knots)
    leaves, structure = _form(size, layers, width, knots)
    drawn = [new if eqx.is_array(new) else old for new, old in zip(jax.tree.leaves(made), leaves, strict=True)]
    made = jax.tree.unflatten(structure, drawn)
    return reshape_density(distributions.Transformed(made, non_trainable(bijections.Affine(mean, deviation))), shape)


def _of_shape(name: str, value: Any, shape: tuple[int, ...]) -> Array:
    """One number a coordinate, flat."""
    array = finite(name, value)
    if array.shape not in ((), shape):
        raise ValueError(f"expected {name} as a number or of the point's shape {shape}, got {array.shape}; reshape it")
    return jnp.broadcast_to(array, shape).reshape(-1)


def _splines(key: PRNGKeyArray, size: int, layers: int, width: int, knots: int) -> Any:
    from flowjax import bijections, distributions, flows

    base = distributions.StandardNormal((size,))
    if size == 1:
        return flows.triangular_spline_flow(key, base_dist=base, flow_layers=layers, knots=knots)
    spline = bijections.RationalQuadraticSpline(knots=knots, interval=4)
    return flows.coupling_flow(key, base_dist=base, transformer=spline, flow_layers=layers, nn_width=width)


@functools.lru_cache(32)
def _form(size: int, layers: int, width: int, knots: int) -> tuple[list[Any], Any]:
    """The static leaves and the structure of flows of one size. flowjax puts new function objects into each flow, and
    compiled programs are cached by function: with the same objects in all flows, a second training compiles nothing."""
    leaves, structure = jax.tree.flatten(_splines(jax.random.key(0), size, layers, width, knots))
    return [None if eqx.is_array(leaf) else leaf for leaf in leaves], structure


def fit_flow(
    data: Any,
    *,
    key: PRNGKeyArray,
    epochs: int = 100,
    batch_size: int = 100,
    learning_rate: float = 1e-3,
    **options: Any,
) -> Any:
    r"""A `flow` trained by maximum likelihood with flowjax's own loop, with early stopping on held-out rows.

    Args:
        data: ``(rows, *event)``; a tenth is held out.
        key: the random key.
        epochs: the largest number of passes over the data; five without improvement end the training.
        batch_size: rows per update, at most nine tenths of all.
        learning_rate: the learning rate of Adam.
        options: arguments of `flow`: ``layers``, ``width``, ``knots``.

    Returns:
        As `flow`.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> data = tw.data.two_moons(jax.random.key(0), 500)
    >>> noise = tw.noise.fit_flow(data, key=jax.random.key(1), epochs=1, layers=1, width=8, knots=4)
    >>> noise.sample(jax.random.key(2), (5,)).shape
    (5, 2)
    """
    from flowjax.train import fit_to_data

    flat, shape = flatten_points(data)
    epochs, batch_size = whole_number("epochs", epochs), whole_number("batch_size", batch_size)
    learning_rate = static_number("learning_rate", learning_rate, positive)
    if not 1 <= batch_size <= 0.9 * len(flat):
        raise ValueError(
            f"expected a batch_size between 1 and nine tenths of the {len(flat)} rows, got {batch_size}; change it"
        )
    key_flow, key_fit = jax.random.split(typed_key(key))
    moments: dict[str, Array] = {"mean": jnp.mean(flat, axis=0), "deviation": jnp.sqrt(variances(flat))}
    made = flow(flat.shape[1], key=key_flow, **moments, **options)
    made, _ = fit_to_data(
        key_fit, made, flat, max_epochs=epochs, batch_size=batch_size, learning_rate=learning_rate, show_progress=False
    )
    return reshape_density(made, shape)
