"""Splitting rows over threads."""

import os
import threading
import time

import pytest

from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, run_in_chunks, thread_count
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


@pytest.mark.parametrize("rows", [0, 1, 2, 3, 10, 101])
@pytest.mark.parametrize("threads", [1, 2, 7])
def test_chunks_cover_every_row_once(rows, threads, monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", str(threads))
    seen = []
    run_in_chunks(lambda chunk: seen.extend(range(rows)[chunk]), rows, MIN_ELEMENTS_A_THREAD)
    assert sorted(seen) == list(range(rows))


def test_small_work_stays_in_the_calling_thread(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "4")
    threads = []
    run_in_chunks(lambda _: threads.append(threading.current_thread()), 100, 10)
    assert threads == [threading.current_thread()]


def test_an_error_is_raised_when_what_has_begun_has_ended(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    both_run, finished = threading.Barrier(2, timeout=PATIENCE), []

    def fail_in_the_first_chunk(chunk):
        if chunk.start == 0:
            both_run.wait()
            raise IndexError("first")
        if chunk.start == 25:
            both_run.wait()
            time.sleep(0.1)
        finished.append(chunk)

    with pytest.raises(IndexError, match="first"):
        run_in_chunks(fail_in_the_first_chunk, 100, MIN_ELEMENTS_A_THREAD)
    assert slice(25, 43) in finished


def test_small_work_looks_up_neither_cores_nor_environment(monkeypatch):
    def refuse():
        raise AssertionError("this takes longer than a small transform")

    monkeypatch.setattr("sstq.kernels.threads.thread_count", refuse)
    done = []
    run_in_chunks(done.append, 100, MIN_ELEMENTS_A_THREAD // 100)
    run_in_chunks(done.append, 1, 10 * MIN_ELEMENTS_A_THREAD)
    assert done == [slice(0, 100), slice(0, 1)]
