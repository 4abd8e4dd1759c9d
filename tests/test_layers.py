"""The rooms import downwards only: the contract of pyproject.toml, imports in functions and for types included."""

from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

ROOT = Path(__file__).parents[1]


def test_nobody_imports_upwards(capsys: pytest.CaptureFixture[str]):
    status = lint_imports(config_filename=str(ROOT / "pyproject.toml"), no_cache=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
