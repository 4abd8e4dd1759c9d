"""What must never change: the messages that fixed words give, the exact sums of them, and the mean that is decoded.

Words and vectors come from SHAKE-256, whose output is the same for ever, unlike that of a seeded NumPy generator.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from tests.contract.cases import CASES, NOT_LOCAL, RECORDS, build, read_in_turn

FILE = Path(__file__).with_name("messages.json")
# Large enough for more than one 64-bit word of packed bits and for frames of several sizes.
DIMS = (6, 300)
_HEX = 128
# Their decoded doubles come from LAPACK or from NumPy's transcendental functions, whose last digit differs between
# processors. So their exact sums cannot be frozen; messages and means are.
ROUNDED = {
    "sstq/metric-aware-unbiased",
    "sstq/metric-aware-rescaled",
    "sstq/optimal",
    "turboquant",
}


class HashedBits:
    """An endless source of 64-bit words: SHAKE-256 of a label and a counter."""

    simulated = True

    def __init__(self, label):
        self._label = label
        self._requests = 0

    def words(self, count):
        self._requests += 1
        raw = hashlib.shake_256(f"{self._label}/{self._requests}".encode()).digest(
            8 * count
        )
        return np.frombuffer(raw, dtype="<u8").astype(np.uint64)


def vectors(dim):
    """Dense vectors of norms around clip, and the corners: zero, a spike, a long one, a constant."""
    raw = hashlib.shake_256(f"vectors/{dim}".encode()).digest(4 * 12 * dim)
    dense = (
        np.frombuffer(raw, dtype="<u4").reshape(12, dim).astype(np.float64) / 2**31 - 1
    ) / dim**0.5
    corners = np.zeros((4, dim))
    corners[1, dim // 2] = -0.5
    corners[2] = 3.0
    corners[3] = 0.25 / dim**0.5
    return np.concatenate([dense, corners]).astype(np.float32)


def record(case, dim):
    """Everything that is frozen of one mechanism."""
    mechanism = build(case, dim=dim)
    if case in RECORDS:
        held = mechanism.input.extremes(np.random.default_rng(0)).values()
        rows = np.concatenate([mechanism.input.read(**one) for one in held])
    else:
        rows = read_in_turn(mechanism, vectors(dim))
    columns = mechanism.encode_rows(rows, HashedBits(f"{case}/{dim}"), None)
    columns = tuple(
        c.astype(f.dtype) for f, c in zip(mechanism.layout.fields, columns, strict=True)
    )
    messages = mechanism.messages_from_columns(columns, True)
    frozen = {"bits": mechanism.message_bits}
    # Bytes of continuous values may differ in the last place between processors; what they decode to may not.
    if mechanism.exact or case in NOT_LOCAL:
        payload = messages.to_bytes()
        frozen["payload"] = (
            payload.hex()
            if len(payload) <= _HEX
            else f"sha256:{hashlib.sha256(payload).hexdigest()}"
        )
    if mechanism.delta > 0:
        return frozen | {"decoded": _numbers(mechanism.decode(messages).mean(axis=0))}
    aggregator = mechanism.aggregator().update(messages)
    if "payload" in frozen and case not in ROUNDED:
        state = np.ascontiguousarray(aggregator.sums())
        digest = hashlib.sha256(state.astype("<i8").tobytes()).hexdigest()
        frozen["sums"] = {"shape": list(state.shape), "sha256": digest}
    return frozen | {"mean": _numbers(aggregator.mean().value)}


def _numbers(values):
    """The first numbers and a checksum that all of them enter."""
    weights = np.cos(np.arange(len(values)))
    return [*map(float, values[:6]), float(values @ weights)]


def keys():
    every = CASES | NOT_LOCAL
    vectors = [
        f"{case}/{dim}"
        for case in every
        for dim in DIMS
        if dim <= every[case].get("frame_size", dim)
    ]
    return vectors + [f"{case}/1" for case in RECORDS]


def compute(key):
    case, _, dim = key.rpartition("/")
    return record(case, int(dim))


def write():
    frozen = {key: compute(key) for key in keys()}
    lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in frozen.items())
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


def load():
    return json.loads(FILE.read_text())
