"""The thesis's experiments: they run, and say whether they agree."""

import re
import signal
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import thalweg as tw
from thalweg.experiments import EXPERIMENTS, run_folders, thesis_intervals, thesis_runs, thesis_scores, thesis_signal
from thalweg.experiments.thesis_methods import METHODS, divergence, judge_methods, target
from thalweg.experiments.thesis_rejuvenation import judge_shares, measure_chains
from thalweg.experiments.thesis_scores import PUBLISHED, average_scores, judge_scores
from thalweg.experiments.thesis_signal import judge_signals


@pytest.mark.slow
def test_a_small_table_of_scores_has_means_errors_and_the_published_numbers(tmp_path, monkeypatch):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    numbers = EXPERIMENTS["thesis-table-5-2"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert [row["interval"] for row in numbers["rows"]] == [1, 5]
    for row in numbers["rows"]:
        assert row["seeds"] == 2 and row["inception_score_error"] >= 0
        assert row["frechet_distance_published"] == PUBLISHED[row["interval"]]["frechet_distance"]
        # after four updates the samples are noise, to any classifier of digits
        assert row["frechet_distance"] > 100
    assert "digits classifier" in numbers["network"] and "accuracy" in numbers["network"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["thesis-figure-3-1", "thesis-figure-3-2", "thesis-figure-3-3"])
def test_figures_over_the_rejuvenation(tmp_path, name):
    numbers = EXPERIMENTS[name].run(jax.random.key(0), tmp_path, scale="smoke")
    shares = [row["rejuvenation"] for row in numbers["rows"]]
    assert shares == ([0.5, 1.0] if name == "thesis-figure-3-3" else [0.0, 0.25, 1.0])
    assert (tmp_path / f"{name}.png").stat().st_size > 5000
    assert words_of(numbers["verdict"]) == expected_words(name, numbers["rows"])
    beside = {row[0]: row[1:] for row in numbers["settings_table"]["rows"]}
    assert beside["learning rate"] == ["0.001", "0.0001"]
    assert beside["buffer"] == ["64", "10000"] and beside["batch"] == ["32", "128"]
    assert beside["Langevin steps an update"] == ["5", "100"] and beside["width of the model"] == ["0.25", "1"]


def words_of(verdict: str) -> list[str]:
    """The verdicts in a sentence, in order."""
    return re.findall(r": (agrees|disagrees|undecided)\b", verdict)


def expected_words(name: str, rows: list[dict]) -> list[str]:
    """What must be said of these numbers, computed from them anew.

    Figure 3.1: at R = 0 noise lies less than a quarter (or more than half) as far above the data as between (the
    median), and at R = 100 % less than half (or more than three quarters) as many classes are covered and spread over.
    Figures 3.2 and 3.3: v ends above twice its value halfway, or not finite, if and only if there is no spectral
    normalisation; between 1.25 and twice nothing is decided.
    """
    if name == "thesis-figure-3-1":
        first, *between, last = rows
        middle = float(np.median([row["energy_noise_above_data"] for row in between]))
        share = abs(first["energy_noise_above_data"]) / middle
        covered, spread = ([row[name] for row in between] for name in ("classes_covered", "classes_effective"))
        found, effective = last["classes_covered"], last["classes_effective"]
        fewer = 2 * found < min(covered) or 2 * effective < min(spread)
        as_many = found > 0.75 * min(covered) and effective > 0.75 * min(spread)
        return [
            "agrees" if share < 0.25 else "disagrees" if share > 0.5 else "undecided",
            "agrees" if fewer else "disagrees" if as_many else "undecided",
        ]
    words = []
    for row in rows:
        growth = np.inf if row["updates_not_finite"] else row["v_last"] / row["v_middle"]
        state = "stays" if growth < 1.25 else "grows" if growth > 2 else None
        wanted = "stays" if name == "thesis-figure-3-3" else "grows"
        words.append("undecided" if state is None else "agrees" if state == wanted else "disagrees")
    return words


KEPT = {
    "energy_noise_above_data": 1.5,
    "classes_covered": 9,
    "classes_effective": 8.0,
    "deviation": 0.9,
    "steady": True,
    "stuck": 0.0,
}


@pytest.mark.parametrize(
    ("gap", "word"), [(0.1, "agrees"), (-0.1, "agrees"), (0.6, "undecided"), (1.5, "disagrees"), (-1.5, "disagrees")]
)
@pytest.mark.parametrize("share", [0.0, 0.05])
def test_the_verdict_on_little_rejuvenation_looks_at_the_energy_of_noise(share, gap, word):
    rows = [{"rejuvenation": each, **KEPT} for each in (0.0, 0.05, 0.1, 0.25, 1.0)]
    for row in rows:
        if row["rejuvenation"] == share:
            row["energy_noise_above_data"] = gap
    at = {0.0: 0, 0.05: 1}[share]
    assert words_of(judge_shares(rows))[at] == word
    assert f"R = {share:.0%}: noise lies {gap:.3g} above data" in judge_shares(rows)


@pytest.mark.parametrize(
    ("covered", "effective", "between", "word"),
    [
        (3, 3.0, (8, 9), "agrees"),
        (9, 3.0, (8, 9), "agrees"),  # all there, and nearly all samples in a few
        (5, 8.0, (8, 9), "undecided"),
        (9, 5.0, (8, 9), "undecided"),
        (7, 8.0, (8, 9), "disagrees"),  # one is missing, which may be chance
        (0, 8.0, (0, 0), "undecided"),
    ],
)
def test_the_verdict_on_full_rejuvenation_counts_classes(covered, effective, between, word):
    full = {**KEPT, "classes_covered": covered, "classes_effective": effective}
    rows = [{"rejuvenation": 0.0, **KEPT}, {"rejuvenation": 1.0, **full}]
    rows += [{"rejuvenation": r, **KEPT, "classes_covered": c} for r, c in zip((0.1, 0.25), between, strict=True)]
    assert words_of(judge_shares(rows))[-1] == word


@pytest.mark.parametrize(("deviation", "word"), [(0.3, "agrees"), (0.6, "undecided"), (1.0, "disagrees")])
def test_the_verdict_without_classes_looks_at_how_much_images_differ(deviation, word):
    kept = {**KEPT, "classes_covered": None}
    rows = [{"rejuvenation": r, **kept} for r in (0.0, 0.25)] + [{"rejuvenation": 1.0, **kept, "deviation": deviation}]
    assert words_of(judge_shares(rows))[-1] == word


@pytest.mark.parametrize(
    ("last", "bad", "state"), [(0.21, 0, "stays"), (5.0, 0, "grows"), (0.2, 3, "grows"), (0.3, 0, None)]
)
@pytest.mark.parametrize("spectral_norm", [True, False])
def test_the_verdict_on_the_signal_knows_which_of_the_two_is_to_grow(last, bad, state, spectral_norm):
    row = {"rejuvenation": 0.5, "v_middle": 0.2, "v_last": last, "updates_finite": 9, "updates_not_finite": bad}
    wanted = "stays" if spectral_norm else "grows"
    word = "undecided" if state is None else "agrees" if state == wanted else "disagrees"
    assert words_of(judge_signals([row], spectral_norm)) == [word]


def test_the_verdict_on_methods_asks_for_the_divergence_and_for_log_z():
    def row(name, kl, learns):
        return {"method": name, "dimension": 64, "kl": kl, "self_normalising": learns}

    as_said = [row("CNCE", 1.0, False), row("ACE", 0.3, True), row("FCE", 0.05, True), row("AdaNCE", 0.09, False)]
    assert words_of(judge_methods(as_said)) == ["agrees"] * 4
    other = [row("CNCE", 0.05, False), row("ACE", 0.3, False), row("FCE", np.inf, True), row("AdaNCE", 0.2, False)]
    assert words_of(judge_methods(other)) == ["disagrees"] * 4


def test_a_training_that_breaks_down_is_drawn_up_to_there(tmp_path, monkeypatch):
    def broken(*args, **options):
        raise tw.train.DivergedError("expected a finite loss", {"gradient_norm": np.array([0.5, 30.0, np.inf])})

    monkeypatch.setattr(thesis_signal, "train", broken)
    numbers = EXPERIMENTS["thesis-figure-3-2"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert {row["v_last"] for row in numbers["rows"]} == {30.0}
    assert {row["updates_not_finite"] for row in numbers["rows"]} == {2}  # of four
    assert words_of(numbers["verdict"]) == ["agrees"] * 3
    assert "not finite after 2 updates" in numbers["verdict"]


def chains_of(*images) -> np.ndarray:
    """Chains that were at these images at ten moments, the last five of them at the second."""
    first, last = images
    return np.stack([first] * 5 + [last] * 5, axis=1)


def test_long_chains_are_measured_on_images_in_the_range_of_the_data():
    data = tw.data.digits()
    real, noise = data.x_train[:200], np.zeros((200, 8, 8, 1), np.float32)
    energy = lambda x: jnp.mean(x**2)
    # digits with every pixel twice as far from zero: to the eye the same digits, to a classifier of pixels none
    assert tw.evaluate.class_scores(2 * real, data)["classes_covered"] < 5
    measured = measure_chains(energy, chains_of(2 * real[::-1], 2 * real), noise, data)
    assert measured["classes_covered"] == 10 and measured["outside"] > 0.5 and measured["stuck"] < 0.5
    one = np.repeat(real[:1], 200, axis=0)
    collapsed = measure_chains(energy, chains_of(real, one), noise, data)
    assert collapsed["classes_covered"] == 1 and collapsed["deviation"] < 1e-4
    assert collapsed["energy_spread_samples"] < 1e-4 < collapsed["energy_spread_data"]


def test_stuck_chains_are_those_that_stand_still_or_are_saturated_everywhere():
    data = tw.data.digits()
    real, low, high = data.x_train[:100], data.x_train.min(), data.x_train.max()
    ends = real.copy()
    ends[:50] = real[50:]  # half of them moved
    energy, noise = lambda x: jnp.mean(x**2), np.zeros_like(real)
    assert measure_chains(energy, chains_of(real, ends), noise, data)["stuck"] == 0.5
    saturated = np.where(np.indices(real.shape)[1] > 3, high + 3, low - 3).astype(np.float32)
    measured = measure_chains(energy, chains_of(real, saturated), noise, data)
    assert measured["stuck"] == 1.0 and measured["outside"] == 1.0


def test_chains_are_steady_where_their_energy_has_ended_to_change():
    data = tw.data.digits()
    real, energy = data.x_train[:100], lambda x: jnp.mean(x**2)
    still = measure_chains(energy, chains_of(real[::-1], real), real, data)
    assert still["steady"] and still["energy_drift"] == pytest.approx(0, abs=1e-6)
    falling = measure_chains(energy, chains_of(real, real / 2), real, data)
    assert not falling["steady"] and falling["energy_drift"] < 0


@pytest.mark.slow
def test_images_without_one_class_each_have_no_classes_counted(tmp_path, monkeypatch):
    x = np.random.default_rng(0).uniform(-1, 1, (64, 32, 32, 3)).astype(np.float32)
    faces = tw.data.Dataset(x, np.ones((64, 40), np.int64))  # attributes, as CelebA has
    asked = []
    monkeypatch.setattr(thesis_runs, "load", lambda name: (asked.append(name), faces)[1])
    numbers = EXPERIMENTS["thesis-figure-3-1"].run(jax.random.key(0), tmp_path, scale="smoke", data="celeba", updates=1)
    assert asked == ["celeba"]
    assert [row[-1] for row in numbers["table"]["rows"]] == ["no labels"] * 3
    assert "times the data's deviation after long chains" in numbers["verdict"]


class Brightness:
    """Two features and two classes, in place of a trained classifier."""

    name = "mean and deviation of the pixels, bright or dark"

    def __call__(self, images):
        mean, deviation = images.mean(axis=(1, 2, 3)), images.std(axis=(1, 2, 3))
        bright = (mean > 0).astype(float)
        return np.stack([mean, deviation], axis=1), np.stack([bright, 1 - bright], axis=1)


@pytest.mark.slow
def test_a_table_that_was_stopped_goes_on_and_has_the_same_numbers(tmp_path, monkeypatch):
    monkeypatch.setattr(thesis_scores, "network_for", lambda settings: Brightness())
    made, stop_at = [], []

    def fit(*args, run_dir, resume, **options):
        """`tw.fit` that is interrupted where `stop_at` says: (number of the training, number of the update)."""
        made.append((run_dir.name[: len("interval-1-seed-0")], resume))
        if (len(made), 0) in stop_at:
            raise KeyboardInterrupt

        def stop(run):
            if (len(made), run.step) in stop_at:
                signal.raise_signal(signal.SIGINT)

        return tw.fit(*args, run_dir=run_dir, resume=resume, callbacks=[tw.train.every(1, stop)], **options)

    def begin(folder, *stop, **options):
        made.clear()
        stop_at[:] = stop
        return table.run(jax.random.key(0), tmp_path / folder, scale="smoke", **options)

    monkeypatch.setattr(run_folders, "fit", fit)
    table = EXPERIMENTS["thesis-table-5-2"]
    expected = begin("whole")
    first, second, third, fourth = (f"interval-{k}-seed-{s}" for s in (0, 1) for k in (1, 5))
    assert made == [(each, False) for each in (first, second, third, fourth)]

    with pytest.raises(KeyboardInterrupt):
        begin("stopped", (2, 2))  # in the middle of the second training
    assert made == [(first, False), (second, False)]
    with pytest.raises(KeyboardInterrupt):
        begin("stopped", (2, 1))  # goes on with it, and stops in the middle of the third
    assert made == [(second, True), (third, False)]
    with pytest.raises(KeyboardInterrupt):
        begin("stopped", (2, 0))  # stops between the third and the fourth
    assert made == [(third, True), (fourth, False)]
    assert not (tmp_path / "stopped" / "thesis-table-5-2.json").exists()
    numbers = begin("stopped")
    assert made == [(fourth, False)]
    assert numbers == expected
    whole, stopped = (tmp_path / each / "thesis-table-5-2.png" for each in ("whole", "stopped"))
    assert whole.read_bytes() == stopped.read_bytes()

    assert begin("stopped") == expected
    assert made == []  # nothing is trained twice
    begin("stopped", rate=1e-4, seeds=1)
    assert made == [(first, False), (second, False)]  # but with other settings it is


@pytest.mark.slow
def test_one_model_is_trained_on_over_the_rate_and_the_interval(tmp_path, monkeypatch):
    monkeypatch.setattr(thesis_intervals, "network_for", lambda settings: Brightness())
    numbers = EXPERIMENTS["thesis-intervals"].run(jax.random.key(0), tmp_path, scale="smoke", updates=20)
    assert [(row["rate"], row["interval"]) for row in numbers["rows"]] == [
        (rate, interval) for rate in (1e-5, 1e-4, 1e-3) for interval in (1, 5)
    ]
    swing = {(row["rate"], row["interval"]): row["separation"] for row in numbers["rows"]}
    # a model that is frozen at every update is its own noise; over five updates it leaves it, the faster the rate
    assert all(abs(swing[rate, 1]) < 1e-5 for rate in (1e-5, 1e-4, 1e-3))
    assert 0 < swing[1e-5, 5] < swing[1e-4, 5] < swing[1e-3, 5]
    assert len(list((tmp_path / "thesis-intervals" / "runs").iterdir())) == 7


def test_a_folder_with_other_settings_is_refused(tmp_path):
    compute = lambda folder: run_folders.Result({"kl": 1.0}, {})
    run_folders.result_of(tmp_path, "seed-0", {"rate": 0.1}, compute)
    (kept,) = tmp_path.glob("*/settings.json")
    kept.write_text('{"rate": 0.2}')
    with pytest.raises(ValueError, match="expected the settings of this training, got others; delete the folder"):
        run_folders.result_of(tmp_path, "seed-0", {"rate": 0.1}, compute)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["adaptive-reuse", "adaptive-psi", "adaptive-chains"])
def test_self_adapting_variants_are_compared_over_the_interval(tmp_path, name):
    numbers = EXPERIMENTS[name].run(jax.random.key(0), tmp_path, scale="smoke")
    variants = {row["variant"] for row in numbers["rows"]}
    assert len(numbers["rows"]) == 2 * len(variants) * 4
    ended = [row for row in numbers["rows"] if row["kl"] is not None]
    assert all(row["kl"] > 0 and row["milliseconds"] > 0 for row in ended) and len(ended) > len(numbers["rows"]) / 2
    if name == "adaptive-reuse":
        by = {(row["target"], row["variant"], row["interval"]): row["kl"] for row in numbers["rows"]}
        # at interval 1 there is nothing to share
        assert by["ring", "fresh", 1] == pytest.approx(by["ring", "shared", 1], rel=1e-3)


@pytest.mark.slow
@pytest.mark.vmapped_keys
def test_control_variates_take_variance(tmp_path):
    numbers = EXPERIMENTS["adaptive-control"].run(jax.random.key(0), tmp_path, scale="smoke")
    first = {row["control"]: row["variance_share"] for row in numbers["rows"] if row["after"] == 0}
    assert first["plain"] == 1 and first["both"] < 0.6


@pytest.mark.slow
def test_methods_are_measured_over_the_dimension(tmp_path):
    numbers = EXPERIMENTS["thesis-table-3-1"].run(jax.random.key(0), tmp_path, scale="smoke")
    assert [(row["method"], row["dimension"]) for row in numbers["rows"]] == [(m, d) for m in METHODS for d in (2, 4)]
    learns = {row["method"] for row in numbers["rows"] if row["self_normalising"]}
    assert learns == {"ACE", "FCE"}
    assert all(row["seconds_per_update"] > 0 and row["megabytes"] > 0 for row in numbers["rows"])


def test_the_divergence_of_two_gaussians_is_that_of_quadrature():
    p = target(jax.random.key(1), 2)
    q = tw.energies.Gaussian(jnp.array([0.3, -0.2]), jnp.array([[1.5, 0.3], [0.3, 0.8]]))
    assert divergence(p, q) == pytest.approx(float(tw.exact.kl(p, q)), rel=1e-4)


@pytest.mark.parametrize(("last", "word"), [(3.0, "agrees"), (5.0, "disagrees"), (4.01, "undecided")])
def test_the_verdict_weighs_a_difference_against_its_error(last, word):
    def scores(value):
        distance = 600 - 100 * value
        return [{"inception_score": value + e, "frechet_distance": distance + e} for e in (-0.1, 0.0, 0.1)]

    verdict = judge_scores([average_scores(1, scores(4.0)), average_scores(50, scores(last))])
    inception, _ = verdict.split("; ")
    assert f": {word} with the thesis" in inception
    assert inception.startswith("inception score 4.00 at interval 1")
    assert f"{last:.2f} at 50" in inception


def test_one_seed_decides_nothing():
    rows = [average_scores(k, [{"inception_score": 9.0 / k, "frechet_distance": 10.0 * k}]) for k in (1, 50)]
    assert words_of(judge_scores(rows)) == ["undecided"] * 2
    assert "one seed, so its error is not known" in judge_scores(rows)


@pytest.mark.parametrize(("name", "model"), [("mnist", "A"), ("cifar10", "C"), ("celeba", "C")])
def test_presets_have_the_published_settings(name, model):
    (path,) = Path(tw.__file__).parent.rglob(f"{name}.toml")
    preset = tomllib.loads(path.read_text())
    assert preset["energy"] == {"type": "ConvNet", "preset": model, "spectral_norm": True}
    objective = preset["objective"]
    assert (objective["type"], objective["interval"], objective["steps"]) == ("AdaNCE", 1, 100)
    # a gradient coefficient of 1 is half the step size
    assert objective["kernel"] == {"type": "Langevin", "step_size": 2.0, "noise_scale": 0.005}
    noise = {"low": -1.0, "high": 1.0}
    assert objective["start"] == {"type": "ReplayBuffer", "size": 10_000, "rejuvenation": 0.25, "noise": noise}
    assert preset["optimizer"] == {"type": "adam", "learning_rate": 1e-4, "b1": 0.0, "b2": 0.999}
    assert preset["train"]["batch_size"] == 128


def test_scales_and_options_that_there_are_not_are_refused(tmp_path):
    with pytest.raises(ValueError, match="expected a scale among smoke, small, thesis"):
        EXPERIMENTS["thesis-table-5-2"].run(jax.random.key(0), tmp_path, scale="huge")
    with pytest.raises(ValueError, match="expected options among none at all, got scale"):
        EXPERIMENTS["two-bumps"].run(jax.random.key(0), tmp_path, scale="small")
