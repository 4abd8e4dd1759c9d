"""A process from which servers are forked: it has imported everything, so that one starts in a few milliseconds.

    python -m tests.service.nursery

A line of its input is a command and environment variables as JSON; the server's first lines are the answer, after a
line with the number of its process. That is a process like any other, which can be killed.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Forked:
    """A running server."""

    url: str
    process: int

    def kill(self) -> None:
        """Kill it as nothing else does: without a word."""
        os.kill(self.process, signal.SIGKILL)


class Nursery:
    """Starts servers."""

    def __init__(self, parent: subprocess.Popen[str]) -> None:
        self._parent = parent

    def start(self, command: str = "serve", **settings: object) -> Forked:
        """`sstq serve` or `sstq shuffler` with these settings, which are environment variables."""
        variables = {f"SSTQ_{name.upper()}": str(value) for name, value in settings.items()}
        print(json.dumps([command, variables]), file=self._parent.stdin, flush=True)
        # The process, the address, the key of a shuffler, the token.
        lines = [self._parent.stdout.readline().split() for _ in range(3 + (command == "shuffler"))]
        said = {line[0]: line[-1] for line in lines if line}
        assert {"process", "address"} <= set(said), "the server does not start; its log says why"
        return Forked(said["address"], int(said["process"]))


@contextmanager
def nursery(log: Path) -> Iterator[Nursery]:
    """A nursery; at the end all that it started is killed."""
    command, root = [sys.executable, "-m", "tests.service.nursery"], Path(__file__).parents[2]
    pipe = subprocess.PIPE
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            command, cwd=root, stdin=pipe, stdout=pipe, stderr=errors, text=True, start_new_session=True
        ) as parent,
    ):
        try:
            yield Nursery(parent)
        finally:
            os.killpg(parent.pid, signal.SIGKILL)


def main() -> None:
    """Fork a server for each line of the input."""
    import uvicorn  # noqa: F401

    import sstq.service.app
    import sstq.service.shuffler  # noqa: F401
    from sstq.cli import app
    from tests.service.killing import CAMPAIGNS

    for mechanism in CAMPAIGNS.values():  # their kernels are loaded
        mechanism.aggregator().update(mechanism.encode([[0.0] * 20]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # those that were killed are forgotten at once
    for line in sys.stdin:
        process = os.fork()
        if not process:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            command, variables = json.loads(line)
            os.environ.update(variables)
            app([command])
        print("process", process, flush=True)  # noqa: T201


if __name__ == "__main__":
    main()
