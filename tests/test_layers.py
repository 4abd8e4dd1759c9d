"""The rooms import downwards only: the contract of pyproject.toml, imports in functions and for types included."""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def test_nobody_imports_upwards():
    # In a process of its own: it configures logging, which closes the handlers of others and with them standard error.
    command = [
        sys.executable,
        "-c",
        "from importlinter.cli import lint_imports_command as run; run()",
        "--no-cache",
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
