"""The image data sets of the experiments: found or downloaded, verified, cached, and loaded as arrays.

Examples:
    >>> digits = load("digits")
    >>> digits.train_images.dtype, float(digits.train_images.max())
    (dtype('float32'), 1.0)
"""

from paper.datasets.fetching import DatasetUnavailableError, Fetched, fetch, locate
from paper.datasets.loading import NAMES, Dataset, load
from paper.datasets.places import cached_folder

__all__ = ["NAMES", "Dataset", "DatasetUnavailableError", "Fetched", "cached_folder", "fetch", "load", "locate"]
