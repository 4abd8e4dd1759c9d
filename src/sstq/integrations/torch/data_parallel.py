"""Data-parallel training in which the ranks exchange private messages instead of gradients.

Each rank is one client. In every step it encodes its gradient as one message; all ranks gather all messages, the only
bytes of the step, and decode the same mean. So every rank sees every message, and none sees another's gradient.
"""

# Without `from __future__ import annotations`: PyTorch looks at the annotations of a hook, which must not be strings.
import hashlib
import inspect
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from sstq.accounting import Ledger, RunExpenses, ledger_price
from sstq.checks import check_number
from sstq.federated.rounds import client_identifier, mean_of_round, round_mechanism
from sstq.integrations.torch.layout import ParameterLayout
from sstq.integrations.torch.running_statistics import refuse_running_statistics
from sstq.integrations.torch.updates import UpdateReport, encode_vector
from sstq.mechanisms import Mechanism
from sstq.messages.batch import Messages

__all__ = ["PrivateExchange", "ddp_hook"]

# Larger than any gradient, so that DistributedDataParallel puts all of them into one bucket.
_BUCKET_MEGABYTES = 1 << 30


class PrivateExchange:
    """Exchange private messages between ranks: the state of `ddp_hook`, created on all ranks with the same arguments.

    Creating it compares fingerprints of the arguments on all ranks, and all refuse (ValueError) if they differ. A step
    sends ⌈message_bits/8⌉ bytes from each rank to the others. Its frame comes from the base seed and the number of the
    step, which all ranks know.

    The unit of privacy is the rank, with all its examples, and not the example. A rank spends ε in each step, T·ε in T
    steps, so it needs a budget: its ledger holds the total. A step that is done again after a crash is charged again,
    because its message is a second one about the same data: each object is a run of its own for the ledger, and so is
    what `load_state_dict` begins. The mean of n ranks has a squared error of about 0.74·d·clip²/n (FrameUnit, ε = 3):
    few ranks need small models, many steps and small rates.

    Warning:
        A ledger that refuses raises on its own rank, in ``backward()``, before anything is sent. Ranks that send the
        same number of messages from the same budget all stop in the same step. A rank that stops alone, for this or any
        other reason, leaves the others waiting until the process group's timeout.

    Args:
        mechanism: a mechanism whose dim is the number of trainable parameters. One whose messages are for a
            trusted aggregator only (CSGM) is refused, because there is none here.
        ledger: this rank's own ledger: ``Ledger("rank-0.ledger", epsilon=80.0)`` allows a total ε of
            80. It is charged before a step's message is sent. The mechanism must have δ = 0, since ledgers add up pure
            ε. An explicit None sets no limit, for simulations or if something else enforces the budget.
        base_seed: the public seed, the same on all ranks.
        process_group: the process group; None for the default one.
        private_seed: the seed of the privacy noise, for simulations; by default the operating system's randomness.

    Attributes:
        steps: the number of steps taken.
        report: counts of clipped and non-finite gradients; they depend on the data, so they must stay on this rank.

    Examples:
        >>> import tempfile, sstq, torch, torch.distributed as dist
        >>> folder = tempfile.TemporaryDirectory()
        >>> dist.init_process_group("gloo", init_method=f"file://{folder.name}/store", rank=0, world_size=1)
        >>> ledger = sstq.accounting.Ledger(f"{folder.name}/rank-0.ledger", epsilon=80.0)
        >>> exchange = PrivateExchange(sstq.mechanism("frameunit", dim=3, epsilon=8.0), ledger=ledger)
        >>> model = exchange.data_parallel(torch.nn.Linear(2, 1))
        >>> model(torch.ones(4, 2)).mean().backward()
        >>> exchange.steps, exchange.step_bytes, ledger.remaining
        (1, 2, 72.0)
        >>> dist.destroy_process_group()
        >>> folder.cleanup()
    """

    def __init__(
        self,
        mechanism: Mechanism,
        *,
        ledger: Ledger | None,
        base_seed: int = 0,
        process_group: Any = None,
        private_seed: int | None = None,
    ) -> None:
        if mechanism.trust == "aggregator":
            raise ValueError(
                f"mechanism must be locally private, got {mechanism.name!r}, which needs a trusted aggregator: every "
                "rank sees all messages; use frameunit"
            )
        if ledger is not None:
            ledger_price(mechanism)
        self.mechanism = mechanism
        self.steps = 0
        self.report = UpdateReport()
        self._base_seed = check_number("base_seed", base_seed, 0, 2**64 - 1, integer=True)
        self._ledger = ledger
        self._expenses = RunExpenses(mechanism)
        self._group = process_group
        self._private_seed = private_seed
        self._agree()

    @property
    def step_bytes(self) -> int:
        """The bytes that each rank sends to the others per step."""
        return -(-self.mechanism.bundle_bits // 8)

    def data_parallel(self, module: torch.nn.Module) -> DistributedDataParallel:
        """Wrap the module in a DistributedDataParallel that exchanges only messages.

        It has all gradients in one bucket and sends no buffers while training (they are not private). PyTorch's layers
        that keep statistics of the examples are refused, here and again before every forward pass of the module, since
        ``model.train()`` would wake those that were in evaluation mode.

        Beside the messages PyTorch itself sends, when this is called, the number and the shapes of the parameters, to
        compare them, and rank 0's parameters and buffers to all; and in the second step the order in which rank 0's
        gradients became ready, and number and size of the buckets. That order depends on rank 0's examples only if the
        module takes different paths for different examples.
        """
        refuse_running_statistics(module)
        dim = ParameterLayout.of(module).dim
        if dim != self.mechanism.dim:
            raise ValueError(f"mechanism must have dim = {dim}, the module's parameters, got {self.mechanism.dim}")
        # PyTorch renamed the option that sends buffers in every step.
        known = inspect.signature(DistributedDataParallel).parameters
        no_buffers = {"forward_sync_buffers" if "forward_sync_buffers" in known else "broadcast_buffers": False}
        model = DistributedDataParallel(
            module, process_group=self._group, bucket_cap_mb=_BUCKET_MEGABYTES, **no_buffers
        )
        model.register_comm_hook(self, ddp_hook)
        module.register_forward_pre_hook(_refuse_again)
        return model

    def mean(self, gradient: torch.Tensor) -> torch.Tensor:
        """Take the next step on all ranks: return the mean of their gradients, estimated from one message each."""
        number = self.steps + 1
        mechanism = round_mechanism(self.mechanism, self._base_seed, number)
        if self._ledger is not None:
            self._expenses.charge(self._ledger, number)
        raw = self._encode(gradient, mechanism, number).to_bytes()
        aggregator = mechanism.aggregator()
        for rank, received in enumerate(self._gather(raw, gradient.device)):
            identifier = client_identifier(mechanism, rank, number)
            clients = None if identifier is None else [identifier]
            aggregator.update(mechanism.messages_from_bytes(received, mechanism.messages, clients=clients))
        self.steps = number
        decoded = torch.from_numpy(mean_of_round(aggregator).value)
        return decoded.to(gradient.device, gradient.dtype)

    def state_dict(self) -> dict[str, int]:
        """Return the state for `load_state_dict`: the number of steps."""
        return {"steps": self.steps}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Continue after this many steps, on all ranks at once, as a new run for ledgers; they compare fingerprints."""
        self.steps = check_number("steps", state["steps"], 0, 2**32 - 2, integer=True)
        self._expenses = RunExpenses(self.mechanism)
        self._agree()

    def _encode(self, gradient: torch.Tensor, mechanism: Mechanism, number: int) -> Messages:
        rank = dist.get_rank(self._group)
        seeded = self._private_seed is not None
        rng = np.random.default_rng([self._private_seed, number, rank]) if seeded else None
        vector = ParameterLayout((tuple(gradient.shape),)).flatten([gradient])
        identifier = client_identifier(mechanism, rank, number)
        return encode_vector(vector, mechanism, rng, client=identifier, report=self.report)

    def _gather(self, raw: bytes, device: torch.device) -> list[bytes]:
        """Return the bytes of all ranks, equally many from each, in the order of the ranks."""
        own = torch.frombuffer(bytearray(raw), dtype=torch.uint8).to(device)
        gathered = [torch.empty_like(own) for _ in range(dist.get_world_size(self._group))]
        dist.all_gather(gathered, own, group=self._group)
        return [part.cpu().numpy().tobytes() for part in gathered]

    def _agree(self) -> None:
        terms = f"{self.mechanism.digest()} {self._base_seed} {self.steps}"
        device = torch.device("cuda") if dist.get_backend(self._group) == "nccl" else torch.device("cpu")
        found = self._gather(hashlib.sha256(terms.encode()).digest(), device)
        differing = [rank for rank, fingerprint in enumerate(found) if fingerprint != found[0]]
        if differing:
            raise ValueError(
                f"mechanism, base_seed and steps must be the same on all ranks, but ranks {differing} differ from "
                f"rank 0 (here: digest {self.mechanism.digest()[:16]}…, base_seed {self._base_seed}, "
                f"{self.steps} steps)"
            )


def _refuse_again(module: torch.nn.Module, _inputs: Any) -> None:
    refuse_running_statistics(module)


def ddp_hook(state: PrivateExchange, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    """Exchange one message per rank for a bucket of gradients: for ``model.register_comm_hook(exchange, ddp_hook)``.

    `PrivateExchange.data_parallel` registers it on a model with the right settings. On your own model, set
    ``forward_sync_buffers=False`` (``broadcast_buffers=False`` in older versions of PyTorch), since buffers such as
    running statistics are sent in clear; use no layer that keeps such statistics, which the hook cannot see; leave
    ``find_unused_parameters`` off, since it sends which parameters a rank used; and set ``bucket_cap_mb`` above the
    size of the gradients. Several buckets are refused: each would be a message of its own, and their ε would add up.
    """
    gradient = bucket.buffer()
    if bucket.index() or not bucket.is_last():
        raise ValueError(
            "all gradients must be in one bucket, because each bucket would spend ε again: set bucket_cap_mb above the "
            "size of the gradients, in one floating-point type, or use PrivateExchange.data_parallel"
        )
    if gradient.numel() != state.mechanism.dim:
        raise ValueError(
            f"mechanism must have dim = {gradient.numel()}, as the gradients have, got {state.mechanism.dim}"
        )
    future = torch.futures.Future()
    future.set_result(state.mean(gradient))
    return future
