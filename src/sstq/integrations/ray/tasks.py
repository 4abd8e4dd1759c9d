"""Repeatable Ray tasks, a bounded number at a time, each result returned once and in order.

The order costs little (a core waits only when one task takes as long as several others), and it makes a run with Ray
identical to one without: which file is refused first, and what has been done by then.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import islice
from typing import Any

from sstq._version import __version__
from sstq.integrations.ray.connection import import_ray
from sstq.mechanisms import Mechanism, from_json

__all__ = ["RETRIES", "results_of", "shared_mechanism"]

RETRIES = 5
"""How often a task is run again if its worker or machine dies."""

# Enough that cores rarely wait for a slow task, few enough that results do not pile up.
_TASKS_A_CORE = 3


def results_of(
    function: Callable[..., Any],
    calls: Iterable[tuple[Any, ...]],
    environment: Mapping[str, str] | None = None,
) -> Iterator[Any]:
    """Run `function(*call)` in a task for each call, and yield the results in order.

    Calls are taken from the iterable only if there is room for another task. A ValueError or OSError of the
    function is yielded as its result; other errors are raised. Tasks that are still under way when the iterator is
    closed, at most a few per core, run to their end, and their results are ignored. (They are not cancelled: if a
    task ends at the moment at which it is cancelled by force, Ray 2.55 aborts the driver.)

    Args:
        function: a function of an importable module; it may run several times if a worker dies.
        calls: the positional arguments of each; object references among them are replaced by their objects.
        environment: environment variables for the worker processes.

    Raises:
        ImportError: a worker has another version of this library, or none.
        ChildProcessError: the workers of a call died repeatedly.

    """
    ray = import_ray()
    remote = ray.remote(_perform).options(
        num_cpus=1,
        max_retries=RETRIES,
        name=function.__name__,
        runtime_env={"env_vars": dict(environment)} if environment else None,
    )
    most = _TASKS_A_CORE * max(1, int(ray.cluster_resources().get("CPU", 1)))
    waiting = iter(calls)
    running: deque[Any] = deque()
    while True:
        for call in islice(waiting, most - len(running)):
            running.append(remote.remote(__version__, function, *call))
        if not running:
            return
        yield _result(ray, running.popleft())


def _perform(version: str, function: Callable[..., Any], *arguments: Any) -> Any:
    """Run in a worker: refuse another version, and leave the cores to the other tasks."""
    if version != __version__:
        raise ImportError(
            f"a Ray worker has sstq {__version__}, but the driver has {version}: install the same version on all nodes"
        )
    os.environ.setdefault("SSTQ_THREADS", "1")
    return function(*arguments)


def _result(ray: Any, reference: Any) -> Any:
    try:
        return ray.get(reference)
    except ray.exceptions.RayTaskError as error:
        if isinstance(error.cause, (ValueError, OSError)):
            return error.cause
        if isinstance(error.cause, Exception):
            raise error.cause from error
        raise
    except ray.exceptions.RayError as error:
        reason = " ".join(str(error).split())
        raise ChildProcessError(f"a task failed after {RETRIES} retries: {reason}") from error


@lru_cache(maxsize=4)
def shared_mechanism(json: str) -> Mechanism:
    """Return the mechanism in a worker, read and checked once per process instead of once per task."""
    # It is the driver's own, whatever its size.
    return from_json(json, max_frame_size=1 << 32, max_steps=10_000)
