"""The classifier's verdict on samples: sure of real digits, unsure of noise, and it counts what is there."""

import json

import numpy as np
import pytest

from thalweg.data import Dataset, digits
from thalweg.evaluate import class_scores


@pytest.fixture(scope="module")
def real() -> Dataset:
    return digits()


@pytest.fixture(scope="module")
def held_out(real) -> dict:
    return class_scores(real.x_test, real)


def test_real_held_out_digits_are_recognised(held_out):
    assert held_out["classifier_accuracy"] >= 0.97
    assert held_out["mean_top_probability"] >= 0.95
    assert held_out["classes_covered"] == held_out["classes"] == 10
    # the same images: the last bit depends on how a processor orders the sums of a matrix product
    assert held_out["mean_top_probability"] == pytest.approx(held_out["mean_top_probability_held_out"], rel=1e-12)
    assert held_out["samples"] == 297


def test_probabilities_are_calibrated(held_out):
    # the standard error of an accuracy of 0.99 on 297 images is 0.006: three of them
    assert abs(held_out["mean_top_probability"] - held_out["classifier_accuracy"]) < 0.018
    assert held_out["mean_top_probability"] < 0.9999


def test_shares_are_those_of_the_labels(real, held_out):
    shares = np.bincount(real.y_test) / len(real.y_test)
    assert np.abs(np.array(held_out["class_shares"]) - shares).max() < 0.01
    assert held_out["labels"] == list(range(10))
    assert abs(sum(held_out["class_shares"]) - 1) < 1e-12


def test_noise_is_not_taken_for_digits(real):
    noise = np.random.default_rng(1).uniform(-1, 1, (200, 8, 8, 1))
    scores = class_scores(noise, real)
    assert scores["mean_top_probability"] < 0.4
    assert scores["mean_top_probability_held_out"] > 0.95
    # every image has a most probable class, but hardly any is sure enough to cover it
    assert np.count_nonzero(scores["class_shares"]) >= 8
    assert scores["classes_covered"] <= 3


def test_images_between_two_classes_are_less_sure(real):
    zeros, ones = (real.x_test[real.y_test == digit][:25] for digit in (0, 1))
    assert class_scores((zeros + ones) / 2, real)["mean_top_probability"] < 0.85


def test_copies_of_one_class_cover_one(real):
    five = real.x_train[real.y_train == 5][:1]
    scores = class_scores(np.repeat(five, 20, axis=0), real)
    assert scores["classes_covered"] == 1
    assert scores["class_shares"][5] == 1


def test_the_same_answer_every_time_and_as_json(real, held_out):
    assert class_scores(real.x_test, real) == held_out
    assert json.loads(json.dumps(held_out)) == held_out


def test_rows_are_cut_and_held_out_where_needed(real):
    scores = class_scores(real.x_test, Dataset(real.x_train, real.y_train), most_rows=600)
    assert scores["classifier_accuracy"] > 0.9
    assert scores["classes_covered"] == 10


def test_a_classifier_cannot_be_trained_on_shuffled_labels(real):
    shuffled = np.random.default_rng(0).permutation(real.y_train)
    scores = class_scores(real.x_test, real._replace(y_train=shuffled), most_rows=600)
    assert scores["classifier_accuracy"] < 0.3
    assert scores["mean_top_probability_held_out"] < 0.4


def test_labels_may_be_names(real):
    names = np.array(["even", "odd"])
    data = Dataset(real.x_train, names[real.y_train % 2], real.x_test, names[real.y_test % 2])
    scores = class_scores(real.x_test[real.y_test % 2 == 1], data, most_rows=600)
    assert scores["labels"] == ["even", "odd"]
    assert scores["class_shares"][1] > 0.9


@pytest.mark.parametrize(
    ("change", "samples", "words"),
    [
        ({"y_train": None}, np.zeros((2, 8, 8, 1)), "expected labels"),
        ({}, np.zeros((2, 8, 8)), "samples: expected rows of shape"),
        ({}, np.zeros((0, 8, 8, 1)), "samples: expected at least one row"),
        ({}, np.full((2, 8, 8, 1), np.nan), "samples: expected finite numbers"),
        ({"y_train": np.zeros(1500, int)}, np.zeros((2, 8, 8, 1)), "at least two classes"),
        ({"y_train": np.arange(1500)}, np.zeros((2, 8, 8, 1)), "with 5 rows each"),
        ({"y_train": np.zeros((1500, 3), int)}, np.zeros((2, 8, 8, 1)), "expected one class per row"),
        ({"x_train": np.zeros((1500, 8, 8, 1))}, np.zeros((2, 8, 8, 1)), "expected rows that differ"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(real, change, samples, words):
    with pytest.raises(ValueError, match=words):
        class_scores(samples, real._replace(**change))


def test_bad_row_limit_is_refused(real):
    with pytest.raises(ValueError, match="expected most_rows to be a whole number >= 1"):
        class_scores(real.x_test, real, most_rows=0)
