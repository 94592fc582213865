"""Random misuses of the public functions: each ends in one sentence, or in a right answer.

``calls`` has a sound call of every function, ``WRONG`` has what users give by mistake. A case takes one sound call and
puts wrong values in place of one or two of its arguments. `outcome` says what came of it:

- ``refused``: a `ValueError` in one sentence with what was expected, what came and what to do;
- ``accepted``: a result, whose numbers are finite where those of the sound call are;
- anything else is the fault.

``python tests/contracts/fuzz_misuse.py 5000 --seed 1`` runs many cases and prints the faults.
"""

import contextlib
import io
import os
import random
import re
import sys
import tempfile
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax.errors import JAXTypeError

import thalweg as tw
from thalweg import energies as te
from thalweg import exact, noise
from thalweg import objectives as to
from thalweg import samplers as ts
from thalweg.train import DivergedError

SENTENCE = re.compile(r"(\S+: |[\w ]+: )?expected .+[,;:] (but )?got .+; .+", re.DOTALL)
KEY = jax.random.key(0)
GAUSSIAN = te.Gaussian(jnp.zeros(2), jnp.eye(2))
SPINS = te.Ising(te.Graph([(0, 1), (1, 2)], 0.3))
POINTS = np.asarray(jax.random.normal(KEY, (8, 2)))
SIGNS = np.where(np.asarray(jax.random.normal(KEY, (8, 3))) > 0, 1, -1)
START = jnp.zeros((3, 2))
CONDITIONAL = tw.as_conditional(lambda x, c: 0.5 * jnp.sum((x - c) ** 2), tw.Real(2), tw.Real(2))
DATASET = tw.data.Dataset(POINTS)
MALA = ts.MALA(0.5)
MLP = te.MLP(2, 4, 1, key=KEY)


class Foreign:
    """An object of a class that the library does not know."""


# what users give by mistake, by a name for the report
WRONG: dict[str, Any] = {
    "None": None,
    "text": "text",
    "empty text": "",
    "bytes": b"bytes",
    "nan": float("nan"),
    "inf": float("inf"),
    "-inf": float("-inf"),
    "-1": -1,
    "-0.5": -0.5,
    "0": 0,
    "0.0": 0.0,
    "1.5": 1.5,
    "10.5": 10.5,
    "2^31": 2**31,
    "2^40": 2**40,
    "-2^70": -(2**70),
    "1e300": 1e300,
    "True": True,
    "False": False,
    "1j": 1j,
    "numpy nan": np.float64("nan"),
    "numpy bool": np.bool_(True),
    "numpy text": np.array("text"),
    "numpy texts": np.array(["a", "b"]),
    "date": np.datetime64("2026-01-01"),
    "dates": np.array(["2026-01-01"] * 3, "datetime64[D]"),
    "array nan": np.array([np.nan, 1.0]),
    "array inf": jnp.array([[jnp.inf, 1.0], [0.0, 1.0]]),
    "array negative": jnp.array([-1.0, 2.0]),
    "array zero": np.zeros(2),
    "scalar array": jnp.array(-2.0),
    "rows nan": np.full((8, 2), np.nan),
    "rows inf": jnp.full((3, 2), jnp.inf),
    "batch": np.ones((5, 2), np.float32),
    "batch of batches": np.ones((4, 5, 2)),
    "other width": jnp.ones((3, 7)),
    "one axis": jnp.ones(7),
    "no rows": np.zeros((0, 2)),
    "no columns": np.zeros((3, 0)),
    "empty": np.zeros(0),
    "float16": np.ones((3, 2), np.float16),
    "uint8": np.full((3, 2), 200, np.uint8),
    "int64": np.full((3, 2), 2**40),
    "bools": np.ones((3, 2), bool),
    "complex": np.ones((3, 2), complex),
    "objects": np.array([[1, "a"], [None, 2]], dtype=object),
    "object numbers": np.array([[1.0, 2.0]], dtype=object),
    "masked": np.ma.masked_equal(np.zeros((3, 2)), 0),
    "ragged": [[1.0, 2.0], [3.0]],
    "nested list": [[1.0, 2.0], [3.0, 4.0]],
    "list": [1.0, -1.0],
    "list of texts": ["a", "b"],
    "empty list": [],
    "empty tuple": (),
    "empty dict": {},
    "tree with a text": {"a": np.ones((3, 2)), "b": "text"},
    "tree": {"a": np.ones((3, 2)), "b": np.ones(3)},
    "tree of mixed keys": {1: np.ones((3, 2)), "b": np.ones((3, 2))},
    "pair": (np.ones((3, 2)), np.ones((3, 2))),
    "pair of None": (None, None),
    "tuple with zero": (2, 0),
    "tuple with negative": (3, -1),
    "tuple of floats": (2.0, 3.0),
    "huge shape": (2**20, 2**20),
    "set": {1, 2},
    "range": range(3),
    "generator": "generator",  # made anew for every case
    "object": Foreign(),
    "class of a kernel": ts.MALA,
    "class of an energy": te.Banana,
    "class of a space": tw.Real,
    "class of an objective": to.NCE,
    "int": int,
    "identity": lambda x: x,
    "no arguments": lambda: 0.0,
    "two arguments": lambda x, y: 0.0,
    "text function": lambda *_: "text",
    "None function": lambda *_: None,
    "pair function": lambda *_: (0.0, 0.0),
    "nan function": lambda *_: jnp.nan,
    "key": jax.random.key(1),
    "keys": jax.random.split(jax.random.key(1), 3),
    "old key": jax.random.PRNGKey(0),
    "shape struct": jax.ShapeDtypeStruct((3, 2), jnp.float32),
    "space": tw.Real(3),
    "finite space": tw.Spin(2),
    "product space": tw.Product(tw.Real(2), tw.Binary(3)),
    "kernel": ts.HMC(0.5, steps=2),
    "discrete kernel": ts.Gibbs(),
    "tempered kernel": ts.ParallelTempering(MALA, [1.0, 2.0]),
    "energy": GAUSSIAN,
    "spins": SPINS,
    "score network": te.ScoreMLP(2, 4, 1, key=KEY),
    "conditional energy": CONDITIONAL,
    "network": MLP,
    "objective": to.NCE(),
    "density": noise.Uniform(0.0, 1.0, 2),
    "optimizer": optax.sgd(0.1),
    "dataset": DATASET,
    "module": np,
    "path": Path("/nowhere/at/all"),
    "state": MALA.init(KEY, GAUSSIAN, START),
    "ellipsis": ...,
    "slice": slice(2),
}


