"""PyTorch integration: private messages of gradients and updates, and optimizer steps with their mean.

A model's trainable parameters form one vector, in the order of `ParameterLayout`. A client encodes it, a server
averages messages and takes a step with any optimizer. Needs the extra ``sstq[torch]``.
"""

try:
    import torch as _torch  # noqa: F401 (absolute: PyTorch itself)
except ImportError as error:
    raise ImportError("sstq.integrations.torch needs PyTorch: pip install 'sstq[torch]'") from error

from sstq.integrations.torch.layout import ParameterLayout, trainable_parameters
from sstq.integrations.torch.updates import UpdateReport, encode_gradients, encode_update, set_gradients

__all__ = [
    "ParameterLayout",
    "UpdateReport",
    "encode_gradients",
    "encode_update",
    "set_gradients",
    "trainable_parameters",
]
