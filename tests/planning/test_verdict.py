import json
import math
import shlex

import numpy as np
import pytest
from scipy import stats
from typer.testing import CliRunner

from sstq.accounting import compose
from sstq.cli import app
from sstq.planning import plan
from sstq.planning.verdict import Verdict

HOSPITALS = {"dim": 7_000_000, "clients": 10, "epsilon": 3.0}
ROUNDS = {"dim": 25_450, "clients": 1000, "rounds": 100, "total_epsilon": 8.0, "delta": 1e-6}


def run(*arguments, code=0):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == code, result.output + result.stderr
    return result


def facts(result):
    return dict(line.split("\t", 1) for line in result.stdout.splitlines())


# --- what feasible means ---


def test_signal_to_noise_is_of_the_mean_of_all_rounds():
    one = plan(300, 1000, 3.0, clip=2.0)
    assert one.signal_to_noise == pytest.approx(2.0 / one.error)
    many = plan(300, 1000, 3.0, clip=2.0, rounds=25)
    assert many.signal_to_noise == pytest.approx(5 * one.signal_to_noise)
    # Clients that are said to differ have a shorter mean.
    assert plan(300, 1000, 3.0, alike=0.5).signal_to_noise == pytest.approx(one.signal_to_noise / 2)


@pytest.mark.slow
def test_rounds_with_fresh_frames_average_as_the_verdict_counts_on(seed):
    # The squared error of an average of 9 rounds has at least d = 64 nearly equal squares, one for each coordinate:
    # the mean of 40 of them is as good as a χ² of 40·64/2 degrees of freedom, with half of them to spare for frames.
    # False-failure rate below 1e-6.
    found = plan(64, 100, 3.0, rounds=9)
    rng, mechanism, repeats = np.random.default_rng(seed), found.build(), 40
    ratios = np.empty(repeats)
    for number in range(repeats):
        x = rng.standard_normal(64)
        x /= np.linalg.norm(x)
        total = np.zeros(64)
        for _ in range(9):
            ours = mechanism.with_seed(int(rng.integers(2**63)))
            aggregator = ours.aggregator()
            aggregator.update(ours.encode(np.broadcast_to(x, (100, 64)), rng=rng))
            total += aggregator.mean().value
        ratios[number] = np.sum((total / 9 - x) ** 2) * found.signal_to_noise**2
    freedom = repeats * 64 / 2
    low, high = stats.chi2.ppf([5e-7, 1 - 5e-7], freedom) / freedom
    assert low < ratios.mean() < high


@pytest.mark.parametrize(
    "wish",
    [
        {"dim": 256, "clients": 20_000, "epsilon": 4.0},
        {"dim": 300, "clients": 1000, "epsilon": 3.0},
        {"dim": 25_450, "clients": 100_000, "epsilon": 3.0, "bits": 20},
        {"dim": 25_450, "clients": 100_000, "rounds": 100, "total_epsilon": 8.0, "delta": 1e-6},
        {"dim": 1000, "clients": 5000, "epsilon": 2.0, "coin": "public"},
    ],
)
def test_what_the_documentation_plans_is_feasible(wish):
    verdict = plan(**wish).verdict()
    assert verdict.feasible
    assert verdict.remedies == ()
    assert str(verdict).startswith("feasible: signal-to-noise ")


def test_an_error_that_was_asked_for_is_feasible():
    found = plan(2000, 100, 1.0, target_error=12.0)
    assert found.signal_to_noise < 0.1
    assert found.feasible
    assert found.verdict().remedies == ()


# --- the two tasks that cannot work ---


@pytest.mark.slow
def test_ten_hospitals_are_refused():
    found = plan(**HOSPITALS)
    verdict = found.verdict()
    assert not verdict.feasible
    assert repr(found).endswith("error 721 of clip, infeasible>")
    text = str(verdict)
    assert text.startswith("infeasible: signal-to-noise 0.00139, the mean has an error of 721 × clip; needs ")
    assert "\n" not in text
    # No ε up to 20 is enough, and ten people hide nobody in a shuffler.
    assert [remedy.name for remedy in verdict.remedies] == ["people", "shuffler", "dimensions"]
    assert "534,000 times the people, a shuffler and " in text
    assert text.endswith(" or at most 13 dimensions")