class Call(NamedTuple):
    """A sound call: a function and its arguments, positional ones under their names."""

    function: Callable[..., Any]
    arguments: dict[str, Any]


def calls() -> dict[str, Call]:
    """A sound call of every function that is tried."""
    made: dict[str, Call] = {}

    def add(name: str, function: Callable[..., Any], /, **arguments: Any) -> None:
        made[name] = Call(function, arguments)

    for name in ("Real", "Positive", "Counts", "Spin", "Binary"):
        add(f"spaces.{name}", getattr(tw.spaces, name), shape=2)
    add("spaces.Interval", tw.Interval, low=0.0, high=1.0, shape=2)
    add("spaces.Categorical", tw.Categorical, shape=2, k=3)
    add("spaces.Simplex", tw.Simplex, n=3)
    add("spaces.PositiveDefinite", tw.PositiveDefinite, n=2)
    add("spaces.Product", tw.Product, first=tw.Real(2), second=tw.Binary(3))
    add("spaces.as_points", tw.spaces.as_points, space=tw.Real(2), x=POINTS)

    add("as_energy", tw.as_energy, model=jnp.sum, space=tw.Real(2))
    add("as_score", tw.as_score, function=jnp.negative, space=tw.Real(2))
    add("as_conditional", tw.as_conditional, function=lambda x, c: jnp.sum(x), space=tw.Real(2), condition_space=None)
    add("from_density", tw.from_density, density=GAUSSIAN, space=tw.Real(2))
    add(
        "given",
        lambda model, condition: tw.given(model, condition)(jnp.ones(2)),
        model=CONDITIONAL,
        condition=np.ones(2),
    )
    add("score", tw.score, model=GAUSSIAN, x=np.ones(2, np.float32))
    add("space_of", tw.space_of, model=GAUSSIAN)
    add("tempered", tw.tempered, energy=GAUSSIAN, temperature=2.0)
    add("clamp", tw.clamp, energy=GAUSSIAN, mask=np.array([True, False]), values=np.zeros(2))
    add("joint", te.joint, energy=CONDITIONAL)
    add("smoothed", te.smoothed, energy=te.Ring())
    add("swapped", te.swapped, energy=CONDITIONAL)
    add("marginal", te.marginal, energy=_Hidden())

    add(
        "sample",
        tw.sample,
        energy=GAUSSIAN,
        kernel=MALA,
        init=START,
        key=KEY,
        draws=3,
        burn_in=1,
        thin=2,
        progress=False,
    )
    add("sample spins", tw.sample, energy=SPINS, kernel=ts.Gibbs(), init=SIGNS[:3], key=KEY, draws=3)
    add("sample function", tw.sample, energy=_bowl, kernel=MALA, init=START, key=KEY, draws=3)
    add(
        "warm_up",
        ts.warm_up,
        energy=GAUSSIAN,
        kernel=ts.HMC(0.5, steps=2),
        init=START,
        key=KEY,
        steps=60,
        target_acceptance=0.8,
        dense=False,
    )
    add(
        "tune_ladder",
        ts.tune_ladder,
        energy=GAUSSIAN,
        kernel=MALA,
        init=START,
        key=KEY,
        hottest=3.0,
        rungs=2,
        steps=5,
        rounds=1,
    )
    add("advance", ts.advance, energy=GAUSSIAN, kernel=MALA, state=WRONG["state"], key=KEY, steps=2)
    add(
        "rejection",
        ts.rejection,
        energy=GAUSSIAN,
        density=te.Gaussian(jnp.zeros(2), 2 * jnp.eye(2)),
        log_bound=3.0,
        shape=(3,),
        key=KEY,
    )
    add("inversion", ts.inversion, quantile=jnp.log, shape=(3,), key=KEY)
    add(
        "check_sampler",
        tw.check_sampler,
        kernel=MALA,
        energy=GAUSSIAN,
        key=KEY,
        space=tw.Real(2),
        exact=None,
        chains=1000,
        steps=2,
        false_alarm=1e-6,
    )
    add("check_sampler spins", tw.check_sampler, kernel=ts.Gibbs(), energy=SPINS, key=KEY, chains=1000, steps=2)
    add(
        "check_objective",
        tw.check_objective,
        objective=to.ImplicitScoreMatching(),
        key=KEY,
        energy=None,
        exact=None,
        batch_size=50,
        batches=30,
        false_alarm=1e-6,
    )
    fitted = dict(optimizer=optax.sgd(0.1), steps=2, batch_size=4)
    for name, energy, data, objective in (
        ("score matching", MLP, POINTS, to.DenoisingScoreMatching(0.5)),
        ("likelihood", MLP, POINTS, to.MaximumLikelihood(MALA, 2)),
        ("spins", SPINS, SIGNS, to.PseudoLikelihood()),
        ("pairs", CONDITIONAL_MODEL, (POINTS, POINTS), to.DenoisingScoreMatching(0.5)),
    ):
        add(f"fit {name}", tw.fit, energy=energy, data=data, objective=objective, **fitted, key=KEY)
    add(
        "fit options",
        tw.fit,
        energy=MLP,
        data=POINTS,
        objective=to.DenoisingScoreMatching(0.5),
        **fitted,
        key=KEY,
        run_dir=None,
        ema=0.9,
        callbacks=(),
        checkpoint_every=1,
        resume=False,
        progress=False,
    )
    add(
        "fit_many",
        tw.train.fit_many,
        energy=MLP,
        data=POINTS,
        objective=to.DenoisingScoreMatching(0.5),
        **fitted,
        keys=jax.random.split(KEY, 2),
        ema=0.9,
        progress=False,
    )
    add(
        "working_memory",
        tw.train.working_memory,
        energy=MLP,
        batch=POINTS,
        objective=to.DenoisingScoreMatching(0.5),
        optimizer=optax.sgd(0.1),
        key=KEY,
    )
    add("every", tw.train.every, interval=2, function=lambda run: None)
    add(
        "load",
        tw.train.load,
        run_dir="/nowhere",
        energy=MLP,
        batch=POINTS,
        objective=to.DenoisingScoreMatching(0.5),
        optimizer=optax.sgd(0.1),
        key=KEY,
    )

    kernels: dict[str, dict[str, Any]] = {
        "HMC": dict(step_size=0.5, steps=3, mass_matrix=1.0),
        "MALA": dict(step_size=0.5),
        "NUTS": dict(step_size=0.5, mass_matrix=1.0, max_doublings=3),
        "AnnealedLangevin": dict(sigmas=[1.0, 0.5], steps=2, epsilon=0.1, denoise=False),
        "Gibbs": dict(scan="systematic"),
        "GradientDescent": dict(step_size=0.1, momentum=0.5),
        "Independence": dict(density=noise.Uniform(-1.0, 1.0, 2)),
        "Langevin": dict(step_size=0.1, noise_scale=1.0, clip_x=(-1.0, 1.0), clip_gradient=1.0),
        "MetropolisHastings": dict(proposal=_Step()),
        "ParallelTempering": dict(kernel=MALA, temperatures=[1.0, 2.0], all_rungs=False),
        "PerPart": dict(first=MALA, second=ts.Gibbs()),
        "RandomWalk": dict(scale=0.5),
        "ReplayBuffer": dict(size=10, rejuvenation=0.05, noise=ts.uniform_noise(-1.0, 1.0)),
        "SimulatedAnnealing": dict(kernel=MALA, hot=10.0, cold=0.1, steps=10),
        "UnderdampedLangevin": dict(step_size=0.1, friction=1.0),
        "from_noise": dict(noise=ts.uniform_noise(-1.0, 1.0)),
        "persistent": dict(noise=ts.uniform_noise(-1.0, 1.0)),
        "per_chain": dict(kernel=MALA),
        "uniform_noise": dict(low=-1.0, high=1.0),
    }
    for name, arguments in kernels.items():
        add(f"samplers.{name}", getattr(ts, name), **arguments)
    for name in ("HMC", "MALA", "NUTS", "GradientDescent", "Langevin", "RandomWalk", "UnderdampedLangevin"):
        add(f"sample by {name}", _sampled(getattr(ts, name)), **kernels[name])

    models: dict[str, dict[str, Any]] = {
        "MLP": dict(shape=2, width=4, depth=1, key=KEY, activation="silu", slope=0.2, spectral_norm=False),
        "Banana": dict(curvature=0.5, scale=2.0),
        "Bernoulli": dict(probability=0.5),
        "Beta": dict(a=1.0, b=2.0),
        "Dirichlet": dict(concentration=np.ones(3)),
        "DoubleWell": dict(barrier=2.0, dim=2),
        "Exponential": dict(rate=1.0),
        "Funnel": dict(dim=2, scale=3.0),
        "Gamma": dict(concentration=1.0, rate=2.0),
        "Gaussian": dict(mean=np.zeros(2), covariance=np.eye(2)),
        "GaussianField": dict(coupling=te.Graph([(0, 1)], 0.3), diagonal=1.0, shift=0.0),
        "GaussianMixture": dict(weights=np.ones(2), means=np.eye(2), covariances=1.0),
        "Graph": dict(edges=[(0, 1), (1, 2)], weights=0.3, sites=3),
        "Grid": dict(shape=(4, 4), weight=1.0, periodic=True),
        "Ising": dict(coupling=np.zeros((3, 3)), bias=0.0, space=tw.Spin(3)),
        "Matrix": dict(weights=np.zeros((3, 3)), mask=~np.eye(3, dtype=bool)),
        "NoiseConditionalMLP": dict(shape=2, width=4, depth=1, data_scale=1.0, key=KEY),
        "Normal": dict(mean=0.0, variance=1.0),
        "Poisson": dict(rate=1.0),
        "PositiveForm": dict(function=jnp.sum, form="square", space=tw.Real(2)),
        "Potts": dict(coupling=np.zeros((3, 3)), k=3, bias=0.0),
        "ResNet": dict(shape=3, channels=(4,), blocks=1, key=KEY, activation="silu", slope=0.2, spectral_norm=False),
        "ConvNet": dict(
            preset="digits", width=0.1, spectral_norm=False, slope=0.2, key=KEY, shape=None, layers=None, dense=None
        ),
        "NoiseConditionalUNet": dict(shape=(8, 8, 1), channels=(4,), blocks=1, patch=1, data_scale=0.5, key=KEY),
        "Ring": dict(radius=2.0, scale=0.4),
        "ScoreMLP": dict(shape=2, width=4, depth=1, key=KEY),
        "Wishart": dict(degrees=4.0, scale=np.eye(2)),
    }
    for name, arguments in models.items():
        add(f"energies.{name}", getattr(te, name), **arguments)
    for name, energy in (
        ("Gaussian", GAUSSIAN),
        ("Banana", te.Banana()),
        ("Ising", SPINS),
        ("MLP", MLP),
        ("DoubleWell", te.DoubleWell()),
        ("Ring", te.Ring()),
        ("Wishart", te.Wishart(4.0, jnp.eye(2))),
        ("Poisson", te.Poisson(np.ones(2))),
        ("Beta", te.Beta(np.ones(2), 1.0)),
        ("Funnel", te.Funnel()),
        ("clamped", tw.clamp(GAUSSIAN, np.array([True, False]), np.zeros(2))),
    ):
        add(f"{name}(x)", energy.__call__, x=_point(energy))
    for name, energy in (
        ("Gaussian", GAUSSIAN),
        ("Beta", te.Beta(np.ones(2), 1.0)),
        ("Dirichlet", te.Dirichlet(np.ones(3))),
        ("Poisson", te.Poisson(np.ones(2))),
    ):
        add(f"{name}.sample", energy.sample, key=KEY, shape=(3,))

    losses: dict[str, dict[str, Any]] = {
        "NCE": dict(noise=noise.Uniform(-3.0, 3.0, 2), nu=1.0, fixed=None),
        "AdaBregman": dict(
            psi=to.Logistic(),
            interval=1,
            kernel=MALA,
            steps=2,
            start=ts.from_data(),
            reuse=False,
            stein=False,
            anchor=0,
        ),
        "AdaNCE": dict(interval=1, kernel=MALA, steps=2, start=ts.from_data(), reuse=False, stein=False, anchor=0),
        "AdversarialNCE": dict(
            base=None, share=0.5, entropy=0.1, many=4, learning_rate=1e-3, latent=2, width=4, nu=1.0
        ),
        "BregmanRatio": dict(psi=to.Logistic(), noise=noise.Uniform(-3.0, 3.0, 2), nu=1.0, fixed=None),
        "ConditionalNCE": dict(sigma=0.5, noise=None),
        "Custom": dict(psi=jnp.square),
        "DenoisingScoreMatching": dict(sigma=0.5),
        "ExactLikelihood": dict(points=100, margin=0.5, bounds=(-3.0, 3.0)),
        "ExplicitScoreMatching": dict(truth=GAUSSIAN),
        "FiniteDifferenceScoreMatching": dict(projections=1, law="rademacher", epsilon=0.1),
        "FlowNCE": dict(noise=None, learning_rate=1e-3, warm_start=5, nu=1.0, held_out=None),
        "HutchinsonScoreMatching": dict(projections=1, law="rademacher"),
        "LatentLikelihood": dict(
            latent=tw.Real(1), kernel=MALA, steps=2, start=None, posterior=None, latent_kernel=MALA, latent_steps=2
        ),
        "MaximumLikelihood": dict(
            kernel=MALA,
            steps=2,
            start=ts.from_data(),
            energy_penalty=0.1,
            sampler_gradient=None,
            sampler_gradient_steps=1,
        ),
        "NoiseConditionalScoreMatching": dict(sigmas=[1.0, 0.5], shares=[0.5, 0.5]),
        "Power": dict(beta=0.5),
        "RankNCE": dict(noise=noise.Uniform(-3.0, 3.0, 2), candidates=3, priors=None),
        "RegularisedScoreMatching": dict(weight=0.1),
        "SlicedScoreMatching": dict(projections=1, law="rademacher"),
    }
    for name, arguments in losses.items():
        add(f"objectives.{name}", getattr(to, name), **arguments)
    for name in (
        "NCE",
        "ConditionalNCE",
        "DenoisingScoreMatching",
        "ExactLikelihood",
        "MaximumLikelihood",
        "RankNCE",
        "AdaNCE",
        "SlicedScoreMatching",
        "RegularisedScoreMatching",
        "FiniteDifferenceScoreMatching",
    ):
        add(f"fit by {name}", _fitted(getattr(to, name)), **losses[name])

    densities: dict[str, dict[str, Any]] = {
        "Flips": dict(probability=0.1, levels=(0, 1)),
        "IndependentBernoulli": dict(probability=np.full(2, 0.5), levels=(0, 1)),
        "IndependentCategorical": dict(probabilities=np.full((2, 3), 1 / 3), levels=None),
        "Jitter": dict(sigma=0.5),
        "NeuralSampler": dict(data=POINTS, space=None, key=KEY, latent=2, width=4),
        "Reshaped": dict(density=noise.Uniform(0.0, 1.0, 4), shape=(2, 2)),
        "Unconditional": dict(density=noise.Uniform(0.0, 1.0, 4)),
        "Uniform": dict(low=0.0, high=1.0, shape=2),
        "annealed_step": dict(sigmas=[1.0, 0.5], steps=10),
        "fit_gaussian": dict(data=POINTS),
        "fit_independent": dict(data=SIGNS, space=tw.Spin(3), smoothing=1.0),
        "fit_kde": dict(data=POINTS, bandwidth=0.5),
        "fit_marginals": dict(data=POINTS, bins=8),
        "fit_mixture": dict(data=POINTS, components=2, key=KEY, steps=2),
        "fit_flow": dict(data=POINTS, key=KEY, epochs=1, batch_size=4, learning_rate=1e-3, layers=1, width=4, knots=3),
        "flow": dict(shape=2, key=KEY, layers=1, width=4, knots=3, mean=0.0, deviation=1.0),
        "geometric_ladder": dict(largest=1.0, smallest=0.1, levels=3),
        "ladder_from_data": dict(data=POINTS, smallest=0.1),
    }
    for name, arguments in densities.items():
        add(f"noise.{name}", getattr(noise, name), **arguments)
    add("Uniform.log_prob", noise.Uniform(0.0, 1.0, 2).log_prob, x=np.full(2, 0.5))
    add("Uniform.sample", noise.Uniform(0.0, 1.0, 2).sample, key=KEY, shape=(3,))

    for name in ("log_z", "entropy", "moments"):
        function = getattr(exact, name)
        add(f"exact.{name}", function, energy=_bowl, space=tw.Real(1), bounds=(-6.0, 6.0), points=200, tolerance=1e-3)
        add(f"exact.{name} spins", function, energy=SPINS, space=tw.Spin(3))
    add("exact.expectation", exact.expectation, energy=SPINS, f=jnp.sum, space=tw.Spin(3))
    add("exact.kl", exact.kl, p=SPINS, q=te.Ising(np.zeros((3, 3))), space=tw.Spin(3))
    add("exact.probabilities", exact.probabilities, energy=SPINS, space=tw.Spin(3))
    add("exact.marginals", exact.marginals, energy=SPINS, space=tw.Spin(3))
    add("exact.sample", exact.sample, energy=SPINS, shape=(3,), key=KEY, space=tw.Spin(3))
    add("exact.gibbs_matrix", exact.gibbs_matrix, energy=SPINS, block=np.array([True, False, False]), space=tw.Spin(3))
    add("exact.metropolis_matrix", exact.metropolis_matrix, energy=SPINS, log_proposal=_uniform_move, space=tw.Spin(3))
    add("exact.transition_matrix", exact.transition_matrix, log_kernel=_uniform_move, space=tw.Spin(3))
    add(
        "exact.chain_properties",
        exact.chain_properties,
        matrix=np.full((2, 2), 0.5),
        law=np.full(2, 0.5),
        tolerance=1e-5,
    )

    add("data.check_array", tw.data.check_array, x=POINTS, event_shape=(2,), integers=False)
    add("data.check_labels", tw.data.check_labels, y=np.zeros(8, int), rows=8)
    toys: dict[str, dict[str, Any]] = {
        "checkerboard": dict(squares=4, half_width=4.0),
        "eight_gaussians": dict(weights=None, radius=4.0, sigma=0.5),
        "pinwheel": dict(arms=5, radial_sigma=0.3, tangential_sigma=0.1, rate=0.25, scale=2.0),
        "rings": dict(radii=(1.0, 2.0), sigma=0.1),
        "spirals": dict(arms=2, turns=1.5, sigma=0.1),
        "swiss_roll": dict(sigma=0.1),
        "two_moons": dict(sigma=0.1),
    }
    for name, arguments in toys.items():
        add(f"data.{name}", getattr(tw.data, name), key=KEY, n=4, **arguments)
    add(
        "data.checkerboard_log_prob",
        tw.data.checkerboard_log_prob,
        x=np.zeros(2, np.float32),
        squares=4,
        half_width=4.0,
    )
    add("data.eight_gaussians_density", tw.data.eight_gaussians_density, weights=None, radius=4.0, sigma=0.5)
    add("data.hold_out", tw.data.hold_out, x=POINTS, y=np.zeros(8, int), fraction=0.25, key=KEY)
    add("data.standardise", tw.data.standardise, x=POINTS)
    add("data.scale_pixels", tw.data.scale_pixels, pixels=np.zeros((2, 4, 4, 1), np.uint8), levels=256)
    add("data.to_pixels", tw.data.to_pixels, x=np.zeros((2, 4, 4, 1)), levels=256)
    add("data.load", tw.data.load, source="digits")
    add("data.listing", tw.data.listing, folder=None)
    add("data.digits", tw.data.digits, raw=False)
    for name in ("read_csv", "read_npy", "read_npz", "read_idx", "read_cifar10", "read_celeba_attributes"):
        add(f"data.{name}", getattr(tw.data, name), path="/nowhere/data")
    add("data.read_image_folder", tw.data.read_image_folder, folder="/nowhere", size=8, crop=None, grey=False)

    add("evaluate.frechet_distance", tw.evaluate.frechet_distance, features=POINTS, other=POINTS + 1)
    features = dict(features=POINTS, other=POINTS + 1)
    add("evaluate.kernel_inception_distance", tw.evaluate.kernel_inception_distance, **features, confidence=0.9)
    for name in ("precision_recall", "density_coverage"):
        add(f"evaluate.{name}", getattr(tw.evaluate, name), features=POINTS, real=POINTS + 1, neighbours=2)
    many = np.asarray(jax.random.normal(KEY, (20, 2)))
    bootstrap = dict(key=KEY, confidence=0.9, resamples=100)
    add("evaluate.detection", tw.evaluate.detection, inside=many[:, 0], outside=many[:, 1] + 1, **bootstrap)
    add("evaluate.roc_curve", tw.evaluate.roc_curve, inside=many[:, 0], outside=many[:, 1])
    pairs = dict(model=GAUSSIAN, inside=many, outside=POINTS)
    add("evaluate.ood", tw.evaluate.ood, **pairs, score="energy", background=None, reference=None, **bootstrap)
    add("evaluate.ood by ratio", tw.evaluate.ood, **pairs, score="likelihood_ratio", background=GAUSSIAN, resamples=100)
    add("evaluate.ood by typicality", tw.evaluate.ood, **pairs, score="typicality", reference=POINTS, resamples=100)
    classes = dict(probabilities=np.full((8, 2), 0.5), labels=np.arange(8) % 2)
    add("evaluate.reliability", tw.evaluate.reliability, **classes, bins=3, binning="mass")
    add(
        "evaluate.expected_calibration_error",
        tw.evaluate.expected_calibration_error,
        **classes, **bootstrap, bins=3, binning="width", debias=True,
    )  # fmt: skip
    add("evaluate.brier_score", tw.evaluate.brier_score, **classes, confidence=0.9)
    add("evaluate.log_loss", tw.evaluate.log_loss, **classes, confidence=0.9)
    add("plot.reliability", tw.plot.reliability, table=tw.evaluate.reliability(**classes))
    add("plot.roc", tw.plot.roc, curves=tw.evaluate.roc_curve(many[:, 0], many[:, 1]))
    add("evaluate.inception_score", tw.evaluate.inception_score, probabilities=np.full((8, 2), 0.5), splits=2, seed=1)
    add("evaluate.class_scores", tw.evaluate.class_scores, samples=POINTS, dataset=LABELLED, most_rows=10, seed=0)
    chains = tw.sample(GAUSSIAN, MALA, START, key=KEY, draws=8)
    add("Chains.summary", chains.summary, function=jnp.sum)
    return made


