"""Samplers: the chain loop, kernels, and chain starts."""

from thalweg.samplers.hamiltonian import HMC, NUTS
from thalweg.samplers.langevin import MALA, Langevin
from thalweg.samplers.lift import per_chain
from thalweg.samplers.metropolis import RandomWalk
from thalweg.samplers.run import Chains, advance, sample
from thalweg.samplers.starts import ReplayBuffer, Start, from_data, from_noise, persistent, uniform_noise

__all__ = [
    "HMC",
    "MALA",
    "NUTS",
    "Chains",
    "Langevin",
    "RandomWalk",
    "ReplayBuffer",
    "Start",
    "advance",
    "from_data",
    "from_noise",
    "per_chain",
    "persistent",
    "sample",
    "uniform_noise",
]
