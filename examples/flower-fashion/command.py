"""What the scripts deployment.py and simulation.py have in common: their options, and an end that leaves nothing."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from processes import NotAsExpectedError, heed_signals


def parser_of(description: str | None, *, rounds: int) -> argparse.ArgumentParser:
    """Return a parser of the options that both have; `rounds` is the default of one of them."""
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--dataset", default="fashion-mnist", choices=["fashion-mnist", "digits"]
    )
    parser.add_argument("--framework", default="numpy", choices=["numpy", "torch"])
    parser.add_argument(
        "--rounds", type=int, default=rounds, help=f"(default: {rounds})"
    )
    parser.add_argument(
        "--epsilon", type=float, default=3.0, help="of one message (default: 3)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="for all files; by default one that is removed after success",
    )
    parser.add_argument(
        "--timeout",
        type=float,
        default=600.0,
        help="seconds to wait for anything (default: 600)",
    )
    return parser


@contextmanager
def stopping(stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the end, whatever it is: success, failure, Ctrl-C or SIGTERM."""
    heed_signals()
    try:
        yield
    finally:
        print("stopping everything", flush=True)
        stop()


@contextmanager
def folder_for(given: Path | None) -> Iterator[Path]:
    """Yield the given folder, or a temporary one, which is removed unless there is a failure to look into."""
    folder = (given or Path(tempfile.mkdtemp(prefix="flower-fashion-"))).resolve()
    message = None
    try:
        yield folder
    except NotAsExpectedError as error:
        sys.exit(f"{error}\nAll files are in {folder}")
    except KeyboardInterrupt:
        message = "interrupted"
    if given is None:
        shutil.rmtree(folder)
    if message:
        sys.exit(message)
    print("done")
