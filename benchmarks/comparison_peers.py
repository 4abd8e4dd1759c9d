"""Other projects' mechanisms, one per run: a script for an interpreter that has them, which need not have sstq.

    python comparison_peers.py PEER TASK.npz

The task holds `rows` (unit vectors, or the number of an item each), `dim`, `epsilon` and `delta`. Every peer is set up
for the same promise: whatever a person holds is replaced by anything else. The last line of the output is JSON: the
squared error of the mean times the number of clients, bits per client, δ and the version. Exit code 3
says that the peer is not installed.
"""

import importlib.metadata
import json
import math
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

NOT_INSTALLED = 3
# The values that the peers' own documentation or experiments use.
# noise in multiples of 2^-20: several times faster than the default, which is 2^-1074
OPENDP_GRANULARITY = -20


@dataclass(frozen=True)
class Task:
    """What is to be estimated."""

    rows: np.ndarray
    dim: int
    epsilon: float
    delta: float


@dataclass(frozen=True)
class Peer:
    """A mechanism made ready.

    Attributes:
        version: of its package.
        bits: per client; of dense vectors 32 per number.
        encode: what a client does with its row.
        estimate: the mean from what the clients sent.
        delta: the δ of its promise.
        clients: the most clients to try it on, where it is slow.
    """

    version: str
    bits: float
    encode: Callable[[Any], Any]
    estimate: Callable[[Sequence[Any]], np.ndarray]
    delta: float = 0.0
    clients: int | None = None


def average(messages: Sequence[np.ndarray]) -> np.ndarray:
    """The mean of dense vectors."""
    return np.mean(messages, axis=0)


def flower(task: Task) -> Peer:
    """Flower's LocalDpMod, as the README of Flower sets it up, with the sensitivity 2·clip of replaced data."""
    import logging

    from flwr.app import Array, ArrayRecord, Context, Message, RecordDict
    from flwr.clientapp.mod import LocalDpMod
    from flwr.supercore.inflatable.inflatable_object import get_all_nested_objects
    from flwr.supercore.task_identity import TaskIdentity

    # as a running app has them
    TaskIdentity.run_id = 1
    TaskIdentity.node_id = 1
    TaskIdentity.task_id = 0
    logging.getLogger("flwr").setLevel(logging.CRITICAL)
    mod = LocalDpMod(1.0, 2.0, task.epsilon, task.delta)
    model = RecordDict(
        {"arrays": ArrayRecord({"w": Array(np.zeros(task.dim, dtype=np.float32))})}
    )
    context = Context(
        run_id=1, node_id=2, node_config={}, state=RecordDict(), run_config={}
    )

    def encode(row: np.ndarray) -> Message:
        def train(message: Message, _: Context) -> Message:
            return Message(
                RecordDict({"arrays": ArrayRecord({"w": Array(row)})}), reply_to=message
            )

        return mod(Message(model, 2, "train"), context, train)

    def estimate(messages: Sequence[Message]) -> np.ndarray:
        return average([message.content["arrays"]["w"].numpy() for message in messages])

    bits = 8 * sum(
        len(part.deflate())
        for part in get_all_nested_objects(encode(task.rows[0])).values()
    )
    return Peer(importlib.metadata.version("flwr"), bits, encode, estimate, task.delta)


def _pfl(task: Task, mechanism: Any, *, central: bool = False) -> Peer:
    from pfl.stats import MappedVectorStatistics

    def encode(row: np.ndarray) -> Any:
        statistics_of_one = MappedVectorStatistics({"w": row}, weight=1.0)
        return (mechanism.constrain_sensitivity if central else mechanism.privatize)(
            statistics_of_one
        )[0]

    def estimate(messages: Sequence[Any]) -> np.ndarray:
        total = MappedVectorStatistics(
            {"w": np.sum([message["w"] for message in messages], axis=0)}, weight=1.0
        )
        if central:
            total, _ = mechanism.add_noise(total, len(messages))
        return total["w"] / len(messages)

    return Peer(importlib.metadata.version("pfl"), 32 * task.dim, encode, estimate)


def pfl_laplace(task: Task) -> Peer:
    """pfl-research's Laplace mechanism: its ε is for data against none, hence half of it for replaced data."""
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy import LaplaceMechanism

    set_framework_module(numpy_ops)
    return _pfl(
        task, LaplaceMechanism(math.sqrt(task.dim) * (1 + 1e-6), task.epsilon / 2)
    )


def _pfl_gaussian(task: Task, factor: float, *, central: bool = False) -> Peer:
    from pfl.internal.ops import numpy_ops
    from pfl.internal.ops.selector import set_framework_module
    from pfl.privacy import GaussianMechanism

    set_framework_module(numpy_ops)
    one = GaussianMechanism.construct_single_iteration(1.0, task.epsilon, task.delta)
    mechanism = GaussianMechanism(1.0, factor * one.relative_noise_stddev)
    peer = _pfl(task, mechanism, central=central)
    return Peer(peer.version, peer.bits, peer.encode, peer.estimate, task.delta)


