"""PyTorch integration: private messages of gradients and updates, and optimizer steps with their mean.

A model's trainable parameters form one vector. A client encodes it, a server averages messages and takes a step with
any optimizer. Only the message leaves the client. Nothing here refuses because of the data: a refusal would reveal
something about it. A vector with nan or infinity is sent as zero, which only the local log says.

Needs the extra: ``pip install 'sstq[torch]'``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

try:
    import torch  # absolute: PyTorch itself
except ImportError as error:
    raise ImportError("sstq.integrations.torch needs PyTorch: pip install 'sstq[torch]'") from error

from sstq.mechanisms import Mechanism
from sstq.mechanisms.answers import answer
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike

__all__ = ["encode_gradients", "encode_update", "set_gradients", "trainable_parameters"]

Parameters: TypeAlias = torch.nn.Module | torch.optim.Optimizer | Iterable[torch.Tensor]
"""A source of parameters: a module, an optimizer, or the tensors themselves."""


def trainable_parameters(source: Parameters) -> list[torch.Tensor]:
    """Return the trainable parameters in a fixed order, each once.

    Frozen parameters (``requires_grad`` is False) are left out, so nothing is sent for them and no noise reaches
    them. A parameter that is used in several places, or listed twice, counts once. All this is the model's structure
    and not its data, so clients and server agree on it.

    Args:
        source: a module, in the order of its ``parameters()``; an optimizer, in the order of its groups; or tensors, in
            their own order. Client and server must use the same one.

    Examples:
        >>> import torch
        >>> layer = torch.nn.Linear(3, 2)
        >>> layer.bias.requires_grad_(False).shape
        torch.Size([2])
        >>> [tuple(parameter.shape) for parameter in trainable_parameters([layer.weight, layer.bias, layer.weight])]
        [(2, 3)]
    """
    if isinstance(source, torch.Tensor):
        raise ValueError("parameters must be a module, an optimizer or several tensors, got one tensor")
    if isinstance(source, torch.nn.Module):
        source = source.parameters()
    elif isinstance(source, torch.optim.Optimizer):
        source = [parameter for group in source.param_groups for parameter in group["params"]]
    trainable = list({id(parameter): parameter for parameter in source if parameter.requires_grad}.values())
    for parameter in trainable:
        if not parameter.dtype.is_floating_point:
            raise ValueError(f"parameters must be real floating-point numbers, got one of dtype {parameter.dtype}")
    if not any(parameter.numel() for parameter in trainable):
        raise ValueError("parameters must hold at least one trainable number, got none (requires_grad is False?)")
    return trainable


def encode_gradients(
    parameters: Parameters,
    mechanism: Mechanism,
    rng: RngLike = None,
    *,
    client: int | None = None,
) -> Messages:
    """Encode the gradients of all parameters as one private message.

    A parameter without a gradient counts as zero. Gradients that are scaled for mixed precision
    must be unscaled before (``scaler.unscale_(optimizer)``).

    Args:
        parameters: the source of the ``.grad`` to send: a module, an optimizer or tensors (see `trainable_parameters`).
        mechanism: a mechanism of the same dimension; gradients longer than its clip are scaled down to it.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        client: with a public coin, an identifier of this client and round that no other message has.

    Examples:
        >>> import torch, sstq
        >>> layer = torch.nn.Linear(30, 2)
        >>> layer(torch.ones(5, 30)).sum().backward()
        >>> mechanism = sstq.mechanism("frameunit", dim=62, epsilon=4.0)
        >>> messages = encode_gradients(layer, mechanism)
        >>> len(messages), len(messages.to_bytes())
        (1, 2)
    """
    chosen = trainable_parameters(parameters)
    return _encode(_flat([parameter.grad for parameter in chosen], chosen), mechanism, rng, client)


def encode_update(
    parameters: Parameters,
    before: Sequence[torch.Tensor],
    mechanism: Mechanism,
    rng: RngLike = None,
    *,
    client: int | None = None,
) -> Messages:
    """Encode the change by local training, parameters now minus parameters before, as one private message.

    Args:
        parameters: the parameters after training: a module, an optimizer or tensors (see `trainable_parameters`).
        before: copies of the trainable parameters as the server sent them, in the same order.
        mechanism: a mechanism of the same dimension; updates longer than its clip are scaled down to it.
        rng: as for `encode_gradients`.
        client: as for `encode_gradients`.

    Examples:
        >>> import torch, sstq
        >>> layer = torch.nn.Linear(30, 2)
        >>> before = [parameter.detach().clone() for parameter in trainable_parameters(layer)]
        >>> with torch.no_grad():
        ...     _ = layer.bias.add_(0.5)
        >>> encode_update(layer, before, sstq.mechanism("frameunit", dim=62, epsilon=4.0))
        <1 messages of 9 bits for ...>
    """
    chosen = trainable_parameters(parameters)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is sent as zero
        update = _flat(chosen, chosen) - _flat(before, chosen)
    return _encode(update, mechanism, rng, client)


def set_gradients(parameters: Parameters, vector: ArrayLike) -> None:
    """Put a vector, such as the mean of many messages, into ``.grad`` of the parameters, for an optimizer to step.

    For a mean update (`encode_update`) pass its negative: then SGD with a rate of 1 adds the update, and Adam or
    momentum behave like their federated versions.

    Args:
        parameters: the parameters that the clients encoded, in the same order.
        vector: one number per parameter element.

    Examples:
        >>> import numpy as np, torch
        >>> layer = torch.nn.Linear(3, 2)
        >>> set_gradients(layer, np.arange(8.0))
        >>> layer.bias.grad
        tensor([6., 7.])
    """
    chosen = trainable_parameters(parameters)
    sizes = [parameter.numel() for parameter in chosen]
    numbers = torch.tensor(np.asarray(vector, dtype=np.float64))
    if numbers.shape != (sum(sizes),):
        raise ValueError(f"vector must have shape ({sum(sizes)},), got {tuple(numbers.shape)}")
    for parameter, part in zip(chosen, torch.split(numbers, sizes), strict=True):
        parameter.grad = part.reshape(parameter.shape).to(parameter.device, parameter.dtype)


def _flat(tensors: Sequence[torch.Tensor | None], parameters: list[torch.Tensor]) -> NDArray[np.float64]:
    """One vector of tensors on any device, sparse or not, in the shapes of the parameters; None means zeros."""
    shapes = [None if tensor is None else tuple(tensor.shape) for tensor in tensors]
    expected = [tuple(parameter.shape) for parameter in parameters]
    if len(shapes) != len(expected) or any(
        shape not in (None, wanted) for shape, wanted in zip(shapes, expected, strict=True)
    ):
        raise ValueError(f"tensors must have the shapes {expected}, got {shapes}")
    flat = [
        torch.zeros(parameter.numel(), dtype=torch.float64)
        if tensor is None
        else tensor.detach().to("cpu", torch.float64).to_dense().reshape(-1)
        for tensor, parameter in zip(tensors, parameters, strict=True)
    ]
    numbers: NDArray[np.float64] = torch.cat(flat).numpy()
    return numbers


def _encode(vector: NDArray[np.float64], mechanism: Mechanism, rng: RngLike, client: int | None) -> Messages:
    if len(vector) != mechanism.dim:
        raise ValueError(f"mechanism must have dim = {len(vector)}, the trainable parameters, got {mechanism.dim}")
    return answer(mechanism, vector, rng=rng, clients=None if client is None else [client])
