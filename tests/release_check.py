"""Check a release: build the wheel and the sources, install the wheel in a clean environment, run the README in it.

    make release-check

The archives are left in dist/. It needs the network for the dependencies, and a few minutes.
"""

import os
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder
from hatchling.builders.wheel import WheelBuilder

from sstq._version import __version__
from tests.test_documentation import ROOT, blocks, shell_lines

README = ROOT / "README.md"


def check() -> None:
    version_is_stated_everywhere()
    (wheel,) = WheelBuilder(str(ROOT)).build(directory=str(ROOT / "dist"), versions=["standard"])
    (sources,) = SdistBuilder(str(ROOT)).build(directory=str(ROOT / "dist"), versions=["standard"])
    say(f"built {Path(wheel).name} and {Path(sources).name}")
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder, "environment")
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        limits = ["--quiet", "--disable-pip-version-check", "--constraint", str(ROOT / "constraints.txt")]
        run([python, "-m", "pip", "install", *limits, f"{wheel}[flower]"], folder)
        say("installed in a clean environment")
        for code in blocks(README, "python"):
            run([python, "-c", code], folder)
        for line in shell_lines(README):
            run(["/bin/sh", "-c", line], folder, environment)
        say("the README runs as it stands")


def version_is_stated_everywhere() -> None:
    citation = f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    changes = any(
        line.startswith("## ") and __version__ in line for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
    )
    if not (citation and changes):
        sys.exit(f"CITATION.cff and CHANGELOG.md must name version {__version__}")


def run(command: list[object], folder: str, environment: Path | None = None) -> None:
    path = f"{environment}/bin{os.pathsep}{os.environ['PATH']}" if environment else os.environ["PATH"]
    done = subprocess.run(
        [str(word) for word in command],
        cwd=folder,
        env=os.environ | {"PATH": path, "PYTHONPATH": ""},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        sys.exit(f"{command[-1]}\n{done.stdout}{done.stderr}")


def say(what: str) -> None:
    print(f"release-check: {what}", flush=True)  # noqa: T201


if __name__ == "__main__":
    check()