def _bowl(x):
    return 0.5 * jnp.sum(jnp.square(x))


def _uniform_move(y, x):
    return jnp.log(1 / 8)


class _Step(ts.Proposal):
    def propose(self, key, x):
        return x

    def log_ratio(self, x, y):
        return jnp.zeros(())


class _Hidden(tw.core.HasFreeEnergy):
    space = tw.Real(2)
    latent_space = tw.Spin(())

    def __call__(self, x, z):
        return jnp.sum(x**2) * z

    def free_energy(self, x):
        return jnp.sum(x**2)


class _Follows(tw.core.ConditionalEnergy):
    weights: jax.Array
    space = tw.Real(2)
    condition_space = tw.Real(2)

    def __call__(self, x, c):
        return 0.5 * jnp.sum((x - self.weights @ c) ** 2)


CONDITIONAL_MODEL = _Follows(jnp.zeros((2, 2)))
LABELLED = tw.data.Dataset(np.repeat(POINTS, 5, 0), np.arange(40) % 2, POINTS, np.arange(8) % 2)


def _point(energy: Any) -> Any:
    return np.asarray(tw.space_of(energy).noise(KEY, (1,)))[0]


def _sampled(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel's arguments, tried by sampling with it."""
    return lambda **arguments: tw.sample(GAUSSIAN, kernel(**arguments), START, key=KEY, draws=2)


def _fitted(objective: Callable[..., Any]) -> Callable[..., Any]:
    """An objective's arguments, tried by training with it."""
    settings = dict(optimizer=optax.sgd(0.01), steps=1, batch_size=4, key=KEY)
    return lambda **arguments: tw.fit(MLP, POINTS, objective(**arguments), **settings)


class Case(NamedTuple):
    """One misuse."""

    call: str
    wrong: dict[str, str]

    def __str__(self) -> str:
        return f"{self.call}({', '.join(f'{name}={value}' for name, value in self.wrong.items())})"


def random_case(chance: random.Random, table: dict[str, Call]) -> Case:
    """A function, and one or two of its arguments with wrong values."""
    name = chance.choice(list(table))
    arguments = list(table[name].arguments)
    count = 2 if len(arguments) > 1 and chance.random() < 0.25 else 1
    # such a dictionary is tried as points; as an argument of a module's constructor it does not survive equinox, which
    # flattens the arguments before any line of the library runs
    points = {"x", "init", "data", "batch", "condition", "samples", "energy", "kernel", "objective"}
    wrong = {}
    for argument in chance.sample(arguments, count):
        keys = "tree of mixed keys"
        wrong[argument] = chance.choice([value for value in WRONG if value != keys or argument in points])
    return Case(name, wrong)


def run(case: Case, table: dict[str, Call]) -> Any:
    """Make the call of a case, in a folder of its own and without a word on the screen."""
    function, arguments = table[case.call]
    fresh = {
        name: (n for n in range(3)) if value == "generator" else WRONG[value] for name, value in case.wrong.items()
    }
    here = Path.cwd()
    with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()):
        os.chdir(folder)
        try:
            return [leaf for leaf in jax.tree.leaves(function(**{**arguments, **fresh})) if eqx.is_array(leaf)]
        finally:
            os.chdir(here)


