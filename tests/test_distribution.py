"""What a source distribution holds."""

import shutil
from pathlib import Path

from hatchling.builders.sdist import SdistBuilder

ROOT = Path(__file__).parents[1]
FOLDERS = ("src", "tests", "benchmarks", "docs", "examples", "experiments")
FILES = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "Makefile", "mkdocs.yml", "constraints.txt")


def packed(checkout):
    return {file.relative_path for file in SdistBuilder(str(checkout)).recurse_included_files()}


def test_it_holds_the_project_and_no_virtual_environment(tmp_path):
    """With these sources `make test` and `make docs` work, whatever else lies in the checkout."""
    for name in ("pyproject.toml", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    ours = [*FILES, *(f"{folder}/file.py" for folder in FOLDERS)]
    for folder in (".", "env", "env/lib/python3/site-packages/package"):
        for name in ours:
            path = tmp_path / folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    # The build system adds the metadata and the licence by itself.
    assert set(ours) <= packed(tmp_path) <= {*ours, "pyproject.toml", "LICENSE"}


def test_nothing_that_it_names_is_missing_here():
    assert {*FOLDERS, *FILES} <= {name.split("/")[0] for name in packed(ROOT)}
