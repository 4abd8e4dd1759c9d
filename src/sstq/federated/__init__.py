"""Federated training in one process: many clients, private messages, one model.

problem ──▶ gradients of all clients ──▶ encode ──▶ mean ──▶ server step ──▶ evaluation, again
"""

from sstq.federated.models import Evaluation, HiddenLayer, LeastSquares, Model
from sstq.federated.partitions import dirichlet_partition, iid_partition
from sstq.federated.problems import Problem, image_problem, regression_problem
from sstq.federated.server import Server
from sstq.federated.settings import SETTINGS, Settings, settings_for
from sstq.federated.training import Round, private_mean, train

__all__ = [
    "SETTINGS",
    "Evaluation",
    "HiddenLayer",
    "LeastSquares",
    "Model",
    "Problem",
    "Round",
    "Server",
    "Settings",
    "dirichlet_partition",
    "iid_partition",
    "image_problem",
    "private_mean",
    "regression_problem",
    "settings_for",
    "train",
]
