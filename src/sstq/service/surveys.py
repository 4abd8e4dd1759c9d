"""The results of a survey as JSON values and as CSV, question by question, in the units of the columns."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from sstq.mechanisms.survey.estimates import NumberEstimate, QuestionEstimate, SurveyEstimate
from sstq.mechanisms.survey.mechanism import Survey

__all__ = ["HEADER", "csv_rows", "describe_questions"]

HEADER = ["question", "item", "estimate", "stderr", "low", "high"]
"""The columns of CSV, which are those of `SurveyEstimate.to_frame`."""

_QUARTILES = (0.25, 0.5, 0.75)


def describe_questions(survey: Survey, estimate: SurveyEstimate, level: float) -> list[dict[str, Any]]:
    """Return one object per question; intervals hold for all items of a question at once with this probability."""
    asked = survey.questions
    return [_described(asked[name].type, found, level) for name, found in estimate.results.items()]


def _described(kind: str, found: QuestionEstimate, level: float) -> dict[str, Any]:
    low, high = found.interval(level)
    known: dict[str, Any] = {"name": found.name, "type": kind, "count": found.count, "over": found.over}
    known |= {"answered": _known(found.answered[0]), "items": list(found.items), "limits": _all(found.limits)}
    known |= {"estimate": _all(found.estimate), "stderr": _all(found.stderr), "low": _all(low), "high": _all(high)}
    if not isinstance(found, NumberEstimate):
        return known
    quantiles = [{"share": share, **_interval(found.quantile(share, level))} for share in _QUARTILES]
    mean = _interval(found.mean(level)) | {"stderr": _known(found.centre[1])}
    return known | {"edges": _all(found.edges), "mean": mean, "quantiles": quantiles}


def _interval(found: Any) -> dict[str, float | None]:
    return {"value": _known(found.value), "low": _known(found.low), "high": _known(found.high)}


def _all(values: Any) -> list[float | None]:
    return [_known(value) for value in values]


def _known(value: float) -> float | None:
    """A number, or None for one that JSON does not have."""
    return float(value) if math.isfinite(value) else None


def csv_rows(questions: list[dict[str, Any]]) -> Iterator[list[Any]]:
    """Yield the rows of all questions: of a number its mean and quartiles first."""
    for found in questions:
        name = found["name"]
        if "mean" in found:
            mean = found["mean"]
            yield [name, "mean", mean["value"], mean["stderr"], mean["low"], mean["high"]]
            for each in found["quantiles"]:
                yield [name, f"quantile {each['share']:g}", each["value"], None, each["low"], each["high"]]
        columns = (found[column] for column in ("items", "estimate", "stderr", "low", "high"))
        yield from ([name, *row] for row in zip(*columns, strict=True))
