"""Running jobs on all cores, with one result file per job, so that an interrupted run can be resumed."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any
from unittest.mock import patch

from paper.reproduction.jobs import Job, run_job
from sstq.files.atomic import atomic_file
from sstq.kernels.threads import core_count

_FORMAT = "sstq-reproduction-1"
# Limits the threads that libraries start in a worker, which has one core; they read it when they are imported.
_THREAD_SETTINGS = (
    "SSTQ_THREADS",
    "OMP_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "MKL_NUM_THREADS",
)

Finished = Callable[[Job, float], None]


def read_result(job: Job, folder: Path) -> dict[str, Any] | None:
    """Read the result of a finished job; None if there is none, or the file is damaged or of another job."""
    try:
        stored = json.loads((folder / job.path).read_text(encoding="utf-8"))
        return (
            stored["result"]
            if (stored["format"], stored["job"]) == (_FORMAT, job.to_dict())
            else None
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def run_jobs(
    jobs: Sequence[Job],
    folder: Path,
    *,
    workers: int | None = None,
    data: Path | None = None,
    finished: Finished = lambda _job, _seconds: None,
) -> None:
    """Run the jobs that have no result yet."""
    pending = [job for job in dict.fromkeys(jobs) if read_result(job, folder) is None]
    workers = min(workers or core_count(), len(pending))
    if workers <= 1:
        for job in pending:
            finished(job, _do(job, folder, data))
    else:
        # Fresh interpreters: forking a process that has threads may hang it.
        context = multiprocessing.get_context("spawn")
        settings = dict.fromkeys(
            _THREAD_SETTINGS, str(max(1, core_count() // workers))
        ) | {"SSTQ_QUIET": "1"}
        with (
            patch.dict(os.environ, settings),
            ProcessPoolExecutor(workers, context) as pool,
        ):
            try:
                running = {pool.submit(_do, job, folder, data): job for job in pending}
                for future in as_completed(running):
                    finished(running[future], future.result())
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise


def _do(job: Job, folder: Path, data: Path | None) -> float:
    """Run a job, write its result completely or not at all, and return the seconds it took."""
    start = time.perf_counter()
    result = run_job(job, data)
    path = folder / job.path
    path.parent.mkdir(parents=True, exist_ok=True)
    with atomic_file(path) as file:
        text = json.dumps(
            {"format": _FORMAT, "job": job.to_dict(), "result": result},
            separators=(",", ":"),
        )
        file.write(text.encode() + b"\n")
    return time.perf_counter() - start
