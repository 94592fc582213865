"""Plots of chains: what is drawn is what was computed, for draws of any shape, one chain or many."""

import jax.numpy as jnp
import numpy as np
import pytest

from thalweg import report
from thalweg.plot import DARK, LIGHT, autocorrelation, mixing, rank, running_mean, trace
from thalweg.plot.style import png
from thalweg.plot.traces import autocorrelations, coordinate_of, pooled_ranks
from thalweg.samplers import Chains

PLOTS = [trace, rank, autocorrelation, running_mean]


def draws(chains: int, count: int, event: tuple[int, ...] = (), phi: float = 0.0, seed: int = 0) -> np.ndarray:
    """Stationary autoregressive chains, ``x_t = φ x_{t-1} + ε_t``, with ``ρ_k = φ^k``."""
    noise = np.random.default_rng(seed).normal(size=(chains, count, *event))
    x = np.empty_like(noise)
    x[:, 0] = noise[:, 0] / np.sqrt(1 - phi**2)
    for t in range(1, count):
        x[:, t] = phi * x[:, t - 1] + noise[:, t]
    return x


@pytest.mark.parametrize("plot", PLOTS)
@pytest.mark.parametrize("chains", [1, 8, 9])
@pytest.mark.parametrize(("event", "coordinate"), [((), 0), ((), ()), ((3,), 2), ((4, 5), (3, 1))])
def test_draws_of_any_shape_are_drawn_with_named_axes(plot, chains, event, coordinate):
    (axes,) = plot(draws(chains, 60, event), coordinate).axes
    assert axes.get_xlabel()
    assert axes.get_ylabel()
    assert axes.get_title(loc="left")


@pytest.mark.parametrize("theme", [LIGHT, DARK])
def test_the_four_together_for_every_coordinate(theme):
    x = draws(4, 100, (3,))
    figure = mixing(Chains(jnp.asarray(x), {}, None), [0, 2], true_mean=np.zeros(3), theme=theme)
    titles = [axes.get_title(loc="left").split(",")[0] for axes in figure.axes]
    words = ["Trace", "Ranks", "Autocorrelation", "Running mean"]
    assert titles == [f"{word} of {name}" for name in ("x₁", "x₃") for word in words]
    assert png(figure)[1:4] == b"PNG"
    assert len(mixing(x).axes) == 8


def test_a_coordinate_by_place_and_by_index_is_the_same():
    x = draws(2, 10, (4, 5))
    column, name = coordinate_of(x, (3, 1))
    assert name == "x[3,1]"
    assert (column == x[:, :, 3, 1]).all()
    assert (coordinate_of(x, 16)[0] == column).all()


def test_the_trace_shows_every_chain_and_not_more_points_than_a_page():
    x = draws(6, 5000)
    lines = trace(x).axes[0].lines
    assert len(lines) == 6
    for line, chain in zip(lines, x, strict=True):
        assert len(line.get_xdata()) <= 2000
        assert (line.get_ydata() == chain[np.asarray(line.get_xdata()) - 1]).all()


def test_ranks_are_those_of_all_draws_together():
    x = draws(3, 50)
    ranks = pooled_ranks(x)
    assert (np.sort(ranks, axis=None) == np.arange(1, 151)).all()
    assert (x.ravel()[np.argsort(ranks, axis=None)] == np.sort(x, axis=None)).all()


def test_equal_draws_are_shared_out_evenly_among_the_chains():
    ranks = pooled_ranks(np.zeros((2, 5000)))
    # the mean rank of 5000 of 10000 has deviation 10000/√(12·5000)/√2 = 29: five of them
    assert abs(ranks[0].mean() - 5000.5) < 145


