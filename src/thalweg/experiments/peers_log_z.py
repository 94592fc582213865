"""log Z of many models by other libraries: a script for their interpreter, which has neither Thalweg nor JAX.

    PEER_PYTHON peers_log_z.py models.npz answers.json [--chains 1024] [--temperatures 1000] [--seconds 300] [--jobs 1]

``models.npz`` has arrays ``{number}/{field}`` with ``{number}/kind`` one of

- ``rbm``: ``weights (nv, nh)``, ``visible (nv,)``, ``hidden (nh,)``; ``E = -vWh - bv - ch`` on {0, 1}
- ``ising``: ``couplings (n, n)``, symmetric, ``bias (n,)``; ``E = -½xWx - bx`` on {-1, 1}
- ``potts``: ``couplings (n, n)``, ``bias (n, k)``; ``E = -Σ_{i<j} W_ij [x_i = x_j] - Σ b_i[x_i]``
- ``mixture``: ``weights (k,)``, ``means (k, d)``, ``covariances (k, d, d)``; ``E = -log Σ w N(x; μ, Σ)``
- ``funnel``: ``dim``, ``scale``; ``E = v²/2s² + ½e^{-v}Σx_i² + ½(d-1)v``

``answers.json`` has for every library and number ``value``, ``low``, ``high`` (95 %: ± 1.96 standard errors, as the
library estimates them), ``seconds`` and what the library says of its own reliability, or an ``error`` in one sentence.
Every model is solved in a process of its library that is ended after ``--seconds``, so the script always finishes.

What is converted: ferrotherm has spins only, so an RBM becomes the spin model of both its layers (`spins_of_rbm`).
ebmkit anneals on {0, 1} and one-hot vectors, so spins are ``2x - 1`` and levels one-hot; its ``RBM`` has the transposed
weights. All signs agree.
"""

import argparse
import importlib
import json
import math
import multiprocessing
import queue
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

REACH = 1.96  # standard errors on each side of a 95 % interval
SWEEPS = 4  # ferrotherm's default after each resampling

Model = dict[str, np.ndarray]
Answer = dict[str, Any]


class Effort(NamedTuple):
    """How much each library may do: chains, temperatures, and seconds until its process is ended."""

    chains: int
    temperatures: int
    seconds: float


class Unsupported(Exception):
    """A model that a library cannot express."""


def spins_of_rbm(model: Model) -> tuple[np.ndarray, np.ndarray, float]:
    """The couplings, biases and added constant of log Z of an RBM written with spins ``v = (1 + s)/2``, both layers."""
    weights = model["weights"].astype(float)
    visible, hidden = model["visible"].astype(float), model["hidden"].astype(float)
    rows, columns = weights.shape
    couplings = np.zeros((rows + columns, rows + columns))
    couplings[:rows, rows:] = weights / 4
    couplings += couplings.T
    bias = np.concatenate([visible / 2 + weights.sum(1) / 4, hidden / 2 + weights.sum(0) / 4])
    return couplings, bias, float(weights.sum() / 4 + visible.sum() / 2 + hidden.sum() / 2)


