"""Our mechanisms beside other projects' on the same data, ε and promise; docs/is-it-for-me.md has the tables.

Peers are optional. `SSTQ_PEERS_PYTHON` names an interpreter that has opendp, pfl and pure-ldp, `SSTQ_PROJUNIT` a
checkout of apple/ml-projunit, `SSTQ_PEERS_NODE` a folder with the npm package @divviup/dap. What is not there is
skipped. `flower` is what a Flower user gets from SstqMod and from LocalDpMod in one round of the paper's network.
"""

import json
import logging
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq

import sstq
from benchmarks.comparison_peers import NOT_INSTALLED, Task, mean_of
from benchmarks.harness import Remark, Result, benchmark
from sstq.accounting import compose, epsilon_per_round, gaussian_sigma
from sstq.mechanisms import Mechanism

HERE = Path(__file__).parent
DELTA = 1e-5
EPSILON = 3.0
DIM = 4096
CLIENTS = 400
ITEMS = 1024
ANSWERS = 4000
# of ours, each with its own frames; their mean scatters less than one round
ROUNDS = 10

VECTOR_PEERS = (
    "flower",
    "pfl-gaussian",
    "opendp-gaussian",
    "pfl-laplace",
    "opendp-laplace",
    "projunit-privunitg",
)
FEW_BITS_PEERS = ("projunit-compressed",)
ITEM_PEERS = (
    "pure-ldp-oue",
    "pure-ldp-olh",
    "pure-ldp-hr",
    "opendp-bits",
    "opendp-response",
)


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
        people = (
            f"{self.error / yardstick.error:.3g} times the people of {yardstick.name}"
        )
        return Result(
            f"{self.name}: squared error",
            self.error,
            "",
            f"{people}; {promise}; {self.bits:,.0f} bits",
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
        np.savez(
            path, rows=task.rows, dim=task.dim, epsilon=task.epsilon, delta=task.delta
        )
        for name in names:
            yield _ask(name, task, path)


def _ask(name: str, task: Task, path: Path) -> Row | Remark:
    interpreters = [
        named for named in (os.environ.get("SSTQ_PEERS_PYTHON"),) if named
    ] + [sys.executable]
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
            return Remark(
                f"{name} failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
            )
        missing = missing or (lines or ["not installed"])[-1]
    return Remark(f"{name} skipped: {missing}")


def own(label: str, mechanism: Mechanism, task: Task) -> Row:
    """One of ours on the same task: the mean error of some rounds of all clients."""
    truth = mean_of(task, len(task.rows))
    errors = []
    for seed in range(ROUNDS):
        this_round = (
            mechanism
            if isinstance(mechanism, sstq.Frequencies)
            else mechanism.with_seed(seed)
        )
        messages = this_round.encode(task.rows)
        errors.append(
            np.sum((this_round.aggregator().update(messages).mean().value - truth) ** 2)
        )
    return Row(
        label,
        float(np.mean(errors)) * len(task.rows) / task.dim,
        mechanism.message_bits,
    )


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
    two_frames = own(
        "FrameUnit, two frames", sstq.FrameUnit(DIM, EPSILON, frames=2), task
    )
    rows = chain([two_frames], ask((*VECTOR_PEERS, "pfl-central"), task))
    yield from report(rows, own("FrameUnit", sstq.FrameUnit(DIM, EPSILON), task))


def _few_bits() -> Iterator[Result | Remark]:
    task = vectors(EPSILON)
    ours: dict[str, Mechanism] = {
        "FrameUnit": sstq.FrameUnit(DIM, EPSILON),
        "SQKR": sstq.SQKR(DIM, EPSILON),
        "PrivUnitG": sstq.PrivUnitG(DIM, EPSILON),
    }
    first, *rows = (own(label, mechanism, task) for label, mechanism in ours.items())
    yield from report(chain(rows, ask(FEW_BITS_PEERS, task)), first)


def _items() -> Iterator[Result | Remark]:
    for epsilon in (1.0, EPSILON):
        task = items(epsilon)
        yield from report(
            ask(ITEM_PEERS, task),
            own(
                f"Frequencies, ε = {epsilon:g}", sstq.Frequencies(ITEMS, epsilon), task
            ),
        )


def gaussian_epsilon(mu: float, delta: float) -> float:
    """The exact ε of Gaussian noise at δ, μ being sensitivity over standard deviation; √T·μ for T rounds."""
    return float(
        brentq(lambda epsilon: mu * gaussian_sigma(epsilon, delta) - 1, 1e-9, 100.0)
    )


def _rounds() -> Iterator[Result | Remark]:
    """What LocalDpMod's formula is worth, what T rounds cost a person, and the error of a round for a fixed total."""
    # its standard deviation is sensitivity · shrink / ε
    shrink = math.sqrt(2 * math.log(1.25 / DELTA))
    for epsilon in (1.0, EPSILON, 8.0, 10.0):
        exact = gaussian_epsilon(epsilon / shrink, DELTA)
        yield Result(
            f"LocalDpMod(ε = {epsilon:g}, δ = {DELTA:g}): exact ε of its noise",
            exact,
            "",
        )
    for rounds in (10, 100):
        exact = gaussian_epsilon(math.sqrt(rounds) * EPSILON / shrink, DELTA)
        yield Result(
            f"{rounds} rounds of LocalDpMod(ε = 3): total ε at δ = {DELTA:g}", exact, ""
        )
        ours = compose(EPSILON, rounds, delta=DELTA)
        note = f"{EPSILON * rounds:g} at δ = 0"
        yield Result(
            f"{rounds} rounds of FrameUnit(ε = 3): total ε at δ = {DELTA:g}",
            ours,
            "",
            note,
        )
    for rounds in (1, 10, 12, 100):
        # sensitivity 2, variance per dimension
        gaussian = 4 * rounds * gaussian_sigma(EPSILON, DELTA) ** 2
        each = epsilon_per_round(rounds, EPSILON, delta=DELTA)
        frameunit = sstq.FrameUnit(DIM, each).typical_error().total / DIM
        note = f"{gaussian:.3g} against {frameunit:.3g} (ε = {each:.3g} each); closed forms"
        what = f"{rounds} rounds, total ε = 3, δ = {DELTA:g}: squared error of Gaussian noise"
        yield Result(what, gaussian / frameunit, "× FrameUnit", note)


def _prio() -> Iterator[Result | Remark]:
    node = shutil.which("node")
    folder = os.environ.get("SSTQ_PEERS_NODE")
    if not node or not folder:
        yield Remark(
            "@divviup/dap skipped: SSTQ_PEERS_NODE names no folder with it, or node is not installed"
        )
        return
    command = [node, str(HERE / "comparison_dap.mjs"), folder, str(ITEMS), str(DIM)]
    done = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    if done.returncode:
        yield Remark(
            f"@divviup/dap failed: {(done.stderr.strip().splitlines() or ['no message'])[-1]}"
        )
        return
    told = json.loads(done.stdout)
    for kind, what in (
        ("histogram", f"{ITEMS} items"),
        ("vector", f"{DIM} × 16 bits"),
        ("signs", f"{DIM} × 1 bit"),
    ):
        note = "no noise on the client"
        yield Result(
            f"@divviup/dap {told['version']}, {what}: report",
            told[kind]["bytes"],
            "bytes",
            note,
        )


NODES = 100
CLIP = 0.1
# The paper's network for Fashion-MNIST: 25,450 parameters.
SHAPES = {
    "hidden": (784, 32),
    "hidden-bias": (32,),
    "output": (32, 10),
    "output-bias": (10,),
}
SCALAR = {"weights": (3,), "temperature": ()}
Shapes = dict[str, tuple[int, ...]]


@dataclass
class Outcome:
    """What the server saw of one round.

    Attributes:
        error: of the mean.
        answered: how many nodes.
        bytes: of each answer.
        metrics: those in clear.
        noise: the standard deviation of the model's last parameter, where it is sent, from the node's own.
    """

    error: float = 0.0
    answered: int = 0
    bytes: list[int] = field(default_factory=list)
    metrics: set[str] = field(default_factory=set)
    noise: float = 0.0


def updates(shapes: Shapes, length: float) -> NDArray[np.float32]:
    """One update per node, all of this length, half of it in common."""
    rng = np.random.default_rng(1)
    dim = sum(int(np.prod(shape)) for shape in shapes.values())
    x = rng.standard_normal((NODES, dim)) + rng.standard_normal(dim)
    return (length * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def flower_round(
    mod: Callable[[str], Any], wrap: Callable[[Any], Any], shapes: Shapes, length: float
) -> Outcome:
    """One round of federated averaging through a mod."""
    from flwr.app import Array, ArrayRecord, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects

    from tests.integrations.flower.local_grid import LocalGrid

    rows = updates(shapes, length)
    outcome = Outcome()
    last = next(reversed(shapes))
    noise: list[float] = []

    def record(vector: NDArray[np.float32]) -> Any:
        pieces = np.split(
            vector, np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1]
        )
        named = zip(shapes.items(), pieces, strict=True)
        return ArrayRecord(
            {name: Array(piece.reshape(shape)) for (name, shape), piece in named}
        )

    def train(message: Any, context: Any) -> Any:
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        content = RecordDict(
            {
                "arrays": record(rows[context.node_config["partition-id"]]),
                "metrics": metrics,
            }
        )
        return Message(content, reply_to=message)

    def wire(reply: Any) -> list[Any]:
        if reply.has_content():
            outcome.answered += 1
            outcome.bytes.append(
                sum(
                    len(part.deflate())
                    for part in get_all_nested_objects(reply).values()
                )
            )
            outcome.metrics |= {
                key
                for record in reply.content.metric_records.values()
                for key in record
            }
            truth = rows[reply.metadata.src_node_id - 2, -1]
            noise.extend(
                float(a[last].numpy().ravel()[-1] - truth)
                for a in reply.content.array_records.values()
            )
        return [reply]

    with tempfile.TemporaryDirectory() as folder:
        app = ClientApp()
        app.train(mods=[mod(folder)])(train)
        start = record(np.zeros(rows.shape[1], dtype=np.float32))
        result = wrap(FedAvg(fraction_evaluate=0.0)).start(
            LocalGrid(app, NODES, wire=wire), start, num_rounds=1
        )
    if result.arrays:
        after = np.concatenate(
            [array.numpy().ravel() for array in result.arrays.values()]
        )
        outcome.error = float(np.linalg.norm(after - rows.mean(axis=0)))
    outcome.noise = float(np.std(noise)) if noise else 0.0
    return outcome


def local_dp(sensitivity: float) -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Flower's mod, and no strategy of its own."""
    from flwr.clientapp.mod import LocalDpMod

    return lambda _: LocalDpMod(CLIP, sensitivity, EPSILON, DELTA), lambda inner: inner


def sstq_mod() -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Our mod and our strategy."""
    from sstq.integrations.flower import SstqMod, SstqStrategy

    def mod(folder: str) -> Any:
        return SstqMod(max_epsilon=EPSILON, total_epsilon=EPSILON, ledger=folder)

    return mod, lambda inner: SstqStrategy(
        inner, epsilon=EPSILON, clip=CLIP, frame_seed=1
    )


@benchmark
def flower() -> Iterator[Result]:
    """One round of the paper's network, 25,450 parameters, 100 nodes, clip 0.1, ε = 3."""
    import flwr  # noqa: F401 (which sets the level of its log)

    logger = logging.getLogger("flwr")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield from _compare()
    finally:
        logger.setLevel(level)


def _compare() -> Iterator[Result]:
    own = flower_round(*sstq_mod(), SHAPES, CLIP)
    for name, pair, privacy in [
        (
            "LocalDpMod, sensitivity 2·clip",
            local_dp(2 * CLIP),
            f"({EPSILON:g}, {DELTA:g}) per round, replacing the data",
        ),
        (
            "LocalDpMod, sensitivity clip",
            local_dp(CLIP),
            f"({EPSILON:g}, {DELTA:g}) per round, data or a zero update",
        ),
        (
            "SstqMod",
            sstq_mod(),
            f"pure ε = {EPSILON:g} per round, replacing the data, exact in integers",
        ),
    ]:
        full = own if name == "SstqMod" else flower_round(*pair, SHAPES, CLIP)
        yield Result(
            f"{name}: bytes per client",
            max(full.bytes),
            "bytes",
            f"metrics in clear: {_listed(full.metrics)}",
        )
        ratio = full.error / own.error
        yield Result(
            f"{name}: error of the mean",
            full.error,
            "",
            f"{ratio:.3g} times SstqMod's; {privacy}",
        )
        scalar = flower_round(*pair, SCALAR, CLIP)
        if name != "SstqMod":
            yield Result(
                f"{name}: noise of a 0-d parameter",
                scalar.noise,
                "",
                "standard deviation",
            )
        zero = flower_round(*pair, SCALAR, 0.0)
        yield Result(f"{name}: answers to a zero update", zero.answered, f"of {NODES}")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