def pfl_gaussian(task: Task) -> Peer:
    """pfl-research's Gaussian mechanism, calibrated exactly, for replaced data."""
    return _pfl_gaussian(task, 2.0)


def pfl_central(task: Task) -> Peer:
    """The same noise once, added by a server that everybody trusts: no local privacy."""
    return _pfl_gaussian(task, 2.0, central=True)


def _opendp(task: Task, make: str) -> Peer:
    import opendp.prelude as dp

    dp.enable_features("contrib")
    numbers = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=task.dim)
    if make == "laplace":
        space = (numbers, dp.l1_distance(T=float))
        reach = 2 * math.sqrt(task.dim)
        promise = task.epsilon
    else:
        space = (numbers, dp.l2_distance(T=float))
        reach = 2.0
        promise = (task.epsilon, task.delta)

    def measurement(scale: float) -> Any:
        if make == "laplace":
            return dp.m.make_laplace(*space, scale=scale, k=OPENDP_GRANULARITY)
        gaussian = dp.m.make_gaussian(*space, scale=scale, k=OPENDP_GRANULARITY)
        return dp.c.make_fix_delta(
            dp.c.make_zCDP_to_approxDP(gaussian), delta=task.delta
        )

    chosen = dp.binary_search_chain(measurement, d_in=reach, d_out=promise)
    delta = 0.0 if make == "laplace" else task.delta
    version = importlib.metadata.version("opendp")
    return Peer(
        version,
        32 * task.dim,
        lambda row: chosen(row.tolist()),
        average,
        delta,
        clients=40,
    )


def opendp_laplace(task: Task) -> Peer:
    """OpenDP's Laplace mechanism for vectors: its distance is ℓ1, and the ball's diameter is 2√d in it."""
    return _opendp(task, "laplace")


def opendp_gaussian(task: Task) -> Peer:
    """OpenDP's Gaussian mechanism for vectors, by zero-concentrated privacy and its conversion to (ε, δ)."""
    return _opendp(task, "gaussian")


def _projunit() -> tuple[Any, Any, str]:
    """The modules of a checkout of apple/ml-projunit, which is no package."""
    folder = os.environ.get("SSTQ_PROJUNIT", "")
    if not folder:
        raise ImportError("SSTQ_PROJUNIT names no checkout of apple/ml-projunit")
    sys.path.insert(0, folder)
    import PrivUnitAlgs  # type: ignore[import-not-found]
    import utilities  # type: ignore[import-not-found]

    git = shutil.which("git") or "git"
    command = [git, "-C", folder, "rev-parse", "--short", "HEAD"]
    commit = subprocess.run(command, capture_output=True, text=True)  # noqa: S603
    return PrivUnitAlgs, utilities, commit.stdout.strip() or "unknown commit"


def _projunit_privunit(task: Task, name: str, bits: float, clients: int | None) -> Peer:
    algorithms, utilities, version = _projunit()
    p = utilities.priv_unit_G_get_p(task.epsilon)
    gamma, sigma = utilities.get_gamma_sigma(p, task.epsilon)
    function = getattr(algorithms, name)

    def encode(row: np.ndarray) -> np.ndarray:
        return function(row.astype(np.float64), task.epsilon, p, gamma, sigma)

    return Peer(version, bits, encode, average, clients=clients)


def projunit_privunitg(task: Task) -> Peer:
    """PrivUnitG: a dense vector."""
    return _projunit_privunit(task, "PrivUnitG", 32 * task.dim, None)


def projunit_compressed(task: Task) -> Peer:
    """CompPrivUnitG: the number of one of up to e^ε·ln 10⁴ vectors that a public coin draws."""
    tries = math.ceil(math.exp(task.epsilon) * math.log(1e4))
    return _projunit_privunit(task, "CompPrivUnitG", math.ceil(math.log2(tries)), 100)


def _pure_ldp(task: Task, client: Any, server: Any, bits: float) -> Peer:
    def estimate(messages: Sequence[Any]) -> np.ndarray:
        for message in messages:
            server.aggregate(message)
        return np.asarray(
            server.estimate_all(range(task.dim), suppress_warnings=True)
        ) / len(messages)

    return Peer(
        importlib.metadata.version("pure-ldp"), bits, client.privatise, estimate
    )


def pure_ldp_oue(task: Task) -> Peer:
    """Optimised unary encoding: one bit per item."""
    from pure_ldp.frequency_oracles.unary_encoding import UEClient, UEServer

    options = {
        "epsilon": task.epsilon,
        "d": task.dim,
        "use_oue": True,
        "index_mapper": int,
    }
    return _pure_ldp(task, UEClient(**options), UEServer(**options), task.dim)


