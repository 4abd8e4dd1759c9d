"""Compiled kernels on disk, the same results on every processor, and what a person is told who waits."""

import ctypes
import json
import os
import re
import shutil
import subprocess
import sys
from collections import Counter
from contextlib import suppress
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src" / "sstq"


def start(*arguments, without_privilege=False, **variables):
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ
        | {"SSTQ_QUIET": ""}
        | {name: str(value) for name, value in variables.items()},
        cwd=ROOT,
        preexec_fn=drop_privilege if without_privilege else None,
    )


def finish(process, code=0):
    out, err = process.communicate()
    assert process.returncode == code, err
    return out, err


def drop_privilege():
    """Let permissions hold for root as well, in the program to be run (Linux): take CAP_DAC_OVERRIDE away."""
    drop_from_bounding_set = 24
    override_permissions = 1
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(
        drop_from_bounding_set, override_permissions, 0, 0, 0
    ):
        os._exit(77)


def test_import_leaves_numba_alone():
    finish(start("-c", "import sys, sstq.kernels; sys.exit('numba' in sys.modules)"))


# The kernel that compiles fastest, for several types, in the order of the arguments.
CLIP = """
import sys
import numpy as np
from sstq import kernels

for name in sys.argv[1:]:
    x = np.array([[6, 8]], name)
    print(x.dtype, *kernels.clip_to_ball(x, 10.0))
"""
SINGLE = "float32 [[0.6 0.8]] [False]"
DOUBLE = "float64 [[0.6 0.8]] [False]"


def test_without_a_compiler_the_error_says_so():
    _, err = finish(start("-c", CLIP, "f4", NUMBA_DISABLE_JIT=1), code=1)
    assert "ValueError: NUMBA_DISABLE_JIT must not be set" in err


@pytest.mark.slow
def test_processes_that_share_a_fresh_cache_agree(tmp_path):
    """Two processes fill the cache at the same time, and a third one reads it."""
    orders = {("f4", "f8"): [SINGLE, DOUBLE], ("f8", "f4"): [DOUBLE, SINGLE]}
    at_once = [start("-c", CLIP, *order, NUMBA_CACHE_DIR=tmp_path) for order in orders]
    for process, expected in zip(at_once, orders.values(), strict=True):
        assert finish(process)[0].splitlines() == expected
    out, err = finish(start("-c", CLIP, "f4", "f8", NUMBA_CACHE_DIR=tmp_path))
    assert out.splitlines() == [SINGLE, DOUBLE]
    assert err == ""  # nothing is compiled
    # Numba adds versions to the index of a function without a lock: no function may have two.
    versions = Counter(path.name.split(".py3")[0] for path in tmp_path.rglob("*.nbc"))
    assert list(versions.values()) == [1, 1]


ONCE = "sstq: compiling kernels for this machine (once)\n"
ALONE = "sstq: compiling kernels for this process alone (set NUMBA_CACHE_DIR to a writable folder)\n"


@pytest.mark.slow
def test_a_terminal_shows_a_bar_and_other_programs_one_line(tmp_path):
    """Each kernel has a bar with the functions that are left; logs say once that kernels are compiled."""
    pty = pytest.importorskip("pty")
    ours, theirs = pty.openpty()
    variables = {"SSTQ_QUIET": "", "NUMBA_CACHE_DIR": str(tmp_path / "bar")}
    command = [sys.executable, "-c", CLIP, "f4", "f8"]
    process = subprocess.Popen(command, stderr=theirs, env=os.environ | variables)
    os.close(theirs)
    shown = b""
    with suppress(OSError):  # the end of a terminal's output
        while part := os.read(ours, 4096):
            shown += part
    os.close(ours)
    assert process.wait() == 0
    *drawn, last = [
        line for line in re.split(r"\r\x1b\[K|\r\n", shown.decode()) if line
    ]
    kernel = "sstq: compiling clipping.clip_rows"
    assert drawn[0] == f"{kernel} ░░░ 3 left"
    assert f"{kernel} █░░ 2 left" in drawn
    assert re.fullmatch(rf"{kernel} for this machine \(once\): \d+\.\d s", last)
    _, err = finish(
        start("-c", CLIP, "f4", "f8", NUMBA_CACHE_DIR=tmp_path / "line"),
    )
    assert err == ONCE


