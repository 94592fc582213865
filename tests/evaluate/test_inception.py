"""Inception-v3: a sentence where its package is missing; where it is there, its scores are torch-fidelity's own."""

import hashlib
import sys

import numpy as np
import pytest

from thalweg.data import to_pixels
from thalweg.evaluate import FeatureNetwork, InceptionNetwork, image_scores


@pytest.mark.parametrize("package", ["torch", "torch_fidelity"])
def test_a_missing_package_is_a_sentence(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=r"expected torch\w* for Inception-v3, got .*pip install thalweg\[fid\]"):
        InceptionNetwork()


def test_bad_input_is_refused_before_anything_is_loaded(tmp_path):
    with pytest.raises(ValueError, match="batch_size: expected at least 1, got 0"):
        InceptionNetwork(batch_size=0)
    with pytest.raises(ValueError, match=r"other.pth: expected a file with the weights of Inception-v3, got none"):
        InceptionNetwork(tmp_path / "other.pth")


@pytest.fixture
def weights(tmp_path, monkeypatch):
    """A file of random weights, since nothing is fetched in a test."""
    pytest.importorskip("torch_fidelity", reason="needs the extra fid")
    import torch
    from torch_fidelity import feature_extractor_inceptionv3 as module

    monkeypatch.setattr(module, "load_state_dict_from_url", lambda *_, **__: {})
    monkeypatch.setattr(module.FeatureExtractorInceptionV3, "load_state_dict", lambda *_: None)
    torch.manual_seed(0)
    network = module.FeatureExtractorInceptionV3("inception-v3-compat", ["2048"])
    monkeypatch.undo()
    torch.save(network.state_dict(), tmp_path / "random.pth")
    return tmp_path / "random.pth"


def test_scores_are_those_of_torch_fidelity_from_image_to_number(weights):
    import torch
    import torch_fidelity

    class Pixels(torch.utils.data.Dataset):
        def __init__(self, images):
            self.images = torch.from_numpy(to_pixels(images).transpose(0, 3, 1, 2).copy())

        def __len__(self):
            return len(self.images)

        def __getitem__(self, number):
            return self.images[number]

    rng = np.random.default_rng(0)
    samples, real = rng.uniform(-1, 1, (12, 20, 20, 3)), np.tanh(rng.normal(size=(14, 20, 20, 3)))
    network = InceptionNetwork(weights, batch_size=5, device="cpu")
    assert isinstance(network, FeatureNetwork)
    mark = hashlib.sha256(weights.read_bytes()).hexdigest()[:8]
    told = f"torch-fidelity {torch_fidelity.__version__}, random.pth, SHA-256 {mark}"
    assert network.name == f"Inception-v3 ({told}), 2048 features"
    scores = image_scores(samples, real, network, splits=3)
    theirs = torch_fidelity.calculate_metrics(
        input1=Pixels(samples.astype(np.float32)),
        input2=Pixels(real.astype(np.float32)),
        feature_extractor_weights_path=str(weights),
        isc=True,
        isc_splits=3,
        fid=True,
        cuda=False,
        cache=False,
        save_cpu_ram=True,  # no worker processes
        verbose=False,
    )
    assert scores["inception_score"] == pytest.approx(theirs["inception_score_mean"], rel=1e-4)
    # random weights tell images hardly apart: the score is 1 + a little, and the little must agree as well
    assert scores["inception_score"] - 1 == pytest.approx(theirs["inception_score_mean"] - 1, rel=1e-2)
    assert scores["inception_score_deviation"] == pytest.approx(theirs["inception_score_std"], rel=1e-2)
    assert scores["frechet_distance"] == pytest.approx(theirs["frechet_inception_distance"], rel=1e-4)


def test_grey_images_are_colours_of_three_equal_channels(weights):
    network = InceptionNetwork(weights, device="cpu")
    grey = np.random.default_rng(0).uniform(-1, 1, (2, 8, 8, 1))
    for one, three in zip(network(grey), network(np.repeat(grey, 3, axis=-1)), strict=True):
        np.testing.assert_array_equal(one, three)
    with pytest.raises(ValueError, match="expected 1 or 3 channels for Inception-v3, got 2"):
        network(np.zeros((2, 8, 8, 2)))


@pytest.mark.parametrize("content", [b"", b"no weights"])
def test_weights_that_are_none_are_refused(content, weights):
    weights.write_bytes(content)
    with pytest.raises(ValueError, match=r"random.pth: expected torch-fidelity's weights of Inception-v3, got a file"):
        InceptionNetwork(weights)
