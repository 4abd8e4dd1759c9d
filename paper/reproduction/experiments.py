"""The experiments by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from paper.reproduction.images import image_jobs, image_section
from paper.reproduction.jobs import Job
from paper.reproduction.lines import Results, Section
from paper.reproduction.methods import Scale
from paper.reproduction.mse import mse_jobs, mse_section
from paper.reproduction.once import once_jobs, once_section
from paper.reproduction.regression import (
    bitwidth_jobs,
    bitwidth_section,
    regression_jobs,
    regression_section,
)


@dataclass(frozen=True)
class Experiment:
    """One figure or table of the paper.

    Attributes:
        jobs: the jobs that it needs.
        section: what it found, from the results of these jobs.
    """

    jobs: Callable[[Scale], list[Job]]
    section: Callable[[Scale, Results], Section]


def _images(name: str) -> Experiment:
    return Experiment(partial(image_jobs, name), partial(image_section, name))


EXPERIMENTS: Mapping[str, Experiment] = {
    "mse": Experiment(mse_jobs, mse_section),
    "regression": Experiment(regression_jobs, regression_section),
    "bitwidth": Experiment(bitwidth_jobs, bitwidth_section),
    "fashion-mnist": _images("fashion-mnist"),
    "cifar-10": _images("cifar-10"),
    "once": Experiment(once_jobs, once_section),
}
"""In the order of the paper."""
