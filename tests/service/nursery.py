"""A process from which servers are forked: it has imported everything, so that one starts in a few milliseconds.

`sstq serve` in a new interpreter takes three seconds of a processor, most of it for imports;
tests/test_installation.py starts one like that. A forked server is a process like any other, which can be killed.
"""

import atexit
import functools
import gc
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TextIO

from tests.patience import until


class Forked:
    """A running process: what it prints, and what `subprocess.Popen` does with its own."""

    def __init__(self, pid: int, stdout: TextIO) -> None:
        self.pid = pid
        self.stdout = stdout

    def kill(self) -> None:
        """Kill it as nothing else does: without a word."""
        self._signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Ask it to end."""
        self._signal(signal.SIGTERM)

    def wait(self) -> None:
        """Return when it is gone."""
        until(lambda: not self._signal(0))

    def _signal(self, number: int) -> bool:
        with suppress(ProcessLookupError):
            os.kill(self.pid, number)
            return True
        return False


def fork(
    arguments: list[str],
    log: Path,
    environment: dict[str, str],
    program: str | None = None,
) -> Forked:
    """`sstq` with these arguments, or a program with them, in the folder and with the variables of this process."""
    with tempfile.TemporaryDirectory(prefix="sstq-fork-") as folder:
        stdout = Path(folder) / "stdout"
        os.mkfifo(stdout)
        place = [os.getcwd(), os.environ | environment, str(stdout), str(log)]
        print(
            json.dumps([program, arguments, *place]), file=_nursery().stdin, flush=True
        )
        pid = _nursery().stdout.readline()
        assert pid, "no server can be forked; what the tests print says why"
        return Forked(int(pid), stdout.open())


@functools.cache
def _nursery() -> subprocess.Popen[str]:
    """The process of these tests; it ends with them, and all that it started."""
    command = [sys.executable, "-m", "tests.service.nursery"]
    root = Path(__file__).parents[2]
    pipe = subprocess.PIPE
    started = subprocess.Popen(
        command, cwd=root, stdin=pipe, stdout=pipe, text=True, start_new_session=True
    )
    atexit.register(started.communicate)
    return started


def main() -> None:
    """Fork a server for each line of the input; at its end kill what is left of them."""
    import uvicorn  # noqa: F401

    import sstq.service.shuffler  # noqa: F401
    from sstq.service.collector import Collector
    from tests.service.killing import CAMPAIGNS

    Collector.warm_up(None)
    for mechanism in CAMPAIGNS.values():  # their kernels are loaded
        mechanism.aggregator().update(mechanism.encode([[0.0] * 20]))
    # no server looks at what it shares with this process, or copies it for that
    gc.freeze()
    signal.signal(signal.SIGCHLD, _forget)
    for line in sys.stdin:
        if not (pid := os.fork()):
            _become(*json.loads(line))
        print(pid, flush=True)  # noqa: T201
    os.killpg(0, signal.SIGKILL)


def _forget(*_: object) -> None:
    """Collect the processes that ended, with the time that they took: nobody else may still see them."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _become(
    program: str | None,
    arguments: list[str],
    folder: str,
    environment: dict[str, str],
    stdout: str,
    log: str,
) -> None:
    """Be the process that was asked for."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number, path, flags in (
        (0, os.devnull, os.O_RDONLY),
        (1, stdout, os.O_WRONLY),
        (2, log, os.O_WRONLY | os.O_APPEND | os.O_CREAT),
    ):
        opened = os.open(path, flags, 0o666)
        os.dup2(opened, number)
        os.close(opened)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    if program is None:
        from sstq.cli import app

        app(arguments)
    else:
        sys.argv = ["-c", *arguments]
        exec(program, {"__name__": "__main__"})  # noqa: S102
    sys.exit()


if __name__ == "__main__":
    main()
