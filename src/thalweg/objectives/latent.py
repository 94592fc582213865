"""Maximum likelihood of energies with latent variables, ``p(x) = ∫ exp(-E(x, z)) dz / Z``."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Energy, Kernel, Objective, Space, Step, as_energy, given
from thalweg.objectives.through import frozen, summed_up
from thalweg.samplers.discrete import GibbsWithGradients
from thalweg.samplers.langevin import Langevin
from thalweg.samplers.run import advance, told_with_gradients
from thalweg.samplers.starts import ReplayBuffer, Start, as_start, point_space
from thalweg.spaces import Continuous, Finite

Posterior = Callable[[PRNGKeyArray, Any, Array], Array]


class LatentLikelihood(Objective):
    r"""The gradient of the log-likelihood of ``p(x) = ∫ exp(-E(x, z)) dz / Z``, a sum where z is discrete,

    ``∇ log p_θ(x) = -E_{p_θ(z|x)}[∇E_θ(x, z)] + E_{p_θ(x, z)}[∇E_θ(x, z)]``,

    as the loss ``mean E_θ(data, z⁺) - mean E_θ(x⁻, z⁻)`` with ``z⁺ ~ p_θ(z|data)`` and ``(x⁻, z⁻) ~ p_θ(x, z)``. Where
    there is a closed form for ``p(z|x)``, give it as ``posterior``; otherwise z comes from ``latent_steps`` steps of
    ``latent_kernel`` on ``z ↦ E(x, z)`` from noise. The negatives start as in `MaximumLikelihood`, get a z by the same
    means, and then ``steps`` times take turns: a step of ``kernel`` on ``x ↦ E(x, z)``, then z anew from ``posterior``,
    or a step of ``latent_kernel``. x and z may each be real or discrete. What a start remembers is x alone.

    Both phases are as good as z is: with too few ``latent_steps`` the model learns to have z where they end
    (Nijkamp et al. 2020, AAAI). References: Hinton and Sejnowski (1983); Xie et al. (2016), ICML, for chains in both.
    Metrics: ``energy_gap``, ``energy_data``, ``energy_samples``; what the chains of the negatives' x told, and, under
    ``latent_``, those that gave every x its first z.

    Args:
        latent: the space of z.
        kernel: for x; by default ``Langevin(0.1)`` on continuous spaces and ``GibbsWithGradients()`` on finite ones.
        steps: turns per update.
        start: where x begins; by default ``ReplayBuffer(10_000, 0.05)``.
        posterior: ``posterior(key, energy, x) -> z``, one exact draw of ``p(z|x)`` for one point x; the energy is the
            one that `fit` trains, whose parameters are those of the moment.
        latent_kernel: for z, as ``kernel``.
        latent_steps: steps of it for the z of a new x.

    >>> import equinox as eqx, jax, jax.numpy as jnp, optax, thalweg as tw
    >>> class Factor(tw.core.Energy):  # x = w·z + N(0, 1) with z ~ N(0, 1), so x ~ N(0, w² + 1)
    ...     w: jax.Array
    ...     space: tw.Real = eqx.field(static=True, default=tw.Real(1))
    ...     def __call__(self, x, z):
    ...         return 0.5 * jnp.sum((x - self.w * z) ** 2) + 0.5 * jnp.sum(z**2)
    >>> def posterior(key, energy, x):
    ...     precision = 1 + energy.w**2
    ...     return energy.w * x / precision + jax.random.normal(key, (1,)) / jnp.sqrt(precision)
    >>> key = jax.random.key(0)
    >>> data = jnp.sqrt(5.0) * jax.random.normal(key, (1000, 1))
    >>> objective = tw.objectives.LatentLikelihood(
    ...     tw.Real(1), tw.samplers.MALA(1.0), start=tw.samplers.persistent(), posterior=posterior
    ... )
    >>> run = tw.fit(Factor(jnp.ones(())), data, objective, optimizer=optax.adam(0.03), steps=200, batch_size=200,
    ...              key=key)
    >>> bool(abs(run.energy.w - 2.0) < 0.3)
    True
    """

    latent: Space = eqx.field(static=True)
    kernel: Kernel | None
    steps: int = eqx.field(static=True)
    start: Start
    posterior: Posterior | None
    latent_kernel: Kernel | None
    latent_steps: int = eqx.field(static=True)

    def __init__(
        self,
        latent: Space,
        kernel: Kernel | None = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        posterior: Posterior | None = None,
        latent_kernel: Kernel | None = None,
        latent_steps: int = 20,
    ):
        if steps < 1 or latent_steps < 1:
            raise ValueError(f"expected steps and latent_steps >= 1, got {steps} and {latent_steps}; 20 are usual")
        if posterior is not None and latent_kernel is not None:
            raise ValueError("expected a posterior or a latent_kernel, got both; a closed form needs no kernel")
        self.latent, self.kernel, self.steps = latent, kernel, int(steps)
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)
        self.posterior, self.latent_kernel, self.latent_steps = posterior, latent_kernel, int(latent_steps)

    def init(self, key: PRNGKeyArray, energy: Any, batch: Array) -> tuple[None, PyTree]:
        energy = as_energy(energy)
        space = point_space(energy, batch)
        x, z = jax.ShapeDtypeStruct(batch.shape[1:], batch.dtype), jax.eval_shape(lambda: self.latent.noise(key, ()))
        shape = jax.eval_shape(energy, x, z).shape
        if shape != ():
            raise ValueError(
                f"expected an energy E(x, z) to return a scalar for points of shapes {x.shape} and {z.shape}, got "
                f"shape {shape}; sum over the coordinates"
            )
        if self.posterior is None:
            _chosen("latent_kernel", self.latent_kernel, self.latent)
        else:
            drawn = jax.eval_shape(lambda x: self._drawn(key, energy, x[None])[0], x)
            if (drawn.shape, drawn.dtype) != (z.shape, z.dtype):
                raise ValueError(
                    f"expected a posterior that returns z of shape {z.shape} and type {z.dtype}, got {drawn.shape} and "
                    f"{drawn.dtype}; return one point of {self.latent}"
                )
        _chosen("kernel", self.kernel, space)
        return None, self.start.init(key, space, batch)

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: Array) -> tuple[Array, Step]:
        energy = as_energy(energy)
        fixed, space, count = frozen(energy), point_space(energy, batch), batch.shape[0]
        key_start, key_latent, key_turns = jax.random.split(key, 3)
        x, ticket = self.start.begin(key_start, space, state, batch)
        # one pass over both halves, here and below: the same matrix products at twice the batch
        both, told_latent = self._latents(key_latent, fixed, jnp.concatenate([batch, x]))
        z_data, z = both[:count], both[count:]
        x, z, told = self._turns(key_turns, fixed, space, x, z)
        x, z, z_data = frozen((x, z, z_data))
        energies = jax.vmap(energy)(jnp.concatenate([batch, x]), jnp.concatenate([z_data, z]))
        positive, negative = jnp.mean(energies[:count]), jnp.mean(energies[count:])
        gap = {"energy_gap": positive - negative, "energy_data": positive, "energy_samples": negative}
        latent = {f"latent_{name}": value for name, value in told_latent.items()}
        return positive - negative, Step(self.start.finish(state, ticket, x), told | latent | gap)

    def _latents(self, key: PRNGKeyArray, energy: Energy, x: Array) -> tuple[Array, dict[str, Array]]:
        """A z for every x, and what its chain told."""
        if self.posterior is not None:
            return self._drawn(key, energy, x), {}
        key_noise, key_chain = jax.random.split(key)
        z = self.latent.noise(key_noise, x.shape[:1])
        return self._moved_latents(key_chain, energy, x, z, self.latent_steps)

    def _drawn(self, key: PRNGKeyArray, energy: Any, x: Array) -> Array:
        draw: Any = self.posterior
        return jax.vmap(lambda key, x: draw(key, energy, x))(jax.random.split(key, x.shape[0]), x)

    def _moved_latents(
        self, key: PRNGKeyArray, energy: Energy, x: Array, z: Array, steps: int
    ) -> tuple[Array, dict[str, Array]]:
        kernel = _chosen("latent_kernel", self.latent_kernel, self.latent)
        return _moved(key, kernel, lambda x: _GivenFirst(energy=energy, x=x, space=self.latent), x, z, steps)

    def _turns(
        self, key: PRNGKeyArray, energy: Energy, space: Space, x: Array, z: Array
    ) -> tuple[Array, Array, dict[str, Array]]:
        """``steps`` turns of x given z and z given x: each leaves ``p(x, z)`` as it is where its kernel does."""
        kernel = _chosen("kernel", self.kernel, space)

        def turn(pair, key):
            x, z = pair
            key_x, key_z = jax.random.split(key)
            x, told = _moved(key_x, kernel, lambda z: given(energy, z, space), z, x, 1)
            if self.posterior is None:
                z, _ = self._moved_latents(key_z, energy, x, z, 1)
            else:
                z = self._drawn(key_z, energy, x)
            return (x, z), told

        (x, z), told = jax.lax.scan(turn, (x, z), jax.random.split(key, self.steps))
        return x, z, {name: jnp.sum(v) if name == "divergences" else jnp.mean(v) for name, v in told.items()}


class _GivenFirst(Energy):
    """``z ↦ E(x, z)``."""

    energy: Any
    x: Array
    space: Space | None = eqx.field(static=True)

    def __call__(self, x: Array) -> Array:
        return self.energy(self.x, x)


def _moved(
    key: PRNGKeyArray, kernel: Kernel, conditional: Callable[[Array], Energy], held: Array, x: Array, steps: int
) -> tuple[Array, dict[str, Array]]:
    """Every point of ``x`` moved on its own energy, ``conditional`` of its entry of ``held``."""

    def one(key, held, point):
        energy = conditional(held)
        # kernels are written for chains of one energy; here each is the only one of its own
        state, totals = advance(key, kernel, energy, kernel.init(energy, point[None]), steps, told_with_gradients)
        return state.x[0], totals

    x, totals = jax.vmap(one)(jax.random.split(key, x.shape[0]), held, x)
    return x, summed_up(totals, steps)


def _chosen(name: str, kernel: Kernel | None, space: Space) -> Kernel:
    if kernel is not None:
        return kernel
    if isinstance(space, Continuous):
        return Langevin(0.1)
    if isinstance(space, Finite):
        return GibbsWithGradients()
    raise ValueError(f"expected a {name} for {space}, which has no usual one, got none; give one")
