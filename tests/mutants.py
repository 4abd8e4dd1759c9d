"""Break one line at a time, and see that the tests that are named for it fail.

    make mutants
    python -m tests.mutants --only ledger

tests/mutants.toml lists the mutants and explains its format. Each is applied to a copy of the tree, never to the tree
itself. The tests must pass in the copy before anything is broken. The exit code is 0 if every mutant was killed.
"""

import argparse
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
LIST = ROOT / "tests" / "mutants.toml"
# What the tests of a broken line may take on a busy machine, kernels compiled anew included.
PATIENCE = 300
NOT_COPIED = shutil.ignore_patterns(
    ".*", "dist", "site", "demo", "node_modules", "*.egg-info"
)

# A string without its line breaks, a word, or a sign.
_TOKEN = re.compile(r"""'[^']*'|"[^"]*"|\w+|[^\w\s]""")

KILLED = "killed"
SURVIVED = "SURVIVED"


@dataclass(frozen=True)
class Mutant:
    """One line of the list.

    Attributes:
        file: what is broken, from the root of the tree.
        name: what the mutant does wrong.
        old: text that occurs once in the file.
        new: what replaces it.
        tests: files or tests of which at least one must fail.
    """

    file: str
    name: str
    old: str
    new: str
    tests: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.file} {self.name}"

    @property
    def _pattern(self) -> re.Pattern[str]:
        """The old text, however its line is broken and whether or not a comma ends it."""
        pattern = ""
        for part in _TOKEN.findall(self.old):
            if part in ")]}":
                pattern += r",?\s*"
            elif pattern:
                pattern += r"\s*"
            pattern += re.escape(part)
        return re.compile(pattern)

    def applied(self, text: str) -> str:
        """The text with the mutant in it."""
        return self._pattern.sub(lambda _: self.new, text)

    def problem(self, root: Path = ROOT) -> str | None:
        """What keeps the entry from being applied to this tree, or None."""
        path = root / self.file
        if not path.is_file():
            return f"there is no file {self.file}"
        occurrences = len(self._pattern.findall(path.read_text(encoding="utf-8")))
        if occurrences != 1:
            return (
                f"the old text must occur once, got {occurrences} times: {self.old!r}"
            )
        if self.old == self.new:
            return "the new text is the old one"
        if not self.tests:
            return "no test is named"
        return next(
            (
                f"there is no test {test}"
                for test in self.tests
                if not _exists(root, test)
            ),
            None,
        )


def read(path: Path = LIST) -> list[Mutant]:
    """The mutants of a list."""
    files = tomllib.loads(path.read_text(encoding="utf-8"))
    return [
        Mutant(file, name, entry["old"], entry["new"], tuple(entry["tests"]))
        for file, entries in files.items()
        for name, entry in entries.items()
    ]


def _exists(root: Path, test: str) -> bool:
    """Whether a file, or file::function, or file::function[case] is there."""
    file, _, function = test.partition("::")
    if not (root / file).is_file():
        return False
    name = re.escape(function.partition("[")[0])
    return (
        not function
        or re.search(
            rf"^ *def {name}\(", (root / file).read_text(encoding="utf-8"), re.M
        )
        is not None
    )


