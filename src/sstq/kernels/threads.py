"""Contiguous chunks of rows, one thread each.

The kernels release the interpreter lock and rows are independent, so the result does not depend on the number of
threads. Threads live for one call, which costs a tenth of a millisecond. A pool that outlives the call would save half
of that, but a process with threads cannot safely fork, and newer versions of Python warn of it.
"""

import itertools
import os
from collections.abc import Callable
from threading import Thread

# Below this many elements, a tenth of a millisecond of a transform, a thread costs more than it saves.
MIN_ELEMENTS_A_THREAD = 1 << 18


def core_count() -> int:
    """Return the number of cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def thread_count() -> int:
    """Return the number of threads to use: SSTQ_THREADS if set, else as many as there are cores."""
    setting = os.environ.get("SSTQ_THREADS")
    if setting:
        if not setting.isdecimal() or int(setting) < 1:
            raise ValueError(f"SSTQ_THREADS must be a positive integer, not {setting!r}")
        return int(setting)
    return core_count()


def run_in_chunks(work: Callable[[slice], object], rows: int, elements_a_row: int) -> None:
    """Call `work(rows_of_chunk)` for contiguous chunks that cover `rows`, each in its own thread.

    Args:
        work: processes the rows of a slice; must release the interpreter lock to gain anything.
        rows: the number of rows.
        elements_a_row: how many array elements a row stands for, to leave small work to one thread.

    """
    worthwhile = max(1, rows * elements_a_row // MIN_ELEMENTS_A_THREAD)
    chunks = min(thread_count(), rows, worthwhile)
    if chunks <= 1:
        work(slice(0, rows))
        return
    edges = [rows * chunk // chunks for chunk in range(chunks + 1)]
    slices = [slice(start, stop) for start, stop in itertools.pairwise(edges)]
    failures: list[BaseException] = []

    def guarded(chunk: slice) -> None:
        try:
            work(chunk)
        except BaseException as failure:
            failures.append(failure)

    others = [Thread(target=guarded, args=(chunk,), name="sstq") for chunk in slices[1:]]
    started = []
    try:
        for thread in others:
            thread.start()
            started.append(thread)
        work(slices[0])
    finally:
        for thread in started:
            thread.join()
    if failures:
        raise failures[0]
