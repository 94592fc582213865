"""Wrong kernels, each wrong in one way, and `check_sampler` sees it."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

import thalweg as tw
from thalweg.core import Info
from thalweg.core.random import log_uniform, split
from thalweg.samplers.gibbs_with_gradients import _log_proposals, _state_at
from thalweg.samplers.hamiltonian import leapfrog
from thalweg.samplers.metropolis import RandomWalk
from thalweg.samplers.single_chain import step_chains
from thalweg.samplers.states import EnergyState, Position

LADDER = (1.0, 2.0, 4.0)
SKEWED = tw.energies.GaussianMixture(
    jnp.array([0.7, 0.3]),
    jnp.array([[0.0, 0.0], [2.0, 1.0]]),
    jnp.array([[[1.0, 0.3], [0.3, 0.5]], [[0.2, 0], [0, 1.5]]]),
)
SPINS = tw.energies.Ising(tw.energies.Graph([(0, 1), (1, 2), (2, 3), (3, 0), (0, 2)], [0.8, -0.5, 0.4, 0.3, 0.6]), 0.2)
FIELD = tw.energies.GaussianField(tw.energies.Graph([(0, 1), (1, 2)], 0.4), 1.0, [1.0, 0.0, -0.5])


class NoAccept(RandomWalk):
    def step(self, key, energy, state):
        x = state.x + self.scale * jax.random.normal(key, state.x.shape)
        return EnergyState(x, jax.vmap(energy)(x)), Info()


def langevin_proposal(key, kernel, energy, state, factor):
    x = state.x - kernel.step_size / 2 * state.gradient
    x = x + factor * jnp.sqrt(kernel.step_size) * jax.random.normal(key, x.shape)
    return kernel.init(key, energy, x)


def log_density(kernel, to, start):
    """``log q(to | start)`` of the Langevin proposal, up to a constant."""
    return -jnp.sum((to.x - start.x + kernel.step_size / 2 * start.gradient) ** 2, axis=-1) / (2 * kernel.step_size)


def accepted(key, new, state, log_ratio):
    accept = jnp.log(jax.random.uniform(key, state.energy.shape)) < state.energy - new.energy + log_ratio
    return jax.tree.map(lambda a, b: jnp.where(accept.reshape(-1, *[1] * (a.ndim - 1)), a, b), new, state), Info()


class OwnMALA(tw.samplers.MALA):
    """MALA written out, which is right as it stands."""

    factor: float = 1.0
    hastings: bool = True

    def step(self, key, energy, state):
        key_move, key_accept = jax.random.split(key)
        new = langevin_proposal(key_move, self, energy, state, self.factor)
        ratio = log_density(self, state, new) - log_density(self, new, state)
        return accepted(key_accept, new, state, ratio if self.hastings else 0.0)


class StaleGradient(tw.samplers.MALA):
    """Right but for the gradient it carries, which is that of the state before."""

    def step(self, key, energy, state):
        new, info = super().step(key, energy, state)
        return eqx.tree_at(lambda s: s.gradient, new, state.gradient), info


class OwnHMC(tw.samplers.HMC):
    """HMC on two coordinates with momenta of unit variance: right for a mass of one, and with its accept step."""

    accepts: bool = True

    def step(self, key, energy, state):
        key_move, key_accept = jax.random.split(key)
        momenta, inverse = jax.random.normal(key_move, state.x.shape), jnp.broadcast_to(1 / self.mass_matrix, 2)
        one = lambda state, momentum: leapfrog(energy, state, momentum, self.step_size, inverse, self.steps)
        new, last = jax.vmap(one)(state, momenta)
        lost = 0.5 * jnp.sum((momenta**2 - last**2) * inverse, axis=-1)
        return accepted(key_accept, new, state, lost if self.accepts else jnp.inf)


WRONG = {
    "no accept step": NoAccept(0.1),
    "no accept step, Langevin": tw.samplers.Langevin(0.2),
    "no accept step, HMC": OwnHMC(0.6, 3, accepts=False),
    "no Hastings term": OwnMALA(0.4, hastings=False),
    "noise with a factor of √2": OwnMALA(0.4, factor=math.sqrt(2)),
    "noise with a factor of √2, unadjusted": tw.samplers.Langevin(0.01, noise_scale=math.sqrt(0.02)),
    "stale gradients": StaleGradient(0.4),
    "momenta of another mass": OwnHMC(0.4, 5, mass_matrix=2.0),
}


@pytest.mark.parametrize("kernel", [OwnMALA(0.4), OwnHMC(0.6, 3)])
def test_the_kernels_that_the_wrong_ones_are_made_from_are_right(key, kernel):
    verdict = tw.check_sampler(kernel, SKEWED, key=key, chains=20_000, steps=10)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", WRONG)
def test_wrong_kernels_are_caught(key, name):
    verdict = tw.check_sampler(WRONG[name], SKEWED, key=key, chains=20_000, steps=10)
    assert not verdict.passed, verdict


class MeanNotDraw(tw.samplers.Gibbs):
    """Sets a tenth of the sites to their likelier value."""

    def step(self, key, energy, state):
        best = jax.vmap(lambda x: jnp.array(energy.space.levels)[jnp.argmax(energy.logits(x), axis=-1)])(state.x)
        pick = jax.random.bernoulli(key, 0.1, state.x.shape)
        return Position(jnp.where(pick, best, state.x)), Info()


class WithoutNoise(tw.energies.GaussianField):
    """Gaussian units set to their conditional means."""

    def _draw(self, noise, field, sites):
        return super()._draw(jnp.zeros_like(noise), field, sites)


class NoHastings(tw.samplers.GibbsWithGradients):
    """Flips spins by the gradient's proposal, and accepts by the energies alone."""

    def step(self, key, energy, state):
        key_move, key_accept = jax.random.split(key)
        move = jax.random.categorical(key_move, _log_proposals(energy.space, state))
        flips = 1 - 2 * jax.nn.one_hot(move, state.x.shape[1], dtype=state.x.dtype)
        return accepted(key_accept, _state_at(energy, energy.space, state.x * flips), state, 0.0)

    def transition_matrix(self, energy):
        space = energy.space
        states = space.states(0, space.size)
        here = _state_at(energy, space, states)
        sites, rows = range(states.shape[1]), jnp.arange(len(states))
        matrix = jnp.zeros((len(states), len(states)))
        for site in sites:
            there = jax.vmap(space.index)(states.at[:, site].multiply(-1))
            accept = jnp.exp(jnp.minimum(here.energy - here.energy[there], 0))
            matrix = matrix.at[rows, there].add(jnp.exp(_log_proposals(space, here)[:, site]) * accept)
        return matrix + jnp.diag(1 - matrix.sum(axis=1))