@pytest.mark.slow
def test_a_hundred_rounds_at_a_total_of_eight_are_refused():
    verdict = plan(**ROUNDS).verdict()
    assert str(verdict).startswith(
        "infeasible: signal-to-noise 0.124 over 100 rounds with an error of 80.8 × clip each;"
    )
    assert [remedy.name for remedy in verdict.remedies] == ["people", "epsilon", "shuffler", "dimensions"]
    assert "a total ε of 115 (δ = 1e-06)" in str(verdict)


# --- remedies ---

REFUSED = {
    "rounds": ROUNDS,
    "pure rounds": {"dim": 900, "clients": 50, "rounds": 4, "total_epsilon": 2.0},
    "as many rounds as fit": {"dim": 2000, "clients": 100, "epsilon": 1.0, "total_epsilon": 4.0},
    "one round, capped bits, clip": {"dim": 2000, "clients": 100, "epsilon": 1.0, "bits": 12, "clip": 2.0},
    "public coin": {"dim": 2000, "clients": 100, "epsilon": 1.0, "coin": "public"},
    "alike": {"dim": 100, "clients": 1000, "epsilon": 0.5, "alike": 0.3},
    "a large crowd": {"dim": 3000, "clients": 10**6, "epsilon": 0.1},
    "nearly": {"dim": 784, "clients": 100, "epsilon": 3.3},
    "in cohorts": {"dim": 7850, "clients": 500, "rounds": 60, "total_epsilon": 8.0, "participation": 2},
    "rather in cohorts": {"dim": 7850, "clients": 2000, "rounds": 60, "total_epsilon": 8.0},
    "rather in cohorts, by epsilon": {"dim": 7850, "clients": 2000, "rounds": 60, "epsilon": 0.1},
    "rather with a delta": {"dim": 500, "clients": 5000, "rounds": 400, "total_epsilon": 8.0},
    "rounds, epsilon and delta": {"dim": 784, "clients": 100, "epsilon": 1.0, "rounds": 20, "delta": 1e-5},
}


@pytest.mark.slow
@pytest.mark.parametrize("case", REFUSED)
def test_every_command_of_a_remedy_is_feasible_and_hardly_less_would_be(case):
    found = plan(**REFUSED[case])
    assert not found.feasible
    remedies = found.verdict().remedies
    assert {"people", "dimensions"} <= {remedy.name for remedy in remedies}
    assert REFUSED[case].get("coin") != "public" or "shuffler" not in {remedy.name for remedy in remedies}
    spent = found.total_epsilon_optimal or found.total_epsilon_basic
    allowed = REFUSED[case].get("total_epsilon", spent)
    for remedy in remedies:
        typed, *account = remedy.commands
        assert facts(run(*shlex.split(typed)[1:]))["verdict"].startswith("feasible: "), typed
        if "trust" in remedy.arguments:
            assert "--trust shuffler" in typed
            again = plan(**remedy.arguments)
            # It is within 8 % of what is needed.
            assert 1 <= again.signal_to_noise**2 < 1.08 or again.clients == found.clients
            continue
        repeated = plan(**remedy.arguments)
        assert repeated.signal_to_noise >= 1
        assert training(repeated) == training(found)
        assert remedy.name == "once" or repeated.rounds == found.rounds
        # Of three digits the last is what is needed: one less is not enough.
        if remedy.name == "people":
            fewer = less_by_a_digit(remedy.arguments["clients"])
            assert not plan(**{**remedy.arguments, "clients": fewer}).feasible
        if remedy.name == "epsilon":
            key = "total_epsilon" if "total_epsilon" in remedy.arguments else "epsilon"
            assert not plan(**{**remedy.arguments, key: less_by_a_digit(remedy.arguments[key])}).feasible
        if remedy.name == "dimensions":
            assert not plan(**{**remedy.arguments, "dim": repeated.dim + 1}).feasible
        if remedy.name == "delta":
            assert repeated.total_epsilon_optimal <= allowed
        if remedy.name == "once":
            assert repeated.rounds == 1
            assert repeated.total_epsilon_basic <= allowed
        if remedy.name == "shuffler":
            delta = REFUSED[case].get("delta", 1e-6)
            total = compose(repeated.epsilon, repeated.rounds, delta, clients=repeated.clients)
            assert total <= allowed
            shown = run(*shlex.split(account[0])[1:]).stdout
            line = next(line for line in shown.splitlines() if line.startswith("shuffled, optimal"))
            assert float(line.split("\t")[2]) == pytest.approx(total, rel=1e-5)
        else:
            assert not account


