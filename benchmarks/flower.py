"""What a Flower user gets from SstqMod and from LocalDpMod in one round of the paper's network."""

import logging
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.harness import Result, benchmark

NODES, CLIP, EPSILON, DELTA = 100, 0.1, 3.0, 1e-5
# The paper's network for Fashion-MNIST: 25,450 parameters.
SHAPES = {"hidden": (784, 32), "hidden-bias": (32,), "output": (32, 10), "output-bias": (10,)}
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
    """One update a node, all of this length, half of it in common."""
    rng = np.random.default_rng(1)
    dim = sum(int(np.prod(shape)) for shape in shapes.values())
    x = rng.standard_normal((NODES, dim)) + rng.standard_normal(dim)
    return (length * x / np.linalg.norm(x, axis=1, keepdims=True)).astype(np.float32)


def run(mod: Callable[[str], Any], wrap: Callable[[Any], Any], shapes: Shapes, length: float) -> Outcome:
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
        pieces = np.split(vector, np.cumsum([int(np.prod(shape)) for shape in shapes.values()])[:-1])
        named = zip(shapes.items(), pieces, strict=True)
        return ArrayRecord({name: Array(piece.reshape(shape)) for (name, shape), piece in named})

    def train(message: Any, context: Any) -> Any:
        metrics = MetricRecord({"num-examples": 10, "loss": 0.5})
        content = RecordDict({"arrays": record(rows[context.node_config["partition-id"]]), "metrics": metrics})
        return Message(content, reply_to=message)

    def wire(reply: Any) -> list[Any]:
        if reply.has_content():
            outcome.answered += 1
            outcome.bytes.append(sum(len(part.deflate()) for part in get_all_nested_objects(reply).values()))
            outcome.metrics |= {key for record in reply.content.metric_records.values() for key in record}
            truth = rows[reply.metadata.src_node_id - 2, -1]
            noise.extend(float(a[last].numpy().ravel()[-1] - truth) for a in reply.content.array_records.values())
        return [reply]

    with tempfile.TemporaryDirectory() as folder:
        app = ClientApp()
        app.train(mods=[mod(folder)])(train)
        start = record(np.zeros(rows.shape[1], dtype=np.float32))
        result = wrap(FedAvg(fraction_evaluate=0.0)).start(LocalGrid(app, NODES, wire=wire), start, num_rounds=1)
    if result.arrays:
        after = np.concatenate([array.numpy().ravel() for array in result.arrays.values()])
        outcome.error = float(np.linalg.norm(after - rows.mean(axis=0)))
    outcome.noise = float(np.std(noise)) if noise else 0.0
    return outcome


def local_dp(sensitivity: float) -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Flower's mod, and no strategy of its own."""
    from flwr.clientapp.mod import LocalDpMod

    return lambda _: LocalDpMod(CLIP, sensitivity, EPSILON, DELTA), lambda inner: inner


def ours() -> tuple[Callable[[str], Any], Callable[[Any], Any]]:
    """Our mod and our strategy."""
    from sstq.integrations.flower import SstqMod, SstqStrategy

    def mod(folder: str) -> Any:
        return SstqMod(max_epsilon=EPSILON, total_epsilon=EPSILON, ledger=folder)

    return mod, lambda inner: SstqStrategy(inner, epsilon=EPSILON, clip=CLIP, frame_seed=1)


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
    own = run(*ours(), SHAPES, CLIP)
    for name, pair, privacy in [
        (
            "LocalDpMod, sensitivity 2·clip",
            local_dp(2 * CLIP),
            f"({EPSILON:g}, {DELTA:g}) a round, replacing the data",
        ),
        (
            "LocalDpMod, sensitivity clip",
            local_dp(CLIP),
            f"({EPSILON:g}, {DELTA:g}) a round, data or a zero update",
        ),
        ("SstqMod", ours(), f"pure ε = {EPSILON:g} a round, replacing the data, exact in integers"),
    ]:
        full = own if name == "SstqMod" else run(*pair, SHAPES, CLIP)
        yield Result(
            f"{name}: bytes per client", max(full.bytes), "bytes", f"metrics in clear: {_listed(full.metrics)}"
        )
        ratio = full.error / own.error
        yield Result(f"{name}: error of the mean", full.error, "", f"{ratio:.3g} times SstqMod's; {privacy}")
        scalar = run(*pair, SCALAR, CLIP)
        if name != "SstqMod":
            yield Result(f"{name}: noise of a 0-d parameter", scalar.noise, "", "standard deviation")
        zero = run(*pair, SCALAR, 0.0)
        yield Result(f"{name}: answers to a zero update", zero.answered, f"of {NODES}")


def _listed(names: set[str]) -> str:
    return ", ".join(sorted(names)) or "none"
