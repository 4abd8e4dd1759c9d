"""Check a release: build the wheel and the sources, and try them with pinned, newest and lowest versions.

    make release-check

The README runs with the pinned versions of constraints.txt; the commands run with the newest versions and with the
lowest ones that pyproject.toml allows. The archives are left in dist/. It needs the network, and ten minutes.
"""

import sys
import tempfile
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder

from sstq._version import __version__
from tests.installing import CommandError, Environment, build_wheel, lowest, try_commands
from tests.test_documentation import ROOT, blocks, shell_lines

README = ROOT / "README.md"
EXTRAS = ("data", "plots", "learning", "service")


def check() -> None:
    version_is_stated_everywhere()
    wheel = build_wheel(ROOT / "dist")
    (sources,) = SdistBuilder(str(ROOT)).build(directory=str(ROOT / "dist"), versions=["standard"])
    say(f"built {wheel.name} and {Path(sources).name}")
    with tempfile.TemporaryDirectory() as folder:
        pinned = Environment(folder, "--constraint", ROOT / "constraints.txt", f"{wheel}[flower]")
        for code in blocks(README, "python"):
            pinned.run("python", "-c", code)
        for line in shell_lines(README):
            pinned.run("/bin/sh", "-c", line)
        say("the README runs as it stands")
    extras = f"{wheel}[{','.join(EXTRAS)}]"
    for versions, requirements in {"newest": [extras], "lowest": [extras, *lowest(*EXTRAS)]}.items():
        with tempfile.TemporaryDirectory() as folder:
            try_commands(Environment(folder, *requirements), service=True)
            say(f"the commands work with the {versions} versions")


def version_is_stated_everywhere() -> None:
    citation = f"version: {__version__}\n" in (ROOT / "CITATION.cff").read_text()
    changes = any(
        line.startswith("## ") and __version__ in line for line in (ROOT / "CHANGELOG.md").read_text().splitlines()
    )
    if not (citation and changes):
        sys.exit(f"CITATION.cff and CHANGELOG.md must name version {__version__}")


def say(what: str) -> None:
    print(f"release-check: {what}", flush=True)  # noqa: T201


if __name__ == "__main__":
    try:
        check()
    except CommandError as error:
        sys.exit(str(error))
