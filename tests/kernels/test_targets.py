"""Other processors, and compilers without explicit vectors: the same messages."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from sstq.kernels import support

ROOT = Path(__file__).parents[2]

TARGETS = {
    "haswell": {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"},
    "wide": {"SSTQ_VECTOR_WIDTH": "16"},
    "plain": {"SSTQ_KERNELS": "plain"},
}

# Every target adds in the same order, bit after bit of the index, so even the rounding agrees. The exception is the
# fused projection of SSTQ and SQKR, which takes the bits in groups that depend on the vector width: its coordinates
# differ by 1e-7 of the bound, so that one of the seeded messages here differs with probability 1e-4, once and for all.
# The disk cache is shared: code for one target must not be loaded for another.
PROGRAM = """
import hashlib, itertools, json, warnings
import numpy as np
from sstq.kernels import hadamard_transform
from sstq.kernels.target import USES_VECTORS, VECTOR_WIDTH
from tests.contract.cases import CASES, build, encode

warnings.simplefilter("ignore")
found = {"vectors": [USES_VECTORS, VECTOR_WIDTH]}
for bits in (3, 5, 8, 13, 17):
    x = np.random.default_rng(bits).standard_normal((2, 1 << bits)).astype(np.float32)
    hadamard_transform(x)
    found[f"transform/{bits}"] = hashlib.sha256(x.tobytes()).hexdigest()
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
    return run(PROGRAM)


@pytest.mark.parametrize("target", TARGETS)
def test_every_mechanism_sends_the_same_messages(target, by_default):
    found = run(PROGRAM, **TARGETS[target])
    uses_vectors, width = found.pop("vectors")
    assert uses_vectors == (target != "plain")
    assert width == (16 if target == "wide" else 8)
    assert found == {name: digest for name, digest in by_default.items() if name != "vectors"}


REPRESENT = """
import json
import numpy as np
from sstq.frames import HadamardFrame
from sstq.kashin import make_kashin, represent
frame = HadamardFrame(3000, 8192, seed=1)
x = np.random.default_rng(1).standard_normal((1, 3000)).astype(np.float32)
values, _ = represent(frame, make_kashin("certified", frame), x / np.linalg.norm(x))
print(json.dumps(values[0].tolist()))
"""


def test_representations_agree_bit_for_bit_at_one_width_and_to_single_precision_otherwise():
    narrow, wide, plain = (
        np.array(run(REPRESENT, **variables))
        for variables in ({"SSTQ_VECTOR_WIDTH": "8"}, {"SSTQ_VECTOR_WIDTH": "16"}, {"SSTQ_KERNELS": "plain"})
    )
    np.testing.assert_array_equal(plain, narrow)
    # Coordinates are at most 1; some hundred roundings of 2^-24.
    np.testing.assert_allclose(wide, narrow, atol=1e-5)


def test_this_machine_takes_vectors_and_says_no_to_what_llvm_refuses(monkeypatch):
    assert support.sample_compiles()
    monkeypatch.setattr(support.ir, "VectorType", None)
    assert not support.sample_compiles()


@pytest.mark.parametrize("choice", ["plain", "vector"])
def test_the_environment_decides(choice, monkeypatch):
    monkeypatch.setattr(support, "sample_compiles", lambda: choice == "plain")
    monkeypatch.setenv("SSTQ_KERNELS", choice)
    assert support.uses_vectors() == (choice == "vector")


def test_otherwise_the_sample_does(monkeypatch):
    monkeypatch.delenv("SSTQ_KERNELS", raising=False)
    assert support.uses_vectors()
    monkeypatch.setattr(support, "sample_compiles", lambda: False)
    with pytest.warns(RuntimeWarning, match="refuses explicit vectors: plain kernels"):
        assert not support.uses_vectors()


def test_other_choices_are_refused(monkeypatch):
    monkeypatch.setenv("SSTQ_KERNELS", "fast")
    with pytest.raises(ValueError, match="SSTQ_KERNELS must be one of auto, vector, plain, not 'fast'"):
        support.uses_vectors()


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
