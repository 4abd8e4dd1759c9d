"""Our mechanisms beside other projects' on the same data, ε and promise; docs/is-it-for-me.md has the tables.

Peers are optional. `SSTQ_PEERS_PYTHON` names an interpreter that has opendp, pfl and pure-ldp, `SSTQ_PROJUNIT` a
checkout of apple/ml-projunit, `SSTQ_PEERS_NODE` a folder with the npm package @divviup/dap. What is not there is
skipped.
"""

import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from scipy.special import log_ndtr

import sstq
from benchmarks.comparison_peers import NOT_INSTALLED, Task, mean_of
from benchmarks.harness import Remark, Result, benchmark
from sstq.accounting import compose, epsilon_per_round
from sstq.mechanisms import Mechanism

HERE = Path(__file__).parent
DELTA, EPSILON = 1e-5, 3.0
DIM, CLIENTS = 4096, 400
ITEMS, ANSWERS = 1024, 4000
ROUNDS = 10  # of ours, each with its own frames; their mean scatters less than one round

VECTOR_PEERS = ("flower", "pfl-gaussian", "opendp-gaussian", "pfl-laplace", "opendp-laplace", "projunit-privunitg")
FEW_BITS_PEERS = ("projunit-compressed",)
ITEM_PEERS = ("pure-ldp-oue", "pure-ldp-olh", "pure-ldp-hr", "opendp-bits", "opendp-response")


@dataclass(frozen=True)
class Row:
    """What one mechanism did; the squared error is that of the mean, times clients, per dimension."""

    name: str
    error: float
    bits: float
    delta: float = 0.0

    def result(self, yardstick: "Row") -> Result:
        """The line of the table, relative to the yardstick."""
        promise = f"δ = {self.delta:g}" if self.delta else "pure ε"
        people = f"{self.error / yardstick.error:.3g} times the people of {yardstick.name}"
        return Result(f"{self.name}: squared error", self.error, "", f"{people}; {promise}; {self.bits:,.0f} bits")


def vectors(epsilon: float) -> Task:
    """Unit vectors with half of their squared length in common."""
    rng = np.random.default_rng(1)
    x = rng.standard_normal((CLIENTS, DIM)) + rng.standard_normal(DIM)
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    return Task(x.astype(np.float32), DIM, epsilon, DELTA)


def items(epsilon: float) -> Task:
    """One item per person, the r-th with a share in proportion to 1/r."""
    shares = 1 / np.arange(1, ITEMS + 1)
    rows = np.random.default_rng(1).choice(ITEMS, size=ANSWERS, p=shares / shares.sum())
    return Task(rows, ITEMS, epsilon, DELTA)


def ask(names: Sequence[str], task: Task) -> Iterator[Row | Remark]:
    """Let the peers do the task, each in a process of its own."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "task.npz")
        np.savez(path, rows=task.rows, dim=task.dim, epsilon=task.epsilon, delta=task.delta)
        for name in names:
            yield _ask(name, task, path)


def _ask(name: str, task: Task, path: Path) -> Row | Remark:
    interpreters = [named for named in (os.environ.get("SSTQ_PEERS_PYTHON"),) if named] + [sys.executable]
    missing = ""
    for interpreter in interpreters:
        command = [interpreter, str(HERE / "comparison_peers.py"), name, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, cwd=path.parent)  # noqa: S603
        lines = done.stdout.strip().splitlines()
        if done.returncode == 0:
            told = json.loads(lines[-1])
            error = told["squared_error_times_clients"] / task.dim
            label = f"{name} {told['version']}"
            return Row(label, error, told["bits"], told["delta"])
        if done.returncode != NOT_INSTALLED:
            return Remark(f"{name} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        missing = missing or (lines or ["not installed"])[-1]
    return Remark(f"{name} skipped: {missing}")


def own(label: str, mechanism: Mechanism, task: Task) -> Row:
    """One of ours on the same task: the mean error of some rounds of all clients."""
    truth, people = mean_of(task, len(task.rows)), len(task.rows)
    errors = []
    for seed in range(ROUNDS):
        this_round = mechanism if isinstance(mechanism, sstq.Frequencies) else mechanism.with_seed(seed)
        clients = np.arange(people) if mechanism.coin == "public" else None
        messages = this_round.encode(task.rows, clients=clients)
        errors.append(np.sum((this_round.aggregator().update(messages).mean().value - truth) ** 2))
    return Row(label, float(np.mean(errors)) * people / task.dim, mechanism.message_bits)


def report(rows: Iterable[Row | Remark], yardstick: Row) -> Iterator[Result | Remark]:
    """A line for every row, and remarks as they are."""
    yield yardstick.result(yardstick)
    for row in rows:
        yield row if isinstance(row, Remark) else row.result(yardstick)


@benchmark
def comparison() -> Iterator[Result | Remark]:
    """Other projects beside ours: squared error of the mean × clients ÷ dimensions, bits."""
    for part in (_vectors, _few_bits, _items, _rounds, _prio):
        yield from part()


def _vectors() -> Iterator[Result | Remark]:
    task = vectors(EPSILON)
    two_frames = own("FrameUnit, two frames", sstq.FrameUnit(DIM, EPSILON, frames=2), task)
    rows = chain([two_frames], ask((*VECTOR_PEERS, "pfl-central"), task))
    yield from report(rows, own("FrameUnit", sstq.FrameUnit(DIM, EPSILON), task))


def _few_bits() -> Iterator[Result | Remark]:
    task = vectors(EPSILON)
    ours: dict[str, Mechanism] = {
        "FrameUnit, 8 bits": sstq.FrameUnit(DIM, EPSILON, bits=8, clients=CLIENTS),
        "FrameUnit, 3 bits": sstq.FrameUnit(DIM, EPSILON, bits=3, clients=CLIENTS),
        "SQKR": sstq.SQKR(DIM, EPSILON, coin="public"),
        "PrivUnitG": sstq.PrivUnitG(DIM, EPSILON),
    }
    first, *rows = (own(label, mechanism, task) for label, mechanism in ours.items())
    yield from report(chain(rows, ask(FEW_BITS_PEERS, task)), first)


def _items() -> Iterator[Result | Remark]:
    for epsilon in (1.0, EPSILON):
        task = items(epsilon)
        yield from report(
            ask(ITEM_PEERS, task), own(f"Frequencies, ε = {epsilon:g}", sstq.Frequencies(ITEMS, epsilon), task)
        )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact ε of Gaussian noise at δ, μ being sensitivity over standard deviation; √T·μ for T rounds.

    Balle, Wang: Improving the Gaussian Mechanism for Differential Privacy, ICML 2018, Theorem 8.
    """

    def excess(epsilon: float) -> float:
        upper, lower = log_ndtr(mu / 2 - epsilon / mu), epsilon + log_ndtr(-mu / 2 - epsilon / mu)
        return float(np.exp(upper) - np.exp(lower)) - delta

    return float(brentq(excess, 0.0, mu * mu + 10 * mu * math.sqrt(-math.log(delta))))


