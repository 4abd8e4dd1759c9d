"""Schemas of surveys: files that people edit, and the tables that they describe.

A schema has the questions with their bounds and labels. Guessing one looks at names and types of columns only: bounds
and labels that come from the data would tell something about it.
"""

import os
import re
from typing import Any

from sstq.checks import check_argument
from sstq.files.strict_json import read_json
from sstq.mechanisms.survey.columns import check_header
from sstq.mechanisms.survey.mechanism import Survey
from sstq.mechanisms.survey.questions import Choice, Number, Vector, question_from_dict
from sstq.messages.parquet import MAGIC, open_parquet
from sstq.messages.vectors import IDENTIFIERS, csv_lines

FORMAT = "sstq-survey"
_KEYS = {"format", "epsilon", "questions", "weights", "people", "messages"}
# What names say about ranges; everything else must be filled in.
_RANGES = {
    r"\bage\b": (0, 110, 22),
    r"percent|\bshare\b|\bratio\b": (0, 100, 20),
    r"rating|stars": (0, 5, 5),
    r"\bhour": (0, 24, 24),
}
_NUMBERS = r"age|income|salary|price|amount|count|number|score|size|height|weight|duration|time|hours|percent|rating"


def survey_from_schema(text: str) -> Survey:
    """Make the survey of a schema; ValueError for anything else, and for what is not filled in."""
    data = read_json(text)
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise ValueError(f"format must be {FORMAT!r}, but this JSON is something else")
    if data.keys() - _KEYS or not isinstance(data.get("questions"), dict) or "epsilon" not in data:
        raise ValueError(f"a schema must have epsilon and questions, and nothing unknown, got {', '.join(data)}")
    questions = {}
    for name, entry in data["questions"].items():
        if not isinstance(entry, dict):
            raise ValueError(f"question {name!r} must have a type, got {entry!r}")
        empty = [key for key, value in entry.items() if value is None or value == []]
        if empty:
            raise ValueError(f"question {name!r}: fill in {', '.join(empty)}; they must not come from the data")
        try:
            questions[name] = question_from_dict(entry)
        except ValueError as error:
            raise ValueError(f"question {name!r}: {error}") from error
    options = {key: data[key] for key in ("weights", "people", "messages") if key in data}
    return Survey(data["epsilon"], questions, **options)


def guess_schema(path: str | os.PathLike[str], epsilon: float) -> dict[str, Any]:
    """Guess the schema of a CSV or Parquet file from the names and types of its columns; null and [] are to fill in.

    Columns whose names say that they identify people are left out.
    """
    check_argument("epsilon", epsilon)
    if _is_parquet(path):
        with open(path, "rb") as file, open_parquet(file) as table:
            kinds = {field.name: _kind(field.type) for field in table.schema_arrow}
    else:
        # A CSV file has no types: the names alone tell numbers.
        header = next(csv_lines(os.fspath(path)), (1, []))[1]
        if not header or len(set(header)) < len(header):
            raise ValueError(f"{os.fspath(path)} must have a header with distinct names, got {header}")
        kinds = {name: "number" if re.search(rf"\b(?:{_NUMBERS})\b", _words(name)) else "choice" for name in header}
    questions: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name.lower() in IDENTIFIERS:
            continue
        to_fill: dict[str, Any] = {"labels": []}
        if kind == "number":
            known = (range_ for rule, range_ in _RANGES.items() if re.search(rule, _words(name)))
            to_fill = dict(zip(("low", "high", "bins"), next(known, (None, None, 16)), strict=True))
        elif kind == "vector":
            to_fill = {"dim": None, "clip": 1.0}
        questions[name] = {"type": kind} | to_fill
    return {"format": FORMAT, "epsilon": epsilon, "people": 100_000, "questions": questions}


def _words(name: str) -> str:
    return re.sub(r"[_\W]+", " ", name.lower())


def _is_parquet(path: str | os.PathLike[str]) -> bool:
    with open(path, "rb") as file:
        return file.read(len(MAGIC)) == MAGIC


def _kind(of: Any) -> str:
    """The kind of question for a column of this Arrow type."""
    from pyarrow import types

    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        return "vector" if types.is_floating(of.value_type) else "multichoice"
    return "number" if types.is_floating(of) or types.is_integer(of) else "choice"


def read_table(path: str | os.PathLike[str], survey: Survey) -> dict[str, list[Any]]:
    """Read the columns that a survey asks for, from a CSV or Parquet file.

    In CSV files an empty field is a missing value, several labels are separated by semicolons, and so are the numbers
    of a vector.
    """
    name, asked = os.fspath(path), survey.columns
    if _is_parquet(path):
        with open(path, "rb") as file, open_parquet(file) as table:
            check_header(name, list(asked), table.schema_arrow.names)
            return dict(table.read(columns=list(asked)).to_pydict())
    (_, header), *lines = list(csv_lines(name)) or [(1, [])]
    check_header(name, list(asked), header)
    places = {column: header.index(column) for column in asked}
    return {
        column: [
            _cell(f"{name}, line {line}", fields[place : place + 1], column, asked[column]) for line, fields in lines
        ]
        for column, place in places.items()
    }


def _cell(where: str, field: list[str], name: str, question: Any) -> Any:
    if not "".join(field).strip():
        return None
    try:
        if isinstance(question, Number):
            return float(field[0])
        if isinstance(question, Choice):
            return question.kind(field[0])
        kind = float if isinstance(question, Vector) else question.kind
        return [kind(part) for part in field[0].split(";")]
    except ValueError as error:
        kinds = "numbers" if isinstance(question, Number | Vector) else "integers, as the labels are"
        raise ValueError(f"{where}: column {name!r} must have {kinds}, got {field[0][:40]!r}") from error
