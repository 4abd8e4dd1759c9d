"""`sstq survey`, and how other commands take a survey."""

import csv
import json

import sstq

from .test_cli import run


def test_from_a_table_to_results(tmp_path):
    table = tmp_path / "people.csv"
    schema = tmp_path / "survey.json"
    rows = [["country", "age"], *([["AT", 30], ["DE", 50], ["", ""]] * 400)]
    table.write_text("".join(f"{country},{age}\n" for country, age in rows))
    told = run("survey", "init", table, "--epsilon", 4, "--output", schema).stderr
    assert "must not come from the data" in told
    data = json.loads(schema.read_text())
    # What it says about means can be pasted.
    data["questions"] |= json.loads("{" + told.rpartition("such as ")[2].strip() + "}")
    assert "AT" not in schema.read_text()
    # Labels that nobody filled in are refused by every command.
    run("inspect", schema, code=1)
    data["questions"]["country"]["labels"] = ["AT", "DE"]
    schema.write_text(json.dumps(data))
    run("inspect", schema)
    messages = tmp_path / "messages.sstq"
    results = tmp_path / "results"
    run("encode", table, "-m", schema, "-o", messages, "--seed", 1)
    output = run("aggregate", messages, "-m", schema, "-o", results).output
    # Every question is shown, and nothing that only vectors have; bins are in the file.
    assert "country\tDE\t" in output
    assert "age\tquantile 0.75\t" in output
    assert "age\t0–5\t" not in output
    assert "norm" not in output
    with open(results / "survey.csv", newline="") as file:
        found = {(row["question"], row["item"]): row for row in csv.DictReader(file)}
    for item, truth in (("AT", 0.5), ("DE", 0.5)):
        row = found["country", item]
        assert abs(float(row["estimate"]) - truth) < 6 * float(row["stderr"])
    mean = found["mean age", "mean"]
    assert abs(float(mean["estimate"]) - 40) < 6 * float(mean["stderr"])
    # The mean of bins is an interval, and no one number.
    assert (found["age", "mean"]["estimate"], found["age", "mean"]["status"]) == (
        "",
        "interval only",
    )
    low, high = (float(found["age", "mean"][name]) for name in ("low", "high"))
    width = high - low
    assert low - width < 40 < high + width
    run("survey", "plan", schema, "--clients", 100_000)
    run("survey", "plan", schema, "--clients", 20, code=1)


def test_what_is_no_schema(tmp_path):
    table = tmp_path / "people.csv"
    schema = tmp_path / "survey.json"
    table.write_text("id,country\n1,AT\n")
    refused = run("survey", "init", table, "--epsilon", 200, "--output", schema, code=2)
    assert ("--epsilon must be a number" in refused.stderr, schema.exists()) == (
        True,
        False,
    )
    run("survey", "init", table, "--epsilon", 2, "--output", schema)
    assert list(json.loads(schema.read_text())["questions"]) == ["country"]
    table.write_text("id;country\n1;AT\n")
    run("survey", "init", table, "--epsilon", 2, "--output", tmp_path / "other.json")
    assert (tmp_path / "other.json").read_text() == schema.read_text()


def test_errors_name_the_question_and_the_table(tmp_path):
    table = tmp_path / "people.csv"
    schema = tmp_path / "survey.json"
    number = {"type": "number", "low": 9, "high": 1}
    schema.write_text(
        json.dumps(
            {"format": "sstq-survey", "epsilon": 4, "questions": {"age": number}}
        )
    )
    assert (
        "question 'age': low must be below high"
        in run("inspect", schema, code=1).stderr
    )
    schema.write_text(
        json.dumps(
            {
                "format": "sstq-survey",
                "epsilon": 4,
                "questions": {"age": number | {"low": 0}},
            }
        )
    )
    table.write_text("age\nold\n")
    refused = run(
        "encode", table, "-m", schema, "-o", tmp_path / "messages.sstq", code=1
    )
    assert "column 'age' must be numbers, got 'old' in row 0" in refused.stderr


def test_a_question_that_nobody_answered(tmp_path):
    table = tmp_path / "people.csv"
    schema = tmp_path / "survey.json"
    messages = tmp_path / "messages.sstq"
    table.write_text("country,age\n" + "AT,30\n" * 400)
    number = {"type": "number", "low": 0, "high": 110, "bins": 4}
    questions = {"country": {"type": "choice", "labels": ["AT", "DE"]}, "age": number}
    weights = {"country": 1_000_000, "age": 1}
    schema.write_text(
        json.dumps(
            {
                "format": "sstq-survey",
                "epsilon": 4,
                "questions": questions,
                "weights": weights,
            }
        )
    )
    run("encode", table, "-m", schema, "-o", messages, "--seed", 1)
    run("aggregate", messages, "-m", schema, "-o", tmp_path / "results")
    with open(tmp_path / "results" / "survey.csv", newline="") as file:
        found = {(row["question"], row["item"]): row for row in csv.DictReader(file)}
    # Everybody drew the other question.
    assert float(found["country", "AT"]["stderr"]) < 0.05
    assert found["age", "mean"]["estimate"] == found["age", "0–27.5"]["estimate"] == ""
    assert (
        found["age", "mean"]["status"]
        == found["age", "0–27.5"]["status"]
        == "too few answers"
    )
    middle = found["age", "quantile 0.5"]
    assert (middle["estimate"], middle["low"], middle["high"]) == ("", "0.0", "110.0")


def test_other_mechanisms_are_no_surveys(tmp_path):
    spec = tmp_path / "m.json"
    run("spec", "--name", "vqsgd", "--dim", 3, "--epsilon", 1, "--output", spec)
    refused = run("survey", "plan", spec, "--clients", 10, code=2).stderr
    assert f"{spec.name}: format must be 'sstq-survey'" in refused.replace("\n", "")


def test_frequencies_have_categories_instead_of_vectors(tmp_path):
    spec = tmp_path / "m.json"
    run(
        "spec",
        "--name",
        "frequencies",
        "--set",
        "categories=10",
        "--epsilon",
        2,
        "--output",
        spec,
    )
    assert sstq.from_json(spec.read_text()) == sstq.Frequencies(10, 2.0)
    for name, words in (
        ("survey", "survey needs questions"),
        ("frameunit", "pass --dim"),
    ):
        assert (
            words
            in run(
                "spec",
                "--name",
                name,
                "--epsilon",
                2,
                "--output",
                tmp_path / "no.json",
                code=2,
            ).stderr
        )