def training(found):
    return found.rounds if found.cohorts is None else found.cohorts.rounds


def less_by_a_digit(number):
    step = 10 ** (math.floor(math.log10(number) + 1e-12) - 2)
    less = float(f"{number - step:.12g}")
    return round(less) if isinstance(number, int) else less


def test_where_a_delta_is_enough_no_shuffler_is_asked_for():
    names = [remedy.name for remedy in plan(**REFUSED["rather with a delta"]).verdict().remedies]
    assert names == ["people", "epsilon", "delta", "once", "dimensions"]


@pytest.mark.slow
@pytest.mark.parametrize("case", ["rather in cohorts", "rather in cohorts, by epsilon"])
def test_one_answer_per_person_is_enough_where_many_are_not(case):
    names = [remedy.name for remedy in plan(**REFUSED[case]).verdict().remedies]
    assert names == ["people", "epsilon", "once", "shuffler", "dimensions"]


def test_in_cohorts_all_rounds_count():
    found = plan(7850, 6000, rounds=60, total_epsilon=8.0, participation="once")
    assert found.signal_to_noise == pytest.approx(math.sqrt(60) / found.relative_error)
    # As good as one round of everybody, up to the number of frames.
    assert found.signal_to_noise == pytest.approx(plan(7850, 6000, 8.0).signal_to_noise, rel=0.05)


@pytest.mark.slow
def test_remedies_hold_for_random_tasks(seed):
    rng = np.random.default_rng(seed)
    refused = 0
    while refused < 4:
        dim, clients = (int(10 ** rng.uniform(1, 5)) for _ in range(2))
        found = plan(dim, clients, float(rng.uniform(0.1, 4)), rounds=int(rng.integers(1, 50)))
        for remedy in found.verdict().remedies:
            assert plan(**remedy.arguments).feasible, remedy
        refused += not found.feasible


def test_clients_without_a_common_direction_have_no_remedy():
    verdict = plan(50, 100, 1.0, alike=0.0).verdict()
    assert verdict == Verdict(False, 0.0, verdict.reason)
    assert str(verdict).endswith("; no single change is enough")


# --- the command ---


@pytest.mark.slow
def test_the_command_refuses_with_the_sentence_and_writes_no_mechanism(tmp_path):
    spec, numbers = tmp_path / "spec.json", tmp_path / "plan.json"
    options = ("plan", "--dim", 300, "--clients", 20, "--epsilon", 2)
    result = run(*options, "--output", spec, "--json", numbers, code=1)
    verdict = plan(300, 20, 2.0).verdict()
    shown = facts(result)
    assert shown["verdict"] == str(verdict)
    assert f"error: {verdict}; pass --target-error " in result.stderr
    assert not spec.exists()
    commands = [command for remedy in verdict.remedies for command in remedy.commands]
    assert commands
    assert set(commands) <= set(shown.values())
    written = json.loads(numbers.read_text())
    assert written["feasible"] is False
    assert written["signal_to_noise"] == verdict.signal_to_noise
    assert [command for remedy in written["remedies"] for command in remedy["commands"]] == commands
    # The error that the refusal names is accepted on request.
    accepted = result.stderr.split("--target-error ")[1].split()[0]
    run(*options, "--target-error", accepted, "--output", spec)
    assert spec.exists()


def test_a_feasible_plan_as_json(tmp_path):
    run("plan", "--dim", 300, "--clients", 1000, "--epsilon", 3, "--json", tmp_path / "plan.json")
    written = json.loads((tmp_path / "plan.json").read_text())
    found = plan(300, 1000, 3.0)
    assert (written["feasible"], written["remedies"], written["error"]) == (True, [], found.error)
    assert written["python"] == found.python()


def test_a_spec_for_an_infeasible_task_warns(tmp_path):
    result = run("spec", "--dim", 300, "--clients", 20, "--epsilon", 2, "-o", tmp_path / "m.json")
    assert "`sstq plan --dim 300 --clients 20 --epsilon 2` shows what would be feasible" in result.stderr