def by_ferrotherm(model: Model, seed: int, effort: Effort) -> Answer:
    """Population annealing from β = 0 with the standard error of its family jackknife."""
    kind = str(model["kind"])
    if kind == "rbm":
        couplings, bias, constant = spins_of_rbm(model)
    elif kind == "ising":
        couplings, bias, constant = model["couplings"], model["bias"], 0.0
    else:
        raise Unsupported(f"ferrotherm has spins only, not the model {kind!r}")
    library = importlib.import_module("ferrotherm")
    graph = library.Model(len(bias))
    for i, j in zip(*np.nonzero(np.triu(couplings, 1)), strict=True):
        graph.couple(int(i), int(j), float(couplings[i, j]))
    for i, value in enumerate(bias):
        graph.bias(i, float(value))
    simulation = graph.build(beta=1.0, seed=seed)
    run = simulation.population_anneal(
        population=effort.chains, sweeps=SWEEPS, beta_max=1.0, stages=max(effort.temperatures // SWEEPS, 1)
    )
    if run.ln_z is None or run.ln_z_stderr is None:
        raise Unsupported("ferrotherm gave no log Z or no standard error")
    return _interval(run.ln_z + constant, run.ln_z_stderr) | {"trustworthy": bool(run.trustworthy)}


def by_ebmkit(model: Model, seed: int, effort: Effort) -> Answer:
    """Annealed importance sampling forward, and backward from its samples, with ebmkit's default transitions.

    The interval is the forward estimate's; ``bracket`` reaches from its low end to the high end of the reverse one,
    which ebmkit's documentation recommends to report. The reverse run starts from the forward samples resampled by
    their weights: the unweighted ones contain points that were thrown far away and have no weight.
    """
    torch, ebm = importlib.import_module("torch"), importlib.import_module("ebm")
    torch.set_num_threads(1)  # its tensors are small, and threads that wait for each other cost more than they save
    torch.manual_seed(seed)
    energy, shape, base, sampler = _for_ebmkit(torch, ebm, model)
    settings = {"base": base, "sampler": sampler, "n_temps": effort.temperatures}
    forward = ebm.ais_log_z(energy, shape, n_chains=effort.chains, **settings)
    answer = _interval(forward.log_z, forward.stderr) | {"ess": forward.ess}
    weights = torch.softmax(forward.log_weights, 0)
    start = forward.samples[torch.multinomial(weights, effort.chains, replacement=True)]
    reverse = ebm.reverse_ais_log_z(energy, start, **settings)
    top = reverse.log_z + REACH * reverse.stderr
    return answer | {"bracket": [answer["low"], top] if math.isfinite(top) else None}


def _for_ebmkit(torch: Any, ebm: Any, model: Model) -> tuple[Any, tuple[int, ...], Any, Any]:
    """The energy, the shape of a point, the base distribution and the sampler (``None``: the default, HMC)."""
    kind = str(model["kind"])
    tensor = lambda value: torch.as_tensor(np.asarray(value), dtype=torch.float32)
    if kind == "rbm":
        rows, columns = model["weights"].shape
        energy = ebm.nets.RBM(rows, columns)
        with torch.no_grad():
            energy.W.copy_(tensor(model["weights"].T))
            energy.b.copy_(tensor(model["visible"]))
            energy.c.copy_(tensor(model["hidden"]))
        return energy, (rows,), _uniform(torch, (rows,)), ebm.GibbsWithGradients()
    if kind == "ising":
        couplings, bias = tensor(model["couplings"]), tensor(model["bias"])

        def ising(x):
            spins = 2 * x - 1
            return -0.5 * ((spins @ couplings) * spins).sum(-1) - spins @ bias

        return ising, (len(bias),), _uniform(torch, (len(bias),)), ebm.GibbsWithGradients()
    if kind == "potts":
        couplings, bias = tensor(np.triu(model["couplings"], 1)), tensor(model["bias"])

        def potts(x):
            return -(x * (torch.matmul(couplings, x) + bias)).sum((-1, -2))

        shape = tuple(bias.shape)
        return potts, shape, _uniform(torch, shape), ebm.CategoricalGibbsWithGradients()
    if kind == "mixture":
        energy, spread = _mixture(torch, tensor, model)
        dim = model["means"].shape[1]
    elif kind == "funnel":
        dim, spread = int(model["dim"]), float(model["scale"])
        energy = ebm.nets.FunnelEnergy(dim, spread)
    else:
        raise Unsupported(f"this script does not know the model {kind!r}")
    # the default base of that scale; without its checks, which end the run where a trajectory diverges
    normal = torch.distributions.Normal(torch.zeros(dim), torch.full((dim,), spread), validate_args=False)
    return energy, (dim,), torch.distributions.Independent(normal, 1, validate_args=False), None


def _uniform(torch: Any, shape: tuple[int, ...]) -> Any:
    """The uniform distribution on {0, 1}^n for shape ``(n,)``, on one-hot vectors for ``(n, k)``."""
    if len(shape) == 1:
        each = torch.distributions.Bernoulli(torch.full(shape, 0.5), validate_args=False)
    else:
        each = torch.distributions.OneHotCategorical(torch.full(shape, 1 / shape[1]), validate_args=False)
    return torch.distributions.Independent(each, 1, validate_args=False)


def _mixture(torch: Any, tensor: Any, model: Model) -> tuple[Any, float]:
    """The energy, and the scale of the base: the root of the largest second moment of a coordinate."""
    means, covariances = model["means"].astype(float), model["covariances"].astype(float)
    roots = np.linalg.cholesky(covariances)
    logs = np.log(model["weights"]) - np.log(np.einsum("kii->ki", roots)).sum(1)
    heights = tensor(logs - 0.5 * means.shape[1] * math.log(2 * math.pi))
    whiten, centres = tensor(np.linalg.inv(roots)), tensor(means)

    def energy(x):
        whitened = torch.einsum("kij,bkj->bki", whiten, x[:, None] - centres)
        return -torch.logsumexp(heights - 0.5 * whitened.pow(2).sum(-1), -1)

    moments = model["weights"] @ (means**2 + np.einsum("kii->ki", covariances))
    return energy, float(np.sqrt(moments.max()))


def _interval(value: float, error: float) -> Answer:
    if not (math.isfinite(value) and math.isfinite(error)):
        raise Unsupported(f"its estimate was {value} with standard error {error}")
    return {"value": value, "low": value - REACH * error, "high": value + REACH * error}


SOLVERS = {"ebmkit": by_ebmkit, "ferrotherm": by_ferrotherm}


def _serve(pipe: Any, peer: str) -> None:
    """The process of a library: answers one model after the other."""
    while True:
        model, seed, effort = pipe.recv()
        start = time.perf_counter()
        try:
            answer = SOLVERS[peer](model, seed, effort)
            answer["seconds"] = time.perf_counter() - start
        except Unsupported as reason:
            answer = {"error": str(reason)}
        except Exception as reason:
            # whatever a library raises is its answer for this model
            first = (str(reason).splitlines() or [""])[0]
            answer = {"error": f"{type(reason).__name__}: {first}"}
        pipe.send(answer)


class Worker:
    """The process of a library, started when needed and again after it was ended."""

    def __init__(self, peer: str):
        self.peer, self.process = peer, None

    def solve(self, model: Model, seed: int, effort: Effort) -> Answer:
        if self.process is None:
            context = multiprocessing.get_context("spawn")
            self.pipe, far = context.Pipe()
            self.process = context.Process(target=_serve, args=(far, self.peer), daemon=True)
            self.process.start()
            far.close()
        try:
            self.pipe.send((model, seed, effort))
            if self.pipe.poll(effort.seconds):
                return self.pipe.recv()
            answer = {"error": f"{self.peer} had not finished after {effort.seconds:g} seconds"}
        except (EOFError, OSError):
            self.process.join()
            answer = {"error": f"the process of {self.peer} ended with code {self.process.exitcode}"}
        self.end()
        return answer

    def end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
            self.process = None


def solve_all(peer: str, models: list[Model], effort: Effort, jobs: int) -> Iterator[Answer]:
    """The answers in order, by ``jobs`` processes at a time; the seed of a model is its place."""
    workers = [Worker(peer) for _ in range(jobs)]
    free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
    for worker in workers:
        free.put(worker)

    def solve(seed: int) -> Answer:
        worker = free.get()
        try:
            return worker.solve(models[seed], seed, effort)
        finally:
            free.put(worker)

    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(solve, range(len(models)))
    for worker in workers:
        worker.end()


def read_models(path: Path) -> dict[str, Model]:
    """The models by number."""
    models: dict[str, Model] = {}
    with np.load(path) as arrays:
        for name in arrays.files:
            number, _, field = name.partition("/")
            models.setdefault(number, {})[field] = arrays[name]
    return models


def write_answers(path: Path, answers: Answer) -> None:
    unfinished = path.with_name(path.name + ".unfinished")
    unfinished.write_text(json.dumps(answers, indent=1, allow_nan=False))
    unfinished.replace(path)


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description="log Z of models by ebmkit and ferrotherm.")
    parser.add_argument("models", type=Path, help="an .npz file")
    parser.add_argument("answers", type=Path, help="the .json file to write, after every model")
    parser.add_argument("--chains", type=int, default=1024)
    parser.add_argument("--temperatures", type=int, default=1000, help="transitions of a chain along the path")
    parser.add_argument("--seconds", type=float, default=300.0, help="for one model, before its process is ended")
    parser.add_argument("--jobs", type=int, default=1, help="models solved at a time")
    options = parser.parse_args(arguments)
    effort = Effort(options.chains, options.temperatures, options.seconds)
    models = read_models(options.models)
    answers: Answer = {peer: {} for peer in SOLVERS} | {"versions": {}}
    for peer in SOLVERS:
        try:
            answers["versions"][peer] = version(peer)
        except PackageNotFoundError:
            answers[peer] = {number: {"error": f"{peer} is not installed"} for number in models}
            continue
        for number, answer in zip(models, solve_all(peer, list(models.values()), effort, options.jobs), strict=True):
            answers[peer][number] = answer
            print(peer, number, models[number]["kind"], answer, file=sys.stderr, flush=True)
            write_answers(options.answers, answers)
    write_answers(options.answers, answers)


if __name__ == "__main__":
    main(sys.argv[1:])
