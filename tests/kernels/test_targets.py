"""Other processors, and compilers without explicit vectors: the same messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from sstq.kernels import fallback, target, vectors

ROOT = Path(__file__).parents[2]

# Another processor, with vectors of eight numbers, is in tests/runs/test_warmup.py, which compiles for it anyway.
TARGETS = {"wide": {"SSTQ_VECTOR_WIDTH": "16"}, "plain": {"SSTQ_KERNELS": "plain"}}

# Every target adds in the same order, so even the rounding agrees: transforms, representations of every size, normal
# numbers and the messages of every mechanism. One program, because each target compiles its kernels anew. The disk
# cache is shared: code for one target must not be loaded for another.
PROGRAM = """
import hashlib, itertools, json, warnings
import numpy as np
from sstq.frames.kashin import make_kashin, represent
from sstq.frames.tight import HadamardFrame
from sstq.kernels import box_muller, draw_around, hadamard_transform
from sstq.kernels.target import USES_VECTORS, VECTOR_WIDTH
from tests.contract.cases import CASES, build, encode

def digest(numbers):
    return hashlib.sha256(numbers.tobytes()).hexdigest()

warnings.simplefilter("ignore")
found = {"vectors": [USES_VECTORS, VECTOR_WIDTH]}
for bits in (3, 5, 8, 13, 17):
    x = np.random.default_rng(bits).standard_normal((2, 1 << bits)).astype(np.float32)
    hadamard_transform(x)
    found[f"transform/{bits}"] = digest(x)
for bits in (*range(16), 18, 20):
    size = 1 << bits
    frame = HadamardFrame(max(1, int(size / 2.6)), size, seed=bits)
    x = np.random.default_rng(bits).standard_normal((2, frame.dim)).astype(np.float32)
    values, _ = represent(frame, make_kashin("certified", frame), x / np.linalg.norm(x, axis=1, keepdims=True))
    found[f"representation/{bits}"] = digest(values)
words = np.random.default_rng(1).integers(0, 1 << 64, size=(9, 1003), dtype=np.uint64)
u = np.full((9, 1003), 1003**-0.5)
found["normal numbers"] = digest(box_muller(words[:, 1:].copy()))
for to_length in (False, True):
    drawn = draw_around(u, np.linspace(-1, 1, 9), np.ones(9), words, first=1, to_length=to_length)
    found[f"vectors around a direction/{to_length}"] = digest(drawn)
for case, dim in itertools.product(CASES, (6, 300, 3000)):
    if "frame_size" not in CASES[case] or dim == 6:
        mechanism = build(case, dim)
        x = np.random.default_rng(dim).standard_normal((5, dim)) / dim**0.5
        found[f"{case}/{dim}"] = hashlib.sha256(encode(mechanism, x, rng=1).to_bytes()).hexdigest()
print(json.dumps(found))
"""


def run(program, **variables):
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"SSTQ_QUIET": "1"} | variables,
        cwd=ROOT,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def by_default():
    found = run(PROGRAM)
    representations = [digest for name, digest in found.items() if name.startswith("representation/")]
    assert len(set(representations)) == len(representations) == 18
    return found


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS)
def test_every_mechanism_sends_the_same_messages(target, by_default):
    vectors = {"wide": [True, 16], "plain": [False, 8]}[target]
    if by_default["vectors"] == vectors:
        pytest.skip("it is what this machine takes by default")
    assert run(PROGRAM, **TARGETS[target]) == by_default | {"vectors": vectors}


def test_this_machine_takes_vectors_and_says_no_to_what_llvm_refuses(monkeypatch):
    assert vectors.sample_compiles()
    monkeypatch.setattr(vectors.ir, "VectorType", None)
    assert not vectors.sample_compiles()


@pytest.mark.parametrize(("choice", "expected"), [("plain", fallback), ("vector", vectors)])
def test_the_environment_decides(choice, expected, monkeypatch):
    monkeypatch.setattr(vectors, "sample_compiles", lambda: choice == "plain")
    monkeypatch.setenv("SSTQ_KERNELS", choice)
    assert target.choose_passes() is expected


def test_otherwise_the_sample_does(monkeypatch):
    monkeypatch.delenv("SSTQ_KERNELS", raising=False)
    assert target.choose_passes() is vectors
    monkeypatch.setattr(vectors, "sample_compiles", lambda: False)
    with pytest.warns(RuntimeWarning, match="refuses explicit vectors: plain kernels"):
        assert target.choose_passes() is fallback


def test_other_choices_are_refused(monkeypatch):
    monkeypatch.setenv("SSTQ_KERNELS", "fast")
    with pytest.raises(ValueError, match="SSTQ_KERNELS must be one of auto, vector, plain, got 'fast'"):
        target.choose_passes()


@pytest.mark.slow
def test_a_compiler_that_refuses_vectors_gets_plain_kernels():
    program = """
import json
from llvmlite import ir
def refuse(*arguments, **options):
    raise NotImplementedError("no vectors here")
ir.IRBuilder.shuffle_vector = refuse
import numpy as np
from sstq.kernels import hadamard_transform, target
x = np.arange(64, dtype=np.float32)
hadamard_transform(x)
print(json.dumps([target.USES_VECTORS, float(x[0]), float(x[1])]))
"""
    assert run(program) == [False, 2016.0, -32.0]
