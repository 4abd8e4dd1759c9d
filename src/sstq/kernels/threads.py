"""Distributing contiguous chunks of rows over threads.

The kernels release the interpreter lock and rows are independent, so the result does not depend on the number of
threads. Threads live for one call: a process with threads of its own cannot safely fork.
"""

import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

# Below this many elements, a tenth of a millisecond of a transform, a thread costs more than it saves.
MIN_ELEMENTS_PER_THREAD = 1 << 18
# So that memory does not grow with the number of rows.
_NUMBERS_AT_A_TIME = 1 << 21


def core_count() -> int:
    """Return the number of cores that this process may run on."""
    return (
        len(os.sched_getaffinity(0))
        if hasattr(os, "sched_getaffinity")
        else os.cpu_count() or 1
    )


def thread_count() -> int:
    """Return the number of threads to use: SSTQ_THREADS if set, else as many as there are cores."""
    setting = os.environ.get("SSTQ_THREADS")
    if not setting:
        return core_count()
    if not setting.isdecimal() or int(setting) < 1:
        raise ValueError(f"SSTQ_THREADS must be a positive integer, got {setting!r}")
    return int(setting)


def run_in_chunks(
    work: Callable[[slice], object], rows: int, elements_per_row: int
) -> None:
    """Call `work(rows_of_chunk)` for contiguous chunks that cover `rows`, in several threads where that pays.

    If a call raises, the error is raised here when all calls that have begun have ended.
    """
    worthwhile = rows * elements_per_row // MIN_ELEMENTS_PER_THREAD
    # Asked last: looking up the cores and the environment takes longer than a small transform.
    threads = (
        1 if rows <= 1 or worthwhile <= 1 else min(rows, worthwhile, thread_count())
    )
    if threads == 1:
        work(slice(0, rows))
        return
    pool = ThreadPoolExecutor(threads, thread_name_prefix="sstq")
    try:
        for done in [
            pool.submit(work, chunk)
            for chunk in _shrinking_chunks(rows, threads, elements_per_row)
        ]:
            done.result()
    finally:
        # Waits for what has begun: it writes into arrays of the caller.
        pool.shutdown(cancel_futures=True)


def _shrinking_chunks(
    rows: int, threads: int, elements_per_row: int
) -> Iterator[slice]:
    """Slices that cover the rows, each half of what is left for a thread, but worth a thread's while.

    Long ones first, so that there are few; short ones last, so that no thread waits long for a slower one.
    """
    start = 0
    least = -(-MIN_ELEMENTS_PER_THREAD // elements_per_row)
    while start < rows:
        stop = min(rows, start + max(least, (rows - start) // (2 * threads)))
        yield slice(start, stop)
        start = stop


def row_chunks(rows: int, width: int) -> list[slice]:
    """Return slices over the rows, each with a bounded amount of numbers.

    Examples:
        >>> row_chunks(3, 1 << 21)
        [slice(0, 1, None), slice(1, 2, None), slice(2, 3, None)]
    """
    size = max(1, _NUMBERS_AT_A_TIME // width)
    return [slice(start, min(start + size, rows)) for start in range(0, rows, size)]
