"""Twelve posteriors of posteriordb (Magnusson et al. 2025): spaces, energies, reference moments.

An energy is a function of one point, a dictionary in the natural coordinates of the model, and is ``-log p`` up to a
constant. It is written so that float32 suffices: regressions go through ``RSS(β) = RSS(β̂) + ‖R(β - β̂)‖²`` with
``X = QR``, prepared in float64, and long sums are taken of differences from a constant.

The reference moments are from 10 000 draws of independent quality. ``data/README.md`` says where all came from.
"""

import json
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

import thalweg as tw

DATA = Path(__file__).resolve().parent / "data"
REFERENCE_DRAWS = 10_000

Point = dict[str, Array]


class Moments(NamedTuple):
    """Mean and deviation of one quantity under the posterior."""

    mean: float
    sd: float


class Posterior(NamedTuple):
    """A posterior: where its points live, ``-log p`` of one of them, and the quantities with a reference."""

    name: str
    space: tw.Product
    energy: Callable[[Point], Array]
    summary: Callable[[Point], dict[str, Array]]
    reference: dict[str, Moments]

    def energy_on_reals(self, z: Array) -> Array:
        """``-log p`` of the real coordinates ``z``: ``E(x(z)) - log |det ∂x/∂z|``."""
        return self.energy(self.space.from_real(z)) - self.space.log_det(z)

    def summary_on_reals(self, z: Array) -> Array:
        """The quantities at the real coordinates ``z``, in the order of ``reference``."""
        values = self.summary(self.space.from_real(z))
        return jnp.stack([values[name] for name in self.reference])

    def starts(self, seed: int, chains: int = 4) -> np.ndarray:
        """Stan's starts, ``(chains, d)``: uniform on (-2, 2) in every real coordinate, drawn anew where not finite."""
        generator = np.random.default_rng(seed)
        look = jax.jit(jax.value_and_grad(self.energy_on_reals))
        kept: list[np.ndarray] = []
        while len(kept) < chains:
            z = generator.uniform(-2, 2, self.space.dimension)
            value, gradient = look(jnp.asarray(z, float))
            if np.isfinite(value) and np.all(np.isfinite(gradient)):
                kept.append(z)
        return np.stack(kept)


def read(dataset: str) -> dict[str, Any]:
    """A data set as it is stored, its lists as float64 arrays."""
    stored = json.loads((DATA / f"{dataset}.json").read_text())
    return {name: np.asarray(value, np.float64) if isinstance(value, list) else value for name, value in stored.items()}


def _numbered(name: str, values: Array) -> dict[str, Array]:
    return {f"{name}[{place + 1}]": value for place, value in enumerate(values)}


def _like(x: Array, constant: np.ndarray) -> Array:
    """A constant in the precision of the point."""
    return jnp.asarray(constant, x.dtype)


def _half_cauchy(x: Array, scale: float) -> Array:
    return jnp.log1p((x / scale) ** 2)


def _normal(x: Array, scale: float, mean: float = 0.0) -> Array:
    return 0.5 * jnp.sum(((x - mean) / scale) ** 2)


class _Regression:
    """``n log(σ/σ̂) + ½n((σ̂/σ)² - 1) + ½‖R(β - β̂)/σ‖²``: the likelihood of ``y ~ N(Xβ, σ)`` relative to its maximum."""

    def __init__(self, design: np.ndarray, y: np.ndarray):
        orthogonal, self.factor = np.linalg.qr(design)
        self.best = np.linalg.solve(self.factor, orthogonal.T @ y)
        self.count = len(y)
        self.sigma = float(np.sqrt(np.mean((y - design @ self.best) ** 2)))

    def __call__(self, beta: Array, sigma: Array) -> Array:
        # products and sums, since a dot product of five numbers would be a call of its own
        whitened = jnp.sum(_like(beta, self.factor) * (beta - _like(beta, self.best)), axis=-1) / sigma
        ratio = self.sigma / sigma
        return self.count * (0.5 * (ratio**2 - 1) - jnp.log(ratio)) + 0.5 * jnp.sum(whitened**2)


