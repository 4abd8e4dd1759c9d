"""The snippets of the README and of the documentation run as they stand."""

import json
import os
import re
import shlex
import subprocess
import sys
from glob import glob
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

import paper.__main__
import sstq
from sstq.cli import app
from sstq.studies import Words

ROOT = Path(__file__).parents[1]
# What only a shell can do: pipes, redirections, comments.
SHELL_SYNTAX = set("|<>&;#`")

# They need torch, Flower, a collector or more than a second.
SLOW_SNIPPETS = {
    "README.md",
    "collecting.md",
    "flower.md",
    "learning.md",
    "planning.md",
    "shuffler.md",
}

# Its examples in all languages run in tests/clients/test_sending.py.
IN_FOUR_LANGUAGES = "sending.md"

README = ROOT / "README.md"
PAGES = [README, *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page, language):
    return re.findall(
        rf"^```{language}\n(.*?)^```$", page.read_text(), flags=re.MULTILINE | re.DOTALL
    )


def shell_lines(page, most=None):
    """The lines of console blocks that begin with a prompt; of the first `most` blocks that have one."""
    found = [
        [line[2:] for line in block.splitlines() if line.startswith("$ ")]
        for block in blocks(page, "console")
    ]
    return [line for lines in list(filter(None, found))[:most] for line in lines]


def runs(pages):
    """The README as a whole and the first example of every other page; `make soak` runs all of every page."""
    slow = {page: [pytest.mark.slow] * (page.name in SLOW_SNIPPETS) for page in pages}
    once = [
        pytest.param(
            page, None if page == README else 1, id=page.name, marks=slow[page]
        )
        for page in pages
    ]
    others = [page for page in pages if page != README]
    return once + [
        pytest.param(page, None, id=f"all of {page.name}", marks=pytest.mark.soak)
        for page in others
    ]


@pytest.fixture
def collector(tmp_path, monkeypatch):
    """A collector, and where the commands find it."""
    serving = pytest.importorskip("tests.service.serving")
    with serving.serving(tmp_path) as server:
        monkeypatch.setenv("SSTQ_URL", server.url)
        monkeypatch.setenv("SSTQ_ADMINISTRATOR_TOKEN", serving.ADMINISTRATOR)
        yield server


@pytest.fixture
def shuffler(collector, tmp_path, monkeypatch):
    """A shuffler of the collector."""
    serving = pytest.importorskip("tests.service.serving")
    with serving.serving(
        tmp_path, command="shuffler", collector=collector.url
    ) as server:
        monkeypatch.setenv("SHUFFLER", server.url)
        monkeypatch.setenv("SHUFFLER_KEY", server.http.get("/v1/key").json()["key"])
        monkeypatch.setenv("SHUFFLER_TOKEN", serving.ADMINISTRATOR)
        monkeypatch.setenv("COLLECTOR_KEY", collector.http.get("/v1/key").json()["key"])
        yield server


@pytest.fixture
def folder(page, request, tmp_path, monkeypatch):
    """A folder of its own for a page, and what else it needs."""
    if page.name == "collecting.md":
        server = request.getfixturevalue("collector")
        # the page's commands create it otherwise
        if request.function is test_python_snippets_run:
            server.create("rooms", sstq.FrameUnit(dim=16, epsilon=4.0))
            study = json.loads(Words(epsilon=3.0, longest=9).to_json())
            drinks = {"name": "drinks", "study": study, "people": 40_000}
            server.administer("POST", "/v1/campaigns", json=drinks)
    if page.name == "shuffler.md":
        server = request.getfixturevalue("shuffler")
        if request.function is test_python_snippets_run:
            terms = {
                "url": server.url,
                "threshold": 500,
                **server.http.get("/v1/key").json(),
            }
            campaign = {
                "closes": "2100-01-01T00:00:00Z",
                "senders": "single-use",
                "shuffling": terms,
            }
            request.getfixturevalue("collector").create(
                "rooms", sstq.FrameUnit(dim=16, epsilon=4.0), **campaign
            )
            made = server.administer(
                "POST", "/v1/campaigns/rooms/tokens", json={"count": 1}
            ).json()["tokens"]
            monkeypatch.setenv("TOKEN", made[0])
    if page.name == IN_FOUR_LANGUAGES:  # its commands are those of a checkout
        (tmp_path / "clients").symlink_to(ROOT / "clients")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("page", "most"),
    runs(
        [
            page
            for page in PAGES
            if blocks(page, "python") and page.name != IN_FOUR_LANGUAGES
        ]
    ),
)
@pytest.mark.usefixtures("folder")
def test_python_snippets_run(page, most):
    """Those of a page one after the other; each of the README by itself, as somebody copies it."""
    namespace = {"__name__": "__main__"}
    for code in blocks(page, "python")[:most]:
        if page == README:
            namespace = {"__name__": "__main__"}
        exec(compile(code, str(page), "exec"), namespace)  # noqa: S102


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "most"), runs([page for page in PAGES if shell_lines(page)])
)
def test_shell_snippets_run(page, most, folder):
    for line in shell_lines(page, most):
        words = shlex.split(os.path.expandvars(line))
        if words[:2] == ["python", "-c"]:
            exec(compile(words[2], line, "exec"), {"__name__": "__main__"})  # noqa: S102
        elif words[0] == "sstq" and not set(line) & SHELL_SYNTAX:
            run_here(
                app,
                [path for word in words[1:] for path in sorted(glob(word)) or [word]],
                line,
            )
        elif words[:3] == ["python", "-m", "paper"]:
            run_here(paper.__main__.app, words[3:], line)
        else:
            run_in_shell(line, folder)


