"""Schemas of surveys: files that people edit, and the tables that they describe.

A schema has the questions with their bounds and labels. Guessing one looks at names and types of columns only: bounds
and labels that come from the data would tell something about it.
"""

import os
import re
from typing import Any

from sstq.checks import check_argument
from sstq.files.parquet import MAGIC, open_parquet
from sstq.files.strict_json import read_json
from sstq.inputs.files import IDENTIFIERS, csv_lines
from sstq.inputs.tables import check_header
from sstq.mechanisms.survey.mechanism import Survey
from sstq.mechanisms.survey.questions import MultiChoice, SurveyQuestion, Vector, question_from_dict

FORMAT = "sstq-survey"
_KEYS = {"format", "epsilon", "questions", "weights", "people", "messages"}
# Names that tell numbers, and what they say about low, high and bins; everything else must be filled in.
_UNKNOWN_RANGE = (None, None, 16)
_RANGES: dict[str, tuple[Any, ...]] = {
    "age": (0, 110, 22),
    "percent|share|ratio": (0, 100, 20),
    "rating|stars": (0, 5, 5),
    "hours?": (0, 24, 24),
    "income|salary|price|amount|count|number|score|size|height|weight|duration|time": _UNKNOWN_RANGE,
}


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
        header = next(csv_lines(os.fspath(path)), (1, []))[1]
        if not header or len(set(header)) < len(header):
            raise ValueError(f"{os.fspath(path)} must have a header with distinct names, got {header}")
        kinds = dict.fromkeys(header, "")  # a CSV file has no types: the names alone tell numbers
    questions: dict[str, Any] = {}
    for name, kind in kinds.items():
        words = re.sub(r"[_\W]+", " ", name.lower())
        known = [range_ for rule, range_ in _RANGES.items() if re.search(rf"\b(?:{rule})\b", words)]
        if kind == "number" or (not kind and known):
            ends = zip(("low", "high", "bins"), [*known, _UNKNOWN_RANGE][0], strict=True)
            questions[name] = {"type": "number"} | dict(ends)
        elif kind == "vector":
            questions[name] = {"type": "vector", "dim": None, "clip": 1.0}
        else:
            questions[name] = {"type": kind or "choice", "labels": []}
    asked = {name: question for name, question in questions.items() if name.lower() not in IDENTIFIERS}
    return {"format": FORMAT, "epsilon": epsilon, "people": 100_000, "questions": asked}


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
    table = {}
    for column, question in asked.items():
        place = header.index(column)
        cells = ((line, "".join(fields[place : place + 1])) for line, fields in lines)
        table[column] = [_cell(f"{name}, line {line}: column {column!r}", text, question) for line, text in cells]
    return table


def _cell(where: str, text: str, question: SurveyQuestion) -> Any:
    if not text.strip():
        return None
    try:
        if isinstance(question, MultiChoice | Vector):
            return [question.kind(part) for part in text.split(";")]
        return question.kind(text)
    except ValueError as error:
        kinds = "numbers" if question.kind is float else "integers, as the labels are"
        raise ValueError(f"{where} must have {kinds}, got {text[:40]!r}") from error
