"""The rooms import downwards only: the contract of pyproject.toml, imports in functions and for types included."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_nobody_imports_upwards():
    command = [Path(sys.executable).parent / "lint-imports", "--no-cache", "--config", ROOT / "pyproject.toml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
