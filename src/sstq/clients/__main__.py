"""`python -m sstq.clients --output FOLDER`: write the clients in C and JavaScript."""

import argparse
import shutil
import sys
from pathlib import Path

from sstq.clients import FILES, client_folder


def main(arguments: list[str] | None = None) -> str | None:
    """Write the files into a folder for each language; returns what is wrong, if anything."""
    parser = argparse.ArgumentParser(
        prog="python -m sstq.clients",
        description="Write the clients in C and JavaScript.",
    )
    parser.add_argument(
        "--output",
        required=True,
        type=Path,
        metavar="FOLDER",
        help="write into this folder",
    )
    parser.add_argument("--force", action="store_true", help="overwrite existing files")
    options = parser.parse_args(arguments)
    copies = {
        options.output / language / name: client_folder(language) / name
        for language in FILES
        for name in FILES[language]
    }
    for target in copies:
        if target.exists() and not options.force:
            return f"error: {target} already exists; pass --force to overwrite it"
    for target, source in copies.items():
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
        print(target)  # noqa: T201 (the output of a command)
    return None


if __name__ == "__main__":
    sys.exit(main())
