"""Check a release: build wheel, sources and npm package, check their metadata, and try the wheel without our pins.

    make release-check

The README and the commands run in three empty environments: with the newest version of every dependency, without
Flower and with it, and with the lowest that pyproject.toml allows. The archives are left in dist/. It needs the
network, npm, and about a quarter of an hour.
"""

import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder

from sstq._version import __version__
from tests.installing import CommandError, Environment, build_wheel, try_commands
from tests.test_documentation import ROOT, blocks, shell_lines

README = ROOT / "README.md"
DIST: Path = ROOT / "dist"
EXTRAS = ("data", "plots", "learning", "service")
# Flower holds back the newest Typer, FastAPI and Starlette, which people without it get.
TRIALS = (
    ("highest", EXTRAS),
    ("highest", (*EXTRAS, "flower")),
    ("lowest-direct", (*EXTRAS, "flower")),
)
STATED_IN = {
    "CITATION.cff": f"version: {__version__}\n",
    "CHANGELOG.md": f"({__version__})",
    "clients/js/package.json": f'"version": "{__version__}"',
}


def check() -> None:
    for name, text in STATED_IN.items():
        if text not in (ROOT / name).read_text():
            sys.exit(f"{name} must name version {__version__}")
    wheel = build_wheel(DIST)
    (sources,) = SdistBuilder(str(ROOT)).build(
        directory=str(DIST), versions=["standard"]
    )
    tool("twine", "check", "--strict", wheel, sources)
    tool("check_wheel_contents", wheel)
    subprocess.run(
        [  # noqa: S607
            "npm",
            "pack",
            "--silent",
            "--pack-destination",
            DIST,
            ROOT / "clients" / "js",
        ],
        check=True,
    )
    say(f"built and checked {', '.join(sorted(path.name for path in DIST.iterdir()))}")
    for versions, extras in TRIALS:
        with tempfile.TemporaryDirectory() as folder:
            environment = Environment(folder, wheel, extras=extras, resolution=versions)
            for code in blocks(README, "python"):
                if "flower" in extras or "flwr" not in code:
                    environment.run("python", "-c", code)
            for line in shell_lines(README):
                environment.run("/bin/sh", "-c", line)
            try_commands(environment, service=True)
        say(f"the README works with the {versions} versions of {', '.join(extras)}")
    addresses = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"].get(
        "urls", {}
    )
    filled = {name for name, address in addresses.items() if address}
    if missing := sorted({"Repository", "Documentation"} - filled):
        sys.exit(
            f"fill in before publishing: {' and '.join(missing)} in [project.urls] of pyproject.toml"
        )


def tool(name: str, *arguments: object) -> None:
    subprocess.run([sys.executable, "-m", name, *map(str, arguments)], check=True)


def say(what: str) -> None:
    print(f"release-check: {what}", flush=True)  # noqa: T201


if __name__ == "__main__":
    try:
        check()
    except (CommandError, subprocess.CalledProcessError) as error:
        sys.exit(str(error))
