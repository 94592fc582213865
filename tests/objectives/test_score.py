"""Score matching against closed forms, quadrature and each other."""

import itertools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg import exact, objectives
from thalweg.core import ScoreNetwork
from thalweg.objectives import projected as module

DATA = tw.energies.GaussianMixture(
    jnp.array([0.7, 0.3]), jnp.array([[-1.0, 0.0], [1.5, 0.5]]), jnp.array([[[1.0, 0.3], [0.3, 0.6]], 0.5 * np.eye(2)])
)
NETWORK = tw.energies.MLP(2, width=8, depth=2, key=jax.random.key(3), activation=jnp.tanh)


class ScoreOf(ScoreNetwork):
    """An energy's score, as a network of its own."""

    energy: tw.core.Energy
    space: tw.core.Space | None = None

    def __call__(self, x):
        return tw.score(self.energy, x)


@eqx.filter_jit
def points(objective, key, model, batch):
    return objective.points(key, model, batch)


@eqx.filter_jit
def value(objective, model, batch, key):
    return objective.loss(key, model, None, objective.init(key, model, batch)[1], batch)[0]


LINE = tw.energies.GaussianMixture(jnp.array([0.7, 0.3]), jnp.array([[-1.0], [1.5]]), jnp.array([1.0, 0.5]))


def expected(objective, model):
    """The loss of one point, averaged over a density on the line by quadrature."""
    key = jax.random.key(0)
    return exact.expectation(LINE, lambda x: objective.points(key, model, x[None])[0])


@pytest.mark.slow
def test_explicit_is_implicit_and_a_constant():
    """``½E‖s - s_data‖² - E[½‖s‖² + tr ∇s]`` does not depend on the model: it is ½E‖s_data‖²."""
    constant = exact.expectation(LINE, lambda x: 0.5 * jnp.sum(tw.score(LINE, x) ** 2))
    models = [
        tw.energies.Gaussian(jnp.array([0.2]), jnp.array([1.5])),
        tw.energies.MLP(1, width=8, depth=2, key=jax.random.key(3), activation=jnp.tanh),
    ]
    for model in models:
        gap = expected(objectives.ExplicitScoreMatching(LINE), model) - expected(
            objectives.ImplicitScoreMatching(), model
        )
        np.testing.assert_allclose(gap, constant, rtol=1e-4)


@pytest.mark.parametrize("kind", [objectives.HutchinsonScoreMatching, objectives.SlicedScoreMatching])
def test_projections_average_to_the_implicit_loss_exactly(monkeypatch, key, kind):
    """Over all sign vectors, E[vvᵀ] = I holds without error."""
    batch = jax.random.normal(key, (5, 3))
    model = tw.energies.MLP(3, width=8, depth=2, key=key, activation=jnp.tanh)
    signs = jnp.asarray(list(itertools.product([-1.0, 1.0], repeat=3)))
    monkeypatch.setattr(module, "directions", lambda *_: jnp.broadcast_to(signs[:, None], (8, 5, 3)))
    ours = points(kind(projections=8), key, model, batch)
    np.testing.assert_allclose(
        ours, points(objectives.ImplicitScoreMatching(), key, model, batch), rtol=2e-5, atol=2e-5
    )


@pytest.mark.parametrize("law", ["gaussian", "rademacher", "sphere"])
def test_directions_have_unit_covariance(key, law):
    v = module.directions(key, law, (1, 40_000, 2, 2), jnp.float32).reshape(-1, 4)
    # 4 standard errors of a mean of products, for the widest law
    np.testing.assert_allclose(v.T @ v / len(v), np.eye(4), atol=6 * np.sqrt(2 / len(v)))
    if law == "sphere":
        np.testing.assert_allclose(jnp.sum(v**2, axis=1), 4.0, rtol=1e-5)


@pytest.mark.slow
def test_the_exact_trace_is_that_of_the_hessian(key):
    batch, model = jax.random.normal(key, (4, 2)), NETWORK
    diagonal = jax.vmap(lambda x: -jnp.diag(jax.hessian(model)(x)))(batch)
    s = jax.vmap(lambda x: tw.score(model, x))(batch)
    implicit = 0.5 * jnp.sum(s**2, axis=1) + jnp.sum(diagonal, axis=1)
    np.testing.assert_allclose(
        points(objectives.ImplicitScoreMatching(), key, model, batch), implicit, rtol=1e-5, atol=1e-6
    )
    regularised = implicit + 0.3 * jnp.sum(diagonal**2, axis=1)
    ours = points(objectives.RegularisedScoreMatching(0.3), key, model, batch)
    np.testing.assert_allclose(ours, regularised, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["explicit", "denoising"])
