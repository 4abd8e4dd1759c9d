"""`sstq study`: the state in one file, from a new study to its result; and `sstq try --words`."""

import csv
import json
import re
import shlex
from pathlib import Path

import numpy as np
import pytest

import sstq
from sstq.studies import Range, Words

from .test_cli import run

DRINKS = ["Tea"] * 500 + ["coffee"] * 400 + [""] * 60 + ['"'] * 40


def people(path, values, name="drink"):
    path.write_text("".join(f"{value}\n" for value in [name, *values]))
    return path


def round_of(folder, state, values, number, *options):
    """One cohort: question, answer and learn."""
    asked = folder / f"q{number}.json"
    messages = folder / f"m{number}.sstq"
    run("study", "question", state, "--people", 1000, "--output", asked)
    run(
        "study",
        "answer",
        asked,
        values,
        "--most-epsilon",
        6,
        "--output",
        messages,
        *options,
    )
    return run("study", "learn", state, messages).stderr


@pytest.mark.slow
def test_words_from_a_new_study_to_a_picture(tmp_path):
    state = tmp_path / "words.json"
    table = people(tmp_path / "people.csv", DRINKS)
    run("study", "new", state, "--kind", "words", "--epsilon", 6, "--longest", 6)
    planned = run("study", "plan", state, "--people", 3000).stdout
    assert "letters 1 to 5" in planned
    run("study", "plan", state, "--people", 1, code=1)
    assert "total epsilon per person\t6\n" in planned
    # It is no mechanism, and the error says which command shows it.
    assert (
        "it is the state of a study (sstq study plan"
        in run("inspect", state, code=1).stderr
    )
    assert "there is no result yet" in run("study", "result", state, code=1).stderr
    told = [
        round_of(tmp_path, state, table, number, "--column", "drink")
        for number in range(3)
    ]
    assert "the result is there" in told[-1]
    output = tmp_path / "result.csv"
    picture = tmp_path / "result.png"
    shown = run("study", "result", state, "--output", output, "--plot", picture).stdout
    assert "tea" in shown
    assert "total epsilon per person\t6\n" in shown
    with open(output, newline="") as file:
        rows = {row["word"]: row for row in csv.DictReader(file)}
    assert abs(float(rows["tea"]["share"]) - 0.5) < 6 * float(rows["tea"]["stderr"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    ended = run("study", "plan", state, "--people", 3000, code=1).stderr
    assert "all cohorts have answered: sstq study result" in ended


def test_words_above_longest_are_told(tmp_path):
    state = tmp_path / "words.json"
    table = people(tmp_path / "people.csv", DRINKS)
    run("study", "new", state, "--kind", "words", "--epsilon", 6, "--longest", 5)
    none = tmp_path / "none.sstq"
    assert "sstq study question" in run("study", "learn", state, none, code=1).stderr
    assert "; cohorts left: 1" in round_of(
        tmp_path, state, table, 0, "--column", "drink"
    )
    round_of(tmp_path, state, table, 1, "--column", "drink")
    shown = run("study", "result", state)
    others = int(re.search(r"(\d+)% of the people hold others", shown.stderr)[1])
    assert "coffee" not in shown.output.split()
    assert 25 < others < 65  # 40 % hold coffee, which has six letters


@pytest.mark.slow
def test_ranges_columns_and_panels(tmp_path):
    vectors = tmp_path / "vectors.npy"
    np.save(vectors, np.full((1000, 3), 50.0))
    state = tmp_path / "range.json"
    run("study", "new", state, "--kind", "range", "--epsilon", 6, "--dim", 3)
    for number in range(4):
        told = round_of(tmp_path, state, vectors, number)
    assert "the result is there" in told
    assert "clip" in repr(sstq.studies.Study.from_json(state.read_text()).result)

    state = tmp_path / "columns.json"
    table = people(tmp_path / "ages.csv", [*range(1000)], "age")
    run("study", "new", state, "--kind", "columns", "--epsilon", 6, "--columns", "age")
    for number in (4, 5):
        round_of(tmp_path, state, table, number)
    assert "age" in run("study", "result", state).output

    state = tmp_path / "panel.json"
    schema = tmp_path / "survey.json"
    schema.write_text(
        sstq.Survey(6.0, {"drink": sstq.Choice(["Tea", "coffee"])}).to_json()
    )
    table = people(tmp_path / "drinks.csv", DRINKS)
    run("study", "new", state, "--kind", "panel", "--mechanism", schema, "--periods", 3)
    for number in (6, 7):
        round_of(tmp_path, state, table, number)
    picture = tmp_path / "panel.png"
    assert (
        "coffee"
        in run(
            "study", "result", state, "--plot", picture, "--question", "drink"
        ).output
    )
    assert picture.is_file()
    other = (
        "study",
        "result",
        state,
        "--plot",
        picture,
        "--force",
        "--question",
        "age",
    )
    assert "--question must be 'drink', got 'age'" in run(*other, code=2).stderr


def test_wrong_usage(tmp_path):
    state = tmp_path / "study.json"
    assert (
        "--kind must be"
        in run("study", "new", state, "--kind", "dance", "--epsilon", 1, code=2).stderr
    )
    for options, problem in {
        ("range", "--epsilon", 1): "--dim must be given with --kind range",
        ("panel",): "--mechanism must be given with --kind panel",
        ("words", "--dim", 3): "--dim must be left out with --kind words",
        ("words",): "--epsilon must be given with --kind words",
    }.items():
        assert problem in run("study", "new", state, "--kind", *options, code=2).stderr
    assert (
        "--epsilon must be"
        in run("study", "new", state, "--kind", "words", "--epsilon", 99, code=2).stderr
    )
    run("study", "new", state, "--kind", "words", "--epsilon", 2, "--longest", 3)
    run("study", "new", state, "--kind", "words", "--epsilon", 2, code=2)
    asked = tmp_path / "q.json"
    table = people(tmp_path / "people.csv", DRINKS)
    run("study", "question", state, "--people", 10, "--output", asked)
    again = tmp_path / "again.json"
    run("study", "question", state, "--people", 10, "--output", again)
    assert again.read_text() == asked.read_text()
    answer = (
        "study",
        "answer",
        asked,
        table,
        "--output",
        tmp_path / "m.sstq",
        "--column",
        "drink",
    )
    assert (
        "--most-epsilon must be at least 2.0, got 1.0"
        in run(*answer, "--most-epsilon", 1, code=2).stderr
    )
    other = run(
        "study", "question", state, "--people", 11, "-o", tmp_path / "o", code=2
    )
    assert "--people must be 10, for whom the question is" in other.stderr
    no_question = run(
        "study",
        "answer",
        table,
        table,
        "--most-epsilon",
        2,
        "-o",
        tmp_path / "o",
        code=1,
    )
    assert (
        "people.csv must be the question of a study (sstq study question)"
        in no_question.stderr
    )
    asked.write_text(json.dumps(json.loads(asked.read_text()) | {"step": 9}))
    run(*answer, "--most-epsilon", 2, code=1)
    state.write_text("{}")
    assert (
        "study.json must be the file of a study (sstq study new): the JSON must be of format"
        in run("study", "plan", state, "--people", 9, code=1).stderr
    )


@pytest.mark.parametrize(
    "study",
    [Words(4.0, longest=3), Range(dim=1, epsilon=4.0), Range(columns=["a"], epsilon=4)],
)
def test_the_state_of_a_study_whose_facts_were_changed(study, tmp_path):
    while study.cohorts_left:
        study.question(20)
        study.learn(study.asked.encode_each(["tea"] * 20, 1))
    file = tmp_path / "study.json"
    file.write_text(study.to_json())
    run("study", "result", file)
    for change in ({"people": None}, {"ends": {"a": 1}, "beyond": 1}):
        changed = json.loads(study.to_json())
        changed["learned"][-1] |= change
        if change.keys() <= study.learned[-1].keys():
            file.write_text(json.dumps(changed))
            problem = run("study", "result", file, code=1).stderr
            assert "must be the file of a study" in problem
            assert "what it has learned is damaged" in problem


def _question(folder):
    state = folder / "words.json"
    asked = folder / "question.json"
    run("study", "new", state, "--kind", "words", "--epsilon", 6)
    run("study", "question", state, "--people", 9, "--output", asked)
    return asked


def test_the_only_column_of_a_file_needs_no_name(tmp_path):
    table = people(tmp_path / "people.csv", DRINKS)
    two = tmp_path / "two.csv"
    two.write_text("drink,city\ntea,Bern\n")
    answering = ("study", "answer", _question(tmp_path), "--most-epsilon", 6)
    run(*answering, table, "-o", tmp_path / "messages")
    assert (tmp_path / "messages").exists()
    refused = run(*answering, two, "-o", tmp_path / "others", code=2).stderr
    assert "--column must be given: one of drink, city" in refused


def test_try_words(tmp_path):
    table = people(tmp_path / "people.csv", DRINKS * 10)
    output = run("try", table, "--epsilon", 6, "--words", "drink").output
    assert "tea" in output
    assert "50.00%" in output
    assert "total ε = 6" in output
    shorter = run(
        "try", table, "--epsilon", 6, "--words", "drink", "--longest", 4
    ).stdout
    assert ("tea" in shorter, "coffee" in shorter) == (True, False)
    for option, value in {"--clip": 2, "--columns": "drink", "--name": "sstq"}.items():
        refused = run(
            "try", table, "--epsilon", 6, "--words", "drink", option, value, code=2
        )
        assert f"{option} must be left out with --words" in refused.stderr
    refused = run("try", table, "--epsilon", 6, "--longest", 4, code=2).stderr
    assert "--longest must be left out without --mechanism and --words" in refused
    assert (
        "--words must be one of drink, got 'city'"
        in run("try", table, "--epsilon", 6, "--words", "city", code=2).stderr
    )


def test_the_commands_of_the_page(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "studies.md").read_text(
        encoding="utf-8"
    )
    monkeypatch.chdir(tmp_path)
    people(tmp_path / "first.csv", ["tea"] * 23_500)
    lines = page.split("```sh\n")[1].split("```")[0].splitlines()
    told = [run(*shlex.split(line, comments=True)[1:]).stderr for line in lines]
    assert told[-1].strip() == "learned from 23,500 people; cohorts left: 1"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (
            ("columns", "--epsilon", 3, "--columns", "a,a"),
            "--columns must be different",
        ),
        (
            ("panel", "--mechanism", "M", "--period", ""),
            "--period must be a name of up",
        ),
    ],
)
def test_what_a_study_refuses_is_named_as_it_was_typed(tmp_path, options, said):
    (tmp_path / "M").write_text(sstq.Frequencies(3, 2.0).to_json())
    given = [tmp_path / "M" if part == "M" else part for part in options]
    new = run("study", "new", tmp_path / "new.json", "--kind", *given, code=2)
    assert said in new.stderr