@pytest.mark.parametrize("chains", [4, 12])
def test_a_chain_elsewhere_stands_out_of_the_even_share(chains):
    x = draws(chains, 1000)
    x[0] += 10
    (axes,) = rank(x).axes
    if chains == 4:
        heights = [patch.get_data().values - patch.get_data().baseline for patch in axes.patches]
    else:
        heights = [line.get_ydata() for line in axes.lines[:-1]]
        assert axes.lines[-1].get_ydata()[0] == 50  # 1000 draws in 20 bins
    assert len(heights) == chains
    assert all(height.sum() == 1000 for height in heights)
    assert heights[0][: -20 // chains - 1].sum() == 0
    assert heights[1][-20 // chains + 1 :].sum() == 0


def test_the_autocorrelation_is_that_of_the_process():
    rho = autocorrelations(draws(64, 2000, phi=0.8))
    lags = np.arange(20)
    # Bartlett's deviation for φ = 0.8 is at most √((1+φ²)/(1-φ²)/n) = 0.006 with n = 128000: four of them
    assert np.abs(rho[:20] - 0.8**lags).max() < 0.024
    assert rho[0] == 1


def test_the_autocorrelation_by_fft_is_the_sum():
    x = draws(3, 37)
    centred = x - x.mean()
    direct = np.array([(centred[:, : 37 - k] * centred[:, k:]).sum() for k in range(37)])
    assert np.allclose(autocorrelations(x), direct / direct[0], atol=1e-12)


def test_chains_that_disagree_stay_correlated():
    x = draws(4, 1000)
    x[:2] += 10
    assert autocorrelations(x)[100] > 0.8


def test_the_band_is_that_of_independent_draws_and_the_lags_are_as_many_as_asked():
    (axes,) = autocorrelation(draws(4, 400), lags=50).axes
    assert len(axes.lines[-1].get_xdata()) == 51
    assert axes.patches[0].get_extents().transformed(axes.transData.inverted()).y1 == pytest.approx(1.96 / 40)


def test_the_running_mean_ends_at_the_mean_within_its_error():
    x = draws(8, 1000, phi=0.5, seed=3)
    (axes,) = running_mean(x, true_mean=0.0).axes
    strong, truth = axes.lines[-2:]
    assert strong.get_ydata()[-1] == pytest.approx(x.mean())
    assert (np.asarray(truth.get_ydata()) == 0).all()
    band = axes.collections[0].get_paths()[0].vertices
    half = np.ptp(band[band[:, 0] == 1000, 1]) / 2
    # var(mean) = (1/n)·(1+φ)/(1-φ)/(1-φ²) = 4/8000, so two errors are 0.0447; the estimate is good to a tenth
    assert half == pytest.approx(2 * np.sqrt(4 / 8000), rel=0.25)


def test_many_chains_are_faint_and_few_have_colours():
    few, many = (trace(draws(chains, 20)).axes[0].lines for chains in (4, 40))
    assert len({line.get_color() for line in few}) == 4
    assert len({line.get_color() for line in many}) == 1
    assert many[0].get_alpha() < few[0].get_alpha() / 4


def test_a_trace_shows_where_a_chain_ran_off():
    x = draws(2, 20)
    x[0, 10:] = np.nan
    assert np.isnan(trace(x).axes[0].lines[0].get_ydata()).sum() == 10


@pytest.mark.parametrize(
    ("draw", "words"),
    [
        (lambda: trace(np.zeros(5)), "expected draws \\(chains, draws"),
        (lambda: trace(np.zeros((2, 3))), "at least 8 draws"),
        (lambda: trace(np.zeros((2, 10, 3)), 3), "expected a coordinate below 3"),
        (lambda: trace(np.zeros((2, 10, 3)), -1), "count from 0"),
        (lambda: trace(np.zeros((2, 10, 3)), (0, 1)), "index in the event \\(3,\\)"),
        (lambda: rank(np.full((2, 10), np.inf)), "expected finite draws"),
        (lambda: autocorrelation(np.zeros((2, 10))), "expected a coordinate that moves"),
        (lambda: autocorrelation(draws(2, 10), lags=0), "lags: expected at least 1"),
        (lambda: running_mean(draws(2, 10, (3,)), true_mean=np.zeros(2)), "true_mean"),
        (lambda: mixing(draws(2, 10), []), "expected at least one"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(draw, words):
    with pytest.raises(ValueError, match=words):
        draw()


def test_a_function_of_the_points_is_drawn_under_its_name():
    for plot in PLOTS:
        assert "magnetisation" in plot(draws(4, 60), name="magnetisation").axes[0].get_title(loc="left")


def test_earlier_names_are_the_same_functions():
    earlier = [report.trace_plot, report.rank_plot, report.autocorrelation_plot, report.running_mean_plot]
    assert [*earlier, report.chain_plots] == [*PLOTS, mixing]
