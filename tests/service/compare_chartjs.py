"""Compare the committed Chart.js with the registry's: the version, the integrity of its archive, and every byte.

    python -m tests.service.compare_chartjs

Needs a network. Exit code 1 and a sentence if anything differs.
"""

import base64
import hashlib
import io
import json
import os
import sys
import tarfile
import urllib.request
from importlib.resources import files

VENDOR = files("sstq.service.dashboard") / "static" / "vendor"
REGISTRY = os.environ.get("NPM_CONFIG_REGISTRY", "https://registry.npmjs.org").rstrip("/")


def integrity(content: bytes, algorithm: str) -> str:
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}"


def differences() -> list[str]:
    known = json.loads(VENDOR.joinpath("chart.js.json").read_text())
    with urllib.request.urlopen(f"{REGISTRY}/{known['package']}/{known['version']}") as answer:  # noqa: S310
        described = json.load(answer)["dist"]
    with urllib.request.urlopen(described["tarball"]) as answer:  # noqa: S310
        archive = answer.read()
    if not described["integrity"] == known["tarball_integrity"] == integrity(archive, "sha512"):
        return ["the archive is another than the one that the file was taken from"]
    found = []
    with tarfile.open(fileobj=io.BytesIO(archive)) as packed:
        for inside, here in ((known["file"], "chart.umd.min.js"), ("LICENSE.md", "chart.js-LICENSE.md")):
            if packed.extractfile(f"package/{inside}").read() != VENDOR.joinpath(here).read_bytes():
                found.append(f"{here} differs from {inside} of {known['package']} {known['version']}")
    return found


if __name__ == "__main__":
    wrong = differences()
    sys.exit("; ".join(wrong) if wrong else print("Chart.js is the registry's, byte for byte."))  # noqa: T201
