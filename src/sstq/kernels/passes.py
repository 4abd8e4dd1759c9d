"""The passes that the fast kernels are made of: explicit vectors, or plain loops where the compiler takes none."""

from importlib import import_module
from typing import Any

from sstq.kernels.target import USES_VECTORS

_passes: Any = import_module("sstq.kernels.vectors" if USES_VECTORS else "sstq.kernels.fallback")

BASE_BITS: int = _passes.BASE_BITS
BASE_SIZE: int = _passes.BASE_SIZE
add_squares: Any = _passes.add_squares
count_above: Any = _passes.count_above
transform_vector, transform_base = _passes.transform_vector, _passes.transform_base
butterfly2, butterfly4, butterfly8 = _passes.butterfly2, _passes.butterfly4, _passes.butterfly8
masked1, masked2, masked4, masked8 = _passes.masked1, _passes.masked2, _passes.masked4, _passes.masked8
clipped1, clipped2, clipped4, clipped8 = _passes.clipped1, _passes.clipped2, _passes.clipped4, _passes.clipped8
