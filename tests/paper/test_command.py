"""`python -m paper`: one short run of each command."""

import csv
import re
from dataclasses import replace
from pathlib import Path

import pytest
from typer.main import get_command
from typer.testing import CliRunner

import paper.__main__ as command
from paper.commands import experiments
from paper.costs import measure_costs
from paper.reproduction.experiments import EXPERIMENTS
from paper.reproduction.methods import find_method
from tests.paper.test_reproduction import TINY


def run(*words, code=0):
    result = CliRunner().invoke(command.app, list(map(str, words)))
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_every_experiment_is_a_command():
    assert {
        *EXPERIMENTS,
        "train",
        "data",
        "demo",
        "errors",
        "bits",
        "learn",
        "chance",
        "tables",
        "figures",
        "costs",
    } == {
        found.name or found.callback.__name__
        for found in command.app.registered_commands
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["mse", "regression", pytest.param("bitwidth", marks=pytest.mark.soak)]
)
def test_an_experiment_writes_its_record_and_goes_on_where_it_stood(
    name, tmp_path, monkeypatch
):
    monkeypatch.setattr(experiments, "QUICK", replace(TINY, seeds=1, bit_widths=(4, 8)))
    words = (name, "--quick", "--processes", 1, "--output", tmp_path)
    assert run(*words).stdout.splitlines()[-1] == str(tmp_path / name)
    names = {path.name for path in (tmp_path / name).iterdir()}
    assert {"results.csv", "table.md", f"{name}.png", "curves.csv"} <= names
    with (tmp_path / name / "results.csv").open() as file:
        assert "sstq-uniform" in {row["method"] for row in csv.DictReader(file)}
    pieces = len(list((tmp_path / "results").rglob("*.json")))
    again = run(*words)
    assert f"{pieces} of {pieces} pieces were done before" in again.stderr
    assert " took " not in again.stderr


@pytest.mark.slow
def test_train_compares_mechanisms(tmp_path):
    mechanisms = ("--mechanism", "clean", "--mechanism", "frameunit:frames=4")
    run(
        "train",
        "--dataset",
        "regression",
        "--clients",
        20,
        "--rounds",
        2,
        *mechanisms,
        "--output",
        tmp_path,
    )
    with (tmp_path / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epsilon"] for row in rows] == [
        "0.0",
        "inf",
        "inf",
        "0.0",
        "3.0",
        "6.0",
    ]


@pytest.mark.slow
def test_train_in_cohorts(tmp_path):
    settings = ("--clients", 1400, "--set", "batch=1", "--set", "clip=1")
    options = (*settings, "--epsilon", 5, "--rounds", 2, "--participation", "once")
    assert (
        "total ε = 5"
        in run("train", "--model", "logistic", *options, "--output", tmp_path).stdout
    )


def test_wrong_usage_is_refused(tmp_path):
    assert "must be fashion-mnist or cifar-10" in run("data", "mnist", code=2).stderr
    assert "--dataset must be" in run("train", "--dataset", "mnist", code=2).stderr
    assert (
        "--model must be"
        in run("train", "--model", "huge", "-o", tmp_path, code=2).stderr
    )


