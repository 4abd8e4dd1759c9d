"""`sstq train --trust shuffler`."""

import csv

import pytest

import sstq
from sstq.accounting import shuffled_epsilon

from .test_train_command import run

TRAINING = ("train", "--dataset", "digits", "--model", "logistic", "--clients", 600, "--batch", 2, "--clip", 1)
TRAINING += ("--rounds", 6, "--participation", 3, "--trust", "shuffler", "--epsilon", 4, "--delta", 1e-5)


@pytest.mark.slow
def test_the_total_and_what_is_left_of_it_stand_beside_the_accuracy(tmp_path):
    done = run(*TRAINING, "--messages", 2, "--noise-seed", 1, "-o", tmp_path)
    assert done.exit_code == 0, done.stderr
    header, row = (line.split("\t") for line in done.stdout.splitlines()[:2])
    shown = dict(zip(header, row, strict=True))
    mechanism = sstq.from_json((tmp_path / "frameunit" / "mechanism.json").read_text())
    assert (mechanism.messages, mechanism.clip) == (2, 1.0)
    # Each of 600 answers in three of six rounds of 300.
    spent = shuffled_epsilon(mechanism, 300, 1e-5, rounds=3)
    assert 3.96 < spent <= 4
    assert float(shown["total ε"]) == pytest.approx(spent, rel=1e-5)
    assert float(shown["total δ"]) == 1e-5
    assert float(shown["local ε if the shuffler cheats"]) == pytest.approx(6 * mechanism.epsilon, rel=1e-3)
    assert int(shown["bits per answer"]) == 2 * mechanism.message_bits
    with (tmp_path / "rounds.csv").open(newline="") as file:
        last = list(csv.DictReader(file))[-1]
    assert float(last["epsilon"]) == spent
    assert float(last["delta"]) == 1e-5
    assert float(last["local_epsilon"]) == pytest.approx(6 * mechanism.epsilon)
    assert "if the shuffler cheats)" in done.stderr
    again = run(*TRAINING, "--messages", 2, "--noise-seed", 1, "-o", tmp_path)
    assert again.stdout.splitlines()[1].split("\t")[:7] == row[:7]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--mechanism", "clean"), "--mechanism must be frameunit without arguments with --trust shuffler"),
        (("--mechanism", "frameunit:frames=8"), "--mechanism must be frameunit without arguments"),
        (("--budget", 4), "--budget cannot be combined with --trust shuffler"),
        (("--adaptive-clip", 0.5), "--adaptive-clip cannot be combined with --trust shuffler"),
        (("--engine", "ray"), "--engine cannot be combined with --trust shuffler"),
        (("--delta", 0), "--delta must be"),
        (("--messages", 0), "--messages must be"),
        (("--trust", "server"), "--trust must be"),
        (("--trust", "local"), "--delta needs --trust shuffler"),
    ],
)
@pytest.mark.slow
def test_what_does_not_go_with_a_shuffler_is_refused(tmp_path, options, message):
    done = run(*TRAINING, *options, "-o", tmp_path / "run")
    assert done.exit_code == 2, done.stderr
    assert message in done.stderr
    assert not (tmp_path / "run").exists()
