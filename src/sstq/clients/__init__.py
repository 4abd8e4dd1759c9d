"""The clients in C and JavaScript: `python -m sstq.clients --output FOLDER` writes their files.

Wheels hold a copy; a checkout has the files in `clients/`.
"""

from pathlib import Path

__all__ = ["FILES", "client_folder"]

FILES = {
    "c": ("sstq.h", "sstq.c", "README.md"),
    "js": (
        *("sstq.js", "sealing.js", "node-files.js", "studies.js"),
        *("sstq.d.ts", "studies.d.ts", "package.json", "README.md", "LICENSE"),
    ),
}
"""The files of each client."""

_PACKED = Path(__file__).parent / "files"
_CHECKOUT = Path(__file__).parents[3] / "clients"


def client_folder(language: str) -> Path:
    """Return the folder with the files of a client: "c" or "js"."""
    return (_PACKED if _PACKED.exists() else _CHECKOUT) / language
