"""Data: toy densities, image sets, readers for common file formats, and a catalogue with verified downloads."""

from thalweg.core import shorten_signatures
from thalweg.data.binarized import binarized_mnist
from thalweg.data.celeba import Attributes, read_celeba, read_celeba_attributes
from thalweg.data.checks import Dataset, check_array, check_labels, hold_out
from thalweg.data.columns import Column, Columns, fit_columns
from thalweg.data.folders import Pictures, measure_pictures, read_image_folder
from thalweg.data.formats import read_cifar10, read_idx
from thalweg.data.images import celeba, cifar10, digits, fashion_mnist, mnist, scale_pixels, to_pixels
from thalweg.data.loading import load
from thalweg.data.mirrors import download
from thalweg.data.mixed_tables import EncodedTable, read_table
from thalweg.data.pictures import decode_image
from thalweg.data.sources import CATALOGUE, RemoteFile, Row, Source, data_folder, listing
from thalweg.data.tables import Standardiser, Table, read_csv, read_npy, read_npz, standardise
from thalweg.data.toys import (
    TOYS,
    checkerboard,
    checkerboard_log_prob,
    eight_gaussians,
    eight_gaussians_density,
    eight_gaussians_energy,
    pinwheel,
    rings,
    skewed_mixture,
    skewed_mixture_energy,
    spirals,
    swiss_roll,
    two_moons,
)

__all__ = [
    "CATALOGUE",
    "TOYS",
    "Attributes",
    "Column",
    "Columns",
    "Dataset",
    "EncodedTable",
    "Pictures",
    "RemoteFile",
    "Row",
    "Source",
    "Standardiser",
    "Table",
    "binarized_mnist",
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
    "eight_gaussians_energy",
    "fashion_mnist",
    "fit_columns",
    "hold_out",
    "listing",
    "load",
    "measure_pictures",
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
    "read_table",
    "rings",
    "scale_pixels",
    "skewed_mixture",
    "skewed_mixture_energy",
    "spirals",
    "standardise",
    "swiss_roll",
    "to_pixels",
    "two_moons",
]

shorten_signatures(globals(), __all__)
