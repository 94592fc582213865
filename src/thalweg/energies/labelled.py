"""A neural energy of points with a class label."""

import math

import equinox as eqx
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import ConditionalEnergy, check_point, whole_number
from thalweg.energies.layers import Dense
from thalweg.energies.neural import Activation, Function, dense_layers
from thalweg.spaces import Categorical, Real


class LabelledMLP(ConditionalEnergy):
    r"""``E(x, c) = f(x)_c``: a dense network with one output per class; the label c selects its output.

    Trained on ``(x, c)`` it learns the density of each class, ``p(x | c)``; ``tw.given(energy, c)`` is the energy of
    one class. ``tw.energies.swapped(energy)`` is the classifier ``p(c | x) ∝ exp(-f(x)_c)``.
    Reference: Grathwohl et al. (2020), ICLR, Your Classifier is Secretly an Energy Based Model.

    Args:
        shape: of a point; any shape, flattened before the first layer.
        classes: the number of classes, which are numbered from 0.
        width, depth, activation, slope, spectral_norm: as in `MLP`.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> energy = tw.energies.LabelledMLP(2, 3, key=jax.random.key(0))
    >>> tw.given(energy, 2)(jnp.zeros(2)).shape
    ()
    """

    layers: tuple[Dense, ...]
    activation: Activation
    space: Real = eqx.field(static=True)
    condition_space: Categorical = eqx.field(static=True)

    def __init__(
        self,
        shape: int | tuple[int, ...],
        classes: int,
        width: int = 128,
        depth: int = 2,
        *,
        key: PRNGKeyArray,
        activation: Function | None = None,
        slope: float = 0.2,
        spectral_norm: bool = False,
    ):
        width, depth = whole_number("width", width), whole_number("depth", depth, 0)
        self.space, self.condition_space = Real(shape), Categorical((), classes)
        self.activation = Activation(activation or ("lipswish" if spectral_norm else "silu"), slope)
        sizes = [math.prod(self.space.shape), *[width] * depth, self.condition_space.k]
        self.layers = dense_layers(sizes, key, slope=self.activation.negative_slope, spectral_norm=spectral_norm)

    def __call__(self, x: Array, c: Array | int) -> Array:
        check_point(x, self.space.shape)
        h = x.reshape(-1)
        for layer in self.layers[:-1]:
            h = self.activation(layer(h))
        return self.layers[-1](h)[c]