@pytest.mark.slow
@pytest.mark.skipif(
    sys.platform != "linux", reason="permissions do not hold for root elsewhere"
)
def test_a_package_that_cannot_be_written_to(tmp_path):
    package = tmp_path / "site" / "sstq"
    home = tmp_path / "home"
    shutil.copytree(
        SOURCES,
        package,
        ignore=shutil.ignore_patterns("__pycache__", "service", "integrations"),
    )
    home.mkdir()
    variables = {
        "PYTHONPATH": package.parent,
        "HOME": home,
        "XDG_CACHE_HOME": home / "cache",
        "NUMBA_CACHE_DIR": "",
    }

    def run(*arguments, code=0, **more):
        return finish(
            start(*arguments, without_privilege=True, **variables | more), code
        )

    (package / "kernels").chmod(0o555)
    try:
        # The user's cache is next.
        assert run("-c", CLIP, "f4") == (f"{SINGLE}\n", ONCE)
        assert run("-c", CLIP, "f4") == (f"{SINGLE}\n", "")
        assert len(list((home / "cache").rglob("clipping.clip_rows-*.nbc"))) == 1
        # A change of another module makes new code: it may have been compiled into this one.
        (package / "kernels" / "normals.py").write_text("# Other text.\n")
        assert run("-c", CLIP, "f4") == (f"{SINGLE}\n", ONCE)
        # With no folder at all everything works, and nothing is kept.
        shutil.rmtree(home / "cache")
        home.chmod(0o555)
        assert run("-c", CLIP, "f4") == (f"{SINGLE}\n", ALONE)
        assert run("-c", CLIP, "f4", SSTQ_QUIET=1) == (f"{SINGLE}\n", "")
        assert "set NUMBA_CACHE_DIR" in run("-m", "sstq.kernels", code=1)[1]
    finally:
        home.chmod(0o755)
        (package / "kernels").chmod(0o755)


# What depends on the vector width, on fused operations or on the order of additions; a digest of each.
RESULTS = """
import hashlib, json, sys
from numba.core.registry import cpu_target

if "wide" in sys.argv:
    # Vectors of sixteen on any processor: only the choice of the width sees this, not the code generator.
    codegen = cpu_target.target_context.codegen()
    triple, processor, features = codegen.magic_tuple()
    type(codegen).magic_tuple = lambda self: (triple, processor, features + ",+avx512f")

import numpy as np
from sstq import kernels
from sstq.frames.kashin import make_kashin, represent
from sstq.frames.tight import HadamardFrame
from sstq.kernels.simd import VECTOR_WIDTH

found = {}
def keep(name, numbers):
    found[name] = hashlib.sha256(numbers.tobytes()).hexdigest()

rng = np.random.default_rng(1)
for bits in (3, 5, 8, 13, 17):
    x = rng.standard_normal((2, 1 << bits)).astype(np.float32)
    kernels.hadamard_transform(x)
    keep(f"transform/{bits}", x)
for bits in (*range(16), 18, 20):
    frame = HadamardFrame(max(1, int((1 << bits) / 2.6)), 1 << bits, 7)
    x, _ = kernels.clip_to_ball(rng.standard_normal((2, frame.dim)).astype(np.float32), 1.0)
    values, residuals = represent(frame, make_kashin("certified", frame), x)[:2]
    keep(f"representation/{bits}", values)
for dim, size in ((3, 4), (300, 512), (3000, 4096)):
    signs = rng.choice(np.float32([-1, 1]), (1, dim)), rng.choice(np.float32([-1, 1]), (1, 2, size))
    x = rng.standard_normal((50, dim)).astype(np.float32)
    which, places = np.zeros(50, np.int64), rng.integers(2 * size, size=50)
    picked, _ = kernels.pick_signed_rows(x, 1.0, rng.random(50), signs, which, size // 3, places)
    keep(f"rows/{size}", picked)
words = rng.integers(0, 1 << 64, size=(9, 1003), dtype=np.uint64)
u = np.full((9, 1003), 1003**-0.5)
for to_length in (False, True):
    drawn = kernels.draw_around(u, np.linspace(-1, 1, 9), np.ones(9), words, 1, to_length=to_length)
    keep(f"around/{to_length}", drawn)
keep("normal", kernels.box_muller(words[:, 1:].copy()))
assert len(set(found.values())) == len(found)
print(json.dumps([VECTOR_WIDTH, found]))
"""


@pytest.mark.soak
def test_another_processor_and_another_vector_width_give_the_same_bits(tmp_path):
    """A processor without fused operations, and vectors of eight and sixteen."""
    here, expected = json.loads(finish(start("-c", RESULTS))[0])
    generic = {
        "NUMBA_CPU_NAME": "generic",
        "NUMBA_CPU_FEATURES": "",
        "NUMBA_CACHE_DIR": tmp_path,
    }
    there, found = json.loads(
        finish(start("-c", RESULTS, *["wide"] * (here == 8), **generic))[0]
    )
    assert {here, there} == {8, 16}
    assert found == expected


# What every mechanism does, and the compilations that it takes.
ALL_MECHANISMS = """
import itertools, warnings
import numpy as np
from numba.core import event
from tests.contract.cases import CASES, build, encode

warnings.simplefilter("ignore")
with event.install_recorder("numba:compile") as recorder:
    for case, dim in itertools.product(CASES, (6, 300)):
        if "frame_size" not in CASES[case] or dim == 6:
            mechanism = build(case, dim)
            for dtype in (np.float32, np.float64):
                messages = encode(mechanism, np.full((3, dim), 0.01, dtype))
                again = mechanism.messages_from_bytes(messages.to_bytes(), len(messages))
                aggregator = mechanism.aggregator()
                aggregator.update(again)
                aggregator.mean()
compiled = sorted({str(e.data["dispatcher"]) + str(e.data["args"]) for _, e in recorder.buffer})
assert not compiled, compiled
"""


@pytest.mark.slow
def test_one_command_compiles_all_that_mechanisms_need():
    out, _ = finish(start("-m", "sstq.kernels"))
    assert "kept in" in out.splitlines()[-1]
    finish(start("-c", ALL_MECHANISMS))
