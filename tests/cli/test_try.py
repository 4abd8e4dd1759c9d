import csv
import json
import logging
import re
import socket
import time
from dataclasses import replace

import numpy as np
import pytest

import sstq
from sstq.simulation import simulate_people
from tests.contract.cases import build
from tests.people import written

from .test_cli import run

BOUNDS = {"age": [0, 110], "bmi": [10, 60]}


@pytest.fixture
def people(tmp_path, seed):
    rows = np.random.default_rng(seed).normal([62, 27], [9, 3], size=(3000, 2))
    path = tmp_path / "people.csv"
    np.savetxt(path, rows, delimiter=",", header="age,bmi", comments="")
    (tmp_path / "bounds.json").write_text(json.dumps(BOUNDS))
    return path


def test_try_compares_with_the_truth(people):
    """Two z-tests at |z| < 6, false with probability 4e-9."""
    found = run(
        "try", people, "--epsilon", 3, "--bounds", people.with_name("bounds.json")
    )
    table = [line.split("\t") for line in found.stdout.splitlines()]
    assert table[0] == ["column", "estimate", "±", "true"]
    for (name, *numbers), wanted in zip(table[1:], BOUNDS, strict=True):
        value, stderr, true = map(float, numbers)
        assert name == wanted
        assert abs(value - true) < 6.1 * stderr
    assert "predicted" in found.stderr


def test_the_true_mean_is_that_of_the_values_not_of_the_bounds(people):
    """The true mean of the file, and a prediction that has what the bounds move: 3 z-tests at |z| < 6."""
    bounds = people.with_name("narrow.json")
    bounds.write_text('{"age": [0, 65], "bmi": [10, 60]}')
    ages, weights = np.loadtxt(people, delimiter=",", skiprows=1).T
    spec = people.with_name("bounded.json")
    ranges = {"age": (0, 65), "bmi": (10, 60)}
    mechanism = sstq.FrameUnit(2, 3.0, clients=3000, bounds=ranges)
    spec.write_text(mechanism.to_json())
    moved = np.minimum(ages, 65).mean()
    for options in (["--epsilon", 3, "--bounds", bounds], ["--mechanism", spec]):
        found = run("try", people, *options)
        rows = [line.split("\t") for line in found.stdout.splitlines()][1:]
        (_, value, stderr, true), (*_, true_weight) = rows
        assert (true, true_weight) == (f"{ages.mean():.5g}", f"{weights.mean():.5g}")
        assert abs(float(value) - moved) < 6.1 * float(stderr)
        share = np.mean(ages > 65)
        told = f"{100 * share:.2g} % of the values of age are beyond its bounds"
        assert told in found.stderr
        assert f"from {ages.mean():.5g} to {moved:.5g}" in found.stderr
        assert "of bmi" not in found.stderr
        predicted = float(re.search(r"predicted ([\d.]+)", found.stderr)[1])
        assert predicted >= (ages.mean() - moved) / (65 / 2 * 2**0.5)


def test_try_writes_large_errors_as_plain_numbers(tmp_path):
    rows = np.random.default_rng(1).uniform(0, 1e5, size=(500, 1))
    table = tmp_path / "income.csv"
    np.savetxt(table, rows, header="income", comments="")
    bounds = tmp_path / "bounds.json"
    bounds.write_text('{"income": [0, 100000]}')
    stdout = run("try", table, "--epsilon", 3, "--bounds", bounds).stdout
    assert re.search(r"income\t\d+\t\d{3,}\t\d+\n", stdout)


