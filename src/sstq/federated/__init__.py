"""Federated training in one process: many clients, private messages, one model.

problem ──▶ gradients of all clients ──▶ encode ──▶ mean ──▶ server step ──▶ evaluation, again
"""

from typing import TYPE_CHECKING, Any

from sstq.federated.models import Evaluation, HiddenLayer, LeastSquares, Model
from sstq.federated.partitions import dirichlet_partition, iid_partition
from sstq.federated.problems import Problem, image_problem, regression_problem
from sstq.federated.server import Server
from sstq.federated.settings import SETTINGS, Settings, settings_for
from sstq.federated.training import Round, RoundEngine, RoundTask, private_mean, train

if TYPE_CHECKING:
    from sstq.federated.torch_models import TorchModel as TorchModel

# Without TorchModel, so that a star import needs no PyTorch.
__all__ = [
    "SETTINGS",
    "Evaluation",
    "HiddenLayer",
    "LeastSquares",
    "Model",
    "Problem",
    "Round",
    "RoundEngine",
    "RoundTask",
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


def __getattr__(name: str) -> Any:
    # PyTorch takes seconds to import, and is an extra: only for those who ask for its model.
    if name == "TorchModel":
        from sstq.federated.torch_models import TorchModel

        return TorchModel
    raise AttributeError(f"module 'sstq.federated' has no attribute {name!r}")
