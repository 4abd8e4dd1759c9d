"""Schemas of surveys: files that people edit, and the tables that they describe.

A schema has the questions with their bounds and labels. Guessing one looks at names and types of columns only: bounds
and labels that come from the data would tell something about it.
"""

import csv
import os
import re
from pathlib import Path
from typing import Any

from sstq.checks import check_argument
from sstq.files.strict_json import read_json
from sstq.mechanisms.survey.columns import check_header
from sstq.mechanisms.survey.mechanism import Survey
from sstq.mechanisms.survey.questions import By, MultiChoice, Number, Vector, question_from_dict
from sstq.messages.vectors import IDENTIFIERS

FORMAT = "sstq-survey"
_KEYS = {"format", "epsilon", "questions", "weights", "people", "messages"}
# What people may leave out.
_DEFAULTS: dict[str, dict[str, Any]] = {"number": {"bins": 16}, "vector": {"clip": 1.0}}
# What names say about ranges; everything else must be filled in.
_RANGES = {
    r"\bage\b": (0, 110, 22),
    r"percent|\bshare\b|\bratio\b": (0, 100, 20),
    r"rating|stars": (0, 5, 5),
    r"\bhour": (0, 24, 24),
}
_NUMBERS = r"age|income|salary|price|amount|count|number|score|size|height|weight|duration|time|hours|percent|rating"


def survey_from_schema(text: str) -> Survey:
    """Make the survey of a schema; ValueError for anything else, and for what is not filled in.

    Examples:
        >>> schema = '{"format": "sstq-survey", "epsilon": 2, "questions": {"os": {"type": "choice", "labels": ["a"]}}}'
        >>> survey_from_schema(schema).questions
        {'os': Choice(labels=('a',))}
    """
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
            questions[name] = question_from_dict(_DEFAULTS.get(str(entry.get("type")), {}) | entry)
        except ValueError as error:
            raise ValueError(f"question {name!r}: {error}") from error
    options = {key: data[key] for key in ("weights", "people", "messages") if key in data}
    return Survey(data["epsilon"], questions, **options)


def guess_schema(path: str | os.PathLike[str], epsilon: float) -> dict[str, Any]:
    """Guess the schema of a CSV or Parquet file from the names and types of its columns; null and [] are to fill in.

    Columns whose names say that they identify people are left out.
    """
    check_argument("epsilon", epsilon)
    kinds = _parquet_kinds(path) if _is_parquet(path) else _csv_kinds(path)
    questions: dict[str, Any] = {}
    for name, kind in kinds.items():
        if name.lower() in IDENTIFIERS:
            continue
        words = re.sub(r"[_\W]+", " ", name.lower())
        if kind == "number":
            low, high, bins = next(
                (found for rule, found in _RANGES.items() if re.search(rule, words)), (None, None, 16)
            )
            questions[name] = {"type": "number", "low": low, "high": high, "bins": bins}
        elif kind == "vector":
            questions[name] = {"type": "vector", "dim": None, "clip": 1.0}
        else:
            questions[name] = {"type": "multichoice" if kind == "labels" else "choice", "labels": []}
    return {"format": FORMAT, "epsilon": epsilon, "people": 100_000, "questions": questions}


def _is_parquet(path: str | os.PathLike[str]) -> bool:
    with open(path, "rb") as file:
        return file.read(4) == b"PAR1"


def _csv_kinds(path: str | os.PathLike[str]) -> dict[str, str]:
    """A CSV file has no types: the names alone tell numbers."""
    with open(path, encoding="utf-8-sig", newline="") as file:
        header = next(csv.reader(file), [])
    _refuse_other_marks(path, header)
    if not header or len(set(header)) < len(header):
        raise ValueError(f"{os.fspath(path)} must have a header with distinct names, got {header}")
    rules = re.compile(rf"\b(?:{_NUMBERS})\b")
    return {name: "number" if rules.search(re.sub(r"[_\W]+", " ", name.lower())) else "text" for name in header}


def _refuse_other_marks(path: str | os.PathLike[str], header: list[str]) -> None:
    if len(header) == 1 and re.search(r"[;\t]", header[0]):
        raise ValueError(f"{os.fspath(path)} must have commas between its columns, got {header[0]!r}")


def _parquet_kinds(path: str | os.PathLike[str]) -> dict[str, str]:
    import pyarrow.parquet
    from pyarrow import types

    def kind(of: Any) -> str:
        if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
            return "vector" if types.is_floating(of.value_type) else "labels"
        return "number" if types.is_floating(of) or types.is_integer(of) else "text"

    return {field.name: kind(field.type) for field in pyarrow.parquet.read_schema(path)}


def read_table(path: str | os.PathLike[str], survey: Survey) -> dict[str, list[Any]]:
    """Read the columns that a survey asks for, from a CSV or Parquet file.

    In CSV files an empty field is a missing value, several labels are separated by semicolons, and so are the numbers
    of a vector.
    """
    asked = {name: question for name, question in survey.questions.items() if not isinstance(question, By)}
    if _is_parquet(path):
        import pyarrow.parquet

        table = pyarrow.parquet.read_table(path, columns=None)
        check_header(os.fspath(path), list(asked), table.column_names)
        return {name: table[name].to_pylist() for name in asked}
    with open(path, encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        header = list(reader.fieldnames or ())
        _refuse_other_marks(path, header)
        check_header(os.fspath(path), list(asked), header)
        rows = list(reader)
    return {name: [_cell(row[name], asked[name], Path(path).name, name) for row in rows] for name in asked}


def _cell(text: str | None, question: Any, file: str, name: str) -> Any:
    if text is None or not text.strip():
        return None
    try:
        if isinstance(question, Number):
            return float(text)
        if isinstance(question, Vector):
            return [float(part) for part in text.split(";")]
        kind = type(question.labels[0])
        return [kind(part) for part in text.split(";")] if isinstance(question, MultiChoice) else kind(text)
    except ValueError as error:
        kinds = "numbers" if isinstance(question, Number | Vector) else "integers, as the labels are"
        raise ValueError(f"{file}: column {name!r} must have {kinds}, got {text[:40]!r}") from error
