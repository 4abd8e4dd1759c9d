"""Libraries that are committed unmodified: what they are, their hashes, and a comparison with the registry.

    python -m tests.vendored

asks npm for every archive and compares it byte by byte. It needs npm and a network. Exit code 1 if anything differs.
"""

import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORDS = (
    ROOT
    / "src"
    / "sstq"
    / "service"
    / "dashboard"
    / "static"
    / "vendor"
    / "vendored.json",
    ROOT / "docs" / "assets" / "katex" / "vendored.json",
)


def integrity(content: bytes, algorithm: str = "sha384") -> str:
    return f"{algorithm}-{base64.b64encode(hashlib.new(algorithm, content).digest()).decode()}"


def unlike_their_record(record: Path) -> list[str]:
    """The files that are not there or have another hash than the record says."""
    files = json.loads(record.read_text())["files"]
    return [
        name
        for name, known in files.items()
        if not (record.parent / name).is_file()
        or integrity((record.parent / name).read_bytes()) != known["integrity"]
    ]


def unlike_the_registry(record: Path) -> list[str]:
    known = json.loads(record.read_text())
    with tempfile.TemporaryDirectory() as folder:
        wanted = f"{known['package']}@{known['version']}"
        packed = subprocess.run(
            ["npm", "pack", "--silent", wanted],  # noqa: S607
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        archive = Path(folder, packed.stdout.split()[-1])
        if integrity(archive.read_bytes(), "sha512") != known["archive"]:
            return [f"the archive of {wanted}"]
        with tarfile.open(archive) as opened:
            return [
                name
                for name, file in known["files"].items()
                if opened.extractfile(f"package/{file['from']}").read()
                != (record.parent / name).read_bytes()
            ]


if __name__ == "__main__":
    wrong = [
        name
        for record in RECORDS
        for name in unlike_their_record(record) + unlike_the_registry(record)
    ]
    sys.exit(
        f"They differ: {', '.join(wrong)}"
        if wrong
        else print("All are the registry's, byte for byte.")  # noqa: T201
    )
