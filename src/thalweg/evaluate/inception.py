"""Inception-v3 for standard Inception scores and FIDs: the network and weights of torch-fidelity."""

import hashlib
import pickle
from pathlib import Path
from typing import Any

import numpy as np

from thalweg.core import as_path, import_extra
from thalweg.data import to_pixels
from thalweg.evaluate.labelled import check_images

_FEATURES, _LOGITS = "2048", "logits_unbiased"  # the outputs that torch-fidelity uses for the FID and Inception score


class InceptionNetwork:
    """Inception-v3 (Szegedy et al. 2016) of 2015-12-05, as a network for `image_scores`; needs the extra ``fid``.

    The features are the 2048 of the last pooling, the probabilities the softmax of the 1008 logits without their
    biases, as in torch-fidelity and the original TensorFlow graph. Images in [-1, 1] are converted to bytes by
    `thalweg.data.to_pixels`, and grey images to three equal channels; torch-fidelity resizes them to 299×299 as
    TensorFlow 1 did. ``name`` contains the version of torch-fidelity and the name of the weights.

    Args:
        weights: a file with torch-fidelity's weights, from a source you trust, since torch reads it as a pickle;
            without it torch-fidelity downloads them (91 MB) at the first use.
        batch_size: the number of images evaluated at once.
        device: a torch device such as ``"cuda"``; by default a GPU if there is one.

    >>> from thalweg.evaluate import InceptionNetwork
    >>> InceptionNetwork("no/such/file.pth")
    Traceback (most recent call last):
    ValueError: no/such/file.pth: expected a file with the weights of Inception-v3, got none; leave it out to fetch them
    """

    name: str

    def __init__(self, weights: str | Path | None = None, *, batch_size: int = 64, device: str | None = None):
        path = None if weights is None else as_path("weights", weights)
        if path is not None and not path.is_file():
            raise ValueError(
                f"{weights}: expected a file with the weights of Inception-v3, got none; leave it out to fetch them"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size: expected at least 1, got {batch_size}; 64 is a good number")
        torch, torch_fidelity, module = (
            import_extra(name, "fid", "Inception-v3")
            for name in ("torch", "torch_fidelity", "torch_fidelity.feature_extractor_inceptionv3")
        )
        network = _build(module.FeatureExtractorInceptionV3, path)
        self._device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._network = network.to(self._device)
        self._batch_size = batch_size
        source = Path(module.URL_INCEPTION_V3).stem if path is None else f"{path.name}, SHA-256 {_digest(path)[:8]}"
        self.name = f"Inception-v3 (torch-fidelity {torch_fidelity.__version__}, {source}), 2048 features"

    def __call__(self, images: Any) -> tuple[np.ndarray, np.ndarray]:
        """Features ``(n, 2048)`` and probabilities ``(n, 1008)`` of images ``(n, height, width, 1 or 3)``."""
        import torch  # pyright: ignore[reportMissingImports]

        checked = check_images(images, name="images")
        if checked.shape[-1] not in (1, 3):
            raise ValueError(
                f"images: expected 1 or 3 channels for Inception-v3, got {checked.shape[-1]}; choose the colours"
            )
        pixels = np.broadcast_to(to_pixels(checked), (*checked.shape[:3], 3)).transpose(0, 3, 1, 2)
        features, probabilities = [], []
        with torch.no_grad():
            for start in range(0, len(pixels), self._batch_size):
                # a copy, because the broadcast array shares its channels and is read-only
                block = torch.from_numpy(pixels[start : start + self._batch_size].copy())
                seen = self._network(block.to(self._device))
                named = self._network.convert_features_tuple_to_dict(seen)
                features.append(named[_FEATURES].cpu().numpy())
                # the softmax in double precision, as in torch-fidelity
                probabilities.append(named[_LOGITS].cpu().double().softmax(dim=1).numpy())
        return np.concatenate(features), np.concatenate(probabilities)


def _build(network: Any, path: Path | None) -> Any:
    """The network of torch-fidelity with the weights of a file, or with those it downloads."""
    chosen = None if path is None else str(path)
    try:
        return network("inception-v3-compat", [_FEATURES, _LOGITS], feature_extractor_weights_path=chosen)
    except (RuntimeError, TypeError, EOFError, pickle.UnpicklingError) as problem:
        raise ValueError(
            f"{path or 'weights'}: expected torch-fidelity's weights of Inception-v3, got a file that is not them "
            f"({str(problem).splitlines()[0]}); fetch it again"
        ) from problem
    except OSError as problem:
        raise ConnectionError(
            f"expected the weights of Inception-v3 from torch-fidelity's site, got '{problem}'; try again when online, "
            "or give the file with weights="
        ) from problem


def _digest(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
