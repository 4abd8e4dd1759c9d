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
from sstq.inputs.csv_files import csv_rows
from sstq.inputs.vector_tables import IDENTIFIERS
from sstq.mechanisms.survey.mechanism import Survey
from sstq.mechanisms.survey.questions import question_from_dict

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
        header = next(csv_rows(os.fspath(path)), [])
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
