"""Data: toys with known densities, image sets, readers for the usual formats, a catalogue with checked downloads."""

from thalweg.core import shorten_signatures
from thalweg.data.checks import Dataset, check_array, check_labels, hold_out
from thalweg.data.folders import (
    Attributes,
    decode_image,
    read_celeba,
    read_celeba_attributes,
    read_image_folder,
)
from thalweg.data.formats import read_cifar10, read_idx
from thalweg.data.images import celeba, cifar10, digits, fashion_mnist, mnist, scale_pixels, to_pixels
from thalweg.data.loading import load
from thalweg.data.mirrors import download
from thalweg.data.sources import CATALOGUE, RemoteFile, Row, Source, data_folder, listing
from thalweg.data.tables import Standardiser, Table, read_csv, read_npy, read_npz, standardise
from thalweg.data.toys import (
    TOYS,
    checkerboard,
    checkerboard_log_prob,
    eight_gaussians,
    eight_gaussians_density,
    pinwheel,
    rings,
    skewed_mixture,
    spirals,
    swiss_roll,
    two_moons,
)

__all__ = [
    "CATALOGUE",
    "TOYS",
    "Attributes",
    "Dataset",
    "RemoteFile",
    "Row",
    "Source",
    "Standardiser",
    "Table",
    "celeba",
    "check_array",
    "check_labels",
    "checkerboard",
    "checkerboard_log_prob",
    "cifar10",
    "data_folder",
    "decode_image",
    "digits",
    "download",
    "eight_gaussians",
    "eight_gaussians_density",
    "fashion_mnist",
    "hold_out",
    "listing",
    "load",
    "mnist",
    "pinwheel",
    "read_celeba",
    "read_celeba_attributes",
    "read_cifar10",
    "read_csv",
    "read_idx",
    "read_image_folder",
    "read_npy",
    "read_npz",
    "rings",
    "scale_pixels",
    "skewed_mixture",
    "spirals",
    "standardise",
    "swiss_roll",
    "to_pixels",
    "two_moons",
]

shorten_signatures(globals(), __all__)
