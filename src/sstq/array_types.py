"""The types of arrays, by the numbers in them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Floats32 = NDArray[np.float32]
Ints = NDArray[np.int64]
Words = NDArray[np.uint64]

Reals = NDArray[np.floating[Any]]
"""Floats of single or double precision."""

Rows = NDArray[Any]
"""What people hold, or numbers of any kind."""
