"""`sstq warmup` compiles all that the mechanisms need."""

import os
import subprocess
import sys
from pathlib import Path

from typer.testing import CliRunner

from sstq.cli import app
from sstq.warmup import cache_place, count_steps, warm_up

# Everything that every mechanism does, with the compilations that it takes.
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
                again = mechanism.messages_from_bytes(messages.to_bytes(), 3, clients=messages.clients)
                aggregator = mechanism.aggregator()
                aggregator.update(again)
                aggregator.mean()
compiled = sorted({str(e.data["dispatcher"]) + str(e.data["args"]) for _, e in recorder.buffer})
assert not compiled, compiled
"""


def run(*arguments, **variables):
    done = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | variables,
        cwd=Path(__file__).parents[1],
    )
    assert done.returncode == 0, done.stderr
    return done


def test_after_it_nothing_is_compiled(tmp_path):
    cold = run("-m", "sstq", "warmup", NUMBA_CACHE_DIR=str(tmp_path))
    rows = [line.split("\t") for line in cold.stdout.splitlines()]
    assert [row[2] for row in rows] == ["from"] + ["compiler"] * count_steps()
    assert str(tmp_path) in cold.stderr.replace("\n", "")
    warm = run("-m", "sstq", "warmup", NUMBA_CACHE_DIR=str(tmp_path))
    assert {line.split("\t")[2] for line in warm.stdout.splitlines()[1:]} == {"cache"}
    assert "everything was compiled already" in warm.stderr
    run("-c", ALL_MECHANISMS, NUMBA_CACHE_DIR=str(tmp_path))


def test_it_says_what_it_did():
    steps = list(warm_up())
    assert len(steps) == count_steps()
    assert all(step.seconds >= 0 for step in steps)
    assert not any(step.compiled for step in warm_up())


def test_without_a_folder_it_says_so(monkeypatch):
    monkeypatch.setattr("sstq.warmup.cache_place", lambda: None)
    result = CliRunner().invoke(app, ["warmup"], prog_name="sstq")
    assert result.exit_code == 0
    assert "set NUMBA_CACHE_DIR" in result.stderr.replace("\n", " ")


def test_the_folder_is_there():
    list(warm_up())
    assert cache_place().is_dir()
