"""Simulated federated training in one process: many clients, private messages, one model.

problem ──▶ gradients of all clients ──▶ encode ──▶ mean ──▶ server step ──▶ evaluation, again
"""

from typing import TYPE_CHECKING, Any

from paper.training.expenses import PersonLedgers
from paper.training.models import Evaluation, HiddenLayer, LeastSquares, Logistic, Model
from paper.training.partitions import dirichlet_partition, iid_partition
from paper.training.problems import Problem, image_problem, regression_problem
from paper.training.rounds import Round, RoundEngine, RoundResult, RoundTask, private_mean, train
from paper.training.server import Server
from paper.training.settings import SETTINGS, Settings, settings_for
from sstq.runs.adaptive_clip import AdaptiveClip
from sstq.runs.cohorts import Cohorts

if TYPE_CHECKING:
    from paper.training.torch_models import TorchModel as TorchModel

# Without TorchModel, so that a star import needs no PyTorch.
__all__ = [
    "SETTINGS",
    "AdaptiveClip",
    "Cohorts",
    "Evaluation",
    "HiddenLayer",
    "LeastSquares",
    "Logistic",
    "Model",
    "PersonLedgers",
    "Problem",
    "Round",
    "RoundEngine",
    "RoundResult",
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
    # PyTorch takes seconds to import, and is an extra: import it only when its model is requested.
    if name == "TorchModel":
        from paper.training.torch_models import TorchModel

        return TorchModel
    raise AttributeError(f"module 'paper.training' has no attribute {name!r}")
