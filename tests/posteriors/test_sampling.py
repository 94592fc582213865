"""Warm-up and NUTS on real posteriors, from wide starts, in their own spaces: points are dictionaries with supports.

The reference moments are from 10 000 draws of independent quality; see `models.py`.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tests.posteriors.models import NAMES, REFERENCE_DRAWS, posterior

import thalweg as tw

CHAINS, DRAWS = 8, 1500
# in the neck of a funnel, and where alpha is large, only small steps are accepted
ACCEPTANCE = {"eight_schools_centered": 0.98, "gp_pois_regr": 0.95}


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_means_and_deviations_are_those_of_the_reference(name):
    target = posterior(name)
    energy = tw.as_energy(target.energy, target.space)
    init = jax.vmap(target.space.from_real)(jnp.asarray(target.starts(0, CHAINS), float))
    target_acceptance = ACCEPTANCE.get(name)
    nuts, key = tw.samplers.NUTS(0.5), jax.random.key(1)
    warm = tw.samplers.warm_up(energy, nuts, init, key=key, target_acceptance=target_acceptance)
    chains = tw.sample(energy, warm.kernel, warm.state, key=jax.random.key(2), draws=DRAWS)
    # in units of the reference, where single precision keeps the digits
    centred = {name: lambda value, m=m: (value - m.mean) / m.sd for name, m in target.reference.items()}
    values = lambda x: {name: centred[name](value) for name, value in target.summary(x).items() if name in centred}
    first = chains.summary(values)
    for quantity in target.reference:
        mean, sd, error = first.mean[quantity], first.sd[quantity], first.mcse[quantity]
        assert abs(mean) < 4 * np.sqrt(error**2 + 1 / REFERENCE_DRAWS), (quantity, mean, error)
        assert first.rhat[quantity] < 1.05, (quantity, first.rhat[quantity])
        # of a deviation: Var(sd) = Var((x - mean)²) / 4 sd², by the effective size of the squares
        squares = chains.summary(lambda x, q=quantity, m=mean: (values(x)[q] - m) ** 2)
        own = float(squares.mcse) / (2 * sd)
        theirs = float(squares.sd) / (2 * sd) / np.sqrt(REFERENCE_DRAWS)
        assert abs(sd - 1) < 4 * np.sqrt(own**2 + theirs**2), (quantity, sd, own)


@pytest.mark.slow
def test_a_stuck_start_costs_no_other_chain():
    """On ARMA(1, 1) one start of four lies where the density falls off a cliff."""
    target = posterior(next(name for name in NAMES if "arma" in name))
    energy = tw.as_energy(target.energy, target.space)
    for seed in range(3):
        z = np.array(target.starts(seed, 4))
        z[2] = 40.0 * np.sign(z[2])
        init = jax.vmap(target.space.from_real)(jnp.asarray(z, float))
        warm = tw.samplers.warm_up(energy, tw.samplers.NUTS(0.5), init, key=jax.random.key(seed))
        chains = tw.sample(energy, warm.kernel, warm.state, key=jax.random.key(seed + 10), draws=500)
        names = list(target.reference)
        summary = chains.summary(lambda x, names=names: jnp.stack([target.summary(x)[name] for name in names]))
        assert np.all(summary.rhat < 1.1), (seed, summary.rhat, warm.report)
