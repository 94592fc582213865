"""Networks with a Gaussian base, so that Z is finite."""

from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from paramax import NonTrainable, unwrap

from thalweg.core import (
    ConditionalEnergy,
    Energy,
    PerChain,
    Space,
    check_point,
    finite,
    positive,
    require_energy,
    space_of,
)
from thalweg.energies.clamped import refuse_latent
from thalweg.spaces import Real, as_points

# a coordinate that hardly varies in the data gets this fraction of the typical deviation, so that no direction is stiff
_LEAST_SHARE = 0.1


class Confined(Energy):
    """A network with a Gaussian base: see `confined`."""

    net: Any
    center: NonTrainable
    scale: NonTrainable

    @property
    def space(self) -> Space | None:  # pyright: ignore[reportIncompatibleVariableOverride]
        return space_of(self.net)

    def __call__(self, x: Array) -> Array:
        if self.space is not None:
            check_point(x, self.space.shape)
        center, scale = unwrap((self.center, self.scale))
        return self.net(x) + 0.5 * jnp.sum(((x - center) / scale) ** 2)


def confined(net: Any, data: Any = None, *, center: Any = None, scale: Any = None) -> Confined:
    r"""``E(x) = E_net(x) + ½‖(x - center)/scale‖²``: a network times a Gaussian, so that Z is finite.

    A network alone does not in general define a density: if its energy stays bounded or decreases far from the data,
    ``∫exp(-E)dx`` is infinite. With SiLU, ReLU or any other activation that grows at most linearly, ``|E_net|`` grows
    at most linearly too, and the quadratic term dominates: ``p(x) ∝ exp(-E_net(x)) N(x; center, scale²)`` can be
    normalised, whatever training does to the weights. The network learns how the density differs from the Gaussian;
    center and scale are not trained. Reference: Xie, Lu, Zhu and Wu (2016), A theory of generative ConvNet, ICML.

    Args:
        net: an energy of points in `Real` of any shape, or a plain function; kept as ``confined(net).net``.
        data: ``(rows, *event)``, used if center or scale is not given: their mean and, for each coordinate, their
            standard deviation, which is at least a tenth of the root mean square over all coordinates.
        center: a number or an array of the point's shape; 0 by default without data.
        scale: a positive number or an array of the point's shape; 1 by default without data, which suits standardised
            data.

    >>> import jax, thalweg as tw
    >>> energy = tw.energies.confined(tw.energies.MLP(2, 16, key=jax.random.key(0)), scale=2.0)
    >>> bool(abs(tw.exact.log_z(energy)) < 10.0), type(energy.net).__name__
    (True, 'MLP')
    """
    require_energy("confined", net)
    refuse_latent("confined", net)
    if isinstance(net, (PerChain, ConditionalEnergy)):
        raise ValueError(
            "expected an energy of one point for confined, got one with a condition; confine tw.given(energy, c)"
        )
    space = space_of(net)
    if space is not None and not isinstance(space, Real):
        raise ValueError(f"expected an energy on Real for confined, got one on {space}, which needs no Gaussian base")
    mean, deviation = (0.0, 1.0) if data is None else _moments(space, data)
    center = finite("center", mean if center is None else center)
    scale = positive("scale", deviation if scale is None else scale)
    for name, value in (("center", center), ("scale", scale)):
        if space is not None and value.shape not in ((), space.shape):
            raise ValueError(
                f"expected {name} to be a number or of the point's shape {space.shape}, got shape {value.shape}; "
                "give one number per coordinate"
            )
    return Confined(net, NonTrainable(center), NonTrainable(scale))  # pyright: ignore[reportCallIssue]


def _moments(space: Space | None, data: Any) -> tuple[np.ndarray, np.ndarray]:
    """The mean and the standard deviation of every coordinate, in double precision."""
    rows = np.asarray(as_points(space, data, "data"), np.float64)
    deviation = rows.std(axis=0)
    usual = np.sqrt(np.mean(deviation**2))
    if len(rows) < 2 or not usual > 0:
        raise ValueError(
            f"expected data of at least two different rows to take a scale from, got {len(rows)} without any spread; "
            "give center and scale"
        )
    return rows.mean(axis=0), np.maximum(deviation, _LEAST_SHARE * usual)
