"""The option --model of `sstq train`: the paper's network, a linear model, or a PyTorch module."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from paper.training import Problem

__all__ = ["PAPER_MODEL", "image_problem_with"]

PAPER_MODEL = "hidden-layer"
LOGISTIC = "logistic"


def image_problem_with(
    model: str, dataset: Any, clients: int, seed: int, *, alpha: float | None = None, **options: Any
) -> Problem:
    """Return the learning problem of a data set and the text of ``--model``.

    Args:
        model: "hidden-layer", "logistic", or MODULE:FUNCTION, a function of an image's shape (channels, rows, columns)
            and the number of classes that returns a PyTorch module. The working folder is searched first.
        dataset: a data set from `paper.datasets.load`.
        clients: as for `image_problem`.
        seed: as for `image_problem`.
        alpha: as for `image_problem`.
        options: further options of `image_problem`.

    Examples:
        >>> from paper.datasets import load
        >>> problem = image_problem_with("paper.training.torch_networks:convolutional", load("digits"), 100, 0)
        >>> problem.name, problem.model.dim
        ('digits with paper.training.torch_networks:convolutional', 1946)
    """
    from paper.training import image_problem

    if model == PAPER_MODEL:
        return image_problem(dataset, clients, seed, alpha=alpha, **options)
    if model == LOGISTIC:
        from paper.training import Logistic

        linear = Logistic(dataset.train_images.shape[1], len(dataset.classes))
        return image_problem(dataset, clients, seed, alpha=alpha, model=linear, **options)
    from paper.training import TorchModel

    build = _function(model)
    rows_and_columns = dataset.image_shape[-2:]
    shape = (dataset.train_images.shape[1] // (rows_and_columns[0] * rows_and_columns[1]), *rows_and_columns)
    torch_model = TorchModel(lambda: build(shape, len(dataset.classes)), input_shape=shape)
    problem = image_problem(dataset, clients, seed, alpha=alpha, model=torch_model, **options)
    # In the name, so that a checkpoint of one model is not mistaken for that of another of the same dimension.
    return replace(problem, name=f"{problem.name} with {model}")


def _function(text: str) -> Any:
    """Return the function of MODULE:FUNCTION."""
    module_name, separator, name = text.partition(":")
    if not (separator and module_name and name):
        raise WrongUsage(f"--model must be {PAPER_MODEL}, {LOGISTIC} or MODULE:FUNCTION, got {text!r}")
    with _working_folder_first():
        module = importlib.import_module(module_name)
    function = getattr(module, name, None)
    if not callable(function):
        raise WrongUsage(f"--model {text}: {module_name} has no function {name!r}")
    return function


@contextmanager
def _working_folder_first() -> Iterator[None]:
    """Search the working folder for modules, as ``python -m`` does; an installed program does not by default."""
    folder = str(Path.cwd())
    sys.path.insert(0, folder)
    try:
        yield
    finally:
        sys.path.remove(folder)
