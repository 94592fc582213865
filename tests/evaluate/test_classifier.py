"""The digit classifier: accurate, the same from disk as from training, and never the one of other data."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from thalweg.data import Dataset, data_folder, digits
from thalweg.evaluate import FeatureNetwork, classifier, digit_network, image_scores
from thalweg.evaluate.labelled import labelled_images

TINY = {"channels": (2, 3), "features": 5, "steps": 3, "name": "halves"}


def halves(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise that is brighter on the left ("left") or on the right ("right")."""
    rng = np.random.default_rng(seed)
    labels = np.array(["left", "right"])[np.arange(rows) % 2]
    x = rng.uniform(-1, 0, (rows, 8, 6, 1))
    x[labels == "left", :, :3] += 1
    x[labels == "right", :, 3:] += 1
    return x.astype(np.float32), labels


@pytest.fixture(scope="module")
def data() -> Dataset:
    return Dataset(*halves(60, 0), *halves(21, 1))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("classifiers")


@pytest.fixture(scope="module")
def trained(data, folder):
    return digit_network(data, key=jax.random.key(0), cache=folder, **TINY)


@pytest.fixture
def no_training(monkeypatch):
    def refuse(*_):
        raise AssertionError("trained where the weights were to be read")

    monkeypatch.setattr(classifier, "_train", refuse)


@pytest.mark.slow
def test_digits_are_recognised_and_scored(tmp_path):
    real = digits()
    network = digit_network("digits", key=jax.random.key(0), cache=tmp_path)
    assert network.accuracy >= 0.97
    features, probabilities = network(real.x_test)
    assert features.shape == (297, 64) and probabilities.shape == (297, 10)
    assert np.mean(probabilities.argmax(axis=1) == real.y_test) == network.accuracy
    same = image_scores(real.x_train[:297], real.x_test, network)
    noise = np.random.default_rng(0).uniform(-1, 1, (297, 8, 8, 1))
    other = image_scores(noise, real.x_test, network)
    assert same["network"] == network.name and same["network_accuracy"] == network.accuracy
    assert same["inception_score"] > 7 and same["inception_score_real"] > 7
    assert other["inception_score"] < same["inception_score"] / 1.5
    assert other["frechet_distance"] > 10 * same["frechet_distance"]


def test_the_name_says_what_it_is_and_how_good(trained):
    stem = f"halves classifier (2 conv layers, 5 features), accuracy {trained.accuracy:.3f} on 21 held-out images"
    assert trained.name == stem
    assert trained.labels == ("left", "right")
    assert isinstance(trained, FeatureNetwork)


