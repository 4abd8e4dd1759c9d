"""Benchmarks of the encoders in `clients/`, beside the library in one run."""

import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import sstq
from benchmarks.harness import Result, benchmark, fastest
from benchmarks.speed.harness import Remark
from benchmarks.speed.measurements import DIM, MILLION, unit_vectors
from benchmarks.speed.references import threads
from tests.clients import c_client

_INPUTS, _EACH = 1_000_000, 500
_GROUP = 3
_NO_COMPILER = Remark("the C client: there is no compiler, install gcc or clang")


def _compiled() -> dict[str, Any]:
    """The C client by its compilers."""
    with tempfile.TemporaryDirectory(prefix="sstq-clients-") as folder:
        paths = {name: Path(folder) / f"{name}.so" for name in c_client.compilers()}
        return {
            name: c_client.load(c_client.compile_client(name, path, *c_client.SHARED)) for name, path in paths.items()
        }


@benchmark
def clients() -> Iterator[Result | Remark]:
    """One message at a time, 25,450 dimensions, one thread: C (-O3, for any x86-64 or ARM64) beside the library."""
    cases = {
        "FrameUnit": (sstq.FrameUnit(DIM, 3.0), 0.5),
        "FrameUnit, three mixings": (sstq.FrameUnit(DIM, 3.0, frames=64), 0.7),
        "GroupUnit, 10 groups": (sstq.GroupUnit(DIM // 10, 3.0, groups=10), None),
        "SSTQ": (sstq.SSTQ(DIM, 3.0, bits=4), 8.0),
    }
    compiled = _compiled()
    if not compiled:
        yield _NO_COMPILER
    for label, (mechanism, target) in cases.items():
        x = unit_vectors(1, mechanism.dim)[0]
        ours = partial(mechanism.encode, x, groups=[_GROUP] if mechanism.groups else None)
        encoders = [c_client.Encoder(library, mechanism) for library in compiled.values()]
        in_c = [partial(encoder.encode, x, None, _GROUP) for encoder in encoders]
        with threads(1):
            *theirs, library_seconds = fastest(*in_c, ours, repeats=50)
        for name, seconds in zip(compiled, theirs, strict=True):
            note = f"library {1000 * library_seconds:.3g} ms"
            yield Result(f"{label}, {name}", 1000 * seconds, "ms", note, target, at_most=True)


@benchmark
def client_bits() -> Iterator[Result | Remark]:
    """Random mechanisms and vectors, 10⁶ in all: messages that differ between C and the library."""
    compiled = _compiled()
    if not compiled:
        yield _NO_COMPILER
    for name, library in list(compiled.items())[:1]:
        seed = np.random.SeedSequence().generate_state(1)[0]
        different, tried = c_client.differences(library, _INPUTS, np.random.default_rng(seed), _EACH)
        for mechanism, count in tried.items():
            note = f"of {count / MILLION:.3g} million; {name}, seed {seed}"
            yield Result(mechanism, different[mechanism], "differ", note, 0, at_most=True)
