"""Default settings of a training: the paper's for its data sets, and ours for the digits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from sstq.checks import check_number, check_option

__all__ = ["SETTINGS", "Settings", "settings_for"]


@dataclass(frozen=True)
class Settings:
    """The settings of a training besides its data and its mechanism.

    Attributes:
        clients: the number of clients that share the training examples.
        batch: the number of examples per gradient.
        clip: the bound on the norm of a client's gradient.
        rate: the server's learning rate.
        norm_cap: the server's bound on the norm of the mean; None for none.
        rounds: the number of rounds.
    """

    clients: int
    batch: int
    clip: float
    rate: float
    norm_cap: float | None = 10.0
    rounds: int = 100


SETTINGS: Mapping[str, Settings] = {
    "digits": Settings(clients=100, batch=14, clip=0.5, rate=0.5),
    "fashion-mnist": Settings(clients=100, batch=64, clip=0.1, rate=0.2),
    "cifar-10": Settings(clients=100, batch=64, clip=0.1, rate=0.5),
    "regression": Settings(clients=200, batch=20, clip=1.0, rate=0.5),
}
"""The settings by data set: Section 7 of the paper for the images, Appendix G for the regression."""


def settings_for(dataset: str, changes: Mapping[str, Any]) -> Settings:
    """Return the settings of a data set, replaced by those that are given (not None).

    Examples:
        >>> settings_for("cifar-10", {"clients": 50, "rate": None}).clients
        50
        >>> settings_for("mnist", {})
        Traceback (most recent call last):
        ...
        ValueError: dataset must be 'digits' or 'fashion-mnist' or 'cifar-10' or 'regression', got 'mnist'
    """
    check_option("dataset", dataset, tuple(SETTINGS))
    settings = replace(SETTINGS[dataset], **{name: value for name, value in changes.items() if value is not None})
    check_number("clients", settings.clients, 1, 2**31, integer=True)
    check_number("batch", settings.batch, 1, 10**6, integer=True)
    check_number("rounds", settings.rounds, 0, 10**9, integer=True)
    check_number("clip", settings.clip, 1e-100, 1e100)
    return settings
