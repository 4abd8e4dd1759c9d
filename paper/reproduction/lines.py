"""Lines of the tables: our number with its interval, the paper's, and whether they agree."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from paper.reproduction.jobs import Job
from paper.reproduction.printed import PaperNumber

__all__ = ["AGREES", "DIFFERS", "NOT_COMPARED", "Line", "Results", "Section", "interval", "judge"]

AGREES, DIFFERS, NOT_COMPARED = "agrees", "differs", "not compared"

Results = Mapping[Job, Mapping[str, Any]]
"""The results of jobs."""


@dataclass(frozen=True)
class Line:
    """One of our numbers compared with the paper's.

    Attributes:
        setting: the setting within the experiment.
        method: a key of `METHODS`.
        label: the method's label.
        ours: the mean over seeds.
        half_width: half the 95 % interval of that mean; nan for one seed, 0 for exact numbers.
        seeds: the number of seeds.
        compared: the number compared with the paper's, in its units: `ours`, unless the start matters (see remark).
        paper: the paper's number, if it prints one.
        verdict: "agrees", "differs", "not compared", or empty without a number of the paper's.
        remark: why they differ, or what else is worth knowing.
        unit: the unit of the numbers, for people.
    """

    setting: str
    method: str
    label: str
    ours: float
    half_width: float
    seeds: int
    compared: float
    paper: PaperNumber | None = None
    verdict: str = ""
    remark: str = ""
    unit: str = ""


@dataclass(frozen=True)
class Section:
    """What an experiment found.

    Attributes:
        name: the name of the experiment.
        title: the title, for people.
        text: plain text with an empty line between paragraphs: what was done, and what came out.
        lines: the lines of the table.
        pictures: file names in the experiment's folder.
        curves: the data of the pictures: rows of a table with the same keys.
    """

    name: str
    title: str
    text: str
    lines: Sequence[Line]
    pictures: Sequence[str]
    curves: Sequence[Mapping[str, Any]] = ()


def interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of independent values, and half the width of its 95 % interval by Student's t.

    Examples:
        >>> mean, half = interval([1.0, 2.0, 3.0])
        >>> mean, round(half, 3)
        (2.0, 2.484)
    """
    count = len(values)
    mean = math.fsum(values) / count
    if count < 2:
        return mean, math.nan
    from scipy.special import stdtrit

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (count - 1))
    return mean, float(stdtrit(count - 1, 0.975)) * deviation / math.sqrt(count)


def judge(compared: float, paper: PaperNumber | None, *, relative: float = 0.0, absolute: float = 0.0) -> str:
    """Return whether a number is within a tolerance of the paper's.

    Examples:
        >>> judge(105.0, PaperNumber("mse", "d = 100", "vqsgd", 100.0, "Figure 2"), relative=0.1)
        'agrees'
    """
    if paper is None:
        return ""
    return AGREES if abs(compared - paper.value) <= max(relative * abs(paper.value), absolute) * (1 + 1e-9) else DIFFERS
