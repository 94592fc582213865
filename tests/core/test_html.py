"""What objects show in a notebook: escaped, self-contained, and nothing long is computed for it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

import thalweg as tw
from thalweg.core import Estimate, Verdict
from thalweg.samplers import Chains, chains


def test_words_are_escaped():
    verdict = Verdict(False, 1e-6, 0.02, "FAILED: <script>alert(1)</script> & more")
    page = verdict._repr_html_()
    assert "<script>" not in page and "&lt;script&gt;" in page and "<b>FAILED</b>" in page
    estimate = Estimate(1.5, 1.0, 2.0, 0.95, "a <b> method", ess=12.0, warning="few & far")
    page = estimate._repr_html_()
    assert "a &lt;b&gt; method" in page and "few &amp; far" in page and "[1, 2] at 95%" in page


@pytest.mark.parametrize("quick", [True, False])
def test_chains_show_their_shape_and_a_summary_where_it_is_cheap(quick, monkeypatch):
    monkeypatch.setattr(chains, "_QUICK", 1000 if quick else 10)
    draws = {"<mu>": jnp.asarray(np.random.default_rng(0).normal(size=(4, 100, 2)))}
    page = Chains(draws, {"acceptance": jnp.full(4, 0.5), "divergences": jnp.zeros(4, int)}, None)._repr_html_()
    assert "&lt;mu&gt; (4, 100, 2)" in page and "0.500" in page
    assert ("ess_bulk" in page) == quick
    assert "http" not in page and "<script" not in page


def test_chains_too_short_to_judge_show_themselves_too():
    assert "(1, 3)" in Chains(jnp.zeros((1, 3)), {}, None)._repr_html_()
    shown = []
    jax.jit(lambda x: shown.append(Chains(x, {}, None)._repr_html_()))(jnp.zeros((4, 10)))
    assert "(4, 10)" in shown[0]


def test_a_summary_has_the_numbers_it_prints():
    draws = np.random.default_rng(0).normal(size=(4, 100, 12))
    summary = Chains(jnp.asarray(draws), {}, None).summary()
    page, text = summary._repr_html_(), str(summary)
    assert page.count("<tr>") == 11 and "(the 10 worst-mixed of 12 coordinates)" in page
    assert summary.verdict in text and summary.verdict in page.replace("&lt;", "<")


def test_a_run_shows_its_last_numbers(key):
    key_data, key_model, key_fit = jax.random.split(key, 3)
    data, energy = tw.data.two_moons(key_data, 100), tw.energies.MLP(2, width=8, key=key_model)
    run = tw.fit(
        energy, data, tw.objectives.DenoisingScoreMatching(), optimizer=optax.adam(1e-3), steps=3, batch_size=10,
        key=key_fit, callbacks=[tw.train.every(3, lambda run: {"answer": 42.0})],
    )  # fmt: skip
    page = run._repr_html_()
    assert "<td>MLP</td>" in page and f"{run.history['loss'][-1]:.4g}" in page and "<td>42</td>" in page
