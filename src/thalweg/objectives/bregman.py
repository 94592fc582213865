"""Density-ratio fitting by Bregman divergences: NCE with any convex ψ in place of the logistic one."""

from collections.abc import Callable
from typing import Any

import equinox as eqx
from jaxtyping import Array

from thalweg.objectives.noise_contrastive import AbstractNoiseContrast, as_fixed, as_nu
from thalweg.objectives.noise_density import as_density
from thalweg.objectives.psi import AbstractPsi, as_psi


class BregmanRatio(AbstractNoiseContrast):
    r"""The ratio ``g = p̃_θ/p_n`` fitted by the Bregman divergence of a convex ψ,

    ``(1/ν) E_noise S0(νg) - E_data S1(νg)``, ``S1 = ψ'``, ``S0(u) = uψ'(u) - ψ(u)``,

    which is smallest where p̃_θ is the normalised density of the data. The logistic ψ gives `NCE`, for every ν. The
    others grow like g or 1/g: if they overflow, the loss is not finite, and the metric ``not_finite`` is the share of
    such points. `Squared` and `KullbackLeibler` need noise with wider tails than the data, `ItakuraSaito` narrower.
    log Z, the metrics and the other arguments are those of `NCE`. References: Gutmann and Hirayama (2011), UAI;
    Sugiyama, Suzuki and Kanamori (2012), Ann. Inst. Stat. Math. 64.

    Args:
        psi: `Logistic`, `KullbackLeibler`, `Squared`, `ItakuraSaito`, `Power`, `Custom`, or a convex function of u.
        noise: as in `NCE`.
        nu: as in `NCE`.
        fixed: as in `NCE`.

    >>> import jax, optax, thalweg as tw
    >>> key_data, key_fit = jax.random.split(jax.random.key(0))
    >>> data = 2.0 + jax.random.normal(key_data, (1000, 1))
    >>> objective = tw.objectives.BregmanRatio(tw.objectives.KullbackLeibler(), tw.energies.Gaussian([2.0], [4.0]))
    >>> energy = tw.energies.Gaussian([1.0], [1.0])
    >>> run = tw.fit(energy, data, objective, optimizer=optax.adam(0.05), steps=200, batch_size=200, key=key_fit)
    >>> bool(abs(run.energy.mean[0] - 2.0) < 0.3)
    True
    """

    psi: AbstractPsi
    noise: Any
    nu: float = eqx.field(static=True)
    fixed: int | None = eqx.field(static=True)

    def __init__(
        self,
        psi: AbstractPsi | Callable[[Array], Array] | None = None,
        noise: Any = None,
        nu: float = 1.0,
        fixed: int | None = None,
    ):
        self.psi = as_psi(psi)
        self.noise, self.nu, self.fixed = as_density(noise), as_nu(nu), as_fixed(fixed)
