"""The snippets of the README and of the documentation run as they stand."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from sstq.cli import app

ROOT = Path(__file__).parents[1]
# What only a shell can do: pipes, redirections, variables, comments.
SHELL_SYNTAX = set("|<>$&;*#`")

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL)


def shell_lines(page):
    """The lines of console blocks that begin with a prompt."""
    return [line[2:] for block in blocks(page, "console") for line in block.splitlines() if line.startswith("$ ")]


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p, "python")], ids=lambda p: p.name)
def test_python_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "__main__"}
    for code in blocks(page, "python"):
        exec(compile(code, str(page), "exec"), namespace)  # noqa: S102


@pytest.mark.slow
@pytest.mark.parametrize("page", [p for p in PAGES if shell_lines(p)], ids=lambda p: p.name)
def test_shell_snippets_run(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for line in shell_lines(page):
        if line.startswith("sstq ") and not set(line) & SHELL_SYNTAX:
            run_here(shlex.split(line)[1:], line)
        else:
            run_in_shell(line, tmp_path)


def run_here(arguments, line):
    """Run a command in this process: starting Numba for each would take longer than all that they do."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, f"{line}\n{done.output}\n{done.stderr}\n{done.exception!r}"


def run_in_shell(line, folder):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["/bin/sh", "-c", line], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def test_every_link_between_pages_leads_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_every_accuracy_stands_beside_its_total_epsilon():
    pages = [*PAGES, *sorted((ROOT / "examples").rglob("*.md")), *sorted((ROOT / "experiments").rglob("*.md"))]
    for page in pages:
        prose = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
        for paragraph in re.split(r"\n\s*\n", prose):
            is_training = re.search(r"accuracy|twenty rounds", paragraph) and re.search(r"\d %|per\s+cent", paragraph)
            assert not is_training or re.search(r"total\s+(of\s+)?\**ε", paragraph), f"{page.name}: {paragraph}"