def outcome(case: Case, table: dict[str, Call]) -> tuple[str, str]:
    """What came of a case, and its text: ``refused``, ``accepted``, ``not finite`` or a fault by its name."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = run(case, table)
    except (ValueError, DivergedError) as problem:
        text = str(problem)
        kind = "refused" if SENTENCE.fullmatch(text) and not isinstance(problem, JAXTypeError) else "no sentence"
        return kind, f"{type(problem).__name__}: {text}\n{_place(problem)}"
    except Exception as problem:
        return "raw", f"{type(problem).__name__}: {str(problem)[:300]}\n{_place(problem)}"
    bad = [leaf for leaf in jax.tree.leaves(result) if _not_finite(leaf)]
    return ("not finite" if bad else "accepted"), ""


def _not_finite(leaf: Any) -> bool:
    return bool(jnp.issubdtype(leaf.dtype, jnp.inexact) and not np.all(np.isfinite(np.asarray(leaf))))


def _place(problem: BaseException) -> str:
    """The innermost line of the library that a fault went through."""
    frames = [frame for frame in traceback.extract_tb(problem.__traceback__) if "thalweg" in frame.filename]
    return " < ".join(f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in frames[::-1][:4])


FAULTS = ("raw", "no sentence")


def main(count: int, seed: int) -> int:
    """Run ``count`` cases, print the faults and what was accepted; how many faults there were."""
    chance, table = random.Random(seed), calls()
    tally: dict[str, int] = {}
    for number in range(count):
        case = random_case(chance, table)
        kind, text = outcome(case, table)
        tally[kind] = tally.get(kind, 0) + 1
        if kind != "refused":
            print(f"{kind}: {case}\n    {text}" if text else f"{kind}: {case}", flush=True)
        if number % 200 == 199:
            jax.clear_caches()
    print(tally)
    return sum(tally.get(kind, 0) for kind in FAULTS)


if __name__ == "__main__":
    options = sys.argv[1:]
    sys.exit(min(main(int(options[0]), int(options[2]) if len(options) > 2 else 0), 1))
