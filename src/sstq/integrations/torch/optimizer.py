"""Optimizer steps from private messages: each client sends one, the server averages them and steps."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from sstq.accounting import Ledger, RunExpenses
from sstq.aggregation import Estimate
from sstq.checks import check_number
from sstq.federated.rounds import client_identifier, mean_of_round, round_mechanism
from sstq.integrations.torch.layout import ParameterLayout
from sstq.integrations.torch.updates import UpdateReport, encode_gradients, set_gradients
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike

__all__ = ["PrivateOptimizer"]


class PrivateOptimizer:
    """Step any PyTorch optimizer with the mean of private messages instead of a gradient.

    One round: each client calls `message` after its backward pass; the server calls `receive` with each
    message and then `step`. Both may be the same object, if one process simulates all clients, or objects on different
    machines that were created with the same arguments and have taken the same number of steps.

    Every message is ε-LDP by itself, so a client that sends one in each of T rounds spends T·ε. The mean of n messages
    has a squared error of about 0.74·d·clip²/n (FrameUnit, ε = 3): with one client it is noise, with thousands it is a
    gradient. Check `mechanism.expected_mse` before training.

    Each object is a run of its own for ledgers, and so is what `load_state_dict` begins: a round that is done again
    after a crash is charged again, because its message is a second one about the same data.

    Warning:
        This handles the optimizer's parameters only. Running statistics (batch normalisation) stay in the
        client's module; do not send that module or its state, which is not private.

    Args:
        optimizer: the optimizer that steps; it also defines the order of the parameters in the vector. Learning-rate
            schedulers take this one.
        mechanism: a mechanism whose dim is the number of trainable parameters.
        base_seed: the public seed; each round's frame is derived from it and the round's number.
        norm_cap: a mean longer than this is scaled down to it before the step; by default no cap.

    Examples:
        >>> import torch, sstq
        >>> model = torch.nn.Linear(4, 1, bias=False)
        >>> mechanism = sstq.mechanism("frameunit", dim=4, epsilon=8.0, clip=1.0)
        >>> optimizer = PrivateOptimizer(torch.optim.SGD(model.parameters(), lr=0.1), mechanism)
        >>> for client in range(20):
        ...     model(torch.ones(3, 4)).mean().backward()
        ...     optimizer.receive(optimizer.message())
        >>> optimizer.step().count, optimizer.round_number
        (20, 2)
    """

    def __init__(
        self,
        optimizer: torch.optim.Optimizer,
        mechanism: Mechanism,
        *,
        base_seed: int = 0,
        norm_cap: float | None = None,
    ) -> None:
        dim = ParameterLayout.of(optimizer).dim
        if mechanism.dim != dim:
            raise ValueError(
                f"mechanism must have dim = {dim}, the optimizer's trainable parameters, got {mechanism.dim}"
            )
        self.optimizer = optimizer
        self._base = mechanism
        self._expenses = RunExpenses(mechanism)
        self._base_seed = check_number("base_seed", base_seed, 0, 2**64 - 1, integer=True)
        self._norm_cap = None if norm_cap is None else check_number("norm_cap", norm_cap, 1e-12, 1e12)
        self._begin(1)

    def _begin(self, number: int) -> None:
        self._number = number
        self._mechanism = round_mechanism(self._base, self._base_seed, number)
        self._aggregator = self._mechanism.aggregator()

    @property
    def round_number(self) -> int:
        """The number of the current round; the first is 1."""
        return self._number

    @property
    def mechanism(self) -> Mechanism:
        """The mechanism of this round."""
        return self._mechanism

    @property
    def received(self) -> int:
        """The number of messages of this round so far."""
        return self._aggregator.count

    def message(
        self,
        rng: RngLike = None,
        *,
        client: int | None = None,
        ledger: Ledger | None = None,
        report: UpdateReport | None = None,
    ) -> Messages:
        """Encode this client's gradients as its message of this round, and clear them.

        Args:
            rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.
            client: with a public coin, the client's number below 2^64.
            ledger: this client's ledger, charged before anything is encoded. It refuses a second message in a round of
                this object. The mechanism must have δ = 0, since ledgers add up pure ε.
            report: counts of clipped and non-finite gradients, which depend on the data; keep it local.
        """
        identifier = client_identifier(self._mechanism, client, self._number)
        if ledger is not None:
            self._expenses.charge(ledger, self._number)
        messages = encode_gradients(self.optimizer, self._mechanism, rng, client=identifier, report=report)
        self.optimizer.zero_grad()
        return messages

    def receive(self, messages: Messages) -> None:
        """Add messages to this round; those of another mechanism, or of another round's frame, are refused."""
        self._aggregator.update(messages)

    def receive_bytes(self, raw: bytes, client: int | None = None) -> None:
        """Add one message from its ``to_bytes()``; with a public coin, also give the sender's number."""
        identifier = client_identifier(self._mechanism, client, self._number)
        clients = None if identifier is None else [identifier]
        self.receive(self._mechanism.messages_from_bytes(raw, self._mechanism.messages, clients=clients))

    def step(self) -> Estimate:
        """Step with the mean of this round's messages, and start the next round; ValueError without messages."""
        estimate = mean_of_round(self._aggregator)
        mean, norm = estimate.value, float(np.linalg.norm(estimate.value))
        if self._norm_cap is not None and norm > self._norm_cap:
            mean = mean * (self._norm_cap / norm)
        set_gradients(self.optimizer, mean)
        self.optimizer.step()
        self.optimizer.zero_grad()
        self._begin(self._number + 1)
        return estimate

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`: the round's number and the optimizer's state, without messages."""
        return {"round_number": self._number, "optimizer": self.optimizer.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at the beginning of the saved round; for ledgers this starts a new run."""
        number = check_number("round_number", state["round_number"], 1, 2**32 - 1, integer=True)
        self.optimizer.load_state_dict(state["optimizer"])
        self._expenses = RunExpenses(self._base)
        self._begin(number)
