"""What objects show in a notebook: escaped, self-contained, and nothing long is computed for it."""

import jax
import jax.numpy as jnp
import numpy as np
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
    page = estimate._replace(bound=0.25, parts={"log_z": estimate})._repr_html_()
    assert "0.25" in page and "log z" in page and page.count("[1, 2] at 95%") == 2


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


def test_a_run_shows_its_last_numbers():
    banana = tw.energies.Banana()
    history = {"loss": np.arange(20.0), "<b>": np.ones(20)}
    run = tw.Run(banana, banana, None, None, 20, history, [{"step": 10, "answer": 41.0}, {"step": 20, "answer": 42.0}])
    page = run._repr_html_()
    assert "<td>Banana</td>" in page and "<td>20</td>" in page
    assert "<td>18.5</td>" in page and "&lt;b&gt;" in page  # the mean of 18 and 19
    assert "<td>42</td>" in page and "<td>41</td>" not in page
