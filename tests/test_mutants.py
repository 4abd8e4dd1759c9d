"""The list of mutants applies to the tree as it is; `make mutants` tries them."""

import subprocess
import sys

import pytest

from tests import mutants

LISTED = mutants.read()


def test_every_mutant_applies_and_its_tests_exist() -> None:
    problems = [
        f"{mutant}: {mutant.problem()}" for mutant in LISTED if mutant.problem()
    ]
    assert not problems, "update tests/mutants.toml:\n" + "\n".join(problems)


@pytest.mark.slow
def test_named_cases_of_parametrized_tests_exist() -> None:
    cases = sorted({test for mutant in LISTED for test in mutant.tests if "[" in test})
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n0",
        "-qq",
        "--no-header",
        "--collect-only",
        *cases,
    ]
    collected = subprocess.run(
        command, cwd=mutants.ROOT, capture_output=True, text=True, check=False
    )
    assert collected.returncode == 0, (
        f"update tests/mutants.toml:\n{collected.stdout}{collected.stderr}"
    )


@pytest.fixture
def tree(tmp_path, monkeypatch):
    """A tree of one function and its tests."""
    root = tmp_path / "root"
    (root / "tests").mkdir(parents=True)
    (root / "src").mkdir()
    (root / "src" / "limits.py").write_text("def fits(x):\n    return x <= 3\n")
    (root / "tests" / "test_limits.py").write_text(
        "import limits\n\n"
        "def test_edge():\n    assert limits.fits(3) and not limits.fits(4)\n\n"
        "def test_far():\n    assert limits.fits(0)\n"
    )
    (root / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    monkeypatch.setattr(mutants, "ROOT", root)
    return root


def mutant_of(
    old="<= 3",
    new="< 3",
    tests=("tests/test_limits.py::test_edge",),
    file="src/limits.py",
):
    return mutants.Mutant(file, "edge-left-out", old, new, tuple(tests))


@pytest.mark.slow
def test_a_mutant_is_killed_survives_or_does_not_apply(tree, capsys) -> None:
    killed = mutant_of()
    unnoticed = mutant_of(tests=["tests/test_limits.py::test_far"])
    unloadable = mutant_of(new="<=")
    assert mutants.run([killed, killed], 1) == 0
    assert mutants.run([killed, unnoticed, unloadable, mutant_of(old="x")], 1) == 1
    printed = capsys.readouterr().out
    assert "2 of 2 mutants killed" in printed
    assert "1 of 4 mutants killed" in printed
    for fate in ("SURVIVED", "EXIT CODE 4", "NOT APPLIED"):
        assert f"] {fate} src/limits.py edge-left-out" in printed
    assert "x <= 3" in (tree / "src" / "limits.py").read_text()


@pytest.mark.slow
def test_nothing_is_broken_while_the_tests_fail_anyway(tree, capsys) -> None:
    (tree / "src" / "limits.py").write_text("def fits(x):\n    return x <= 30\n")
    assert mutants.run([mutant_of(old="<= 30")], 1) == 2
    assert "must pass before" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("entry", "problem"),
    [
        (mutant_of(file="src/gone.py"), "there is no file"),
        (mutant_of(old="nowhere"), "got 0 times"),
        (mutant_of(old="x"), "got 2 times"),
        (mutant_of(new="<= 3"), "the new text is the old one"),
        (mutant_of(tests=[]), "no test is named"),
        (mutant_of(tests=["tests/test_limits.py::test_ed"]), "there is no test"),
        (mutant_of(tests=["tests/test_gone.py"]), "there is no test"),
        (mutant_of(tests=["tests/test_limits.py::test_edge[1-2]"]), None),
    ],
)
def test_entries_that_rot_are_named(tree, entry, problem) -> None:
    found = entry.problem(tree)
    assert found is None if problem is None else problem in found
