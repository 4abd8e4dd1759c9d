"""Simulated federated training in one process: many clients, private messages, one model.

problem ──▶ gradients of all clients ──▶ encode ──▶ mean ──▶ server step ──▶ evaluation, again
"""

from paper.training.models import Evaluation, HiddenLayer, LeastSquares, Logistic, Model
from paper.training.problems import (
    SETTINGS,
    Problem,
    Settings,
    iid_partition,
    image_problem,
    regression_problem,
)
from paper.training.rounds import Round, Server, private_mean, train

__all__ = [
    "SETTINGS",
    "Evaluation",
    "HiddenLayer",
    "LeastSquares",
    "Logistic",
    "Model",
    "Problem",
    "Round",
    "Server",
    "Settings",
    "iid_partition",
    "image_problem",
    "private_mean",
    "regression_problem",
    "train",
]
