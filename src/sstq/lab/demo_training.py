"""The second half of the demo: a small network learns the digits from private gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sstq.lab.datasets import load
from sstq.lab.training import SETTINGS, Server, image_problem, train
from sstq.planning.comparison import Variant

__all__ = ["EPSILON", "METHODS", "ROUNDS", "run_training"]

EPSILON = 4.0
ROUNDS = 80
METHODS: tuple[Variant, ...] = (
    Variant("clean", "clean", {}),
    Variant("FrameUnit", "frameunit", {}),
    Variant("PrivUnit", "privunit", {}),
    Variant("SSTQ, 2 bits", "sstq", {"bits": 2}),
    Variant("vqSGD", "vqsgd", {}),
)

History = list[dict[str, Any]]


def run_training(
    private_seed: int | None = None,
    *,
    rounds: int = ROUNDS,
    methods: tuple[Variant, ...] = METHODS,
    advance: Callable[[int], None] = lambda _: None,
) -> dict[str, History]:
    """Train on scikit-learn's digits, 100 clients, with every method; the rounds of each by its label.

    Args:
        private_seed: of the privacy noise; the operating system's randomness unless given.
        rounds: how many.
        methods: which mechanisms.
        advance: called with 1 after every round.
    """
    settings = SETTINGS["digits"]
    problem = image_problem(load("digits"), settings.clients, seed=0)
    server = Server(settings.rate, settings.norm_cap)
    histories: dict[str, History] = {}
    for method in methods:
        mechanism = method.build(problem.model.dim, EPSILON, settings.clients, clip=settings.clip)
        reports = train(problem, mechanism, server, rounds, batch=settings.batch, private_seed=private_seed)
        histories[method.label] = []
        for report in reports:
            row = {name: getattr(report, name) for name in ("number", "loss", "accuracy", "bits", "epsilon")}
            histories[method.label].append(row)
            advance(1)
    return histories
