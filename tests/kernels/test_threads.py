"""Splitting rows over threads."""

import os
import threading

import pytest

from sstq.kernels import threads as module
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


def test_a_thread_that_is_held_up_leaves_the_rest_to_the_others(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    rest_is_done, seen = threading.Event(), []

    def wait_in_the_first_chunk(chunk):
        if chunk.start == 0:
            assert rest_is_done.wait(PATIENCE)
        seen.extend(range(100)[chunk])
        if chunk.stop == 100:
            rest_is_done.set()

    run_in_chunks(wait_in_the_first_chunk, 100, MIN_ELEMENTS_A_THREAD)
    assert sorted(seen) == list(range(100))
    assert seen[-25:] == list(range(25))


def test_small_work_stays_in_the_calling_thread(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "4")
    threads = []
    run_in_chunks(lambda _: threads.append(threading.current_thread()), 100, 10)
    assert threads == [threading.current_thread()]


def test_an_error_waits_for_what_has_begun(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    both_run, failed, finished = threading.Barrier(2, timeout=PATIENCE), threading.Event(), []

    def fail_in_the_first_chunk(chunk):
        if chunk.start == 0:
            both_run.wait()
            failed.set()
            raise IndexError("first")
        if not failed.is_set():
            both_run.wait()
        assert failed.wait(PATIENCE)
        finished.append(chunk)

    with pytest.raises(IndexError, match="first"):
        run_in_chunks(fail_in_the_first_chunk, 100, MIN_ELEMENTS_A_THREAD)
    assert finished[0] == slice(25, 43)


def test_an_error_of_a_thread_is_raised_and_stops_the_rest(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    both_run, caller, other, finished = threading.Barrier(2, timeout=PATIENCE), threading.current_thread(), [], []

    def fail_beside_the_caller(chunk):
        if threading.current_thread() is not caller:
            other.append(threading.current_thread())
            both_run.wait()
            raise ArithmeticError("beside")
        both_run.wait()
        other[0].join(PATIENCE)
        finished.append(chunk)

    with pytest.raises(ArithmeticError, match="beside"):
        run_in_chunks(fail_beside_the_caller, 100, MIN_ELEMENTS_A_THREAD)
    assert len(finished) == 1


def test_an_interruption_while_waiting_waits_all_the_same(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    both_run, interrupted, finished = threading.Barrier(2, timeout=PATIENCE), threading.Event(), []

    class InterruptedOnce(threading.Thread):
        def join(self, timeout=None):
            if not interrupted.is_set():
                interrupted.set()
                raise KeyboardInterrupt
            super().join(timeout)

    def outlast_the_caller(_):
        both_run.wait()
        if isinstance(threading.current_thread(), InterruptedOnce):
            assert interrupted.wait(PATIENCE)
            finished.append(True)

    monkeypatch.setattr(module, "Thread", InterruptedOnce)
    with pytest.raises(KeyboardInterrupt):
        run_in_chunks(outlast_the_caller, 2, MIN_ELEMENTS_A_THREAD)
    assert finished == [True]


def test_small_work_looks_up_neither_cores_nor_environment(monkeypatch):
    def refuse():
        raise AssertionError("this takes longer than a small transform")

    monkeypatch.setattr("sstq.kernels.threads.thread_count", refuse)
    done = []
    run_in_chunks(done.append, 100, MIN_ELEMENTS_A_THREAD // 100)
    run_in_chunks(done.append, 1, 10 * MIN_ELEMENTS_A_THREAD)
    assert done == [slice(0, 100), slice(0, 1)]