class Copy:
    """A copy of the tree in which one mutant at a time is tried."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "tree"
        shutil.copytree(ROOT, self.root, ignore=NOT_COPIED)
        self._writes = 0

    def try_mutant(self, mutant: Mutant) -> tuple[str, str]:
        """What became of a mutant, and the last lines of its tests if they did not fail."""
        problem = mutant.problem(self.root)
        if problem:
            return "NOT APPLIED", problem
        path = self.root / mutant.file
        original = path.read_text(encoding="utf-8")
        self._write(path, mutant.applied(original))
        try:
            code, output = self.test(mutant.tests, "-n0")
        except subprocess.TimeoutExpired:
            return "TIMED OUT", f"no answer within {PATIENCE} s"
        finally:
            self._write(path, original)
        if code == 1:
            return KILLED, ""
        return (SURVIVED if code == 0 else f"EXIT CODE {code}"), output

    def test(
        self, tests: Iterable[str], *options: str, patience: float | None = PATIENCE
    ) -> tuple[int, str]:
        """The exit code of pytest in the copy, and the last lines that it printed."""
        command = (
            sys.executable,
            "-m",
            "pytest",
            "-x",
            "-q",
            "--no-header",
            "--tb=line",
            *options,
            *tests,
        )
        environment = {
            **os.environ,
            "PYTHONPATH": f"{self.root / 'src'}{os.pathsep}{self.root}",
            "SSTQ_QUIET": "1",
            "SSTQ_TEST_PATIENCE": str(PATIENCE * 0.4),
        }
        # What a broken solver writes must not be read by the next.
        environment.pop("SSTQ_TEST_CACHE", None)
        with subprocess.Popen(
            command,
            cwd=self.root,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        ) as process:
            try:
                output, _ = process.communicate(timeout=patience)
            finally:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
        return process.returncode, "\n".join(output.splitlines()[-8:])

    def _write(self, path: Path, text: str) -> None:
        """Write with a time of its own: Python takes a compiled file for current by its source's size and second."""
        path.write_text(text, encoding="utf-8")
        self._writes += 1
        stamp = time.time() + 10 * self._writes
        os.utime(path, (stamp, stamp))


def run(mutants: list[Mutant], workers: int) -> int:
    """Try the mutants, print what becomes of each, and return the exit code."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="sstq-mutants-") as folder:
        copies = [Copy(Path(folder, str(number))) for number in range(workers)]
        tests = sorted({test for mutant in mutants for test in mutant.tests})
        say(f"{len(tests)} tests without a mutant ...")
        # Collected by itself first: workers do not say which test is missing.
        code, output = copies[0].test(
            tests, "-n0", "--collect-only", "-qq", patience=None
        )
        if code == 0:
            code, output = copies[0].test(tests, f"-n{workers}", patience=None)
        if code != 0:
            say(f"{output}\nThe tests must pass before anything is broken.")
            return 2
        free: queue.Queue[Copy] = queue.Queue()
        for copy in copies:
            free.put(copy)

        def attempt(mutant: Mutant) -> tuple[str, str, float]:
            copy = free.get()
            begun = time.monotonic()
            try:
                return *copy.try_mutant(mutant), time.monotonic() - begun
            finally:
                free.put(copy)

        alive = 0
        with ThreadPoolExecutor(workers) as pool:
            jobs = {pool.submit(attempt, mutant): mutant for mutant in mutants}
            for number, job in enumerate(as_completed(jobs), 1):
                fate, output, seconds = job.result()
                say(f"[{number}/{len(mutants)}] {fate} {jobs[job]} ({seconds:.0f} s)")
                if fate != KILLED:
                    alive += 1
                    say(output)
    minutes = (time.monotonic() - started) / 60
    say(
        f"{len(mutants) - alive} of {len(mutants)} mutants killed in {minutes:.1f} minutes"
    )
    return int(alive > 0)


def say(line: str) -> None:
    print(line, flush=True)  # noqa: T201


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tests.mutants", description=__doc__.partition("\n")[0]
    )
    parser.add_argument(
        "--only",
        default="",
        help="Try only the mutants whose file or name contains this text.",
    )
    parser.add_argument(
        "--workers",
        type=int,
        default=os.cpu_count() or 1,
        help="How many to try at once.",
    )
    arguments = parser.parse_args()
    mutants = [mutant for mutant in read() if arguments.only in str(mutant)]
    if not mutants:
        parser.error(f"no mutant's file or name contains {arguments.only!r}")
    return run(mutants, min(arguments.workers, len(mutants)))


if __name__ == "__main__":
    sys.exit(main())
