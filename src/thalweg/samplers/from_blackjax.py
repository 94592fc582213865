"""MCMC algorithms of blackjax as kernels over a population."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, NamedTuple

import blackjax
import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from blackjax.mcmc.marginal_latent_gaussian import CovarianceSVD, svd_from_covariance
from jaxtyping import Array, PRNGKeyArray, PyTree

from thalweg.core import Info, Kernel, count_chains, is_concrete, norm, over_chains, positive, real, whole_number
from thalweg.core.random import split
from thalweg.samplers.states import AbstractRealState, refuse_score
from thalweg.spaces import Coordinates, coordinates_of, on_reals, to_real

# the fields of a state that depend on the energy; positions, momenta and random numbers stay when the energy changes
_OF_ENERGY = ("logdensity", "logdensity_grad", "logdensities", "logdensities_grad", "U_grad_x")
_WHOLE = {"num_integration_steps", "max_num_doublings", "period", "max_expansions", "max_shrinkage"}
_WHOLE |= {"max_search_steps", "max_num_steps"}
_POSITIVE = ("step_size", "initial_step_size", "L", "width", "initial_widths", "sigma", "cov", "covariance")
_NO_KERNEL = {
    "blackjax.smc": "it moves weighted particles from a prior to a posterior",
    "blackjax.ns": "nested sampling moves live points from a prior to a likelihood",
    "blackjax.sgmcmc": "it takes estimates of gradients from batches of data, not a log-density",
    "blackjax.vi": "it fits an approximation and is not a Markov chain",
    "blackjax.adaptation": "it tunes a kernel and is not one itself (use tw.samplers.warm_up)",
    "blackjax.mcmc.laplace": "it takes a joint density of two arguments, one of which it integrates out",
    "blackjax.mcmc.coupled_hmc": "it takes two densities and moves two chains on them",
}


class BlackjaxState(AbstractRealState):
    """The blackjax state of every chain, in real coordinates."""

    inner: Any
    coordinates: Coordinates | None = eqx.field(static=True, default=None)

    @property
    def position(self) -> Array:  # pyright: ignore[reportIncompatibleVariableOverride]
        """The positions of the chains in real coordinates."""
        # between steps all points of an orbit are equal to the chosen one
        return self.inner.positions[:, 0] if "positions" in self.inner._fields else self.inner.position


class Prior(NamedTuple):
    """The Gaussian prior ``N(mean, precision⁻¹)`` of an algorithm that samples a likelihood times a Gaussian."""

    mean: Array
    precision: Array

    def energy(self, z: Array) -> Array:
        """``½ (z - m)ᵀ P (z - m)``."""
        centred = z.reshape(-1) - self.mean
        if self.precision.ndim == 1:
            return 0.5 * jnp.sum(self.precision * centred**2)
        return 0.5 * centred @ self.precision @ centred


class FromBlackjax(Kernel):
    """The kernel of `from_blackjax`: every chain runs ``build(log_density, **parameters)``."""

    build: Callable[..., Any] = eqx.field(static=True)
    name: str = eqx.field(static=True)
    parameters: dict[str, Any]
    prior: Prior | None

    takes_per_chain_energies = True

    def init(self, key: PRNGKeyArray, energy: Any, x: PyTree) -> BlackjaxState:
        refuse_score(self.name, energy)
        coordinates = coordinates_of(self.name, energy, x)
        position = to_real(coordinates, x)
        self._check_size(position[0].size)

        def one(energy, key, z):
            if self.name == "ghmc":
                return self._init_ghmc(energy, key, z)
            inner = self._algorithm(energy).init(z, key)
            if "random_generator_arg" in inner._fields:  # raw words instead of a key, which can be saved to a file
                inner = inner._replace(random_generator_arg=jax.random.key_data(key))
            return inner

        keys = split(key, count_chains(position))
        inner = self._each(one, on_reals(energy, coordinates), keys, position)
        return BlackjaxState(inner, coordinates)  # pyright: ignore[reportCallIssue]

    def retarget(self, energy: Any, state: BlackjaxState) -> BlackjaxState:
        def one(energy, inner, z):
            # the random numbers of `init` are not used: those of the state stay
            fresh = self._algorithm(energy).init(z, jax.random.key(0))
            return inner._replace(**{name: getattr(fresh, name) for name in _OF_ENERGY if name in inner._fields})

        inner = self._each(one, on_reals(energy, state.coordinates), state.inner, state.position)
        return BlackjaxState(inner, state.coordinates)  # pyright: ignore[reportCallIssue]

    def step(self, key: PRNGKeyArray, energy: Any, state: BlackjaxState) -> tuple[BlackjaxState, Info]:
        def one(energy, key, inner):
            if "positions" in inner._fields:
                new, info = self._orbit(energy, key, inner)
            else:
                new, info = self._algorithm(energy).step(key, inner)
            gradient = norm(inner.logdensity_grad) if "logdensity_grad" in inner._fields else None
            return new, _info_of(info, gradient)

        keys = split(key, count_chains(state.position))
        inner, info = self._each(one, on_reals(energy, state.coordinates), keys, state.inner)
        return BlackjaxState(inner, state.coordinates), info  # pyright: ignore[reportCallIssue]

    def _algorithm(self, energy: Any, offset: Array | float = 0.0) -> Any:
        """The algorithm on ``exp(-E)``, divided by the Gaussian prior if the algorithm has one."""

        def log_density(z):
            value = offset - energy(z) + (0.0 if self.prior is None else self.prior.energy(z))
            # comparisons with NaN are false, so slice samplers would stop there
            return jnp.where(jnp.isnan(value), -jnp.inf, value)

        return self.build(log_density, **self.parameters)

    def _init_ghmc(self, energy: Any, key: PRNGKeyArray, z: Array) -> Any:
        """Blackjax draws the initial momenta from ``N(0, I)`` whatever their scale; a step of size zero redraws
        them."""
        key_init, key_momentum = jax.random.split(key)
        still = {"alpha": 1.0, "step_size": jax.tree.map(jnp.zeros_like, self.parameters["step_size"])}
        renewed = eqx.tree_at(lambda kernel: kernel.parameters, self, {**self.parameters, **still})
        algorithm = renewed._algorithm(energy)
        return algorithm.step(key_momentum, algorithm.init(z, key_init))[0]

    def _orbit(self, energy: Any, key: PRNGKeyArray, inner: Any) -> tuple[Any, Any]:
        """One orbit and a choice of one of its points by weight, which blackjax postpones to the next step.

        Blackjax computes the weights as ``exp(log p)``, which can underflow, so log p is taken relative to the current
        point.
        """
        key_orbit, key_choice = jax.random.split(key)
        here = inner.logdensities[0]
        start = inner._replace(logdensities=inner.logdensities - here)
        orbit, info = self._algorithm(energy, -here).step(key_orbit, start)
        chosen = jax.random.choice(key_choice, len(orbit.weights), p=orbit.weights)
        repeat = lambda leaf: jnp.broadcast_to(leaf[chosen], leaf.shape)
        return (
            orbit._replace(
                positions=repeat(orbit.positions),
                weights=(jnp.arange(len(orbit.weights)) == chosen).astype(orbit.weights.dtype),
                logdensities=repeat(orbit.logdensities) + here,
                logdensities_grad=repeat(orbit.logdensities_grad),
            ),
            info,
        )

    def _each(self, one: Callable[..., PyTree], energy: Any, *arrays: PyTree) -> PyTree:
        try:
            return over_chains(one, energy, *arrays)
        except (TypeError, ValueError) as problem:
            raise ValueError(
                f"expected parameters of blackjax's {self.name} that fit the points, got an error in it: "
                f"{_first_line(problem)}; give those of vectors and matrices for the point's real coordinates"
            ) from problem

    def _check_size(self, size: int) -> None:
        if "mclmc" in self.name and size < 2:
            raise ValueError(f"expected points of two or more real coordinates for {self.name}, got 1; use hmc or nuts")
        if self.prior is not None and self.prior.precision.shape[0] != size:
            got = self.prior.precision.shape
            raise ValueError(
                f"expected a covariance for {size} real coordinates, got shape {got}; match the point's size"
            )


def _info_of(info: Any, gradient_norm: Array | None) -> Info:
    fields = info._fields
    acceptance = divergent = None
    if "acceptance_rate" in fields:
        acceptance = info.acceptance_rate
    elif "is_accepted" in fields:
        acceptance = info.is_accepted.astype(float)
    if "is_divergent" in fields:
        divergent = info.is_divergent
    elif "nonans" in fields:
        divergent = ~jnp.asarray(info.nonans)
    return Info(acceptance=acceptance, gradient_norm=gradient_norm, divergent=divergent)


def from_blackjax(algorithm: Any, **parameters: Any) -> FromBlackjax:
    """An MCMC algorithm of blackjax as a kernel: every chain runs ``algorithm(log_density, **parameters)``.

    The chains move in real coordinates, so that they stay in constrained spaces and points may be trees; vectors and
    matrices among the parameters refer to these coordinates ``(d,)``. Floating-point numbers and arrays are array
    leaves (a change of step size does not recompile), whole numbers and functions are static. The target is always
    ``exp(-E)``: `elliptical_slice` and `mgrad_gaussian`, which sample a likelihood times a Gaussian, get
    ``exp(-E)/N(mean, cov)`` as their likelihood. ``docs/samplers.md`` lists the tested algorithms.
    Reference: Cabezas et al. (2024), BlackJAX, arXiv:2402.10797.

    Args:
        algorithm: for example ``blackjax.nuts``.
        parameters: the algorithm's arguments after the log-density.

    >>> import blackjax, jax, jax.numpy as jnp, thalweg as tw
    >>> kernel = tw.samplers.from_blackjax(blackjax.hmc, step_size=0.3, inverse_mass_matrix=jnp.ones(1),
    ...                                    num_integration_steps=5)
    >>> exponential = tw.as_energy(lambda x: jnp.sum(x), tw.Positive(1))
    >>> exact = lambda key, shape: jax.random.exponential(key, (*shape, 1))
    >>> tw.check_sampler(kernel, exponential, key=jax.random.key(0), exact=exact).passed
    True
    """
    build, name = _builder(algorithm)
    _check_names(build, name, parameters)
    parameters = {key: _as_parameter(key, value) for key, value in parameters.items()}
    prior = None
    if name in ("elliptical_slice", "mgrad_gaussian"):
        parameters, prior = _with_prior(name, parameters)
    problem = None
    try:
        built = build(jnp.sum, **parameters)
    except (TypeError, ValueError, IndexError) as raised:
        built, problem = None, raised
    if not isinstance(built, blackjax.SamplingAlgorithm):
        said = "something else" if problem is None else f"the error: {_first_line(problem)}"
        raise ValueError(f"expected blackjax's {name} to make a sampling algorithm, got {said}; see its documentation")
    return FromBlackjax(build, name, parameters, prior)


def _builder(algorithm: Any) -> tuple[Callable[..., Any], str]:
    """The function that builds the algorithm from a log-density and parameters, and its name in blackjax."""
    build = getattr(algorithm, "differentiable", algorithm)
    bare = build.func if isinstance(build, functools.partial) else build
    module = getattr(bare, "__module__", None) or ""
    names = [name for name, value in vars(blackjax).items() if value is algorithm]
    name = names[0] if names else getattr(bare, "__name__", type(algorithm).__name__)
    for start, reason in _NO_KERNEL.items():
        if module.startswith(start):
            raise ValueError(
                f"expected an MCMC algorithm of blackjax, got {name}: {reason}; use for example blackjax.nuts"
            )
    first = next(iter(inspect.signature(bare).parameters), None) if inspect.isfunction(bare) else None
    if not module.startswith("blackjax.mcmc") or first not in ("logdensity_fn", "loglikelihood_fn"):
        got = f"{algorithm!r:.60}" if not inspect.isfunction(bare) else f"the function {name}"
        raise ValueError(f"expected an MCMC algorithm of blackjax, got {got}; give for example blackjax.nuts")
    return build, name


def _check_names(build: Callable[..., Any], name: str, parameters: dict[str, Any]) -> None:
    known = list(inspect.signature(build).parameters.values())[1:]  # without the log-density
    unknown = [key for key in parameters if key not in [each.name for each in known]]
    missing = [each.name for each in known if each.default is each.empty and each.name not in parameters]
    if unknown or missing:
        what = f"an unknown {', '.join(unknown)}" if unknown else f"no {', '.join(missing)}"
        says = ", ".join(each.name if each.default is each.empty else f"{each.name}=…" for each in known)
        raise ValueError(f"expected the parameters of blackjax's {name}({says}), got {what}; give them by these names")


def _as_parameter(name: str, value: Any) -> Any:
    if name in _WHOLE and is_concrete(value) and value is not None:
        return whole_number(name, value)
    if name in _POSITIVE and value is not None and not callable(value):
        return real(name, value) if jnp.ndim(value) == 2 else positive(name, value)

    def leaf(value):
        if isinstance(value, (float, np.floating, np.ndarray)):
            value = jnp.asarray(value)
        if isinstance(value, jax.Array) and is_concrete(value) and np.any(np.isnan(value)):
            raise ValueError(f"expected {name} without NaN, got one; give numbers")
        return int(value) if isinstance(value, np.integer) else value

    return jax.tree.map(leaf, value)


def _with_prior(name: str, parameters: dict[str, Any]) -> tuple[dict[str, Any], Prior]:
    """The parameters and the prior of an algorithm that samples a likelihood times a Gaussian."""
    covariance = parameters.get("covariance" if name == "mgrad_gaussian" else "cov")
    decomposed = parameters.get("cov_svd")
    if covariance is None:
        if not isinstance(decomposed, CovarianceSVD):
            raise ValueError(f"expected a covariance for {name}, got none; give that of a Gaussian near the target")
        covariance = (decomposed.U * decomposed.Gamma) @ decomposed.U_t
    if not 1 <= covariance.ndim <= 2 or (name == "mgrad_gaussian" and covariance.ndim == 1):
        wanted = "(d, d)" if name == "mgrad_gaussian" else "(d,) or (d, d)"
        raise ValueError(f"expected a covariance of shape {wanted} for {name}, got {covariance.shape}; give one")
    if is_concrete(covariance) and covariance.ndim == 2 and not np.linalg.eigvalsh(covariance)[0] > 0:
        raise ValueError(f"expected a positive-definite covariance for {name}, got one that is not; give another")
    given = parameters.get("mean")
    mean = jnp.broadcast_to(real("mean", 0.0 if given is None else given), covariance.shape[:1])
    if name == "mgrad_gaussian":
        # decomposed once instead of at every step
        decomposed = svd_from_covariance(covariance) if decomposed is None else decomposed
        parameters = {**parameters, "covariance": covariance, "mean": mean, "cov_svd": decomposed}
    else:
        parameters = {**parameters, "mean": mean}
    return parameters, Prior(mean, 1 / covariance if covariance.ndim == 1 else jnp.linalg.inv(covariance))


def _first_line(problem: Exception) -> str:
    return (str(problem).strip().splitlines() or [type(problem).__name__])[0][:150]