class WrongMatrix(tw.samplers.Gibbs):
    def transition_matrix(self, energy):
        return super().transition_matrix(tw.tempered(energy, 1.01))


@pytest.mark.slow
def test_a_mean_instead_of_a_draw_is_caught(key):
    verdict = tw.check_sampler(MeanNotDraw(), SPINS, key=key, chains=20_000, steps=5)
    assert not verdict.passed, verdict
    silent = WithoutNoise(FIELD.coupling, FIELD.diagonal, FIELD.shift)
    verdict = tw.check_sampler(tw.samplers.Gibbs(), silent, key=key, chains=5000, steps=1)
    assert not verdict.passed, verdict


def test_a_missing_hastings_term_is_caught_on_spins(key):
    verdict = tw.check_sampler(NoHastings(), SPINS, key=key, chains=20_000, steps=5)
    assert not verdict.passed and "πT ≠ π" in verdict.text, verdict


def test_a_wrong_matrix_is_caught_where_the_draws_are_right(key):
    verdict = tw.check_sampler(WrongMatrix(), SPINS, key=key, chains=2000, steps=2)
    assert not verdict.passed and "πT ≠ π" in verdict.text, verdict


# tempering


class StuckParity(tw.samplers.ParallelTempering):
    """Tries the even pairs at every step and the odd ones never."""

    def step(self, key, energy, state):
        return super().step(key, energy, eqx.tree_at(lambda s: s.parity, state, jnp.zeros_like(state.parity)))


class WrongRung(tw.samplers.ParallelTempering):
    """Swaps by the energies of the rung below."""

    def _energies(self, energy, inner):
        return jnp.roll(super()._energies(energy, inner), 1, axis=1)


class OneWay(tw.samplers.ParallelTempering):
    """Where two rungs swap, the hotter one keeps its point, so that there are two copies of it."""

    def _exchange(self, energy, inner, swap):
        hotter = jnp.concatenate([jnp.zeros_like(swap[:, :1]), swap], axis=1)
        like = lambda leaf: hotter.reshape(*hotter.shape, *[1] * (leaf.ndim - 2))
        swapped = super()._exchange(energy, inner, swap)
        return jax.tree.map(lambda old, new: jnp.where(like(old), old, new), inner, swapped)


class BothAtOnce(tw.samplers.ParallelTempering):
    """Tries even and odd pairs in one step, so that a point may have to go two ways."""

    def step(self, key, energy, state):
        keys = split(key, len(self.temperatures) + 1)
        move = lambda t, key, inner: step_chains(self.kernel, key, tw.tempered(energy, t), inner)[0]
        inner = jax.vmap(move, in_axes=(0, 0, 1), out_axes=1)(self.temperatures, keys[1:], state.inner)
        reached, beta = self._energies(energy, inner), 1 / self.temperatures
        log_accept = (beta[:-1] - beta[1:]) * (reached[:, :-1] - reached[:, 1:])
        inner = self._exchange(energy, inner, log_uniform(keys[0], log_accept.shape) < log_accept)
        rate = jnp.exp(jnp.minimum(log_accept, 0))
        return eqx.tree_at(lambda s: s.inner, state, inner), Info(extra={"swap_rate": rate})


SWAPS = {
    "right": tw.samplers.ParallelTempering,
    "odd pairs never": StuckParity,
    "even and odd pairs at once": BothAtOnce,
    "energies of another rung": WrongRung,
    "copies": OneWay,
}


@pytest.mark.parametrize("name", SWAPS)
def test_wrong_swaps_are_caught(key, name):
    kernel = SWAPS[name](tw.samplers.Gibbs(), LADDER)
    verdict = tw.check_sampler(kernel, SPINS, key=key, chains=20_000, steps=6)
    assert verdict.passed == (name == "right"), verdict
    assert ("rungs 2 and 3 never swapped" in verdict.text) == (name == "odd pairs never")
