"""Processes that are started together and stopped together, with all that they started themselves."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_POLL = 0.1  # seconds
_GRACE = 20.0  # for a process to end by itself, after it was asked to
_signals: list[int] = []


class NotAsExpectedError(Exception):
    """Something did not happen as it should; the message says what, and where to read on."""


class Process:
    """A program in a session of its own, so that Ctrl-C reaches the caller alone, who then stops it in good order.

    Args:
        name: for messages, and of its log.
        command: the program and its arguments.
        environment: of the program.
        logs: the folder for what it prints.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        logs: Path,
    ) -> None:
        self.name = name
        self.log = logs / f"{name}.log"
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                start_new_session=True,
            )

    @property
    def exit_code(self) -> int | None:
        """None while it runs."""
        return self._process.poll()

    def text(self) -> str:
        """What it printed so far."""
        return self.log.read_text(errors="replace")

    def ask_to_stop(self) -> set[int]:
        """Send SIGTERM; returns the processes that must be gone in the end."""
        family = _descendants(self._process.pid) | _group(self._process.pid)
        if self.exit_code is None:
            self._process.terminate()
        return family

    def wait(self, seconds: float) -> None:
        """Wait for its end, and kill it if that does not come."""
        try:
            self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def stop(processes: Iterable[Process]) -> None:
    """Stop processes, and whatever they started; nothing of them is alive when this returns."""
    asked = [(process, process.ask_to_stop()) for process in processes]
    deadline = time.monotonic() + _GRACE
    for process, _ in asked:
        process.wait(max(_POLL, deadline - time.monotonic()))
    family = set().union(*(members for _, members in asked))
    # A SuperExec goes on looking for the SuperNode that has started it and is gone.
    _signal(filter(_alive, family), signal.SIGTERM)
    while (
        alive := [pid for pid in family if _alive(pid)]
    ) and time.monotonic() < deadline:
        time.sleep(_POLL)
    _signal(alive, signal.SIGKILL)


def heed_signals() -> None:
    """From now on Ctrl-C and SIGTERM end the next `wait_until`, and nothing else.

    So they cannot come between the start of a process and the note that there is one to stop.
    """
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda received, _: _signals.append(received))


def wait_until(
    what: str, happened: Callable[[], bool], needed: Iterable[Process], seconds: float
) -> None:
    """Poll until something has happened.

    Raises:
        NotAsExpectedError: it did not within so many seconds, or one of the processes that are needed for it has ended.
        KeyboardInterrupt: somebody wants all to stop (see `heed_signals`).
    """
    deadline = time.monotonic() + seconds
    needed = list(needed)
    while not happened():
        if _signals:
            raise KeyboardInterrupt
        for process in needed:
            if process.exit_code is not None:
                raise NotAsExpectedError(
                    f"{process.name} ended (exit code {process.exit_code}) before {what}; see {process.log}"
                )
        if time.monotonic() > deadline:
            raise NotAsExpectedError(
                f"waited {seconds:.0f} s in vain for {what}; see {', '.join(str(p.log) for p in needed)}"
            )
        time.sleep(_POLL)


def free_ports(count: int) -> list[int]:
    """Return ports of the loopback interface that nobody listens on, all different."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()


def _signal(processes: Iterable[int], number: signal.Signals) -> None:
    for pid in processes:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _table() -> dict[int, tuple[int, int, str]]:
    """Parent, group and state of every process that can be seen."""
    if not Path("/proc/self/stat").exists():
        listing = subprocess.run(
            ["ps", "-A", "-o", "pid=,ppid=,pgid=,stat="],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        rows = [line.split() for line in listing.splitlines()]
        return {
            int(pid): (int(parent), int(group), state)
            for pid, parent, group, state in rows
        }
    table = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            # The name of the program comes second, in brackets, and may hold anything.
            state, parent, group = path.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue  # it has just ended
        table[int(path.parent.name)] = (int(parent), int(group), state)
    return table


def _descendants(ancestor: int) -> set[int]:
    table = _table()
    family = {ancestor}
    found = True
    while found:
        found = {
            pid for pid, (parent, _, _) in table.items() if parent in family
        } - family
        family |= found
    return family - {ancestor}


def _group(leader: int) -> set[int]:
    """The members of a process group, among them those whose parent has ended already."""
    return {pid for pid, (_, group, _) in _table().items() if group == leader} - {
        leader
    }


def _alive(pid: int) -> bool:
    entry = _table().get(pid)
    return entry is not None and not entry[2].startswith("Z")