def _eight_schools(centred: bool):
    data = read("eight_schools")

    def effects(x: Point) -> Array:
        return x["theta"] if centred else x["mu"] + x["tau"] * x["theta_standardised"]

    def energy(x: Point) -> Array:
        mu, tau = x["mu"], x["tau"]
        if centred:
            prior = _normal((x["theta"] - mu) / tau, 1.0) + len(data["y"]) * jnp.log(tau)
        else:
            prior = _normal(x["theta_standardised"], 1.0)
        likelihood = 0.5 * jnp.sum(((_like(mu, data["y"]) - effects(x)) / _like(mu, data["sigma"])) ** 2)
        return likelihood + prior + _normal(mu, 5.0) + _half_cauchy(tau, 5.0)

    def summary(x: Point) -> dict[str, Array]:
        return {**_numbered("theta", effects(x)), "mu": x["mu"], "tau": x["tau"]}

    name = "theta" if centred else "theta_standardised"
    return tw.Product(**{name: tw.Real(8), "mu": tw.Real(()), "tau": tw.Positive(())}), energy, summary


def _autoregression():
    data = read("arK")
    order, y = data["K"], data["y"]
    lags = [y[order - lag : len(y) - lag] for lag in range(1, order + 1)]
    regression = _Regression(np.column_stack([np.ones(len(y) - order), *lags]), y[order:])

    def energy(x: Point) -> Array:
        coefficients = jnp.concatenate([x["alpha"][None], x["beta"]])
        return regression(coefficients, x["sigma"]) + _normal(coefficients, 10.0) + _half_cauchy(x["sigma"], 2.5)

    def summary(x: Point) -> dict[str, Array]:
        return {"alpha": x["alpha"], **_numbered("beta", x["beta"]), "sigma": x["sigma"]}

    return tw.Product(alpha=tw.Real(()), beta=tw.Real(order), sigma=tw.Positive(())), energy, summary


def _moving_average():
    y = read("arma")["y"]

    def energy(x: Point) -> Array:
        mu, phi, theta, sigma = x["mu"], x["phi"], x["theta"], x["sigma"]
        # what is left of y_t without the term θe_{t-1}; before the first observation stands y_0 = μ, with e_0 = 0
        innovations = _like(mu, y) - mu - phi * jnp.concatenate([mu[None], _like(mu, y[:-1])])

        def step(error, innovation):
            error = innovation - theta * error
            return error, error

        _, errors = jax.lax.scan(step, jnp.zeros_like(mu), innovations)
        likelihood = len(y) * jnp.log(sigma) + 0.5 * jnp.sum((errors / sigma) ** 2)
        return likelihood + _normal(mu, 10.0) + _normal(phi, 2.0) + _normal(theta, 2.0) + _half_cauchy(sigma, 2.5)

    space = tw.Product(mu=tw.Real(()), phi=tw.Real(()), theta=tw.Real(()), sigma=tw.Positive(()))
    return space, energy, lambda x: dict(x)


def _linear(design: np.ndarray, y: np.ndarray, prior: Callable[[Array, Array], Array | float]):
    regression = _Regression(design, y)

    def energy(x: Point) -> Array:
        return regression(x["beta"], x["sigma"]) + prior(x["beta"], x["sigma"])

    def summary(x: Point) -> dict[str, Array]:
        return {**_numbered("beta", x["beta"]), "sigma": x["sigma"]}

    return tw.Product(beta=tw.Real(design.shape[1]), sigma=tw.Positive(())), energy, summary


def _bayesian_regression():
    data = read("sblrc")
    return _linear(data["X"], data["y"], lambda beta, sigma: _normal(beta, 10.0) + _normal(sigma, 10.0))


