"""One rank of a data-parallel training: ``python -m tests.integrations.two_ranks RANK FOLDER``; see test_torch.py.

All that the test wants to know is left in FOLDER as rank-RANK.pt.
"""

import sys
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.profiler import ProfilerActivity, profile

import sstq
from sstq.accounting import Ledger
from sstq.integrations.torch import PrivateExchange, ddp_hook

BASE_SEED, PRIVATE_SEED, STEPS = 7, 5, 4
TRUTH = torch.tensor([1.0, -2.0, 0.5, 1.5])


def frameunit(dim, epsilon=8.0, clip=1.0, **options):
    return sstq.mechanism("frameunit", dim=dim, epsilon=epsilon, clip=clip, **options)


class Scale(nn.Module):
    """Has a buffer, as PyTorch would send it in every forward pass."""

    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.ones(4))

    def forward(self, x):
        return x * self.scale


def network():
    return nn.Sequential(nn.Linear(3, 4), Scale(), nn.Tanh(), nn.Linear(4, 1))


def examples(rank, step):
    x = torch.from_numpy(np.random.default_rng([rank, step]).standard_normal((8, 3)).astype(np.float32))
    return x, x.sum(dim=1, keepdim=True)


class Watched(PrivateExchange):
    """Remembers what goes in and what comes out."""

    def mean(self, gradient):
        given = gradient.clone()
        decoded = super().mean(gradient)
        self.seen = [*getattr(self, "seen", []), (given, decoded.clone())]
        return decoded


def error_of(action):
    try:
        action()
    except ValueError as error:
        return f"{type(error).__name__}: {error}"
    return None