@pytest.mark.slow
def test_figures_of_the_documentation_are_drawn_from_the_record(tmp_path, monkeypatch):
    """Those of the paper are laid out, which takes longest, where experiments and the demo write their records."""
    monkeypatch.setattr("paper.page.save", lambda figure, path: path.write_bytes(b""))
    drawn = run("figures", "--output", tmp_path).stdout.split()
    names = ["errors", "glance", "figure-1", "figure-2", "figure-3", "figure-4"]
    assert drawn == [str(tmp_path / f"{name}.png") for name in names]
    assert sorted(drawn) == sorted(map(str, tmp_path.iterdir()))
    for name in ("errors", "glance"):
        assert (tmp_path / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.slow
def test_an_experiment_names_what_differs_from_the_paper(tmp_path, monkeypatch):
    monkeypatch.setattr(experiments, "QUICK", replace(TINY, seeds=1))
    changed = (
        "--clients",
        20,
        "--rounds",
        3,
        "--epsilon",
        1.5,
        "--dim",
        16,
        "--method",
        "sstq:bits=3,level=3.5",
    )
    words = ("regression", "--quick", "--processes", 1, "--output", tmp_path)
    output = " ".join(run(*words, *changed).stdout.split())
    assert (
        "NOT the paper's settings: clients = 20, epsilon = 1.5, rounds = 3, dim = 16"
        in output
    )
    with (tmp_path / "regression" / "results.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["method"] for row in rows] == ["clean", "sstq:bits=3,level=3.5"]
    assert {row["verdict"] for row in rows} <= {"", "not compared"}
    with (tmp_path / "regression" / "curves.csv").open() as file:
        assert max(int(row["round"]) for row in csv.DictReader(file)) == 3
    assert len(list((tmp_path / "results").rglob("*-e1.5-c20-*.json"))) == 2
    assert "--clients means nothing to the experiment 'mse'" in run(
        "mse", "--clients", 5, code=2
    ).stderr.replace("\n", " ")


@pytest.mark.slow
def test_train_takes_a_seed_a_start_and_settings(tmp_path):
    words = (
        "train",
        "--dataset",
        "regression",
        "--clients",
        20,
        "--rounds",
        2,
        "--mechanism",
        "sstq:level=2.5,bits=2",
    )
    losses = []
    for folder, more in (
        ("a", ()),
        ("b", ("--seed", 1)),
        ("c", ("--set", "dim=30", "--set", "rate=0.1")),
    ):
        run(*words, *more, "--output", tmp_path / folder)
        assert (tmp_path / folder / "training.png").read_bytes().startswith(b"\x89PNG")
        with (tmp_path / folder / "rounds.csv").open() as file:
            rows = list(csv.DictReader(file))
        losses.append(rows[0]["loss"])
        assert (
            float(rows[0]["cap_bias"])
            == 0.0
            <= float(rows[-1]["cap_bias"])
            < float(rows[-1]["true_norm"])
        )
    assert len(set(losses)) == 3


def test_wrong_methods_and_settings_are_one_line(tmp_path):
    run(
        "train",
        "--dataset",
        "regression",
        "--mechanism",
        "sstq:bit=6",
        "-o",
        tmp_path,
        code=1,
    )
    with pytest.raises(ValueError, match="bit must be an argument of sstq"):
        find_method("sstq:bit=6")
    with pytest.raises(ValueError, match="epsilon must be an argument of sstq"):
        find_method("sstq:epsilon=6")  # the total ε beside an accuracy would be wrong
    assert (
        "--set must be NAME=VALUE"
        in run("train", "--set", "speed=3", "-o", tmp_path, code=2).stderr
    )
    assert (
        "must be a number"
        in run("train", "--set", "clip=wide", "-o", tmp_path, code=2).stderr
    )


@pytest.mark.slow
def test_costs_are_ratios_to_the_papers_recipe():
    rows = measure_costs(100, clients=4)
    assert [rows[0]["label"], rows[0]["ratio"]] == ["SSTQ flat, uniform", 1.0]
    assert all(row["seconds"] > 0 for row in rows)
    assert [row["share"] > 0 for row in rows] == [
        "SSTQ" in row["label"] for row in rows
    ]


@pytest.mark.slow
def test_the_page_for_researchers_runs(capsys):
    page = (Path(command.__file__).parent / "README.md").read_text("utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
    exec(code, {})  # noqa: S102 (the page's own example)
    table = capsys.readouterr().out
    assert table.count("| ε = ") == 6
    assert "| ε = 4 | FrameUnit | " in table


def test_the_commands_of_the_page_for_researchers_are_understood():
    page = (Path(command.__file__).parent / "README.md").read_text("utf-8")
    for line in re.findall(r"^python -m paper (.*)$", page, re.MULTILINE):
        name, *words = line.split()
        found = get_command(command.app).commands[name]
        found.make_context(name, words)