def run_here(app, arguments, line):
    """Run a command in this process: starting Numba for each would take longer than all that they do."""
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, (
        f"{line}\n{done.output}\n{done.stderr}\n{done.exception!r}"
    )


def run_in_shell(line, folder):
    environment = os.environ | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    }
    done = subprocess.run(
        ["/bin/sh", "-c", line],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, f"{line}\n{done.stderr}"


def options_by_command(command, name=""):
    """The options of every command, by its words."""
    if hasattr(command, "commands"):
        parts = [
            options_by_command(part, f"{name} {word}".strip())
            for word, part in command.commands.items()
        ]
        return {words: options for part in parts for words, options in part.items()}
    return {name: {option for parameter in command.params for option in parameter.opts}}


@pytest.mark.parametrize(
    ("program", "own"), [("sstq", app), ("python -m paper", paper.__main__.app)]
)
def test_every_command_of_the_pages_exists_with_its_options(program, own):
    """Whether they run is for `make soak`."""
    known = options_by_command(typer.main.get_command(own))
    tried = 0
    for page in PAGES:
        for line in re.findall(
            rf"(?:^\$ |`){program} ([a-z][^\n`|]+)",
            page.read_text(),
            flags=re.MULTILINE,
        ):
            words = line.split()
            commands = [
                options
                for name, options in known.items()
                if name.split()[0] == words[0]
            ]
            given = {
                word.split("=")[0] for word in words if re.match("--[a-z]", word)
            } - {"--help"}
            assert any(given <= options for options in commands), (
                f"{page.name}: {program} {line}"
            )
            tried += 1
    assert tried > 5


def test_every_link_between_pages_leads_somewhere():
    for page in [*PAGES, ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"


def test_accuracies_of_the_readme_are_those_of_the_page():
    model = README.read_text().partition("## A model")[2].partition("\n## ")[0]
    page = (ROOT / "docs" / "learning.md").read_text()
    numbers = re.findall(r"(\d+\.\d) %", model)
    assert len(numbers) > 4
    assert [number for number in numbers if f" {number} " not in page] == []


def test_no_line_of_a_paragraph_begins_as_a_list_or_a_quote_does():
    """Wrapped there, a paragraph would end in a quotation on the site, or in a list elsewhere."""
    for page in PAGES:
        prose = re.sub(
            r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        broken = re.findall(r"^\w[^\n]*\n([-+*>] .*)$", prose, re.MULTILINE)
        assert not broken, f"{page.name}: {broken}"


def test_every_test_that_a_page_names_exists():
    for page in PAGES:
        for target in re.findall(r"\btests/[\w/]+\.py", page.read_text()):
            assert (ROOT / target).exists(), f"{page.name}: {target}"


@pytest.mark.slow
def test_every_benchmark_that_a_page_names_exists():
    from benchmarks.__main__ import BENCHMARKS

    for page in PAGES:
        for names in re.findall(r"python -m benchmarks ([a-z_ ]+)", page.read_text()):
            assert set(names.split()) <= set(BENCHMARKS), f"{page.name}: {names}"


def test_every_accuracy_stands_beside_its_total_epsilon():
    pages = [
        *PAGES,
        *sorted((ROOT / "examples").rglob("*.md")),
        *sorted((ROOT / "experiments").rglob("*.md")),
    ]
    for page in pages:
        prose = re.sub(
            r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL
        )
        for paragraph in re.split(r"\n\s*\n", prose):
            is_training = re.search(r"accuracy|twenty rounds", paragraph) and re.search(
                r"\d %|per\s+cent", paragraph
            )
            assert not is_training or re.search(r"total\s+(of\s+)?\**ε", paragraph), (
                f"{page.name}: {paragraph}"
            )


@pytest.mark.soak
@pytest.mark.parametrize("name", ["browser", "classifier", "first-mean"])
def test_notebooks_run(name, tmp_path):
    """They run in a kernel of their own, and the cells that print something are those whose output is kept."""
    notebooks = pytest.importorskip("tests.notebooks")
    (path,) = [path for path in notebooks.NOTEBOOKS if path.stem == name]
    kept = [
        bool(cell.get("outputs"))
        for cell in notebooks.nbformat.read(path, as_version=4).cells
    ]
    assert [
        bool(cell.get("outputs")) for cell in notebooks.run(path, tmp_path).cells
    ] == kept
