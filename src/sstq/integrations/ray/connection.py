"""A quiet Ray: our own on this machine's cores, which is stopped at the end, or one that is there already."""

from __future__ import annotations

import os
import socket
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

__all__ = ["connected", "import_ray"]

# For the instance that we start: no telemetry.
_START_ENVIRONMENT = {"RAY_USAGE_STATS_ENABLED": "0"}
# For this process: errors of tasks that nobody waits for any more, because an earlier one was refused, are not news.
_DRIVER_ENVIRONMENT = {"RAY_IGNORE_UNHANDLED_ERRORS": "1"}
_TRIES = 3
_KNOCK_SECONDS = 10.0
_QUIET = {"log_to_driver": False, "logging_level": "ERROR", "configure_logging": False}


def import_ray() -> Any:
    """Ray; an ImportError that names the extra where it is missing."""
    try:
        import ray
    except ImportError as error:
        raise ImportError("this needs Ray: pip install 'sstq[ray]'") from error
    return ray


@contextmanager
def connected(address: str | None = None, *, cpus: int | None = None) -> Iterator[None]:
    """Connect to Ray for the length of a block, unless this process is connected already.

    Args:
        address: None to start a Ray of our own, without dashboard, log lines and usage statistics, that ends with the
            block; "auto", "host:port" or "ray://host:port" to join one that is running, which goes on.
        cpus: the cores of our own Ray, all of this machine unless given.

    Raises:
        ConnectionError: there is no Ray at that address, or ours does not start.

    """
    ray = import_ray()
    if ray.is_initialized():
        if address is not None or cpus is not None:
            raise ValueError("this process is connected to Ray already: leave address and cpus out")
        yield
        return
    if address is not None and cpus is not None:
        raise ValueError(f"cpus is for a Ray of our own, not for the one at address {address!r}")
    with _environment(_DRIVER_ENVIRONMENT):
        _connect(ray, address, cpus)
        try:
            yield
        finally:
            with _without_warnings():
                ray.shutdown()


def _connect(ray: Any, address: str | None, cpus: int | None) -> None:
    with _without_warnings():
        if address is None:
            with _environment(_START_ENVIRONMENT):
                _start(ray, cpus)
            return
        try:
            _knock(address)
            ray.init(address=address, **_QUIET)
        except (OSError, RuntimeError, ValueError) as error:
            raise ConnectionError(f"there is no Ray to join at {address!r}: {_first_line(error)}") from error


def _knock(address: str) -> None:
    """Raise an OSError if nothing listens at HOST:PORT. Ray itself would try for twelve minutes before it says so."""
    place = urlsplit(address if "://" in address else f"//{address}")
    if place.hostname is not None and place.port is not None:
        socket.create_connection((place.hostname, place.port), timeout=_KNOCK_SECONDS).close()


def _start(ray: Any, cpus: int | None) -> None:
    """Start a Ray of our own. Ray gives itself 30 seconds, which are not enough on a very busy machine: try again."""
    for tries_left in reversed(range(_TRIES)):
        try:
            ray.init(address="local", num_cpus=cpus, include_dashboard=False, **_QUIET)
            return
        except Exception as error:
            # It is a plain Exception, to be known by its text alone.
            if not tries_left or "timed out during startup" not in str(error):
                raise ConnectionError(f"Ray did not start: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    """Variables for the processes that are started in a block; those that the user has set stay as they are."""
    added = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            del os.environ[name]


@contextmanager
def _without_warnings() -> Iterator[None]:
    """Ray leaves files to the garbage collector, tells of versions to come, and warns of what it raises as well."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