def test_a_call_gives_features_and_probabilities_in_blocks(trained, data):
    x = np.concatenate([data.x_train] * 9)[:501]  # one image more than a block
    features, probabilities = trained(x)
    assert features.shape == (501, 5) and probabilities.shape == (501, 2)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1, atol=1e-6)
    last, sure = trained.model(jnp.asarray(x[500]))
    np.testing.assert_allclose(features[500], last, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(probabilities[500], jax.nn.softmax(sure), rtol=1e-5, atol=1e-6)


def test_accuracy_is_the_share_of_right_answers(trained, data):
    _, probabilities = trained(data.x_test)
    right = np.array(trained.labels)[probabilities.argmax(axis=1)] == data.y_test
    assert trained.accuracy == right.mean()


def test_training_learns_and_follows_its_key(data, trained, tmp_path):
    again, other = (
        digit_network(data, key=jax.random.key(seed), cache=tmp_path / str(seed), **TINY) for seed in (0, 1)
    )
    np.testing.assert_array_equal(again(data.x_test)[1], trained(data.x_test)[1])
    assert not np.array_equal(other(data.x_test)[1], trained(data.x_test)[1])
    learned = digit_network(data, key=jax.random.key(0), cache=tmp_path, **TINY | {"steps": 200})
    assert learned.accuracy == 1


def test_weights_are_read_and_not_trained_again(data, folder, trained, no_training):
    read = digit_network(data, key=jax.random.key(0), cache=folder, **TINY)
    assert (read.name, read.accuracy, read.labels, read.path) == (
        trained.name,
        trained.accuracy,
        trained.labels,
        trained.path,
    )
    for ours, theirs in zip(read(data.x_test), trained(data.x_test), strict=True):
        np.testing.assert_array_equal(ours, theirs)
    assert [path for path in folder.iterdir() if path.suffix == ".part"] == []


def changed(dataset: Dataset, part: str) -> Dataset:
    array = getattr(dataset, part).copy()
    array[0] = array[1] if part.startswith("y") else -array[0]
    return dataset._replace(**{part: array})


@pytest.mark.parametrize("part", Dataset._fields)
def test_other_data_never_get_the_weights(part, data, folder, trained, no_training):
    with pytest.raises(AssertionError, match="trained where"):
        digit_network(changed(data, part), key=jax.random.key(0), cache=folder, **TINY)


@pytest.mark.parametrize("change", [{"channels": (3, 3)}, {"features": 4}, {"steps": 4}, {"name": "other"}])
def test_another_network_never_gets_the_weights(change, data, folder, trained, no_training):
    with pytest.raises(AssertionError, match="trained where"):
        digit_network(data, key=jax.random.key(0), cache=folder, **TINY | change)
    with pytest.raises(AssertionError, match="trained where"):
        digit_network(data, key=jax.random.key(1), cache=folder, **TINY)


@pytest.mark.parametrize("damage", ["empty", "cut", "one bit", "text"])
def test_damaged_weights_are_refused_in_a_sentence(damage, data, trained, tmp_path, no_training):
    content = trained.path.read_bytes()
    middle = len(content) // 2
    flipped = content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
    damaged = {"empty": b"", "cut": content[:-1], "one bit": flipped, "text": b"weights\nof nothing"}[damage]
    (tmp_path / trained.path.name).write_bytes(damaged)
    with pytest.raises(ValueError, match=r"weights: expected the weights of a network, got a damaged file; delete it"):
        digit_network(data, key=jax.random.key(0), cache=tmp_path, **TINY)


@pytest.mark.parametrize(
    ("change", "words"),
    [({"steps": 4}, "got those of another network"), ({"features": 4}, "expected weights of")],
)
def test_weights_under_the_name_of_another_network_are_refused(change, words, data, trained, tmp_path, monkeypatch):
    monkeypatch.setattr(classifier, "_train", lambda model, *_: model)  # only the name of the file is wanted
    other = digit_network(data, key=jax.random.key(0), cache=tmp_path, **TINY | change)
    other.path.write_bytes(trained.path.read_bytes())
    with pytest.raises(ValueError, match=f"{words}.*delete it"):
        digit_network(data, key=jax.random.key(0), cache=tmp_path, **TINY | change)


def test_weights_lie_in_the_data_folder(data, tmp_path, monkeypatch, trained):
    monkeypatch.setenv("THALWEG_DATA", str(tmp_path))
    network = digit_network(data, key=jax.random.key(0), **TINY)
    assert network.path.parent == data_folder() / "classifiers" == tmp_path / "classifiers"
    assert network.path.name == trained.path.name and network.path.is_file()
    assert network.path.name.startswith("halves-")


def test_a_folder_that_cannot_be_written_to_is_refused_before_training(data, tmp_path, no_training):
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(ValueError, match="expected a place for a network's weights, got 'File exists'"):
        digit_network(data, key=jax.random.key(0), cache=tmp_path / "file", **TINY)


def test_an_interrupted_training_leaves_no_file(data, tmp_path, monkeypatch):
    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(classifier, "_train", interrupted)
    with pytest.raises(KeyboardInterrupt):
        digit_network(data, key=jax.random.key(0), cache=tmp_path, **TINY)
    assert list(tmp_path.iterdir()) == []


def test_shifts_move_every_way_and_repeat_the_edge():
    image = jnp.arange(12.0).reshape(3, 4, 1)
    moved = [[classifier._shift(image, jnp.array([i, j]), 1)[..., 0] for j in range(3)] for i in range(3)]
    np.testing.assert_array_equal(moved[1][1], image[..., 0])
    np.testing.assert_array_equal(moved[2][1][:2], image[1:, :, 0])
    np.testing.assert_array_equal(moved[2][1][2], image[2, :, 0])
    np.testing.assert_array_equal(moved[0][0][1:, 1:], image[:2, :3, 0])


def test_rows_are_held_out_where_there_are_none(data):
    split = labelled_images(Dataset(data.x_train, data.y_train), "halves", key=jax.random.key(0))
    assert len(split.x_train) == 48 and len(split.x_test) == 12
    whole = np.concatenate([split.x_train, split.x_test])
    assert {image.tobytes() for image in whole} == {image.tobytes() for image in data.x_train}
    left = np.concatenate([split.y_train, split.y_test]) == 0
    assert (whole[left, :, :3].mean() > whole[left, :, 3:].mean()) and split.labels == ("left", "right")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"y_train": None}, "halves: expected labels to train a classifier on, got none; choose a labelled set"),
        ({"y_train": np.zeros((60, 3), int)}, r"y_train: expected one class per image, got labels of shape \(60, 3\)"),
        ({"y_train": np.zeros(60, int)}, "expected at least two classes with 5 training images each, got 1"),
        ({"y_train": np.arange(60)}, "expected at least two classes with 5 training images each, got 60 with at least"),
        ({"y_test": np.repeat("middle", 21)}, "expected test images of the 2 classes trained on, got class middle"),
        ({"y_test": np.repeat("left", 20)}, "y_test: expected one label per row, that is 21"),
        ({"x_train": np.zeros((60, 48))}, r"x_train: expected images \(n, height, width, channels\)"),
        ({"x_train": np.full((60, 8, 6, 1), 7.0)}, r"x_train: expected values in \[-1, 1\], got 7 to 7"),
        ({"x_train": np.full((60, 8, 6, 1), np.nan)}, "x_train: expected finite numbers"),
        ({"x_test": np.zeros((21, 8, 8, 1))}, "x_test: expected rows of shape"),
    ],
)
def test_sets_that_cannot_be_learned_are_refused(change, words, data, tmp_path, no_training):
    with pytest.raises(ValueError, match=words):
        digit_network(data._replace(**change), key=jax.random.key(0), cache=tmp_path, **TINY)


def test_bad_sizes_and_names_are_refused(data, tmp_path):
    for change in ({"steps": 0}, {"features": 0}, {"channels": ()}, {"channels": (3, 0)}):
        with pytest.raises(ValueError, match="expected positive steps, features and channels, got"):
            digit_network(data, key=jax.random.key(0), cache=tmp_path, **TINY | change)
    with pytest.raises(ValueError, match="did you mean 'digits'"):
        digit_network("digts", key=jax.random.key(0), cache=tmp_path)
    with pytest.raises(ValueError, match="two_moons: expected labels"):
        digit_network("two_moons", key=jax.random.key(0), cache=tmp_path)


def test_scores_name_the_network_and_its_accuracy(trained, data):
    scores = image_scores(data.x_train, data.x_test, trained, splits=2)
    assert scores["network"] == trained.name and scores["network_accuracy"] == trained.accuracy
    assert json.loads(json.dumps(scores, allow_nan=False)) == scores
