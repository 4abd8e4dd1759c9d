"""Distributing contiguous chunks of rows over threads.

The kernels release the interpreter lock and rows are independent, so the result does not depend on the number of
threads. Threads live for one call, which costs a tenth of a millisecond. A lasting pool would save half of that, but a
process with threads cannot safely fork.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from threading import Thread

# Below this many elements, a tenth of a millisecond of a transform, a thread costs more than it saves.
MIN_ELEMENTS_A_THREAD = 1 << 18


def core_count() -> int:
    """Return the number of cores that this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def thread_count() -> int:
    """Return the number of threads to use: SSTQ_THREADS if set, else as many as there are cores."""
    setting = os.environ.get("SSTQ_THREADS")
    if not setting:
        return core_count()
    if not setting.isdecimal() or int(setting) < 1:
        raise ValueError(f"SSTQ_THREADS must be a positive integer, got {setting!r}")
    return int(setting)


def run_in_chunks(work: Callable[[slice], object], rows: int, elements_per_row: int) -> None:
    """Call `work(rows_of_chunk)` for contiguous chunks that cover `rows`, in several threads where that pays.

    If a call raises, no further one begins; those that have begun are waited for, and an interruption or else the first
    error is raised. Work on few array elements is left to one thread.
    """
    worthwhile = rows * elements_per_row // MIN_ELEMENTS_A_THREAD
    # Asked last: looking up the cores and the environment takes longer than a small transform.
    threads = 1 if rows <= 1 or worthwhile <= 1 else min(rows, worthwhile, thread_count())
    if threads == 1:
        work(slice(0, rows))
        return
    pending = deque(_shrinking_chunks(rows, threads, least=-(-MIN_ELEMENTS_A_THREAD // elements_per_row)))
    failures: list[BaseException] = []

    def take_chunks() -> None:
        while True:
            try:
                chunk = pending.popleft()
            except IndexError:
                return
            try:
                work(chunk)
            except BaseException as failure:
                failures.append(failure)
                pending.clear()

    started = []
    try:
        for _ in range(threads - 1):
            thread = Thread(target=take_chunks, name="sstq")
            thread.start()
            started.append(thread)
        take_chunks()
    finally:
        pending.clear()
        _wait_for(started)
    if failures:
        # An interruption counts most.
        raise next((failure for failure in failures if not isinstance(failure, Exception)), failures[0])


def _wait_for(threads: list[Thread]) -> None:
    """Return when all have ended, even if interrupted meanwhile: they write into arrays of the caller."""
    try:
        for thread in threads:
            thread.join()
    except BaseException:
        _wait_for(threads)
        raise


def _shrinking_chunks(rows: int, threads: int, least: int) -> Iterator[slice]:
    """Slices that cover the rows, each half of what is left for a thread, but not below `least` rows.

    Long ones first, so that there are few; short ones last, so that no thread waits long for a slower one.
    """
    start = 0
    while start < rows:
        stop = min(rows, start + max(least, (rows - start) // (2 * threads)))
        yield slice(start, stop)
        start = stop
