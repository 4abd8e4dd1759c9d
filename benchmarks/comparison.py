"""Our mechanisms beside other projects' on the same data, ε and promise; docs/is-it-for-me.md has the tables.

Peers are optional. `SSTQ_PEERS_PYTHON` names an interpreter that has opendp, pfl and pure-ldp, `SSTQ_PROJUNIT` a
checkout of apple/ml-projunit, `SSTQ_PEERS_NODE` a folder with the npm package @divviup/dap. What is not there is
skipped. Times are processor time, the median of single calls, so that neighbours on the machine count little.
"""

import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import log_ndtr

import sstq
from benchmarks.comparison_peers import NOT_INSTALLED, Task, mean_of, milliseconds_of
from benchmarks.harness import Remark, Result, benchmark
from sstq.accounting import compose, epsilon_per_round
from sstq.mechanisms import Mechanism

HERE = Path(__file__).parent
DELTA, EPSILON = 1e-5, 3.0
DIM, CLIENTS = 4096, 400
ITEMS, ANSWERS = 1024, 4000
TIMED = 100  # single calls behind the time per client
ROUNDS = 10  # of ours, each with its own frames; their mean scatters less than one round

VECTOR_PEERS = ("flower", "pfl-gaussian", "opendp-gaussian", "pfl-laplace", "opendp-laplace", "projunit-privunitg")
FEW_BITS_PEERS = ("projunit-fast", "projunit-compressed", "projunit-sqkr")
ITEM_PEERS = ("pure-ldp-oue", "pure-ldp-olh", "pure-ldp-hr", "opendp-bits", "opendp-response")


@dataclass(frozen=True)
class Row:
    """What one mechanism did; the squared error is that of the mean, times clients, per dimension."""

    name: str
    error: float
    bits: float
    client_ms: float
    server_ms: float
    delta: float = 0.0

    def results(self, yardstick: "Row") -> Iterator[Result]:
        """The lines of the table, relative to the yardstick where that says more."""
        promise = f"δ = {self.delta:g}" if self.delta else "pure ε"
        people = f"{self.error / yardstick.error:.3g} times the people of {yardstick.name}"
        yield Result(f"{self.name}: squared error", self.error, "", f"{people}; {promise}; {self.bits:,.0f} bits")
        ratio = self.client_ms / yardstick.client_ms
        yield Result(
            f"{self.name}: time per client", ratio, "×", f"{self.client_ms:.3g} ms; server {self.server_ms:.2g}"
        )


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
            return Row(label, error, told["bits"], told["client_ms"], told["server_ms"], told["delta"])
        if done.returncode != NOT_INSTALLED:
            return Remark(f"{name} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}")
        missing = missing or (lines or ["not installed"])[-1]
    return Remark(f"{name} skipped: {missing}")


def own(
    label: str, mechanism: Mechanism, task: Task, x: NDArray[np.float32], groups: NDArray[Any] | None = None
) -> Row:
    """One of ours on the same task: the mean error of some rounds of all clients, and the time of single calls."""

    def encode(this_round: Mechanism, rows: slice) -> Any:
        named: dict[str, Any] = {} if groups is None else {"groups": groups[rows]}
        if mechanism.coin == "public":
            named["clients"] = np.arange(len(x))[rows]
        return this_round.encode(x[rows], **named)

    def serve(this_round: Mechanism, messages: Any) -> None:
        aggregator = this_round.aggregator()
        aggregator.update(messages)
        estimates.append(aggregator.mean().value.ravel())

    estimates: list[NDArray[np.float64]] = []
    served: list[float] = []
    truth = mean_of(task, len(x))
    for seed in range(ROUNDS):
        this_round = mechanism.with_seed(seed)
        served.append(milliseconds_of(partial(serve, this_round, encode(this_round, slice(None)))))
    error = np.mean([np.sum((estimate - truth) ** 2) for estimate in estimates]) * len(x) / task.dim
    taken = [milliseconds_of(partial(encode, mechanism, slice(i, i + 1))) for i in range(TIMED)]
    served_ms = statistics.median(served) / len(x)
    return Row(label, float(error), mechanism.message_bits, statistics.median(taken), served_ms)


def report(rows: Iterable[Row | Remark], yardstick: Row) -> Iterator[Result | Remark]:
    """Lines for every row, and remarks as they are."""
    yield from yardstick.results(yardstick)
    for row in rows:
        if isinstance(row, Remark):
            yield row
        else:
            yield from row.results(yardstick)


@benchmark
def comparison() -> Iterator[Result | Remark]:
    """Other projects beside ours: squared error of the mean × clients ÷ dimensions, bits, processor time."""
    for part in (_vectors, _few_bits, _other_epsilons, _histogram, _rounds, _prio):
        yield from part()


def _frameunit(task: Task) -> Row:
    mechanism = sstq.FrameUnit(DIM, task.epsilon, clients=CLIENTS)
    return own(f"FrameUnit, ε = {task.epsilon:g}", mechanism, task, task.rows)


def _vectors() -> Iterator[Result | Remark]:
    task = vectors(EPSILON)
    one_frame = own("FrameUnit, one frame", sstq.FrameUnit(DIM, EPSILON), task, task.rows)
    yield from report(chain([one_frame], ask((*VECTOR_PEERS, "pfl-central"), task)), _frameunit(task))


def _few_bits() -> Iterator[Result | Remark]:
    task = vectors(EPSILON)
    ours: list[tuple[str, Mechanism]] = [
        ("FrameUnit, 8 bits", sstq.FrameUnit(DIM, EPSILON, bits=8, clients=CLIENTS)),
        ("FrameUnit, 3 bits", sstq.FrameUnit(DIM, EPSILON, bits=3, clients=CLIENTS)),
        ("SQKR", sstq.SQKR(DIM, EPSILON, coin="public")),
        ("CompressedPrivUnitG", sstq.CompressedPrivUnitG(DIM, EPSILON, bits=8)),
        ("PrivUnitG", sstq.PrivUnitG(DIM, EPSILON)),
        ("ProjUnit, fast", sstq.ProjUnit(DIM, EPSILON, projected=1000, projection="fast")),
    ]
    rows = [own(label, mechanism, task, task.rows) for label, mechanism in ours]
    yield from report(chain(rows[1:], ask(FEW_BITS_PEERS, task)), rows[0])


def _other_epsilons() -> Iterator[Result | Remark]:
    for epsilon in (1.0, 8.0):
        task = vectors(epsilon)
        yield from report(ask(("flower", "pfl-gaussian", "projunit-privunitg"), task), _frameunit(task))


def _histogram() -> Iterator[Result | Remark]:
    for epsilon in (1.0, EPSILON):
        task = items(epsilon)
        one_hot = np.eye(ITEMS, dtype=np.float32)[task.rows]
        frameunit = own(
            f"FrameUnit on items, ε = {epsilon:g}", sstq.FrameUnit(ITEMS, epsilon, clients=ANSWERS), task, one_hot
        )
        grouped = sstq.GroupUnit(1, epsilon, groups=ITEMS, clients=ANSWERS, share_people=0.0)
        ones = np.ones((ANSWERS, 1), dtype=np.float32)
        groupunit = own(f"GroupUnit on items, ε = {epsilon:g}", grouped, task, ones, task.rows)
        yield from report(chain([groupunit], ask(ITEM_PEERS, task)), frameunit)


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
        figure, note = told[kind]["bytes"], f"{told[kind]['client_ms']:,.0f} ms; no noise on the client"
        yield Result(f"@divviup/dap {told['version']}, {what}: report", figure, "bytes", note)
