"""When Numba is imported, and when the line about compiling is printed."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import numpy as np
import pytest

from sstq.kernels import compiling


def test_import_leaves_numba_alone():
    script = "import sys, sstq.kernels; sys.exit('numba' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


class Kernel(SimpleNamespace):
    __hash__ = object.__hash__


@pytest.fixture
def slow_kernel(monkeypatch):
    """A stand-in for a Numba function that takes longer than our patience to compile or load, however busy we are."""
    monkeypatch.setattr(compiling, "PATIENCE_SECONDS", 0.05)
    monkeypatch.delenv("SSTQ_QUIET", raising=False)
    compiling._announce.cache_clear()
    kernel = Kernel(stats=SimpleNamespace(cache_misses={"signature": 1}), compiled=[])

    def compile_slowly(signature):
        for thread in threading.enumerate():
            if isinstance(thread, threading.Timer) and thread.function is compiling._announce_if_compiling:
                thread.join()
        kernel.compiled.append(signature)

    kernel.compile = compile_slowly
    yield kernel
    compiling._announce.cache_clear()


def test_a_slow_compilation_prints_one_line(slow_kernel, capsys):
    compiling.prepare(slow_kernel, 1)
    compiling.prepare(slow_kernel, 1.0)
    assert len(slow_kernel.compiled) == 2
    captured = capsys.readouterr()
    assert captured.err == "sstq: compiling kernels for this machine (once) ...\n"
    assert captured.out == ""


def test_a_slow_load_from_the_cache_prints_nothing(slow_kernel, capsys):
    slow_kernel.stats.cache_misses = {}
    compiling.prepare(slow_kernel, 1)
    assert capsys.readouterr().err == ""


def test_quiet(slow_kernel, capsys, monkeypatch):
    monkeypatch.setenv("SSTQ_QUIET", "1")
    compiling.prepare(slow_kernel, 1)
    assert capsys.readouterr().err == ""


def test_a_kernel_is_prepared_once_for_each_type(slow_kernel):
    import numba

    array = np.zeros((2, 3), np.float32)
    read_only = array.copy()
    read_only.flags.writeable = False
    kinds = [array, read_only, array.T, array[:, ::2], array[0], array.astype(np.float64), 1, 1.0]
    for argument in kinds + kinds[::-1]:
        compiling.prepare(slow_kernel, argument)
    assert slow_kernel.compiled == [(numba.typeof(argument),) for argument in kinds]


def test_without_a_compiler_the_error_says_so():
    script = "import numpy as np, sstq.kernels; sstq.kernels.hadamard_transform(np.ones(4))"
    environment = os.environ | {"NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", script], check=False, capture_output=True, text=True, env=environment)
    assert done.returncode == 1
    assert "ValueError: NUMBA_DISABLE_JIT must not be set" in done.stderr


def test_refuses_an_unknown_vector_width(monkeypatch):
    from sstq.kernels import vectors

    monkeypatch.setenv("SSTQ_VECTOR_WIDTH", "12")
    with pytest.raises(ValueError, match="8 or 16, got '12'"):
        vectors._choose_vector_width()
