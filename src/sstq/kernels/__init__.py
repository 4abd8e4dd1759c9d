"""Numerical kernels: transforms, clipping, Kashin projections, selection, normal numbers, packing, sampling, sums.

Pure functions on arrays. Each checks what it is handed (a wrong type or shape is a programming error), compiles its
Numba kernel on first use and spreads rows over threads; the result does not depend on their number. Importing this
package does not import Numba.

Environment: SSTQ_THREADS is the number of threads (default: the cores this process may use); SSTQ_QUIET silences the
line that announces the first compilation.
"""

from sstq.kernels.api_messages import (
    accumulate,
    accumulate_vectors,
    box_muller,
    count_passed,
    draw_around,
    pack_bits,
    sample_table,
    unpack_bits,
)
from sstq.kernels.api_vectors import (
    SignedColumns,
    all_finite,
    clip_to_ball,
    hadamard_transform,
    kashin_pick,
    kashin_represent,
    pick_signed_rows,
)
from sstq.kernels.checks import LEAST_REDUCTION, LIMB_BITS, LONGEST_STEP

__all__ = [
    "LEAST_REDUCTION",
    "LIMB_BITS",
    "LONGEST_STEP",
    "SignedColumns",
    "accumulate",
    "accumulate_vectors",
    "all_finite",
    "box_muller",
    "clip_to_ball",
    "count_passed",
    "draw_around",
    "hadamard_transform",
    "kashin_pick",
    "kashin_represent",
    "pack_bits",
    "pick_signed_rows",
    "sample_table",
    "unpack_bits",
]
