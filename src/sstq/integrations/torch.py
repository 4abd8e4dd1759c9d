"""PyTorch integration: private messages of gradients and updates, and optimizer steps with their mean.

The trainable parameters of a model form one vector, in the order of ``parameters()``: frozen ones (``requires_grad`` is
False) are left out, shared ones count once. A client encodes it, a server averages messages and takes a step with any
optimizer. Only the message leaves the client. Nothing here refuses because of the data: a refusal would reveal
something about it. A vector with nan or infinity is sent as zero, which only the local log says.

Needs the extra: ``pip install 'sstq[torch]'``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from sstq.array_types import Floats

try:
    import torch  # absolute: PyTorch itself
except ImportError as error:
    raise ImportError(
        "sstq.integrations.torch needs PyTorch: pip install 'sstq[torch]'"
    ) from error

from sstq.mechanisms import Mechanism
from sstq.mechanisms.answers import answer
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike

__all__ = ["encode_gradients", "encode_update", "set_gradients"]


def encode_gradients(
    model: torch.nn.Module, mechanism: Mechanism, rng: RngLike = None
) -> Messages:
    """Encode the gradients of all trainable parameters as one private message.

    A parameter without a gradient counts as zero. Gradients that are scaled for mixed precision
    must be unscaled before (``scaler.unscale_(optimizer)``).

    Args:
        model: the model whose ``.grad`` is sent.
        mechanism: a mechanism of the same dimension; gradients longer than its clip are scaled down to it.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.

    Examples:
        >>> import torch, sstq
        >>> layer = torch.nn.Linear(30, 2)
        >>> layer(torch.ones(5, 30)).sum().backward()
        >>> mechanism = sstq.mechanism("frameunit", dim=62, epsilon=4.0)
        >>> messages = encode_gradients(layer, mechanism)
        >>> len(messages), len(messages.to_bytes())
        (1, 2)
    """
    gradients = [
        torch.zeros_like(one) if one.grad is None else one.grad
        for one in _trainable(model)
    ]
    return _encode(_flat(gradients), mechanism, rng)


def encode_update(
    model: torch.nn.Module,
    before: torch.nn.Module,
    mechanism: Mechanism,
    rng: RngLike = None,
) -> Messages:
    """Encode the change by local training, parameters now minus parameters before, as one private message.

    Args:
        model: the model after training.
        before: a copy of the model as the server sent it, ``copy.deepcopy(model)``.
        mechanism: a mechanism of the same dimension; updates longer than its clip are scaled down to it.
        rng: as for `encode_gradients`.

    Examples:
        >>> import copy, torch, sstq
        >>> layer = torch.nn.Linear(30, 2)
        >>> before = copy.deepcopy(layer)
        >>> with torch.no_grad():
        ...     _ = layer.bias.add_(0.5)
        >>> encode_update(layer, before, sstq.mechanism("frameunit", dim=62, epsilon=4.0))
        <1 messages of 9 bits for ...>
    """
    now = _trainable(model)
    then = _trainable(before)
    if [parameter.shape for parameter in now] != [
        parameter.shape for parameter in then
    ]:
        raise ValueError(
            "before must have the trainable parameters of model, got others"
        )
    # what is not finite is sent as zero
    with np.errstate(invalid="ignore", over="ignore"):
        update = _flat(now) - _flat(then)
    return _encode(update, mechanism, rng)


def set_gradients(model: torch.nn.Module, vector: ArrayLike) -> None:
    """Put a vector, such as the mean of many messages, into ``.grad`` of the parameters, for an optimizer to step.

    For a mean update (`encode_update`) pass its negative: then SGD with a rate of 1 adds the update, and Adam or
    momentum behave like their federated versions.

    Args:
        model: the model that the clients encoded.
        vector: one number per trainable parameter element.

    Examples:
        >>> import numpy as np, torch
        >>> layer = torch.nn.Linear(3, 2)
        >>> set_gradients(layer, np.arange(8.0))
        >>> layer.bias.grad
        tensor([6., 7.])
    """
    chosen = _trainable(model)
    sizes = [parameter.numel() for parameter in chosen]
    numbers = torch.tensor(np.asarray(vector, dtype=np.float64))
    if numbers.shape != (sum(sizes),):
        raise ValueError(
            f"vector must have shape ({sum(sizes)},), got {tuple(numbers.shape)}"
        )
    for parameter, part in zip(chosen, torch.split(numbers, sizes), strict=True):
        parameter.grad = part.reshape(parameter.shape).to(
            parameter.device, parameter.dtype
        )


def _trainable(model: torch.nn.Module) -> list[torch.Tensor]:
    trainable: list[torch.Tensor] = [
        one for one in model.parameters() if one.requires_grad
    ]
    if not sum(one.numel() for one in trainable) or any(
        one.dtype.is_complex for one in trainable
    ):
        raise ValueError(
            "model must have trainable parameters (requires_grad), all of them real numbers"
        )
    return trainable


def _flat(tensors: Sequence[torch.Tensor]) -> Floats:
    """One vector of tensors on any device, sparse or not."""
    dense = [
        tensor.detach().to("cpu", torch.float64).to_dense().reshape(-1)
        for tensor in tensors
    ]
    numbers: Floats = torch.cat(dense).numpy()
    return numbers


def _encode(vector: Floats, mechanism: Mechanism, rng: RngLike) -> Messages:
    if len(vector) != mechanism.dim:
        raise ValueError(
            f"mechanism must have dim = {len(vector)}, the trainable parameters, got {mechanism.dim}"
        )
    return answer(mechanism, vector, rng=rng)
