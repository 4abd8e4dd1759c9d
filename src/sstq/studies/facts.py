"""Estimates as JSON values, so that what a cohort told survives a restart bit for bit."""

import math
from dataclasses import fields
from typing import Any, TypeVar

import numpy as np

from sstq.aggregation import Estimate
from sstq.files.strict_json import JsonObject

Kind = TypeVar("Kind", bound=Estimate)


def estimate_to_dict(estimate: Estimate) -> JsonObject:
    """The fields of an estimate of unnamed coordinates; None for what is not known."""
    values: JsonObject = as_json(
        {
            field.name: getattr(estimate, field.name)
            for field in fields(estimate)
            if field.name != "names"
        }
    )
    return values


def estimate_from_dict(kind: type[Kind], facts: JsonObject) -> Kind:
    """The estimate of this kind, from its fields among others."""
    arguments: dict[str, Any] = {}
    for field in fields(kind):
        if field.name in facts:
            value = facts[field.name]
            is_array = isinstance(value, list)
            arguments[field.name] = np.array(value, float) if is_array else value
    return kind(**arguments)


def as_json(value: Any) -> Any:
    """A value as JSON has it: arrays as lists, booleans as integers, None for a number that is not finite."""
    if isinstance(value, dict):
        return {name: as_json(one) for name, one in value.items()}
    if isinstance(value, np.ndarray):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [as_json(one) for one in value]
    if isinstance(value, bool):
        return int(value)
    return None if isinstance(value, float) and not math.isfinite(value) else value
