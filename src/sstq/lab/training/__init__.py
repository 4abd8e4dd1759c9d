"""Simulated federated training in one process: many clients, private messages, one model.

problem ──▶ gradients of all clients ──▶ encode ──▶ mean ──▶ server step ──▶ evaluation, again
"""

from typing import TYPE_CHECKING, Any

from sstq.federated.adaptive_clip import AdaptiveClip
from sstq.federated.cohorts import Cohorts
from sstq.lab.training.expenses import PersonLedgers
from sstq.lab.training.models import Evaluation, HiddenLayer, LeastSquares, Logistic, Model
from sstq.lab.training.partitions import dirichlet_partition, iid_partition
from sstq.lab.training.problems import Problem, image_problem, regression_problem
from sstq.lab.training.rounds import Round, RoundEngine, RoundResult, RoundTask, private_mean, train
from sstq.lab.training.server import Server
from sstq.lab.training.settings import SETTINGS, Settings, settings_for

if TYPE_CHECKING:
    from sstq.lab.training.torch_models import TorchModel as TorchModel

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
        from sstq.lab.training.torch_models import TorchModel

        return TorchModel
    raise AttributeError(f"module 'sstq.lab.training' has no attribute {name!r}")
