"""Running jobs on all cores, with one result file per job, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from sstq.files.atomic import atomic_file
from sstq.kernels.threads import core_count
from paper.reproduction.jobs import Job, run_job

__all__ = ["read_result", "run_jobs"]

_FORMAT = "sstq-reproduction-1"
# Limits the threads that libraries start in a worker, which has one core.
_THREAD_SETTINGS = ("SSTQ_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

Finished = Callable[[Job, float], None]


def read_result(job: Job, folder: Path) -> dict[str, Any] | None:
    """Read the result of a finished job; None if there is none, or the file is damaged or of another job."""
    try:
        stored = json.loads((folder / job.path).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if not isinstance(stored, dict) or stored.get("format") != _FORMAT or stored.get("job") != job.to_dict():
        return None
    result = stored.get("result")
    return result if isinstance(result, dict) else None


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int | None = None,
    data: Path | None = None,
    finished: Finished = lambda _job, _seconds: None,
) -> None:
    """Run the jobs that have no result yet; timings come last and alone, on all cores.

    Args:
        jobs: the jobs; finished ones are skipped.
        folder: the folder of the results.
        workers: the number of processes, by default one per core; 1 works in this process.
        data: a folder with the data sets' files.
        finished: called after every job with the seconds it took.

    Examples:
        >>> import tempfile
        >>> job = Job("mse", "privunit", seed=0, bits=8, count=10, dim=20)
        >>> with tempfile.TemporaryDirectory() as name:
        ...     run_jobs([job], Path(name), workers=1)
        ...     read_result(job, Path(name))["message_bits"]
        640
    """
    pending = [job for job in dict.fromkeys(jobs) if read_result(job, folder) is None]
    together = [job for job in pending if job.kind != "timing"]
    workers = min(workers or core_count(), max(len(together), 1))
    if workers == 1:
        for job in together:
            finished(job, _do(job, folder, data))
    else:
        for job, seconds in _do_in_processes(together, folder, data, workers):
            finished(job, seconds)
    for job in pending:
        if job.kind == "timing":
            finished(job, _do(job, folder, data))


def _do_in_processes(jobs: Sequence[Job], folder: Path, data: Path | None, workers: int) -> Iterator[tuple[Job, float]]:
    """Yield jobs as they end; the first failure stops the rest, and finished results are kept."""
    # Fresh interpreters: forking a process that has threads may hang it, and each must see its own thread settings.
    context = multiprocessing.get_context("spawn")
    threads = str(max(1, core_count() // workers))
    # A worker's remark would land on the parent's progress bar.
    settings = dict.fromkeys(_THREAD_SETTINGS, threads) | {"SSTQ_QUIET": "1"}
    before = {name: os.environ.get(name) for name in settings}
    os.environ.update(settings)
    workers_end, own_end = context.Pipe(duplex=False)
    try:
        with ProcessPoolExecutor(workers, context, _end_with_parent, (workers_end,)) as pool:
            running: dict[Future[float], Job] = {pool.submit(_do, job, folder, data): job for job in jobs}
            try:
                while running:
                    done, _ = wait(running, return_when=FIRST_COMPLETED)
                    for future in done:
                        job = running.pop(future)
                        yield job, future.result()
            except BaseException:
                own_end.close()
                raise
    finally:
        own_end.close()
        workers_end.close()
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _end_with_parent(pipe: Connection) -> None:
    """Make this worker exit as soon as the parent closes its end of the pipe or dies in any way."""

    def end() -> None:
        with suppress(EOFError, OSError):
            pipe.recv_bytes()
        os._exit(1)

    # A terminal interrupts the workers as well; the parent decides, and says it once.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=end, daemon=True).start()


def _do(job: Job, folder: Path, data: Path | None) -> float:
    """Run a job, write its result completely or not at all, and return the seconds it took."""
    start = time.perf_counter()
    result = run_job(job, data)
    path = folder / job.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        text = json.dumps({"format": _FORMAT, "job": job.to_dict(), "result": result}, separators=(",", ":"))
        file.write(text.encode() + b"\n")
    return time.perf_counter() - start
