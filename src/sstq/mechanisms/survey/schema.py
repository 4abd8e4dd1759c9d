"""Schemas of surveys: files that people edit, and the tables that they describe.

A schema has the questions with their bounds and labels. Guessing one looks at names and types of columns only: bounds
and labels that come from the data would tell something about it.
"""

import os
import re
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

from sstq.checks import check_argument
from sstq.files.parquet import open_parquet
from sstq.files.strict_json import read_json
from sstq.inputs.csv_files import csv_rows, number_in
from sstq.inputs.people import file_kind
from sstq.inputs.vector_tables import IDENTIFIERS
from sstq.mechanisms.survey.question import Question
from sstq.mechanisms.survey.questions import question_from_dict

FORMAT = "sstq-survey"
_KEYS = {"$schema", "format", "epsilon", "questions", "weights", "people", "messages"}
# Names that tell numbers, and what they say about low, high and bins; everything else must be filled in.
_LINES_TRIED = 1000
_UNKNOWN_RANGE = (None, None, 16)
_RANGES: dict[str, tuple[Any, ...]] = {
    "age": (0, 110, 22),
    "percent|share|ratio": (0, 100, 20),
    "rating|stars": (0, 5, 5),
    "hours?": (0, 24, 24),
    "income|salary|price|amount|count|number|score|size|height|weight|duration|time": _UNKNOWN_RANGE,
}


def survey_options(schema: Any) -> dict[str, Any]:
    """Return the arguments of `Survey` that a schema has; ValueError for what is not filled in, and anything else."""
    data = schema
    if not isinstance(schema, Mapping):
        data = read_json(Path(schema).read_text(encoding="utf-8"))
    if not isinstance(data, Mapping) or data.get("format") != FORMAT:
        place = "" if isinstance(schema, Mapping) else f"{schema}: "
        raise ValueError(
            f"{place}format must be {FORMAT!r}, but this JSON is something else"
        )
    if (
        data.keys() - _KEYS
        or not isinstance(data.get("questions"), Mapping)
        or "epsilon" not in data
    ):
        raise ValueError(
            f"a schema must have epsilon and questions, and nothing unknown, got {', '.join(data)}"
        )
    questions = {
        name: _question(name, entry) for name, entry in data["questions"].items()
    }
    options = {
        key: data[key]
        for key in ("epsilon", "weights", "people", "messages")
        if key in data
    }
    return options | {"questions": questions}


def _question(name: str, entry: Any) -> Question:
    if not isinstance(entry, Mapping):
        raise ValueError(f"question {name!r} must have a type, got {entry!r}")
    empty = [key for key, value in entry.items() if value is None or value == []]
    if empty:
        raise ValueError(
            f"question {name!r}: fill in {', '.join(empty)}; they must not come from the data"
        )
    try:
        return question_from_dict(dict(entry))
    except ValueError as error:
        raise ValueError(f"question {name!r}: {error}") from error


def guess_schema(path: str | os.PathLike[str], epsilon: float) -> dict[str, Any]:
    """Guess the schema of a CSV or Parquet file from the names and types of its columns; null and [] are to fill in.

    Columns whose names say that they identify people or number the rows are left out.
    """
    check_argument("epsilon", epsilon)
    name = os.fspath(path)
    is_parquet = file_kind(name) == "parquet"
    kinds = _kinds_of_parquet(name) if is_parquet else _kinds_of_csv(name)
    asked = {name: kind for name, kind in kinds.items() if not is_identifier(name)}
    questions = {column: _guessed(column, kind) for column, kind in asked.items()}
    return {
        "format": FORMAT,
        "epsilon": epsilon,
        "people": 100_000,
        "questions": questions,
    }


def is_identifier(name: str) -> bool:
    """Whether a column's name says that it identifies people or numbers the rows.

    Examples:
        >>> [name for name in ("", "Unnamed: 0", "user_id", "customerId", "paid", "age") if is_identifier(name)]
        ['', 'Unnamed: 0', 'user_id', 'customerId']
    """
    plain = name.strip().lower()
    return (
        plain in IDENTIFIERS
        or re.search(r"(?:^|[\W_])(?:id|uuid|guid)$|[a-z]I[dD]$", name.strip())
        is not None
        or (
            re.fullmatch(
                r"|index|unnamed: ?\d+|__index_level_\d+__|rownames?|row", plain
            )
            is not None
        )
    )


def _kinds_of_parquet(name: str) -> dict[str, str]:
    with open_parquet(name) as table:
        return {field.name: _kind(field.type) for field in table.schema_arrow}


def _kinds_of_csv(name: str) -> dict[str, str]:
    """Columns in which the first lines have numbers only are of numbers, whatever these are."""
    rows = csv_rows(name)
    header = next(rows, [])
    if not header or len(set(header)) < len(header):
        raise ValueError(f"{name} must have a header with distinct names, got {header}")
    first = list(islice(rows, _LINES_TRIED))
    kinds = {}
    for place, column in enumerate(header):
        given = [fields[place] for fields in first if fields[place].strip()]
        is_number = bool(given) and all(number_in(field) is not None for field in given)
        kinds[column] = (
            "number" if is_number or (not given and _known_range(column)) else "choice"
        )
    return kinds


def _known_range(name: str) -> tuple[Any, ...]:
    """What a column's name says about low, high and bins; empty if nothing."""
    words = re.sub(r"[_\W]+", " ", name.lower())
    return next(
        (
            ends
            for rule, ends in _RANGES.items()
            if re.search(rf"\b(?:{rule})\b", words)
        ),
        (),
    )


def _guessed(name: str, kind: str) -> dict[str, Any]:
    if kind == "number":
        ends = _known_range(name) or _UNKNOWN_RANGE
        return {"type": "number"} | dict(
            zip(("low", "high", "bins"), ends, strict=True)
        )
    if kind == "vector":
        return {"type": "vector", "dim": None, "clip": 1.0}
    return {"type": kind, "labels": []}


def _kind(of: Any) -> str:
    """The kind of question for a column of this Arrow type."""
    from pyarrow import types

    if types.is_list(of) or types.is_large_list(of) or types.is_fixed_size_list(of):
        return "vector" if types.is_floating(of.value_type) else "multichoice"
    return "number" if types.is_floating(of) or types.is_integer(of) else "choice"
