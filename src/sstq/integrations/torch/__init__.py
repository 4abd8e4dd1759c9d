"""PyTorch integration: private messages of gradients and updates, optimizer steps, and data-parallel training.

A model's trainable parameters form one vector, in the order of `ParameterLayout`. A client encodes it, a server
averages messages and takes a step with any optimizer. Needs the extra ``sstq[torch]``.
"""

try:
    import torch as _torch  # noqa: F401 (absolute: PyTorch itself)
except ImportError as error:
    raise ImportError("sstq.integrations.torch needs PyTorch: pip install 'sstq[torch]'") from error

from sstq.integrations.torch.data_parallel import PrivateExchange, ddp_hook
from sstq.integrations.torch.layout import ParameterLayout, trainable_parameters
from sstq.integrations.torch.optimizer import PrivateOptimizer
from sstq.integrations.torch.updates import UpdateReport, encode_gradients, encode_update, set_gradients

__all__ = [
    "ParameterLayout",
    "PrivateExchange",
    "PrivateOptimizer",
    "UpdateReport",
    "ddp_hook",
    "encode_gradients",
    "encode_update",
    "set_gradients",
    "trainable_parameters",
]
