"""Points made of several parts, each from a space of its own."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PRNGKeyArray

from thalweg.core import Space
from thalweg.spaces.continuous import Continuous


class Product(Space):
    """Points of several parts: ``Product(Real(2), Binary(3))`` holds tuples, ``Product(a=Real(2), b=Binary(3))`` dicts.

    ``shape`` and ``dtype`` are trees with the structure of a point. If all parts are continuous, so is the product: its
    real coordinates are those of the parts, concatenated (for a dictionary, in sorted order of the names).

    >>> import jax.numpy as jnp, thalweg as tw
    >>> space = tw.Product(rate=tw.Positive(2), shift=tw.Real(()))
    >>> space.shape, space.dimension
    ({'rate': (2,), 'shift': ()}, 3)
    >>> space.to_real({"rate": jnp.ones(2), "shift": jnp.array(5.0)}).tolist()
    [0.0, 0.0, 5.0]
    """

    parts: tuple[Space, ...]
    names: tuple[str, ...] | None = eqx.field(static=True)

    def __init__(self, /, *parts: Any, **named: Any):
        if not parts and not named:
            raise ValueError("expected at least one space, got none; write Product(Real(2), Binary(3))")
        if parts and named:
            raise ValueError("expected spaces all with names or all without, got both; name all of them or none")
        for part in (*parts, *named.values()):
            if not isinstance(part, Space):
                raise ValueError(
                    f"expected a space for every part, got {part!r:.80}; write Product(Real(2), Binary(3))"
                )
        # sorted, as JAX sorts the keys of a dictionary
        self.names = tuple(sorted(named)) if named else None
        self.parts = parts if self.names is None else tuple(named[name] for name in self.names)

    @property
    def shape(self) -> Any:  # pyright: ignore[reportIncompatibleVariableOverride]
        return self.join([part.shape for part in self.parts])

    @property
    def dtype(self) -> Any:
        return self.join([part.dtype for part in self.parts])

    @property
    def continuous(self) -> bool:
        """Whether all parts are continuous, so that the product has real coordinates."""
        return all(is_continuous(part) for part in self.parts)

    def join(self, values: Any) -> Any:
        """One value for each part, put together like a point: a tuple or a dictionary."""
        return tuple(values) if self.names is None else dict(zip(self.names, values, strict=True))

    def split(self, x: Any) -> tuple[Any, ...]:
        """The parts of a point in the order of ``parts``."""
        return tuple(x) if self.names is None else tuple(x[name] for name in self.names)

    def contains(self, x: Any) -> Array:
        inside = [part.contains(value) for part, value in zip(self.parts, self.split(x), strict=True)]
        return jnp.all(jnp.stack(inside))

    def noise(self, key: PRNGKeyArray, shape: tuple[int, ...]) -> Any:
        keys = jax.random.split(key, len(self.parts))
        return self.join([part.noise(k, shape) for part, k in zip(self.parts, keys, strict=True)])

    @property
    def dimension(self) -> int:
        """The number of free real coordinates, d."""
        return sum(part.dimension for part in self._continuous_parts())

    def to_real(self, x: Any) -> Array:
        """The real coordinates of a point, ``(d,)``."""
        pairs = zip(self._continuous_parts(), self.split(x), strict=True)
        return jnp.concatenate([part.to_real(value) for part, value in pairs])

    def from_real(self, z: Array) -> Any:
        """The point with real coordinates ``z``."""
        return self.join([part.from_real(piece) for part, piece in self._pieces(z)])

    def log_det(self, z: Array) -> Array:
        """``log |det ∂x/∂z|``: the sum over the parts."""
        return jnp.sum(jnp.stack([part.log_det(piece) for part, piece in self._pieces(z)]))

    def _pieces(self, z: Array) -> Any:
        parts = self._continuous_parts()
        places = np.cumsum([part.dimension for part in parts])[:-1].tolist()
        return zip(parts, jnp.split(z, places), strict=True)

    def _continuous_parts(self) -> tuple[Any, ...]:
        for part in self.parts:
            if not is_continuous(part):
                raise ValueError(
                    f"expected continuous parts for real coordinates, got {part}; "
                    "give the discrete parts a kernel of their own"
                )
        return self.parts


def is_continuous(space: Space | None) -> bool:
    """Whether a space has real coordinates: it is `Continuous`, or a product of continuous spaces."""
    return space.continuous if isinstance(space, Product) else isinstance(space, Continuous)
