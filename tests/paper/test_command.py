"""`python -m paper`: one short run of each command."""

import csv
from dataclasses import replace

import pytest
from typer.testing import CliRunner

import paper.__main__ as command
from paper.reproduction.experiments import EXPERIMENTS
from tests.paper.test_reproduction import TINY


def run(*words, code=0):
    result = CliRunner().invoke(command.app, list(map(str, words)))
    assert result.exit_code == code, f"{result.output}\n{result.exception!r}"
    return result


def test_every_experiment_is_a_command():
    assert {*EXPERIMENTS, "train", "data", "demo", "errors", "bits", "learn", "tables", "figures"} == {
        found.name or found.callback.__name__ for found in command.app.registered_commands
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["mse", "regression", pytest.param("bitwidth", marks=pytest.mark.soak)])
def test_an_experiment_writes_its_record_and_goes_on_where_it_stood(name, tmp_path, monkeypatch):
    monkeypatch.setattr(command, "QUICK", replace(TINY, seeds=1, bit_widths=(4, 8)))
    words = (name, "--quick", "--workers", 1, "--output", tmp_path)
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
    run("train", "--dataset", "regression", "--clients", 20, "--rounds", 2, *mechanisms, "--output", tmp_path)
    with (tmp_path / "rounds.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [row["epsilon"] for row in rows] == ["0.0", "inf", "inf", "0.0", "3.0", "6.0"]


@pytest.mark.slow
def test_train_in_cohorts(tmp_path):
    options = ("--clients", 1400, "--batch", 1, "--clip", 1, "--epsilon", 5, "--rounds", 2, "--participation", "once")
    assert "total ε = 5" in run("train", "--model", "logistic", *options, "--output", tmp_path).stdout


def test_wrong_usage_is_refused(tmp_path):
    assert "must be fashion-mnist or cifar-10" in run("data", "mnist", code=2).stderr
    assert "--dataset must be" in run("train", "--dataset", "mnist", code=2).stderr
    assert "--model must be" in run("train", "--model", "huge", "-o", tmp_path, code=2).stderr


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
