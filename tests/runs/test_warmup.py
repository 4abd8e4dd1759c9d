"""`sstq warmup` compiles all that the mechanisms need, and so does the first command that needs a kernel."""

import ctypes
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from sstq import SSTQ
from sstq.cli import app
from sstq.runs import warmup
from sstq.runs.warmup import Step, cache_place, count_steps, warm_up
from tests.kernels.test_targets import PROGRAM as ALL_MESSAGES

HASWELL = {"NUMBA_CPU_NAME": "haswell", "NUMBA_CPU_FEATURES": "+avx,+avx2,+fma"}

# Everything that every mechanism does, with the compilations that it takes.
ALL_MECHANISMS = """
import itertools, tempfile, warnings
from pathlib import Path
import numpy as np
import sstq
from numba.core import event
from tests.contract.cases import CASES, build, encode

warnings.simplefilter("ignore")
with event.install_recorder("numba:compile") as recorder:
    for case, dim in itertools.product(CASES, (6, 300)):
        if "frame_size" not in CASES[case] or dim == 6:
            mechanism = build(case, dim)
            for dtype in (np.float32, np.float64):
                messages = encode(mechanism, np.full((3, dim), 0.01, dtype))
                again = mechanism.messages_from_bytes(messages.to_bytes(), len(messages), clients=messages.clients)
                aggregator = mechanism.aggregator()
                aggregator.update(again)
                for suffix in (".sstq", ".parquet"):
                    with tempfile.TemporaryDirectory() as folder:
                        sstq.write_messages(Path(folder) / f"messages{suffix}", again)
                        part = mechanism.aggregator()
                        part.update_from_file(Path(folder) / f"messages{suffix}")
                aggregator.mean()
compiled = sorted({str(e.data["dispatcher"]) + str(e.data["args"]) for _, e in recorder.buffer})
assert not compiled, compiled
"""


# On this machine's own processor, in a folder with code for another one.
ONE_TRANSFORM = """
import numpy as np
from numba.core import event
from sstq.kernels import hadamard_transform

x = np.arange(64, dtype=np.float32)
with event.install_recorder("numba:compile") as recorder:
    hadamard_transform(x)
assert recorder.buffer
assert (x[0], x[1]) == (2016, -32)
"""


# The folder that NUMBA_CACHE_DIR names is read first, though nothing can be kept there.
READ_ONLY = """
import os
from sstq.kernels.disk_cache import chosen_folder, places
from sstq.runs.warmup import warm_up

first = places().read[0]
assert first.is_relative_to(chosen_folder()) and first != places().write
assert not os.access(first, os.W_OK) and os.access(first, os.R_OK)
assert not any(step.compiled for step in warm_up())
"""


def run(*arguments, without_privilege=False, **variables):
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
        cwd=Path(__file__).parents[2],
        preexec_fn=drop_privilege if without_privilege else None,
    )
    assert done.returncode == 0, done.stderr
    return done


def drop_privilege():
    """Let permissions hold for root, too, in the program to be run (Linux): take CAP_DAC_OVERRIDE away."""
    drop_from_bounding_set, override_permissions = 24, 1
    if os.geteuid() == 0 and ctypes.CDLL(None).prctl(drop_from_bounding_set, override_permissions, 0, 0, 0):
        os._exit(77)


@pytest.mark.slow
def test_one_command_compiles_for_all_and_another_processor_sends_the_same_messages(tmp_path):
    """For another processor, which `tests.kernels.test_targets` leaves to this test: one compilation serves both."""
    folder = tmp_path / "kernels"
    variables = HASWELL | {"NUMBA_CACHE_DIR": str(folder), "SSTQ_QUIET": ""}
    spec, vectors, messages = (tmp_path / name for name in ("m.json", "vectors.npy", "messages.sstq"))
    spec.write_text(SSTQ(dim=4, epsilon=1.0).to_json())
    np.save(vectors, np.eye(4))
    cold = run("-m", "sstq", "encode", vectors, "-m", spec, "-o", messages, **variables)
    assert cold.stderr == "sstq: compiling all kernels for this machine (once, up to half a minute) ...\n"
    later = run("-m", "sstq", "aggregate", messages, "-m", spec, "-o", tmp_path / "result", **variables)
    assert later.stderr == ""
    warm = run("-m", "sstq", "warmup", **variables)
    assert [line.split("\t")[2] for line in warm.stdout.splitlines()] == ["from"] + ["cache"] * count_steps()
    assert "everything was already compiled" in warm.stderr
    run("-c", ALL_MECHANISMS, **variables)
    # The program may be another user's than the one who built the image.
    folders = [folder, *(path for path in folder.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        run("-c", READ_ONLY, without_privilege=True, **variables)
    finally:
        for path in folders:
            path.chmod(0o755)
    here, there = (json.loads(run("-c", ALL_MESSAGES, **chosen).stdout) for chosen in ({}, variables))
    assert there == here | {"vectors": [True, 8]}
    run("-c", ONE_TRANSFORM, NUMBA_CACHE_DIR=str(folder))


@pytest.mark.slow
def test_it_says_what_it_did():
    steps = list(warm_up())
    assert len({step.name for step in steps}) == len(steps) == count_steps()
    assert all(step.seconds >= 0 for step in steps)
    assert not any(step.compiled for step in warm_up())
    assert cache_place().is_dir()


def test_what_processes_fail_to_do_is_done_here(monkeypatch):
    monkeypatch.setattr("sstq.runs.warmup._PROCESS", "raise SystemExit(1)")
    assert len(list(warm_up())) == count_steps()


def test_a_process_ends_with_the_one_that_waits_for_it():
    command = [sys.executable, "-c", warmup._PROCESS, *warmup._steps()]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (1, b"", b"")


@pytest.fixture
def something_compiled(monkeypatch):
    monkeypatch.setattr("sstq.runs.warmup.warm_up", lambda: iter([Step("transform", 1.0, compiled=True)]))


@pytest.mark.usefixtures("something_compiled")
def test_without_a_folder_it_fails(monkeypatch):
    monkeypatch.setattr("sstq.runs.warmup.cache_place", lambda: None)
    result = CliRunner().invoke(app, ["warmup"], prog_name="sstq")
    assert result.exit_code == 1
    assert "set NUMBA_CACHE_DIR" in result.stderr.replace("\n", " ")


@pytest.mark.usefixtures("something_compiled")
def test_another_folder_than_the_chosen_one_is_told(monkeypatch, tmp_path):
    monkeypatch.setattr("sstq.runs.warmup.chosen_place", lambda: tmp_path / "chosen")
    for place, told in ((tmp_path / "chosen" / "kernels", False), (tmp_path / "user", True)):
        monkeypatch.setattr("sstq.runs.warmup.cache_place", lambda place=place: place)
        result = CliRunner().invoke(app, ["warmup"], prog_name="sstq")
        assert result.exit_code == 0
        assert ("warning: NUMBA_CACHE_DIR is" in result.stderr) == told
        assert f"1 of 1 compiled and kept in {place}" in result.stderr


def test_what_is_there_already_needs_no_folder(monkeypatch):
    monkeypatch.setattr("sstq.runs.warmup.warm_up", lambda: iter([Step("transform", 1.0, compiled=False)]))
    monkeypatch.setattr("sstq.runs.warmup.cache_place", lambda: None)
    assert CliRunner().invoke(app, ["warmup"], prog_name="sstq").exit_code == 0