KINDS = {
    "vectors": sstq.SSTQ(2, 4.0),
    "groups": sstq.GroupUnit(2, 4.0, groups=3, clients=2000),
    "categories": sstq.Frequencies(5, 4.0),
    "third party": build("coordinate-sign"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_try_takes_every_mechanism(tmp_path, kind, seed):
    """At most 12 z-tests at |z| < 6 each, false with probability 3e-8; the files hold very few digits."""
    mechanism = KINDS[kind]
    spec = tmp_path / "m.json"
    spec.write_text(mechanism.to_json())
    held = mechanism.input.trial(np.random.default_rng(seed), 2000)
    path, *options = written(tmp_path, held, "parquet")
    found = run("try", path, *options, "--mechanism", spec)
    rows = [line.split("\t") for line in found.stdout.splitlines()][1:]
    assert len(rows) == mechanism.estimate_dim
    for name, *numbers in rows:
        value, stderr, true = map(float, numbers)
        assert abs(value - true) < 6.2 * stderr + 1e-3, name
    assert (
        "--epsilon must be left out"
        in run("try", path, "--mechanism", spec, "--epsilon", 1, code=2).stderr
    )


def test_a_survey_is_compared_item_by_item(tmp_path):
    """A share is off by more than 0.5 with probability below 1e-9: its standard error is below 0.05."""
    survey = sstq.Survey(
        6.0,
        {
            "os": sstq.Choice(["mac", "win"]),
            "age": sstq.Number(0, 100, bins=4),
            "average": sstq.Mean("age"),
            "tools": sstq.MultiChoice(["a", "b"]),
            "place": sstq.Vector(2, clip=2.0),
            "by os": sstq.By("os", "age"),
        },
    )
    spec = tmp_path / "survey.json"
    spec.write_text(survey.to_json())
    rows = ["mac,10,a,1;0", "mac,30,a;b,0;1", "win,80,,", ",,b,1;1"] * 1000
    table = tmp_path / "people.csv"
    table.write_text("\n".join(["os,age,tools,place", *rows]) + "\n")
    whole = tmp_path / "all.csv"
    found = run("try", table, "--mechanism", spec, "--output", whole)
    shown, *_ = found.stdout.splitlines()
    assert shown == "question\titem\testimate\tlow\thigh\ttrue"
    _, *lines = csv.reader(whole.read_text().splitlines())
    true = {
        (name, item): float(f"{float(value):.4g}") for name, item, *_, value in lines
    }
    assert true == {
        ("os", "mac"): 0.6667,
        ("os", "win"): 0.3333,
        ("age", "mean"): 40,
        ("age", "quantile 0.25"): 10,
        ("age", "quantile 0.5"): 30,
        ("age", "quantile 0.75"): 80,
        ("age", "0–25"): 0.3333,
        ("age", "25–50"): 0.3333,
        ("age", "50–75"): 0,
        ("age", "75–100"): 0.3333,
        ("average", "mean"): 40,
        ("tools", "a"): 0.6667,
        ("tools", "b"): 0.6667,
        ("place", "0"): 0.5,
        ("place", "1"): 0.5,
        ("by os", "mac"): 20,
        ("by os", "win"): 80,
    }
    shares = [line for line in lines if line[0] in ("os", "tools")]
    assert all(
        abs(float(value) - float(true)) < 0.5 for *_, value, _, _, true in shares
    )
    assert ["age", "mean", ""] in [line[:3] for line in lines]
    assert "of 17 intervals hold the true value" in found.stderr
    assert "total ε = 6" in found.stderr


def test_intervals_that_miss_are_not_counted(tmp_path):
    survey = sstq.Survey(6.0, {"os": sstq.Choice(["mac", "win"])})
    path = tmp_path / "people.csv"
    path.write_text("os\n" + "mac\n" * 100 + "win\n" * 100)
    trial = simulate_people(survey, survey.input.open(path), rng=1)
    assert trial.held() == (2, 2)
    moved = {("os", "mac"): trial.items()[0][2], ("os", "win"): 2.0}
    assert replace(trial, true_items=moved).held() == (1, 2)


def test_a_survey_that_nobody_answered_has_no_truth(tmp_path):
    survey = sstq.Survey(6.0, {"os": sstq.Choice(["mac", "win"]), "age": sstq.Count(3)})
    spec = tmp_path / "survey.json"
    spec.write_text(survey.to_json())
    table = tmp_path / "people.csv"
    table.write_text("os,age\n" + ",\n" * 40)
    lines = run("try", table, "--mechanism", spec).stdout.splitlines()[1:]
    assert {line.split("\t")[-1] for line in lines} == {"–"}


def test_files_that_need_an_option_name_it(tmp_path, people):
    path = tmp_path / "odd.csv"
    path.write_text("id,a\n1,2\n2,3\n")
    assert (
        "--columns must be given for" in run("try", path, "--epsilon", 3, code=2).stderr
    )
    wrong = tmp_path / "wrong.json"
    wrong.write_text("[1]")
    run("try", people, "--epsilon", 3, "--bounds", wrong, code=2)
    wrong.write_text('{"age": [0, 110], "bmy": [10, 60]}')
    refused = run("try", people, "--epsilon", 3, "--bounds", wrong, code=2).stderr
    assert "--bounds must be columns of" in refused
    assert "got 'bmy'" in refused
    assert "hides next to nothing" in run("try", people, "--epsilon", 30, code=2).stderr
    unknown = run("try", people, "--epsilon", 3, "--name", "sqrk", code=2)
    assert unknown.stderr.startswith("error: --name must be one of")


def test_columns_and_delimiters_are_the_same_for_every_command(tmp_path, seed):
    """The messages of chosen columns are those of the array; the mean of a survey answers as many people."""
    rows = np.random.default_rng(seed).normal(size=(40, 2)).round(3)
    lines = [
        "name,bmi,age,note",
        *(f"p{row},{b},{a},x" for row, (a, b) in enumerate(rows)),
    ]
    path = tmp_path / "people.csv"
    path.write_text("\n".join(lines).replace(",", ";"))
    np.save(tmp_path / "rows.npy", rows)
    mechanism = sstq.SSTQ(dim=2, epsilon=2.0)
    spec = tmp_path / "m.json"
    spec.write_text(mechanism.to_json())
    reading = ("--columns", "age,bmi")
    for name, options in (("people.csv", reading), ("rows.npy", ())):
        run(
            "encode",
            tmp_path / name,
            "-m",
            spec,
            "-o",
            f"{tmp_path / name}.sstq",
            "--seed",
            3,
            *options,
        )
    stored = [
        next(sstq.read_messages(f"{tmp_path / name}.sstq", mechanism))
        for name in ("people.csv", "rows.npy")
    ]
    assert (
        stored[0].to_bytes()
        == stored[1].to_bytes()
        == mechanism.encode(rows, rng=3).to_bytes()
    )
    run("try", path, "--epsilon", 3, *reading)
    run("clip", path, "-m", spec, *reading)
    assert (
        "such as bmi,age"
        in run("encode", path, "-m", spec, "-o", tmp_path / "no.sstq", code=2).stderr
    )


def test_spec_takes_bounds(people, tmp_path):
    output = tmp_path / "m.json"
    bounds = people.with_name("bounds.json")
    run(
        "spec",
        "--dim",
        2,
        "--epsilon",
        3,
        "--name",
        "frameunit",
        "--bounds",
        bounds,
        "-o",
        output,
    )
    assert sstq.from_json(output.read_text()).bounds == (
        ("age", 0.0, 110.0),
        ("bmi", 10.0, 60.0),
    )


@pytest.mark.slow
def test_an_address_without_a_scheme_is_named(people):
    found = run("send", "127.0.0.1:8080/rooms", people, "--most-epsilon", 2, code=2)
    assert "did you mean http://127.0.0.1:8080/rooms?" in found.stderr


@pytest.mark.slow
def test_a_dead_address_is_reported_at_once(caplog):
    from sstq.client import Client

    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    started = time.time()
    with (
        caplog.at_level(logging.WARNING),
        pytest.raises(ValueError, match="no answer from"),
    ):
        Client(f"http://127.0.0.1:{port}/rooms", most_epsilon=1.0, patience=3.0)
    (record,) = caplog.records
    assert re.fullmatch(
        f"no answer from 127.0.0.1:{port}: .*; retrying for 3 seconds",
        record.getMessage(),
    )
    # It is the first thing that happens, and all that follows takes three seconds or more.
    ended = time.time()
    assert record.created - started < (ended - started) / 2


def test_a_long_result_is_cut_and_written_whole(tmp_path):
    np.save(tmp_path / "x.npy", np.full((50, 40), 0.01))
    whole = tmp_path / "all.csv"
    found = run("try", tmp_path / "x.npy", "--epsilon", 3, "--output", whole)
    assert len(found.stdout.splitlines()) == 1 + 12
    assert "28 more rows: write them with --output" in found.stderr
    lines = whole.read_text().splitlines()
    assert (lines[0], len(lines)) == ("column,estimate,stderr,true", 1 + 40)
    again = ("try", tmp_path / "x.npy", "--epsilon", 3, "--output", whole)
    assert "pass --force to overwrite it" in run(*again, code=2).stderr