def test_the_gradient_is_that_of_the_formula(name, key):
    """The forward derivative that stands in for it gives the same gradient as differentiating the square."""
    batch, objective = DATA.sample(key, (30,)), ALL[name]
    energy, network = (
        eqx.filter_grad(lambda model: value(objective, model, batch, key))(model)
        for model in (NETWORK, ScoreOf(NETWORK))
    )
    for ours, formula in zip(jax.tree.leaves(energy), jax.tree.leaves(network), strict=True):
        np.testing.assert_allclose(ours, formula, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_finite_differences_tend_to_sliced_at_second_order(key):
    batch = DATA.sample(key, (20,))
    for model in (DATA, ScoreOf(DATA)):
        sliced = points(objectives.SlicedScoreMatching(), key, model, batch)
        widths = np.array([0.4, 0.2, 0.1])
        errors = [
            float(
                jnp.abs(points(objectives.FiniteDifferenceScoreMatching(epsilon=e), key, model, batch) - sliced).mean()
            )
            for e in widths
        ]
        slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
        assert 1.8 < slope < 2.2, errors


ALL = {
    "explicit": objectives.ExplicitScoreMatching(lambda x: -x),
    "implicit": objectives.ImplicitScoreMatching(),
    "regularised": objectives.RegularisedScoreMatching(0.1),
    "hutchinson": objectives.HutchinsonScoreMatching(projections=2),
    "sliced": objectives.SlicedScoreMatching(projections=2, law="sphere"),
    "finite difference": objectives.FiniteDifferenceScoreMatching(projections=2, epsilon=0.01),
    "denoising": objectives.DenoisingScoreMatching(0.3),
}


@pytest.mark.parametrize("name", ALL)
def test_an_energy_and_its_score_network_have_one_loss(name, key):
    batch, objective = DATA.sample(key, (30,)), ALL[name]
    ours, network = value(objective, DATA, batch, key), value(objective, ScoreOf(DATA), batch, key)
    # differences of energies lose digits that differences of scores do not
    np.testing.assert_allclose(ours, network, rtol=2e-2 if name == "finite difference" else 1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("name", ALL)
def test_images_need_no_flattening(name, key):
    objective = ALL[name]
    images = jax.random.normal(key, (20, 2, 3, 1))
    flat = tw.energies.MLP(6, width=8, depth=1, key=key)
    picture = tw.as_energy(lambda x: flat(x.reshape(6)), tw.Real((2, 3, 1)))
    if name in ("hutchinson", "sliced", "finite difference"):
        v = objective.directions(key, images)
        assert v.shape == (2, 20, 2, 3, 1)
    np.testing.assert_allclose(
        value(objective, picture, images, key), value(objective, flat, images.reshape(20, 6), key), rtol=1e-4
    )


@pytest.mark.slow
def test_the_fisher_divergence_is_the_rate_at_which_noise_closes_the_gap():
    """``d/dt KL(p_t‖q_t) = -½E_{p_t}‖∇log p_t - ∇log q_t‖²`` for ``X_t = X + N(0, tI)``."""
    p, q, t, h = LINE, tw.energies.Gaussian(jnp.array([0.5]), jnp.array([2.0])), 0.5, 0.05

    def gap(t):
        root = jnp.sqrt(t)
        return float(exact.kl(p.smoothed(root), q.smoothed(root)))

    now_p, now_q = p.smoothed(jnp.sqrt(t)), q.smoothed(jnp.sqrt(t))
    objective, key = objectives.ExplicitScoreMatching(now_p), jax.random.key(0)
    fisher = exact.expectation(now_p, lambda x: objective.points(key, now_q, x[None])[0])
    np.testing.assert_allclose(fisher, -(gap(t + h) - gap(t - h)) / (2 * h), rtol=5e-3)


def test_scores_of_known_densities():
    x = jnp.array([0.7])
    gamma = tw.as_energy(lambda x: jnp.sum(1.5 * x - (2.5 - 1) * jnp.log(x)))
    np.testing.assert_allclose(tw.score(gamma, x), (2.5 - 1) / x - 1.5, rtol=1e-6)
    gaussian = tw.energies.Gaussian(jnp.array([2.0]), jnp.array([0.25]))
    np.testing.assert_allclose(tw.score(gaussian, x), -(x - 2.0) / 0.25, rtol=1e-6)
    weights, means, variances = np.array([0.3, 0.7]), np.array([-1.0, 1.0]), np.array([0.5, 2.0])
    mixture = tw.energies.GaussianMixture(weights, means[:, None], variances)
    shares = weights * np.exp(-((0.7 - means) ** 2) / (2 * variances)) / np.sqrt(variances)
    np.testing.assert_allclose(
        tw.score(mixture, x), [np.sum(shares / shares.sum() * -(0.7 - means) / variances)], rtol=1e-5
    )


def test_changing_a_setting_compiles_nothing_anew(key):
    batch = DATA.sample(key, (16,))
    traces = []

    @eqx.filter_jit
    def loss(objective, model, state):
        traces.append(objective)
        return objective.loss(key, model, None, state, batch)[0]

    for sigma in (0.1, 0.2):
        objective = objectives.DenoisingScoreMatching(sigma)
        loss(objective, DATA, objective.init(key, DATA, batch)[1])
    for epsilon in (0.1, 0.2):
        loss(objectives.FiniteDifferenceScoreMatching(epsilon=epsilon), DATA, None)
    assert len(traces) == 2


BY_PARTS = [
    objectives.ImplicitScoreMatching(),
    objectives.HutchinsonScoreMatching(),
    objectives.SlicedScoreMatching(),
    objectives.FiniteDifferenceScoreMatching(),
    objectives.RegularisedScoreMatching(),
]


@pytest.mark.parametrize("objective", BY_PARTS, ids=lambda o: type(o).__name__)
def test_data_with_edges_are_refused_with_the_reason(objective, key):
    energy = tw.energies.MLP(3, width=4, depth=1, key=key)
    cut = jnp.clip(jax.random.normal(key, (100, 3)), -1.0, 1.0)
    with pytest.raises(ValueError, match=r"tied at its smallest or largest.*use DenoisingScoreMatching"):
        objective.init(key, energy, cut)
    with pytest.raises(ValueError, match=r"whole numbers.*use DenoisingScoreMatching"):
        objective.init(key, energy, jnp.round(5 * jax.random.normal(key, (100, 3))))
    objectives.DenoisingScoreMatching().init(key, energy, cut)
    objective.init(key, energy, jax.random.normal(key, (100, 3)))


def test_few_rows_are_judged_by_all_their_values(key):
    image = jnp.where(jnp.arange(64) < 32, -1.0, jnp.linspace(-1, 1, 64))
    with pytest.raises(ValueError, match="tied"):
        objectives.SlicedScoreMatching().init(key, lambda x: jnp.sum(x**2), image[None])


@pytest.mark.parametrize(
    "objective", [*BY_PARTS, objectives.ExplicitScoreMatching(jnp.negative), objectives.DenoisingScoreMatching()]
)
def test_wrong_models_are_refused(objective, key):
    batch = jax.random.normal(key, (30, 4))
    with pytest.raises(ValueError, match="expected a score of the point's shape"):
        objective.init(key, tw.as_score(lambda x: x[:2]), batch)
    with pytest.raises(ValueError, match=r"expected a continuous space for .*ScoreMatching"):
        objective.init(key, tw.energies.Ising(jnp.zeros((4, 4))), batch)


def test_bad_settings_are_refused():
    for kind in (
        objectives.SlicedScoreMatching,
        objectives.HutchinsonScoreMatching,
        objectives.FiniteDifferenceScoreMatching,
    ):
        with pytest.raises(ValueError, match="expected projections to be a whole number >= 1, got 0"):
            kind(projections=0)
        with pytest.raises(ValueError, match=r"expected law .* got 'cauchy'"):
            kind(law="cauchy")
    with pytest.raises(ValueError, match="expected epsilon > 0"):
        objectives.FiniteDifferenceScoreMatching(epsilon=0.0)
    with pytest.raises(ValueError, match="expected weight > 0"):
        objectives.RegularisedScoreMatching(-1.0)
    with pytest.raises(ValueError, match="expected the data's score"):
        objectives.ExplicitScoreMatching(3)
