"""`sstq survey`, and how other commands take a survey."""

import csv
import json

from typer.testing import CliRunner

import sstq
from sstq.cli import app


def run(*arguments):
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    return result.exit_code, result.output


def test_from_a_table_to_results(tmp_path):
    table, schema = tmp_path / "people.csv", tmp_path / "survey.json"
    rows = [["country", "age"], *([["AT", 30], ["DE", 50], ["", ""]] * 400)]
    table.write_text("".join(f"{country},{age}\n" for country, age in rows))
    code, output = run("survey", "init", table, "--epsilon", 4, "--output", schema)
    assert code == 0
    assert "must not come from the data" in output
    data = json.loads(schema.read_text())
    assert "AT" not in schema.read_text()
    # Labels that nobody filled in are refused by every command.
    assert run("inspect", schema)[0] == 1
    data["questions"]["country"]["labels"] = ["AT", "DE"]
    schema.write_text(json.dumps(data))
    assert run("inspect", schema)[0] == 0
    messages, results = tmp_path / "messages.sstq", tmp_path / "results"
    assert run("encode", table, "-m", schema, "-o", messages, "--seed", 1)[0] == 0
    code, output = run("aggregate", messages, "-m", schema, "-o", results)
    assert code == 0
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
    estimate, low, high = (float(found["age", "mean"][name]) for name in ("estimate", "low", "high"))
    assert abs(estimate - 40) < 1.5 * (high - low)  # six standard errors
    assert run("survey", "plan", schema, "--clients", 100_000)[0] == 0
    assert run("survey", "plan", schema, "--clients", 20)[0] == 1


def test_what_is_no_schema(tmp_path):
    table, schema = tmp_path / "people.csv", tmp_path / "survey.json"
    table.write_text("id,country\n1,AT\n")
    code, output = run("survey", "init", table, "--epsilon", 200, "--output", schema)
    assert (code, "--epsilon must be a number" in output, schema.exists()) == (2, True, False)
    assert run("survey", "init", table, "--epsilon", 2, "--output", schema)[0] == 0
    assert list(json.loads(schema.read_text())["questions"]) == ["country"]
    table.write_text("id;country\n1;AT\n")
    assert run("survey", "init", table, "--epsilon", 2, "--output", tmp_path / "other.json")[0] == 0
    assert (tmp_path / "other.json").read_text() == schema.read_text()


def test_errors_name_the_question_and_the_table(tmp_path):
    table, schema = tmp_path / "people.csv", tmp_path / "survey.json"
    number = {"type": "number", "low": 9, "high": 1}
    schema.write_text(json.dumps({"format": "sstq-survey", "epsilon": 4, "questions": {"age": number}}))
    code, output = run("inspect", schema)
    assert (code, "question 'age': low must be below high" in output) == (1, True)
    schema.write_text(json.dumps({"format": "sstq-survey", "epsilon": 4, "questions": {"age": number | {"low": 0}}}))
    table.write_text("age\nold\n")
    code, output = run("encode", table, "-m", schema, "-o", tmp_path / "messages.sstq")
    assert (code, "column 'age' must have numbers, got 'old'" in output) == (1, True)


def test_a_question_that_nobody_answered(tmp_path):
    table, schema, messages = tmp_path / "people.csv", tmp_path / "survey.json", tmp_path / "messages.sstq"
    table.write_text("country,age\nAT,30\n")
    number = {"type": "number", "low": 0, "high": 110, "bins": 4}
    questions = {"country": {"type": "choice", "labels": ["AT", "DE"]}, "age": number}
    schema.write_text(json.dumps({"format": "sstq-survey", "epsilon": 4, "questions": questions}))
    assert run("encode", table, "-m", schema, "-o", messages)[0] == 0
    code, output = run("aggregate", messages, "-m", schema, "-o", tmp_path / "results")
    assert code == 0, output


def test_other_mechanisms_are_no_surveys(tmp_path):
    spec = tmp_path / "m.json"
    assert run("spec", "--name", "vqsgd", "--dim", 3, "--epsilon", 1, "--output", spec)[0] == 0
    assert run("survey", "plan", spec, "--clients", 10)[0] == 2


def test_frequencies_have_categories_instead_of_vectors(tmp_path):
    spec = tmp_path / "m.json"
    assert run("spec", "--name", "frequencies", "--set", "categories=10", "--epsilon", 2, "--output", spec)[0] == 0
    assert sstq.from_json(spec.read_text()) == sstq.Frequencies(10, 2.0)
    for name, words in (("survey", "sstq survey init"), ("frameunit", "pass --dim")):
        code, output = run("spec", "--name", name, "--epsilon", 2, "--output", tmp_path / "other.json")
        assert (code, words in output) == (2, True)
