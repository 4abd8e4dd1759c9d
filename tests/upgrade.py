"""Pin the newest versions that resolve together: rewrite constraints.txt.

    make upgrade

pip chooses them for all extras but `release` at once, without our pins. `HELD` keep their versions: another torch is
gigabytes, and the typer that Flower asks for warns of deprecation with a later click. Names that no extra asks for keep
theirs. Run `make test` afterwards: this only changes the file.
"""

import json
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.test_documentation import ROOT

CONSTRAINTS = ROOT / "constraints.txt"
EXTRAS = "check,spark"
HELD = ("torch", "click")
_PIN = re.compile(r"([A-Za-z0-9._-]+)==(\S+)")


def pins(text: str) -> dict[str, str]:
    return dict(
        match.groups() for match in map(_PIN.fullmatch, text.splitlines()) if match
    )


def resolved(held: list[str]) -> dict[str, str]:
    """The newest versions that resolve, by name in lower case with hyphens."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        options = [
            "--dry-run",
            "--ignore-installed",
            "--quiet",
            "--disable-pip-version-check",
            "--report",
            report,
        ]
        subprocess.run(
            [
                sys.executable,
                "-m",
                "pip",
                "install",
                *options,
                f"{ROOT}[{EXTRAS}]",
                *held,
            ],
            check=True,
        )
        installs = json.loads(report.read_text())["install"]
    return {
        entry["metadata"]["name"].lower().replace("_", "-"): entry["metadata"][
            "version"
        ]
        for entry in installs
    }


def upgraded(text: str, newest: dict[str, str]) -> str:
    """The text of constraints.txt with the newest versions."""

    def newer(match: re.Match[str]) -> str:
        name, version = match.groups()
        return (
            f"{name}=={version if name in HELD else newest.get(name.lower(), version)}"
        )

    return "\n".join(_PIN.sub(newer, line) for line in text.splitlines()) + "\n"


def main() -> None:
    before = CONSTRAINTS.read_text()
    current = pins(before)
    print("resolving, which takes some minutes ...", flush=True)  # noqa: T201
    after = upgraded(before, resolved([f"{name}=={current[name]}" for name in HELD]))
    CONSTRAINTS.write_text(after)
    for name, version in pins(after).items():
        if version != current[name]:
            print(f"{name}: {current[name]} → {version}")  # noqa: T201
    print("run `make test` before you commit constraints.txt")  # noqa: T201


if __name__ == "__main__":
    main()
