"""Samplers: the chain loop, kernels, direct samplers, and chain starts."""

from thalweg.core import shorten_signatures
from thalweg.samplers.adapt import WarmedUp, warm_up
from thalweg.samplers.annealing import AnnealedLangevin, SimulatedAnnealing
from thalweg.samplers.chains import Chains
from thalweg.samplers.checkerboard import Checkerboard
from thalweg.samplers.direct import inversion, rejection
from thalweg.samplers.from_blackjax import from_blackjax
from thalweg.samplers.gibbs import Gibbs
from thalweg.samplers.gibbs_with_gradients import GibbsWithGradients
from thalweg.samplers.hamiltonian import HMC, MALA
from thalweg.samplers.langevin import GradientDescent, Langevin, UnderdampedLangevin
from thalweg.samplers.metropolis import Independence, MetropolisHastings, Proposal, RandomWalk
from thalweg.samplers.nuts import NUTS
from thalweg.samplers.product import PerPart
from thalweg.samplers.run import advance, sample
from thalweg.samplers.single_chain import per_chain
from thalweg.samplers.starts import ReplayBuffer, Start, from_data, from_noise, persistent, uniform_noise
from thalweg.samplers.tempering import ParallelTempering, tune_ladder

__all__ = [
    "HMC",
    "MALA",
    "NUTS",
    "AnnealedLangevin",
    "Chains",
    "Checkerboard",
    "Gibbs",
    "GibbsWithGradients",
    "GradientDescent",
    "Independence",
    "Langevin",
    "MetropolisHastings",
    "ParallelTempering",
    "PerPart",
    "Proposal",
    "RandomWalk",
    "ReplayBuffer",
    "SimulatedAnnealing",
    "Start",
    "UnderdampedLangevin",
    "WarmedUp",
    "advance",
    "from_blackjax",
    "from_data",
    "from_noise",
    "inversion",
    "per_chain",
    "persistent",
    "rejection",
    "sample",
    "tune_ladder",
    "uniform_noise",
    "warm_up",
]

shorten_signatures(globals(), __all__)
