"""What studies have found, as JSON values: by kind, with intervals of 95 %."""

import csv
import io
from typing import Any

from sstq.service.rendering import LEVEL, as_cell, as_numbers
from sstq.studies import (
    Curve,
    Panel,
    PanelResult,
    RangeResult,
    Study,
    Words,
    WordsResult,
)


def described(study: Study) -> dict[str, Any] | None:
    """Return what is known so far; None if that is nothing yet."""
    if isinstance(study, Words):
        found = _table(study.conclude()) if study.learned else None
        return found and found | {"prefixes": _prefixes(study)}
    return (
        None
        if study.cohorts_left and not isinstance(study, Panel)
        else _table(study.result)
    )


def _prefixes(study: Words) -> list[str]:
    """The beginnings of strings that the next cohort is asked about, as far as they are whole letters."""
    texts = [study.spelling.text(tuple(row)) for row in study.learned[-1]["prefixes"]]
    return [text for text in texts if text is not None]


def _table(found: Any) -> dict[str, Any]:
    """The columns of a result's table, and what it knows besides."""
    if isinstance(found, PanelResult):
        curves = [_curve(*name, curve) for name, curve in found.curves.items()]
        return {"period": found.period, "people": list(found.people), "curves": curves}
    texts = ("word", "column", "class")
    columns = {
        name: list(own) if name in texts else as_numbers(own)
        for name, own in found.columns(LEVEL).items()
    }
    if isinstance(found, WordsResult):
        return columns | {"others": _share(found.others)}
    if isinstance(found, RangeResult):
        more = {"clip": found.clip, "bias": found.bias, "beyond": _share(found.beyond)}
        return columns | more | {"centre": as_numbers(found.centre)}
    if "class" in columns:
        predicted = _share((found.predicted_accuracy, found.accuracy_stderr))
        return columns | {
            "predicted": predicted,
            "majority": found.majority,
            "form": found.form,
            "directions": found.directions,
        }
    return columns


def _share(found: tuple[float, float]) -> dict[str, Any]:
    return dict(zip(("share", "stderr"), as_numbers(found), strict=True))


def _curve(question: str, item: str, curve: Curve) -> dict[str, Any]:
    low, high = curve.band(LEVEL)
    values = {
        "raw": curve.raw,
        "raw_stderr": curve.raw_stderr,
        "value": curve.value,
        "stderr": curve.stderr,
    }
    told = {"question": question, "item": item, "changed": curve.changed}
    return told | {
        name: as_numbers(value)
        for name, value in (values | {"low": low, "high": high}).items()
    }


def table_as_csv(found: dict[str, Any]) -> str:
    """Return the table of a result as CSV; curves one below the other."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    tables = found.get("curves", [found] if found else [])
    for number, table in enumerate(tables):
        size = len(
            next(column for column in table.values() if isinstance(column, list))
        )
        lists = {
            name: own
            for name, own in table.items()
            if isinstance(own, list) and name != "prefixes"
        }
        whole = {name: own for name, own in lists.items() if len(own) == size}
        named = {
            name: [as_cell(own)] * size
            for name, own in table.items()
            if name in ("question", "item")
        }
        if number == 0:
            writer.writerow([*named, *whole])
        for row in zip(*named.values(), *whole.values(), strict=True):
            writer.writerow(
                [as_cell(own) if isinstance(own, str) else own for own in row]
            )
    return text.getvalue()
