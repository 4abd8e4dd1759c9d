"""Numerical kernels: transforms, clipping, Kashin projections, selection, normal numbers, sums.

Pure functions on arrays. Each checks what it is handed (a wrong type or shape is a programming error), compiles its
Numba kernel on first use and spreads rows over threads; the result does not depend on their number. Importing this
package does not import Numba.

Environment: SSTQ_THREADS is the number of threads (default: the cores this process may use); SSTQ_QUIET silences the
line that announces the first compilation.
"""

from sstq.kernels.api import LEAST_REDUCTION as LEAST_REDUCTION
from sstq.kernels.api import LIMB_BITS as LIMB_BITS
from sstq.kernels.api import LONGEST_STEP as LONGEST_STEP
from sstq.kernels.api import accumulate as accumulate
from sstq.kernels.api import accumulate_vectors as accumulate_vectors
from sstq.kernels.api import box_muller as box_muller
from sstq.kernels.api import clip_to_ball as clip_to_ball
from sstq.kernels.api import count_passed as count_passed
from sstq.kernels.api import count_walks as count_walks
from sstq.kernels.api import draw_around as draw_around
from sstq.kernels.api import hadamard_transform as hadamard_transform
from sstq.kernels.api import kashin_pick as kashin_pick
from sstq.kernels.api import pick_signed_rows as pick_signed_rows
