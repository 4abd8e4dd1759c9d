"""One round with PyTorch: encode gradients or updates as a private message, and set a mean as gradients.

Only the message leaves the client. Nothing here refuses because of the data: a refusal would reveal
something about it. Non-finite numbers make the vector zero, which is counted only locally.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from sstq.integrations.torch.layout import ParameterLayout, Parameters, trainable_parameters
from sstq.mechanisms import Mechanism
from sstq.mechanisms.base import LocalReport
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike

__all__ = ["UpdateReport", "encode_gradients", "encode_update", "encode_vector", "set_gradients"]


@dataclass
class UpdateReport(LocalReport):
    """Counts about a client's own updates. They depend on the data, so they must stay with the client.

    Attributes:
        not_finite: how many updates had nan or infinity, and were sent as the zero vector instead.

    Examples:
        >>> import numpy as np, torch, sstq
        >>> layer, report = torch.nn.Linear(2, 1), UpdateReport()
        >>> layer.weight.grad, layer.bias.grad = torch.full((1, 2), np.nan), torch.zeros(1)
        >>> messages = encode_gradients(layer, sstq.FrameUnit(dim=3, epsilon=2.0), report=report)
        >>> report.not_finite
        1
    """

    not_finite: int = 0


def encode_gradients(
    parameters: Parameters,
    mechanism: Mechanism,
    rng: RngLike = None,
    *,
    client: int | None = None,
    report: UpdateReport | None = None,
) -> Messages:
    """Encode the gradients of all parameters as one private message.

    A parameter without a gradient counts as zero. Gradients that are scaled for mixed precision
    must be unscaled before (``scaler.unscale_(optimizer)``).

    Args:
        parameters: the source of the ``.grad`` to send: a module, an optimizer or tensors (see `trainable_parameters`).
        mechanism: a mechanism of the same dimension; gradients longer than its clip are scaled down to it.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
        client: with a public coin, an identifier of this client and round that no other message has.
        report: counts of clipped and non-finite gradients, which depend on the data; keep it local.

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
    vector = _layout(chosen, mechanism).flatten([parameter.grad for parameter in chosen])
    return encode_vector(vector, mechanism, rng, client=client, report=report)


def encode_update(
    parameters: Parameters,
    before: Sequence[torch.Tensor],
    mechanism: Mechanism,
    rng: RngLike = None,
    *,
    client: int | None = None,
    report: UpdateReport | None = None,
) -> Messages:
    """Encode the change by local training, parameters now minus parameters before, as one private message.

    Args:
        parameters: the parameters after training: a module, an optimizer or tensors (see `trainable_parameters`).
        before: copies of the trainable parameters as the server sent them, in the same order.
        mechanism: a mechanism of the same dimension; updates longer than its clip are scaled down to it.
        rng: as for `encode_gradients`.
        client: as for `encode_gradients`.
        report: as for `encode_gradients`.

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
    layout = _layout(chosen, mechanism)
    with np.errstate(invalid="ignore", over="ignore"):  # what is not finite is sent as zero
        vector = layout.flatten(chosen) - layout.flatten(before)
    return encode_vector(vector, mechanism, rng, client=client, report=report)


def encode_vector(
    vector: NDArray[Any],
    mechanism: Mechanism,
    rng: RngLike = None,
    *,
    client: int | None = None,
    report: UpdateReport | None = None,
) -> Messages:
    """Encode one vector as one message; a vector with nan or infinity is sent as zero."""
    finite = bool(np.isfinite(vector).all())
    if report is not None and not finite:
        report.not_finite += 1
    sent = vector if finite else np.zeros_like(vector)
    return mechanism.encode(sent, rng, clients=None if client is None else [client], report=report)


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
    for parameter, part in zip(chosen, ParameterLayout.of(chosen).unflatten(vector), strict=True):
        parameter.grad = part.to(parameter.device, parameter.dtype)


def _layout(parameters: list[torch.Tensor], mechanism: Mechanism) -> ParameterLayout:
    layout = ParameterLayout.of(parameters)
    if layout.dim != mechanism.dim:
        raise ValueError(f"mechanism must have dim = {layout.dim}, the trainable parameters, got {mechanism.dim}")
    return layout
