"""Client and server of one round: gradients or updates as a private message, and a mean as gradients.

What leaves the client is the message and nothing else. Nothing here refuses because of the data: a refusal would say
something about it. Numbers that are not finite make the vector zero, which is counted for the client alone.
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
    """What a client may want to know of its own updates. It depends on the data, so it must stay with the client.

    Attributes:
        not_finite: how many held a NaN or an infinity, and were sent as the zero vector instead.
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
    """The gradients of all parameters as one private message.

    A parameter without a gradient (none has reached it) counts as zero. Gradients that are scaled for mixed precision
    must be unscaled before (``scaler.unscale_(optimizer)``).

    Args:
        parameters: whose ``.grad`` is sent: a module, an optimizer or tensors (see `trainable_parameters`).
        mechanism: for vectors of as many numbers; gradients longer than its clip are scaled down to it.
        rng: None for the operating system's randomness (the private choice); a seed or Generator for simulation.
        client: behind a public coin, an identifier of this client and round that no other message has.
        report: counts what this client may want to know of its data; keep it local.

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
    """What local training changed, parameters now minus parameters before, as one private message.

    Args:
        parameters: after training: a module, an optimizer or tensors (see `trainable_parameters`).
        before: copies of the trainable parameters as the server sent them, in the same order.
        mechanism: for vectors of as many numbers; updates longer than its clip are scaled down to it.
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
    """One vector as one message, whatever numbers it holds: one with a NaN or an infinity is sent as zero."""
    finite = bool(np.isfinite(vector).all())
    if report is not None and not finite:
        report.not_finite += 1
    sent = vector if finite else np.zeros_like(vector)
    return mechanism.encode(sent, rng, clients=None if client is None else [client], report=report)


def set_gradients(parameters: Parameters, vector: ArrayLike) -> None:
    """Put a vector, such as the mean of many messages, into ``.grad`` of the parameters, for an optimizer to step.

    For a mean update (`encode_update`) give its negative: then SGD with a rate of 1 adds the update, and Adam or
    momentum make of it what the federated versions of them do.

    Args:
        parameters: those that the clients encoded, in the same order.
        vector: one number for each of theirs.

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
        raise ValueError(
            f"the mechanism is for dim {mechanism.dim}, but the parameters have {layout.dim} trainable numbers"
        )
    return layout