@contextmanager
def collectives(found):
    """Add all collective operations of the block to a list, PyTorch's own among them, with the shapes of the data."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as watched:
        yield
    found.append([(event.name, event.input_shapes) for event in watched.events() if event.name.startswith("gloo")])
    calls = [event.name for event in watched.events() if event.name.startswith("c10d::")]
    assert len(calls) == len(found[-1]), calls


def watched_steps(rank):
    """Some steps with Adam, all under a profiler, from the construction on."""
    sent = []
    torch.manual_seed(rank)  # rank 0's start is everybody's
    with collectives(sent):
        exchange = Watched(frameunit(21), base_seed=BASE_SEED, private_seed=PRIVATE_SEED, ledger=None)
        model = exchange.data_parallel(network())
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    for step in range(STEPS):
        x, y = examples(rank, step)
        with collectives(sent):
            optimizer.zero_grad()
            nn.functional.mse_loss(model(x), y).backward()
            optimizer.step()
    return {
        "seen": exchange.seen,
        "parameters": [parameter.detach().clone() for parameter in model.parameters()],
        "gradients": [parameter.grad.clone() for parameter in model.parameters()],
        "collectives": sent,
        "step_bytes": exchange.step_bytes,
        "steps": exchange.steps,
    }


def not_finite(rank):
    exchange = PrivateExchange(frameunit(4), private_seed=1, ledger=None)
    gradient = torch.tensor([1.0, float("nan"), 0.0, float("inf")]) if rank else torch.ones(4)
    mean = exchange.mean(gradient)
    return {"mean": mean, "not_finite": exchange.report.not_finite}


def exhausted(rank, folder):
    ledger = Ledger(folder / f"ledger-{rank}.jsonl", epsilon=16.0)
    exchange = PrivateExchange(frameunit(21), ledger=ledger)
    model = exchange.data_parallel(network())
    x, y = examples(rank, 0)
    errors = [error_of(lambda: nn.functional.mse_loss(model(x), y).backward()) for _ in range(3)]
    return {"errors": errors, "steps": exchange.steps, "spent": ledger.spent}


def started_again(rank, folder):
    """A crash after the second step was paid and before its state was saved: the step is done and paid again."""
    ledger = Ledger(folder / f"again-{rank}.jsonl", epsilon=100.0)
    first = PrivateExchange(frameunit(4), ledger=ledger)
    first.mean(torch.ones(4))
    state = first.state_dict()
    first.mean(torch.ones(4))
    second = PrivateExchange(frameunit(4), ledger=ledger)
    second.load_state_dict(state)
    second.mean(torch.ones(4))
    second.load_state_dict(state)
    second.mean(torch.ones(4))
    return {"spent": ledger.spent, "steps": second.steps}


def woken_statistics():
    """Batch normalisation that is in evaluation mode at first; what wakes it, and whether its statistics changed."""
    module = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    module[1].eval()
    model = PrivateExchange(frameunit(12), ledger=None).data_parallel(module)
    frozen = error_of(lambda: model(torch.randn(5, 3)).sum().backward())
    model.train()
    errors = [error_of(partial(part, torch.randn(5, 3))) for part in (model, module)]
    return {"frozen": frozen, "errors": errors, "mean": module[1].running_mean.clone()}


def several_buckets(rank):
    exchange = PrivateExchange(frameunit(21), ledger=None)
    model = DistributedDataParallel(network(), bucket_cap_mb=1e-5)  # the first step has one bucket in any case
    model.register_comm_hook(exchange, ddp_hook)
    x, y = examples(rank, 0)
    errors = [error_of(lambda: nn.functional.mse_loss(model(x), y).backward()) for _ in range(2)]
    return {"errors": errors, "steps": exchange.steps}


def converging(rank):
    """Least squares in four dimensions, with half of the examples on each rank; the squared distance over time."""
    exchange = PrivateExchange(frameunit(4, clip=2.0), private_seed=PRIVATE_SEED, ledger=None)
    model = exchange.data_parallel(nn.Linear(4, 1, bias=False))
    with torch.no_grad():
        model.module.weight.zero_()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.02)
    distances = []
    for step in range(200):
        x = torch.from_numpy(np.random.default_rng([rank, step]).standard_normal((8, 4)).astype(np.float32))
        optimizer.zero_grad()
        nn.functional.mse_loss(model(x)[:, 0], x @ TRUTH).backward()
        optimizer.step()
        distances.append(float((model.module.weight.detach()[0] - TRUTH).square().sum()))
    return {"distances": distances, "weight": model.module.weight.detach()}


def resumed():
    """Three steps at once, and one step, a new start from its state, and two more."""
    gradient = torch.linspace(-1, 1, 4)
    whole = PrivateExchange(frameunit(4), private_seed=1, ledger=None)
    expected = [whole.mean(gradient) for _ in range(3)]
    first = PrivateExchange(frameunit(4), private_seed=1, ledger=None)
    found = [first.mean(gradient)]
    second = PrivateExchange(frameunit(4), private_seed=1, ledger=None)
    second.load_state_dict(first.state_dict())
    found += [second.mean(gradient) for _ in range(2)]
    return all(torch.equal(a, b) for a, b in zip(expected, found, strict=True))


def main(rank, folder):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    report = {
        "watched": watched_steps(rank),
        "not finite": not_finite(rank),
        "exhausted": exhausted(rank, folder),
        "started again": started_again(rank, folder),
        "woken statistics": woken_statistics(),
        "several buckets": several_buckets(rank),
        "converging": converging(rank),
        "resumed": resumed(),
        "other seeds": error_of(lambda: PrivateExchange(frameunit(4), base_seed=rank, ledger=None)),
        "other mechanisms": error_of(lambda: PrivateExchange(frameunit(4, clip=1.0 + rank), ledger=None)),
        "public coin": PrivateExchange(frameunit(4, bits=3), private_seed=1, ledger=None).mean(torch.ones(4)),
        "half": PrivateExchange(frameunit(4), private_seed=1, ledger=None).mean(torch.ones(4, dtype=torch.bfloat16)),
        "wrong dim": error_of(lambda: PrivateExchange(frameunit(5), ledger=None).data_parallel(network())),
        "statistics": error_of(lambda: PrivateExchange(frameunit(4), ledger=None).data_parallel(nn.BatchNorm1d(2))),
        "sent statistics": error_of(
            lambda: PrivateExchange(frameunit(4), ledger=None).data_parallel(nn.SyncBatchNorm(2).eval())
        ),
        "trusted": error_of(
            lambda: PrivateExchange(sstq.mechanism("csgm", dim=4, epsilon=1.0, clients=2), ledger=None)
        ),
    }
    torch.save(report, folder / f"rank-{rank}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
