"""`sstq train` cut short, in a log, and without what it needs."""

import csv
import os
import signal
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from sstq.accounting import Ledger
from sstq.cli import app, terminal

pytestmark = pytest.mark.slow

TRAINING = ("train", "--dataset", "regression", "--dim", 6, "--clients", 20, "--mechanism", "frameunit")
TRAINING += ("--epsilon", 3, "--rounds", 4)


def run(*arguments):
    """Run the command in this process: to start one takes longer than most of them."""
    terminal._stderr.cache_clear()  # what it knows of colours is that of the environment it was made in
    words = [str(argument) for argument in arguments]
    return CliRunner().invoke(app, words, env={"SSTQ_QUIET": "1"}, prog_name="sstq")


def run_after(prelude, *arguments):
    """Run the command in a process of its own, after a line of Python."""
    code = f"import sys; {prelude}\nfrom sstq.cli import main\nsys.argv = ['sstq', *sys.argv[1:]]\nmain()"
    command = [sys.executable, "-c", code, *map(str, arguments)]
    environment = os.environ | {"SSTQ_QUIET": "1"}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


def total_epsilon(result):
    header, *rows = (line.split("\t") for line in result.stdout.splitlines()[:-1])
    return [float(dict(zip(header, row, strict=True))["total ε"]) for row in rows]


def last_epsilon(path):
    with path.open(newline="") as file:
        return float(list(csv.DictReader(file))[-1]["epsilon"])


KILLED = (
    "import os, signal; from paper.training import rounds; save = rounds.save_state; "
    "rounds.save_state = lambda s, p: save(s, p) if s.round_number < 3 else os.kill(os.getpid(), signal.SIGKILL)"
)


def test_table_csv_and_ledger_agree_after_a_kill_between_charge_and_checkpoint(tmp_path):
    killed = run_after(KILLED, *TRAINING, "--budget", 30, "-o", tmp_path)
    assert killed.returncode == -signal.SIGKILL
    ledger = Ledger(tmp_path / "frameunit" / "ledger.jsonl")
    assert ledger.spent == 9.0
    # Without --budget as well: what was charged is not forgotten.
    done = run(*TRAINING, "-o", tmp_path)
    assert done.exit_code == 0, done.stderr
    # Four rounds, the third of them twice.
    assert ledger.spent == 15.0
    assert total_epsilon(done) == [15.0]
    assert last_epsilon(tmp_path / "rounds.csv") == last_epsilon(tmp_path / "frameunit" / "rounds.csv") == 15.0


def test_what_was_charged_counts_also_when_nothing_is_left(tmp_path):
    run_after(KILLED, *TRAINING, "--budget", 9, "-o", tmp_path)
    done = run(*TRAINING, "--budget", 9, "-o", tmp_path)
    assert "frameunit stops after round 2" in done.stderr
    assert total_epsilon(done) == [9.0]
    assert last_epsilon(tmp_path / "rounds.csv") == 9.0


COHORTS = (*TRAINING, "--participation", "once", "--budget", 3)


def test_cohorts_go_on_after_a_kill_and_nobody_pays_twice(tmp_path):
    killed = run_after(KILLED, *COHORTS, "-o", tmp_path)
    assert killed.returncode == -signal.SIGKILL
    folder = tmp_path / "frameunit" / "ledgers"
    assert [Ledger(path).spent for path in folder.glob("*.jsonl")] == [3.0] * 15  # three cohorts of five have paid
    # Without --budget as well: what was charged is not forgotten.
    done = run(*COHORTS[:-2], "-o", tmp_path)
    assert done.exit_code == 0, done.stderr
    assert [Ledger(path).spent for path in folder.glob("*.jsonl")] == [3.0] * 20
    assert total_epsilon(done) == [3.0]
    with (tmp_path / "rounds.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    # The answers of the third cohort are lost: they were paid for and never arrived.
    assert [row["clients"] for row in rows] == ["0", "5", "5", "0", "5"]
    assert {row["epsilon"] for row in rows[1:]} == {"3.0"}


def test_the_total_of_a_client_is_in_table_and_title(tmp_path):
    prelude = "import paper.plots as p; p.draw_training = lambda *_, title, **__: print(title, file=sys.stderr)"
    done = run_after(prelude, *TRAINING, "--participation", 2, "--adaptive-clip", 0.5, "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    assert total_epsilon(done) == [6.0]
    assert "20 clients in cohorts of 10, each answers 2 times, d = 6" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--participation", "often"), "--participation must be 'once' or an integer"),
        (("--participation", 5), "--participation must be an integer in [1, 4], got 5"),
        (("--clip-epsilon", 1), "--clip-epsilon needs --adaptive-clip"),
        (("--adaptive-clip", 2), "--adaptive-clip must be a number in [0, 1], got 2"),
        (("--adaptive-clip", 0.5, "--clip-epsilon", 3), "--clip-epsilon must be less than --epsilon 3"),
        (("--participation", "once", "--budget", 2), "--budget must be at least"),
    ],
)
def test_wrong_cohorts_are_refused_before_anything_is_written(tmp_path, options, message):
    done = run(*TRAINING, *options, "-o", tmp_path / "run")
    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "run").exists()


def test_a_budget_counts_from_the_first_round(tmp_path):
    run(*TRAINING, "-o", tmp_path)
    refused = run(*TRAINING, "--budget", 30, "-o", tmp_path)
    assert refused.exit_code != 0
    assert "--budget must be given from the first round on" in refused.stderr
    # Nothing has changed: the training can go on as it began.
    assert run(*TRAINING, "-o", tmp_path).exit_code == 0


def test_a_log_has_lines_while_it_trains(tmp_path):
    done = run(*TRAINING, "-o", tmp_path)
    lines = [line for line in done.stderr.splitlines() if line.startswith("frameunit,")]
    assert [line.split(", loss")[0] for line in lines] == [f"frameunit, {25 * n}%: round {n} of 4" for n in range(5)]
    assert "total ε = 6, " in lines[2]


def test_what_is_needed_is_asked_for_before_anything_is_computed(tmp_path):
    done = run_after("sys.modules['matplotlib'] = None", *TRAINING, "-o", tmp_path / "run")
    assert done.returncode == 1
    assert "pip install 'sstq[plots]'" in done.stderr
    assert not (tmp_path / "run").exists()


def test_tables_come_before_pictures(tmp_path):
    broken = "import paper.plots; paper.plots.draw_training = lambda *_, **__: 1 / 0"
    done = run_after(broken, *TRAINING, "-o", tmp_path)
    assert "ZeroDivisionError" in done.stderr
    assert (tmp_path / "rounds.csv").exists()
    assert "frameunit\t4\t" in done.stdout


def test_the_results_of_other_mechanisms_are_not_overwritten(tmp_path):
    both = run(*TRAINING, "--mechanism", "clean", "-o", tmp_path)
    assert both.exit_code == 0, both.stderr
    rows = (tmp_path / "rounds.csv").read_text()
    one = run(*TRAINING, "-o", tmp_path)
    assert one.exit_code == 2
    assert "pass --force" in one.stderr
    assert (tmp_path / "rounds.csv").read_text() == rows
