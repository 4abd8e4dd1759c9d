"""The snippets of the README and of the documentation run as they stand."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
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


@pytest.mark.parametrize("page", [p for p in PAGES if shell_lines(p)], ids=lambda p: p.name)
def test_shell_snippets_run(page, tmp_path):
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    for line in shell_lines(page):
        done = subprocess.run(
            ["/bin/sh", "-c", line], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
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
