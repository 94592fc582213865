"""The classifier test: uniform p-values whatever the classifier, power, intervals, and bad input."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.stats import kstest
from sklearn.metrics import roc_auc_score

from thalweg.data import digits
from thalweg.evaluate import classifier_two_sample
from thalweg.evaluate.classifier_two_sample import _auc_estimate


class Direction:
    """The direction between the two means, as quick as a classifier can be."""

    def fit(self, rows, labels):
        one, other = rows[labels == 1].mean(axis=0), rows[labels == 0].mean(axis=0)
        self.direction, self.middle = one - other, (one + other) / 2

    def predict_proba(self, rows):
        chances = 0.5 + np.arctan((rows - self.middle) @ self.direction) / np.pi
        return np.stack([1 - chances, chances], axis=1)


def p_values(replicates, n, m, shift=0.0, seed=0, **options):
    found = []
    for key in jax.random.split(jax.random.key(seed), replicates):
        one, other, test = jax.random.split(key, 3)
        x, y = shift + jax.random.normal(one, (n, 2)), jax.random.normal(other, (m, 2))
        found.append(classifier_two_sample(x, y, key=test, **options).p_value)
    return np.array(found)


def test_p_values_of_any_classifier_are_uniform():
    found = p_values(300, 60, 90, classifier=Direction(), permutations=200)
    assert kstest(found, "uniform").pvalue > 0.01


@pytest.mark.slow
def test_p_values_of_the_default_classifier_are_uniform_in_500_replicates():
    assert kstest(p_values(500, 100, 100, seed=1, permutations=500), "uniform").pvalue > 0.01


@pytest.mark.slow
def test_a_shift_of_one_half_is_found():
    assert np.mean(p_values(40, 300, 300, shift=0.5) <= 0.05) >= 0.9


def test_noise_on_images_is_found_and_real_images_are_not(key):
    images = digits().x_train[:1000]
    keys = jax.random.split(key, 4)
    same = classifier_two_sample(images[:500], images[500:], key=keys[0])
    noisy = images[:500] + 0.3 * jax.random.normal(keys[1], images[:500].shape)
    found = classifier_two_sample(noisy, images[500:], key=keys[2])
    assert found.p_value < 0.01 < same.p_value
    assert found.parts["auc"].low > 0.9 and found.parts["accuracy"].low > 0.8
    assert same.parts["auc"].low < 0.5 < same.parts["auc"].high
    assert "boosted trees" in found.method


def test_the_result_follows_from_the_key(key):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(40, 2)), rng.normal(size=(50, 2)) + 0.4
    assert classifier_two_sample(x, y, key=key) == classifier_two_sample(x, y, key=key)
    other = jax.random.fold_in(key, 1)
    assert classifier_two_sample(x, y, key=key) != classifier_two_sample(x, y, key=other)


def test_sets_of_different_size_have_an_even_chance(key):
    x = jax.random.normal(key, (1000, 2))
    result = classifier_two_sample(x[:100], x[100:], key=key)
    accuracy = result.parts["accuracy"]
    assert abs(accuracy.value - 0.5) < 0.12  # three standard errors; the share of the larger set is 0.9


class Memory(Direction):
    """Remembers what it was trained on, and with which labels it is tested."""

    def fit(self, rows, labels):
        super().fit(rows, labels)
        self.rows, self.labels = rows, labels

    def predict_proba(self, rows):
        self.tested = rows
        self.given = super().predict_proba(rows)
        return self.given


def test_held_out_rows_are_not_trained_on_and_labels_belong_to_their_rows(key):
    x, y = np.arange(20.0)[:, None], 100 + np.arange(30.0)[:, None]
    memory = Memory()
    result = classifier_two_sample(x, y, key=key, classifier=memory)
    trained, tested = set(memory.rows[:, 0]), set(memory.tested[:, 0])
    assert not trained & tested and len(trained | tested) == 50
    assert ((memory.rows[:, 0] < 50) == (memory.labels == 1)).all()
    assert result.statistic == roc_auc_score(memory.tested[:, 0] < 50, memory.given[:, 1])
    assert result.statistic == 1.0 and result.p_value == pytest.approx(1 / 1001)
    auc, accuracy = result.parts["auc"], result.parts["accuracy"]
    assert auc.value == auc.high == 1.0 and 0.5 < auc.low < 1.0
    assert accuracy.value == accuracy.high == 1.0 and 0.5 < accuracy.low < 1.0


def test_the_interval_of_the_auc_covers(key):
    # normal scores that differ by 1 have the AUC Φ(1/√2) = 0.7602; a binomial of 300 and 0.95 is below 272 with 1e-3
    x, y = 1 + jax.random.normal(key, (300, 30)), jax.random.normal(jax.random.fold_in(key, 1), (300, 40))
    covered = 0
    for one, other in zip(np.asarray(x), np.asarray(y), strict=True):
        estimate = _auc_estimate(float(np.mean(one[:, None] > other)), 30, 40, 0.95)
        covered += estimate.low < 0.7602 < estimate.high
    assert covered >= 272
    zero = _auc_estimate(0.0, 30, 40, 0.95)
    assert zero.low == 0.0 and 0 < zero.high < 0.3


class Wrong(Direction):
    def predict_proba(self, rows):
        return np.ones(len(rows))


@pytest.mark.parametrize(
    ("words", "x", "y", "options"),
    [
        (r"points of shapes \(2,\) and \(\)", np.zeros((9, 2)), np.zeros(9), {}),
        ("at least 8 samples in y for a classifier test, got 7", np.zeros((9, 2)), np.zeros((7, 2)), {}),
        ("at least 8 samples in x for a classifier test, got one", np.zeros((1, 2)), np.zeros((7, 2)), {}),
        ("got None as x", None, np.zeros((9, 2)), {}),
        ("expected a classifier", np.zeros((9, 2)), np.zeros((9, 2)), {"classifier": 3}),
        ("create an instance", np.zeros((9, 2)), np.zeros((9, 2)), {"classifier": Direction}),
        ("expected predict_proba to return", np.ones((9, 2)), np.zeros((9, 2)), {"classifier": Wrong()}),
        ("confidence between", np.zeros((9, 2)), np.zeros((9, 2)), {"confidence": 0.0}),
        ("permutations to be a whole number >= 1", np.zeros((9, 2)), np.zeros((9, 2)), {"permutations": 0}),
    ],
)
def test_bad_input_is_one_sentence(words, x, y, options, key):
    with pytest.raises(ValueError, match=words) as problem:
        classifier_two_sample(x, y, **({"key": key} | options))
    assert "\n" not in str(problem.value)


def test_equal_samples_are_not_told_apart(key):
    assert classifier_two_sample(jnp.ones((20, 2)), jnp.ones((20, 2)), key=key).p_value == 1.0