def _interaction(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    return np.column_stack([np.ones(len(first)), first, second, first * second])


def _kid_scores():
    data = read("kidiq")
    design = _interaction(data["mom_hs"], data["mom_iq"])
    return _linear(design, data["kid_score"], lambda beta, sigma: _half_cauchy(sigma, 2.5))


def _earnings():
    data = read("earnings")
    design = np.column_stack([np.ones(len(data["earn"])), data["height"]])
    return _linear(design, data["earn"], lambda beta, sigma: 0.0)


def _log_earnings():
    data = read("earnings")
    return _linear(_interaction(data["height"], data["male"]), np.log(data["earn"]), lambda beta, sigma: 0.0)


def _gaussian_process_prior(rho: Array, alpha: Array) -> Array:
    return 4 * rho - 24 * jnp.log(rho) + _normal(alpha, 2.0)


def _gaussian_process():
    data = read("gp_pois_regr")
    squares = np.subtract.outer(data["x"], data["x"]) ** 2
    unit = np.eye(len(data["x"]))

    def energy(x: Point) -> Array:
        rho, alpha, sigma = x["rho"], x["alpha"], x["sigma"]
        factor = jnp.linalg.cholesky(alpha**2 * jnp.exp(-0.5 * _like(rho, squares) / rho**2) + sigma * _like(rho, unit))
        white = jax.scipy.linalg.solve_triangular(factor, _like(rho, data["y"]), lower=True)
        likelihood = 0.5 * jnp.sum(white**2) + jnp.sum(jnp.log(jnp.diag(factor)))
        return likelihood + _gaussian_process_prior(rho, alpha) + _normal(sigma, 1.0)

    return tw.Product(rho=tw.Positive(()), alpha=tw.Positive(()), sigma=tw.Positive(())), energy, lambda x: dict(x)


def grid_factor(rho: Array, alpha: Array, spacing: float, count: int, jitter: float) -> Array:
    """The Cholesky factor of ``K + jitter·I``, ``K_ij = α² exp(-(x_i-x_j)²/2ρ²)`` on an even grid, exact in float32.

    The kernel itself is too near singular for a factorisation in float32. On an even grid its factor is known: with
    ``w = exp(-h²/ρ²)`` and ``(w)_k = Π_{m≤k} (1 - w^m)`` it is ``C_ik = α w^{(i-k)²/2} (w)_i / ((w)_{i-k} √(w)_k)``
    (the LU factors of a Vandermonde matrix with nodes ``w^{-i}``). The jitter is added to the factor and not to the
    matrix, which would square the condition number: ``R`` of the ``QR`` of ``[Cᵀ; √jitter·I]``, by Gram-Schmidt.
    """
    place = np.arange(count)
    apart = np.maximum(place[:, None] - place, 0)
    a = (spacing / rho) ** 2
    products = jnp.concatenate([jnp.zeros(1, a.dtype), jnp.cumsum(jnp.log(-jnp.expm1(-a * _like(a, place[1:]))))])
    logs = products[:, None] - products[apart] - 0.5 * products - 0.5 * a * _like(a, apart**2)
    factor = jnp.where(place[:, None] >= place, alpha * jnp.exp(logs), 0)
    columns = jnp.concatenate([factor, _like(a, jitter**0.5 * np.eye(count))], axis=1)
    rows = []
    # a row of `columns` is a column of the stacked matrix: each is taken out of those after it
    for number in range(count):
        length = jnp.sqrt(jnp.sum(columns[0] ** 2))
        unit = columns[0] / length
        shares = jnp.sum(columns[1:] * unit, axis=1)
        columns = columns[1:] - shares[:, None] * unit
        rows.append(jnp.concatenate([jnp.zeros(number, a.dtype), length[None], shares]))
    return jnp.stack(rows, axis=1)


def _poisson_process():
    data = read("gp_pois_regr")
    count, spacing = len(data["x"]), float(data["x"][1] - data["x"][0])

    def log_rates(x: Point) -> Array:
        return grid_factor(x["rho"], x["alpha"], spacing, count, 1e-10) @ x["f_standardised"]

    def energy(x: Point) -> Array:
        f = log_rates(x)
        likelihood = jnp.sum(jnp.exp(f) - _like(f, data["k"]) * f)
        return likelihood + _normal(x["f_standardised"], 1.0) + _gaussian_process_prior(x["rho"], x["alpha"])

    def summary(x: Point) -> dict[str, Array]:
        return {"rho": x["rho"], "alpha": x["alpha"], **_numbered("f", log_rates(x))}

    return tw.Product(rho=tw.Positive(()), alpha=tw.Positive(()), f_standardised=tw.Real(count)), energy, summary


def _log_product(matrices: list[Array]) -> Array:
    """``log Σ`` of the entries of the product of 2 × 2 matrices, whose four entries are given as ``(2^k,)`` arrays.

    Neighbours are multiplied, then neighbours of these, …; the order is bit-reversed, so that they stand a half apart.
    """
    log_scale = jnp.zeros((), matrices[0].dtype)
    while True:
        total = sum(matrices)
        log_scale = log_scale + jnp.sum(jnp.log(total))
        if total.size == 1:
            return log_scale
        half = total.size // 2
        a, b, c, d = (entry / total for entry in matrices)
        (a, e), (b, f), (c, g), (d, h) = ((entry[:half], entry[half:]) for entry in (a, b, c, d))
        matrices = [a * e + b * g, a * f + b * h, c * e + d * g, c * f + d * h]


def _hidden_markov():
    y = read("hmm_example")["y"]
    size = 1 << (len(y) - 1).bit_length()
    place = np.array([int(f"{number:b}".zfill(size.bit_length() - 1)[::-1], 2) for number in range(size)])
    # one matrix an observation: the first is the sum over the first state, those after the last are the identity
    first, after = place == 0, place >= len(y)
    observed = np.where(after, 0.0, y[np.minimum(place, len(y) - 1)])

    def energy(x: Point) -> Array:
        low, high = x["mu1"], x["mu1"] + x["gap"]
        logs = [jnp.where(after, 0, -0.5 * (_like(mean, observed) - mean) ** 2) for mean in (low, high)]
        highest = jnp.maximum(*logs)
        weights = [jnp.exp(each - highest) for each in logs]
        entries = []
        for row in range(2):
            for column in range(2):
                moved = x[f"theta{row + 1}"][column] * weights[column]
                started = weights[column] if row == 0 else 0.0
                entries.append(jnp.where(after, float(row == column), jnp.where(first, started, moved)))
        likelihood = _log_product(entries) + jnp.sum(highest)
        return _normal(low, 1.0, 3.0) + _normal(high, 1.0, 10.0) - likelihood

    def summary(x: Point) -> dict[str, Array]:
        rows = {**_numbered("theta1", x["theta1"]), **_numbered("theta2", x["theta2"])}
        return {**rows, "mu[1]": x["mu1"], "mu[2]": x["mu1"] + x["gap"]}

    space = tw.Product(mu1=tw.Positive(()), gap=tw.Positive(()), theta1=tw.Simplex(2), theta2=tw.Simplex(2))
    return space, energy, summary


def _mixture():
    y = read("low_dim_gauss_mix")["y"]

    def energy(x: Point) -> Array:
        mu, sigma, theta = jnp.stack([x["mu1"], x["mu1"] + x["gap"]]), x["sigma"], x["theta"]
        weights = jnp.log(jnp.stack([theta, 1 - theta])) - jnp.log(sigma)
        first, second = (weights[k] - 0.5 * ((_like(mu, y) - mu[k]) / sigma[k]) ** 2 for k in range(2))
        # about what a term is on average, so that the sum keeps the digits of its differences
        likelihood = jnp.sum(jnp.logaddexp(first, second) + 1.25)
        prior = _normal(mu, 2.0) + _normal(sigma, 2.0) - 4 * (jnp.log(theta) + jnp.log1p(-theta))
        return prior - likelihood

    def summary(x: Point) -> dict[str, Array]:
        means = {"mu[1]": x["mu1"], "mu[2]": x["mu1"] + x["gap"]}
        return {**means, **_numbered("sigma", x["sigma"]), "theta": x["theta"]}

    space = tw.Product(mu1=tw.Real(()), gap=tw.Positive(()), sigma=tw.Positive(2), theta=tw.Interval(0.0, 1.0))
    return space, energy, summary


_BUILDERS: dict[str, Callable[[], Any]] = {
    "eight_schools_centered": lambda: _eight_schools(True),
    "eight_schools_noncentered": lambda: _eight_schools(False),
    "arK": _autoregression,
    "arma11": _moving_average,
    "blr": _bayesian_regression,
    "kidscore_interaction": _kid_scores,
    "earn_height": _earnings,
    "logearn_interaction": _log_earnings,
    "gp_regr": _gaussian_process,
    "gp_pois_regr": _poisson_process,
    "hmm_example": _hidden_markov,
    "low_dim_gauss_mix": _mixture,
}
NAMES = tuple(_BUILDERS)


@cache
def posterior(name: str) -> Posterior:
    """The posterior of that name, with its data and reference moments.

    >>> posterior("gp_regr").reference["rho"].mean
    6.874348177825812
    """
    if name not in _BUILDERS:
        raise ValueError(f"expected one of {', '.join(NAMES)}, got {name!r}; choose one of these")
    reference = json.loads((DATA / "reference.json").read_text())[name]
    return Posterior(name, *_BUILDERS[name](), {each: Moments(**moments) for each, moments in reference.items()})
