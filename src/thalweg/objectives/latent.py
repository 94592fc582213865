"""Maximum likelihood for energies with latent variables, ``p(x) = ∫ exp(-E(x, z)) dz / Z``."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import (
    ConditionalEnergy,
    HasPosterior,
    LatentEnergy,
    Objective,
    Space,
    Step,
    concatenate,
    count_chains,
    freeze,
    point_like,
    require_energy,
    whole_number,
)
from thalweg.objectives.batches import check_points
from thalweg.objectives.chains import reduce_metrics, run_chains, sample_norm
from thalweg.objectives.latent_chains import LatentChains, Posterior
from thalweg.samplers.gibbs_with_gradients import GibbsWithGradients
from thalweg.samplers.langevin import Langevin
from thalweg.samplers.run import check_kernel
from thalweg.samplers.starts import ReplayBuffer, Start, as_start
from thalweg.spaces import Finite, is_continuous, point_space


class LatentLikelihood(Objective):
    r"""The gradient of the log-likelihood of ``p(x) = ∫ exp(-E(x, z)) dz / Z`` (a sum if z is discrete),

    ``∇ log p_θ(x) = -E_{p_θ(z|x)}[∇E_θ(x, z)] + E_{p_θ(x, z)}[∇E_θ(x, z)]``,

    as the loss ``mean E_θ(data, z⁺) - mean E_θ(x⁻, z⁻)`` with ``z⁺ ~ p_θ(z|data)`` and ``(x⁻, z⁻) ~ p_θ(x, z)``. If
    ``p(z|x)`` is known in closed form (`HasPosterior`, or ``posterior``), z is drawn from it; otherwise z is the end of
    ``latent_steps`` steps of ``latent_kernel`` on ``z ↦ E(x, z)``, started from noise. The negatives start as in
    `MaximumLikelihood`, and a new x gets its z in the same way. Then ``steps`` times: a step of ``kernel`` on
    ``x ↦ E(x, z)``, followed by a new z from the posterior or a step of ``latent_kernel``. Both x and z may be real or
    discrete. The start keeps the states of both chains.

    Both phases depend on the quality of z: with too few ``latent_steps`` the model learns the distribution of z after
    these steps (Nijkamp et al. 2020, AAAI). References: Hinton and Sejnowski (1983); Xie et al. (2016), ICML.
    Metrics: ``energy_gap``, ``energy_data``, ``energy_samples``; those of the chains in x; and, with the prefix
    ``latent_``, those of the chains that draw z for the data.

    Args:
        latent: the space of z; by default the ``latent_space`` of a `LatentEnergy`. If it is given, the energy may be a
            plain function or module of ``(x, z)``.
        kernel: for x; by default ``Langevin(0.1)`` on continuous spaces and ``GibbsWithGradients()`` on finite ones.
        steps: the number of alternating steps of x and z per training update.
        start: where x starts; by default ``ReplayBuffer(10_000, 0.05)``.
        posterior: ``posterior(key, energy, x) -> z``, one exact draw from ``p(z|x)`` for one point x; the energy is the
            one being trained, with its current parameters. By default that of a `HasPosterior`.
        latent_kernel: for z; the default is as for ``kernel``.
        latent_steps: the number of steps of ``latent_kernel`` that draw z for a new x.

    >>> import equinox as eqx, jax, jax.numpy as jnp, optax, thalweg as tw
    >>> class Factor(tw.core.LatentEnergy):  # x = w·z + N(0, 1) with z ~ N(0, 1), so x ~ N(0, w² + 1)
    ...     w: jax.Array
    ...     space: tw.Real = eqx.field(static=True, default=tw.Real(1))
    ...     latent_space: tw.Real = eqx.field(static=True, default=tw.Real(1))
    ...     def __call__(self, x, z):
    ...         return 0.5 * jnp.sum((x - self.w * z) ** 2) + 0.5 * jnp.sum(z**2)
    >>> def posterior(key, energy, x):
    ...     precision = 1 + energy.w**2
    ...     return energy.w * x / precision + jax.random.normal(key, (1,)) / jnp.sqrt(precision)
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = jnp.sqrt(5.0) * jax.random.normal(key_data, (1000, 1))
    >>> objective = tw.objectives.LatentLikelihood(
    ...     kernel=tw.samplers.MALA(1.0), start=tw.samplers.persistent(), posterior=posterior
    ... )
    >>> run = tw.fit(Factor(jnp.ones(())), data, objective, optimizer=optax.adam(0.03), steps=200, batch_size=200,
    ...              key=key_fit)
    >>> bool(abs(run.energy.w - 2.0) < 0.3)
    True
    """

    latent: Space | None = eqx.field(static=True)
    kernel: Any
    steps: int = eqx.field(static=True)
    start: Start
    posterior: Posterior | None
    latent_kernel: Any
    latent_steps: int = eqx.field(static=True)

    def __init__(
        self,
        latent: Space | None = None,
        kernel: Any = None,
        steps: int = 20,
        start: Start | Callable[[], Start] | None = None,
        posterior: Posterior | None = None,
        latent_kernel: Any = None,
        latent_steps: int = 20,
    ):
        if latent is not None and not isinstance(latent, Space):
            raise ValueError(f"expected a space of z such as tw.Real(2), got {latent!r:.60}; give an instance of one")
        if posterior is not None and latent_kernel is not None:
            raise ValueError("expected a posterior or a latent_kernel, got both; a closed form needs no kernel")
        if posterior is not None and (isinstance(posterior, type) or not callable(posterior)):
            raise ValueError(f"expected posterior(key, energy, x) -> z, got {posterior!r:.60}; give a function")
        for each in (kernel, latent_kernel):
            if each is not None:
                check_kernel(each)
        self.latent, self.kernel, self.steps = latent, kernel, whole_number("steps", steps, hint="20 are usual")
        self.start = ReplayBuffer(10_000) if start is None else as_start(start)
        self.posterior, self.latent_kernel = posterior, latent_kernel
        self.latent_steps = whole_number("latent_steps", latent_steps, hint="20 are usual")

    def init(self, key: PRNGKeyArray, energy: Any, batch: PyTree) -> tuple[None, PyTree]:
        require_energy("LatentLikelihood", energy)
        if isinstance(energy, ConditionalEnergy):
            raise ValueError(
                f"expected an energy of (x, z) for LatentLikelihood, got the conditional energy "
                f"{type(energy).__name__}; fix its condition by tw.given(energy, c), or write a LatentEnergy"
            )
        check_points("LatentLikelihood", energy, batch)
        chains = self._chains(energy, batch)
        _check_energy(energy, batch, chains.latent)
        if chains.posterior is not None:
            _check_posterior(chains, energy, batch)
        memory = self.start.init(key, chains, energy, batch)
        # the start is traced once without computing anything, so that a kernel that does not fit the space raises now
        eqx.filter_eval_shape(lambda: self.start.begin(key, chains, energy, memory, batch))
        return None, memory

    def loss(self, key: PRNGKeyArray, energy: Any, params: None, state: PyTree, batch: PyTree) -> tuple[Array, Step]:
        fixed, count = freeze(energy), count_chains(batch)
        key_latent, key_chains = jax.random.split(key)
        chains = self._chains(energy, batch)
        latents, latent_means = chains.initial_latents(key_latent, fixed, batch)
        ended = run_chains(energy, chains, self.start, state, batch, key=key_chains, steps=self.steps)
        # one evaluation of both halves as one batch
        x, z = concatenate((batch, freeze(latents).x), ended.x)
        values = jax.vmap(energy)(x, z)
        positive, negative = jnp.mean(values[:count]), jnp.mean(values[count:])
        gap = {"energy_gap": positive - negative, "energy_data": positive, "energy_samples": negative}
        latent = {f"latent_{name}": value for name, value in reduce_metrics(freeze(latent_means)).items()}
        return positive - negative, Step(ended.memory, ended.metrics | latent | gap | sample_norm(ended.x[0]))

    def _chains(self, energy: Any, batch: PyTree) -> LatentChains:
        """The kernel that alternates steps of x and z."""
        latent = self.latent
        if isinstance(energy, LatentEnergy):
            if latent is not None and latent != energy.latent_space:
                raise ValueError(
                    f"expected one space of z, got {latent} for an energy whose latents live on "
                    f"{energy.latent_space}; leave `latent` out"
                )
            latent = energy.latent_space
        if latent is None:
            raise ValueError(
                f"expected a LatentEnergy, or the space of z, got {type(energy).__name__} and none; "
                "write LatentLikelihood(tw.Real(2))"
            )
        posterior = self.posterior
        if posterior is None and self.latent_kernel is None and isinstance(energy, HasPosterior):
            posterior = _own_posterior
        latent_kernel = None if posterior is not None else _as_kernel("latent_kernel", self.latent_kernel, latent)
        kernel = _as_kernel("kernel", self.kernel, point_space(energy, batch))
        return LatentChains(kernel, latent_kernel, posterior, latent, self.latent_steps)


def _own_posterior(key: PRNGKeyArray, energy: HasPosterior, x: PyTree) -> PyTree:
    return energy.posterior(x).sample(key)


def _check_energy(energy: Any, batch: PyTree, latent: Space) -> None:
    """Raise if the energy is not a scalar function of one point and one latent value."""
    x, z = point_like(batch), point_like(jax.eval_shape(lambda: latent.noise(jax.random.key(0), (1,))))
    shape = getattr(eqx.filter_eval_shape(energy, x, z), "shape", None)
    if shape != ():
        shapes = [jax.tree.map(lambda leaf: leaf.shape, each) for each in (x, z)]
        raise ValueError(
            f"expected an energy E(x, z) to return a scalar for points of shapes {shapes[0]} and {shapes[1]}, got "
            f"shape {shape}; sum over the coordinates"
        )


def _check_posterior(chains: LatentChains, energy: Any, batch: PyTree) -> None:
    """Raise if the draws of a posterior are not points of the space of z."""
    like = lambda tree: jax.tree.map(lambda leaf: (leaf.shape[1:], str(leaf.dtype)), tree)
    wanted = like(jax.eval_shape(lambda: chains.latent.noise(jax.random.key(0), (1,))))
    got = like(eqx.filter_eval_shape(lambda: chains.draw_posterior(jax.random.key(0), energy, batch)))
    if got != wanted:
        raise ValueError(
            f"expected a posterior that returns z of shape and type {wanted}, got {got}; "
            f"return one point of {chains.latent}"
        )


def _as_kernel(name: str, kernel: Any, space: Space) -> Any:
    if kernel is not None:
        return kernel
    if is_continuous(space):
        return Langevin(0.1)
    if isinstance(space, Finite):
        return GibbsWithGradients()
    raise ValueError(f"expected a {name} for {space}, which has no default, got none; give one")
