"""Splitting rows over threads."""

import os
import threading
import time

import numpy as np
import pytest

from sstq import kernels
from sstq.kernels.threads import MIN_ELEMENTS_PER_THREAD, run_in_chunks, thread_count
from tests.patience import PATIENCE


def test_setting_and_default(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "3")
    assert thread_count() == 3
    monkeypatch.delenv("SSTQ_THREADS")
    assert 1 <= thread_count() <= (os.cpu_count() or 1)


@pytest.mark.parametrize("setting", ["0", "-1", "two"])
def test_refuses_a_bad_setting(setting, monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", setting)
    with pytest.raises(ValueError, match="SSTQ_THREADS must be a positive integer"):
        thread_count()


@pytest.mark.parametrize("rows", [0, 1, 3, 101])
@pytest.mark.parametrize("threads", [1, 7])
def test_chunks_cover_every_row_once(rows, threads, monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", str(threads))
    seen = []
    run_in_chunks(
        lambda chunk: seen.extend(range(rows)[chunk]), rows, MIN_ELEMENTS_PER_THREAD
    )
    assert sorted(seen) == list(range(rows))


def test_an_error_is_raised_when_what_has_begun_has_ended(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    both_run = threading.Barrier(2, timeout=PATIENCE)
    finished = []

    def fail_in_the_first_chunk(chunk):
        if chunk.start == 0:
            both_run.wait()
            raise IndexError("first")
        if chunk.start == 25:
            both_run.wait()
            time.sleep(0.1)
        finished.append(chunk)

    with pytest.raises(IndexError, match="first"):
        run_in_chunks(fail_in_the_first_chunk, 100, MIN_ELEMENTS_PER_THREAD)
    assert slice(25, 43) in finished


def test_small_work_looks_up_neither_cores_nor_environment(monkeypatch):
    def refuse():
        raise AssertionError("this takes longer than a small transform")

    monkeypatch.setattr("sstq.kernels.threads.thread_count", refuse)
    done = []
    run_in_chunks(done.append, 100, MIN_ELEMENTS_PER_THREAD // 100)
    run_in_chunks(done.append, 1, 10 * MIN_ELEMENTS_PER_THREAD)
    assert done == [slice(0, 100), slice(0, 1)]


def transformed(rng, kind):
    x = rng.standard_normal((37, 1 << 13)).astype(kind)
    kernels.hadamard_transform(x)
    return [x]


def represented(rng):
    columns = np.arange(1500), rng.choice(np.float32([-1, 1]), 1500), 4096
    schedule = np.array(
        [[1.4, 0, np.inf, 1.8], [1, 0, np.inf, 1.8], [1, 2.5, np.inf, 1.8]], np.float32
    )
    return kernels.kashin_pick(
        rng.standard_normal((9, 1500)).astype(np.float32) / 39, *columns, schedule
    )


def drawn(rng):
    words = rng.integers(0, 1 << 64, size=(37, 1 << 14), dtype=np.uint64)
    u = np.full((37, 1 << 14), 2.0**-7)
    return [
        kernels.box_muller(words),
        kernels.draw_around(u, np.zeros(37), np.ones(37), words, to_length=True),
    ]


@pytest.mark.parametrize(
    "results",
    [
        lambda rng: transformed(rng, np.float32),
        lambda rng: transformed(rng, np.float64),
        represented,
        drawn,
    ],
)
def test_threads_do_not_change_a_bit(results, seed, monkeypatch):
    found = []
    for threads in ("1", "2", "5"):
        monkeypatch.setenv("SSTQ_THREADS", threads)
        found.append(results(np.random.default_rng(seed)))
    for other in found[1:]:
        assert all(
            np.array_equal(one, another)
            for one, another in zip(found[0], other, strict=True)
        )
