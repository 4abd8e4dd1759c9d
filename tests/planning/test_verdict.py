"""Which tasks are feasible, and the numbers that would make others so."""

import math
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sstq.cli import app
from sstq.planning import plan
from sstq.planning.plans import Remedy, Verdict
from tests.patience import PATIENCE

HOSPITALS = {"dim": 7_000_000, "clients": 10, "epsilon": 3.0}
ROUNDS = {"dim": 25_450, "clients": 1000, "rounds": 100, "epsilon": 8.0, "delta": 1e-6}


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result


def test_signal_to_noise_is_of_the_mean_of_all_rounds():
    one = plan(300, 1000, 3.0, clip=2.0)
    assert one.signal_to_noise == pytest.approx(2.0 / one.error)
    many = plan(300, 1000, 75.0, clip=2.0, rounds=25)
    assert many.signal_to_noise == pytest.approx(5 * one.signal_to_noise)


def test_an_error_that_was_asked_for_is_feasible():
    assert plan(300, epsilon=3.0, target_error=5.0).feasible
    assert not plan(300, 10, 3.0).feasible


@pytest.mark.slow
@pytest.mark.parametrize(
    "options",
    [
        HOSPITALS,
        ROUNDS,
        {"dim": 300, "clients": 100, "epsilon": 3.0},
        {"dim": 1, "clients": 1, "epsilon": 0.1},
    ],
)
def test_every_remedy_is_feasible_and_hardly_less_would_be(options):
    verdict = plan(**options).verdict()
    assert not verdict.feasible
    assert verdict.remedies
    for remedy in verdict.remedies:
        assert plan(**options | {remedy.argument: remedy.value}).feasible
        less = remedy.value * (1.012 if remedy.argument == "dim" else 0.988)
        if remedy.argument in ("dim", "clients"):
            less = math.ceil(less) if remedy.argument == "dim" else math.floor(less)
            less += (less == remedy.value) * (1 if remedy.argument == "dim" else -1)
        assert not plan(**options | {remedy.argument: less}).feasible


@pytest.mark.slow
def test_an_infeasible_plan_of_millions_of_dimensions_is_quick():
    # It takes half a second, unless kernels are loaded for mechanisms that cannot win.
    code = f"import sys, sstq; sstq.plan(**{HOSPITALS}).verdict(); assert 'numba' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE)


def test_the_text_of_a_verdict():
    assert str(Verdict(True, 2.0, "why")) == "feasible: why"
    assert (
        str(Verdict(False, 0.5, "why")) == "infeasible: why; no single change is enough"
    )
    remedies = Remedy("clients", 1200), Remedy("epsilon", 8.5), Remedy("dim", 20)
    text = "infeasible: why; any one of these helps: 1,200 people; ε = 8.5; at most 20 dimensions"
    assert str(Verdict(False, 0.5, "why", remedies)) == text


def test_the_verdict_says_what_it_assumes():
    found = plan(300, 1000, 3.0, clip=2.0)
    ratio = found.signal_to_noise
    assert (
        f"{ratio:.3g} if the mean is as long as clip, {ratio / 3:.3g} if a third of that;"
        in str(found.verdict())
    )
    third = plan(300, 1000, 3.0, clip=2.0, mean_norm=2 / 3)
    assert third.signal_to_noise == pytest.approx(ratio / 3)
    assert not third.feasible
    assert f"signal-to-noise {ratio / 3:.3g} for a mean of norm 0.666667;" in str(
        third.verdict()
    )
    shown = run(
        "plan", "--dim", 300, "--clients", 1000, "--epsilon", 3, "--mean-norm", 0.5
    ).stdout
    assert "for a mean of norm 0.5" in shown
    refused = run(
        "plan",
        "--dim",
        300,
        "--clients",
        1000,
        "--epsilon",
        3,
        "--mean-norm",
        2,
        code=2,
    )
    assert refused.stderr.startswith("error: --mean-norm must be a number in")


def test_the_command_refuses_and_shows_the_options_that_suffice(tmp_path):
    spec = tmp_path / "spec.json"
    refused = run(
        "plan", "--dim", 300, "--clients", 100, "--epsilon", 3, "-o", spec, code=1
    )
    assert refused.stderr.startswith("error: infeasible: signal-to-noise 0.66")
    assert not spec.exists()
    lines = dict(line.split("\t", 1) for line in refused.stdout.splitlines())
    instead = [value.split() for value in lines.values() if value.startswith("--")]
    assert [option for option, _ in instead] == ["--clients", "--epsilon", "--dim"]
    usual = {"--dim": "300", "--clients": "100", "--epsilon": "3"}
    for option, value in instead:
        run(
            "plan",
            *(word for pair in (usual | {option: value}).items() for word in pair),
        )


def test_a_spec_for_an_infeasible_task_warns(tmp_path):
    result = run(
        "spec", "--dim", 300, "--clients", 10, "--epsilon", 1, "-o", tmp_path / "m.json"
    )
    assert "shows what would be feasible" in result.stderr