def _rounds() -> Iterator[Result | Remark]:
    """What LocalDpMod's formula is worth, what T rounds cost a person, and the error of a round for a fixed total."""
    shrink = math.sqrt(2 * math.log(1.25 / DELTA))  # its standard deviation is sensitivity · shrink / ε
    for epsilon in (1.0, EPSILON, 8.0, 10.0):
        exact = gaussian_epsilon(epsilon / shrink, DELTA)
        yield Result(f"LocalDpMod(ε = {epsilon:g}, δ = {DELTA:g}): exact ε of its noise", exact, "")
    for rounds in (10, 100):
        exact = gaussian_epsilon(math.sqrt(rounds) * EPSILON / shrink, DELTA)
        yield Result(f"{rounds} rounds of LocalDpMod(ε = 3): total ε at δ = {DELTA:g}", exact, "")
        ours, note = compose(EPSILON, rounds, delta=DELTA), f"{EPSILON * rounds:g} at δ = 0"
        yield Result(f"{rounds} rounds of FrameUnit(ε = 3): total ε at δ = {DELTA:g}", ours, "", note)
    once = float(brentq(lambda mu: gaussian_epsilon(mu, DELTA) - EPSILON, 1e-3, 10.0))
    for rounds in (1, 10, 12, 100):
        gaussian = 4 * rounds / once**2  # sensitivity 2, variance per dimension
        each = epsilon_per_round(rounds, EPSILON, delta=DELTA)
        frameunit = sstq.FrameUnit(DIM, each).typical_error().total / DIM
        note = f"{gaussian:.3g} against {frameunit:.3g} (ε = {each:.3g} each); closed forms"
        what = f"{rounds} rounds, total ε = 3, δ = {DELTA:g}: squared error of Gaussian noise"
        yield Result(what, gaussian / frameunit, "× FrameUnit", note)


def _prio() -> Iterator[Result | Remark]:
    node, folder = shutil.which("node"), os.environ.get("SSTQ_PEERS_NODE")
    if not node or not folder:
        yield Remark("@divviup/dap skipped: SSTQ_PEERS_NODE names no folder with it, or node is not installed")
        return
    command = [node, str(HERE / "comparison_dap.mjs"), folder, str(ITEMS), str(DIM)]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        yield Remark(f"@divviup/dap failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        return
    told = json.loads(done.stdout)
    for kind, what in (("histogram", f"{ITEMS} items"), ("vector", f"{DIM} × 16 bits"), ("signs", f"{DIM} × 1 bit")):
        note = "no noise on the client"
        yield Result(f"@divviup/dap {told['version']}, {what}: report", told[kind]["bytes"], "bytes", note)