def pure_ldp_olh(task: Task) -> Peer:
    """Optimal local hashing: a seed of 63 bits and a hash of the item."""
    from pure_ldp.frequency_oracles.local_hashing import LHClient, LHServer

    options = {
        "epsilon": task.epsilon,
        "d": task.dim,
        "use_olh": True,
        "index_mapper": int,
    }
    client = LHClient(**options)
    return _pure_ldp(
        task, client, LHServer(**options), 63 + math.ceil(math.log2(client.g))
    )


def pure_ldp_hr(task: Task) -> Peer:
    """Hadamard response: the number of a column."""
    from pure_ldp.frequency_oracles.hadamard_response import (
        HadamardResponseClient,
        HadamardResponseServer,
    )

    server = HadamardResponseServer(task.epsilon, task.dim, index_mapper=int)
    client = HadamardResponseClient(
        task.epsilon, task.dim, server.get_hash_funcs(), index_mapper=int
    )
    return _pure_ldp(task, client, server, client.hr.outbit)


def opendp_response(task: Task) -> Peer:
    """OpenDP's randomized response over the items, with the usual estimate from the counts."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    growth = math.exp(task.epsilon * (1 - 1e-12))  # its own map must stay within ε
    truth = growth / (growth + task.dim - 1)
    response = dp.m.make_randomized_response(
        categories=list(range(task.dim)), prob=truth
    )
    assert response.map(1) <= task.epsilon
    other = (1 - truth) / (task.dim - 1)

    def estimate(messages: Sequence[int]) -> np.ndarray:
        counts = np.bincount(messages, minlength=task.dim)
        return (counts / len(messages) - other) / (truth - other)

    bits = math.ceil(math.log2(task.dim))
    return Peer(
        importlib.metadata.version("opendp"),
        bits,
        lambda row: response(int(row)),
        estimate,
    )


def opendp_bits(task: Task) -> Peer:
    """OpenDP's randomized response on a bit vector with one bit set (RAPPOR), with its own debiasing formula."""
    import opendp.prelude as dp

    dp.enable_features("contrib")
    flip = 2 / (math.exp(task.epsilon * (1 - 1e-12) / 2) + 1)
    domain = dp.bitvector_domain(max_weight=1)
    response = dp.m.make_randomized_response_bitvec(
        domain, dp.discrete_distance(), f=flip
    )
    assert response.map(1) <= task.epsilon

    def encode(row: int) -> np.ndarray:
        bits = np.zeros(task.dim, dtype=np.uint8)
        bits[row] = 1
        return np.unpackbits(
            np.frombuffer(response(np.packbits(bits).tobytes()), dtype=np.uint8)
        )

    def estimate(messages: Sequence[np.ndarray]) -> np.ndarray:
        return (average(messages) - flip / 2) / (1 - flip)

    return Peer(importlib.metadata.version("opendp"), task.dim, encode, estimate)


PEERS: dict[str, Callable[[Task], Peer]] = {
    "flower": flower,
    "pfl-laplace": pfl_laplace,
    "pfl-gaussian": pfl_gaussian,
    "pfl-central": pfl_central,
    "opendp-laplace": opendp_laplace,
    "opendp-gaussian": opendp_gaussian,
    "projunit-privunitg": projunit_privunitg,
    "projunit-compressed": projunit_compressed,
    "pure-ldp-oue": pure_ldp_oue,
    "pure-ldp-olh": pure_ldp_olh,
    "pure-ldp-hr": pure_ldp_hr,
    "opendp-response": opendp_response,
    "opendp-bits": opendp_bits,
}


def mean_of(task: Task, count: int) -> np.ndarray:
    """The true mean of the first clients: of vectors, or the shares of items."""
    rows = task.rows[:count]
    return (
        rows.mean(axis=0)
        if rows.ndim == 2
        else np.bincount(rows, minlength=task.dim) / count
    )


def measure(peer: Peer, task: Task) -> dict[str, Any]:
    """Encode one client after another, estimate once, and compare."""
    count = min(len(task.rows), peer.clients or len(task.rows))
    estimate = peer.estimate([peer.encode(row) for row in task.rows[:count]])
    return {
        "squared_error_times_clients": float(
            np.sum((estimate - mean_of(task, count)) ** 2) * count
        ),
        "bits": peer.bits,
        "delta": peer.delta,
        "version": peer.version,
    }


def main(name: str, path: str) -> int:
    """Measure the peer on the task and print the result."""
    with np.load(Path(path)) as stored:
        task = Task(
            stored["rows"],
            int(stored["dim"]),
            float(stored["epsilon"]),
            float(stored["delta"]),
        )
    random.seed(1)
    np.random.seed(1)  # noqa: NPY002 (theirs)
    try:
        peer = PEERS[name](task)
    except ImportError as error:
        print(error)
        return NOT_INSTALLED
    print(json.dumps(measure(peer, task)))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
