"""Compile all kernels for this machine: `python -m sstq.kernels`.

Otherwise each is compiled when it is first called. For a container image, run it while the image is built, as the user
that runs the program or with NUMBA_CACHE_DIR set to a folder that this user can write to.
"""

import sys

import numpy as np

from sstq import kernels
from sstq.kernels.compiling import cache_folder


def main() -> int:
    """Call every kernel on as little as it takes, for every type of numbers; 1 if nothing can be kept."""
    folder = cache_folder()
    if folder is None:
        print(  # noqa: T201
            "no folder is writable: set NUMBA_CACHE_DIR to a writable folder",
            file=sys.stderr,
        )
        return 1
    one = np.zeros(1)
    zero = np.zeros(1, np.int64)
    single = np.ones((1, 2), np.float32)
    words = np.zeros((1, 2), np.uint64)
    for x in (single, single.astype(np.float64)):
        kernels.hadamard_transform(x.copy())
        kernels.clip_to_ball(x, 1.0)
        kernels.pick_signed_rows(x, 1.0, one, (single, single[None]), zero, 1, zero)
    kernels.kashin_pick(single, np.arange(2), single[0], 2, np.ones((1, 4), np.float32))
    kernels.box_muller(words)
    kernels.draw_around(np.eye(2)[:1], one, one, words, to_length=True)
    kernels.accumulate(
        np.zeros((1, 4), np.int64), zero, zero, np.zeros((1, 3), np.int64)
    )
    kernels.accumulate_vectors(np.zeros((2, 3), np.int64), np.eye(2), 1.0, 1.0, 1, 1)
    kernels.count_passed(single, one, 1.0)
    kernels.count_walks(zero, zero, zero, 1, 1)
    print(f"kept in {folder}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
