"""Splitting rows over threads."""

import os
import threading

import pytest

from sstq.kernels.threads import MIN_ELEMENTS_A_THREAD, run_in_chunks, thread_count


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


def test_an_error_of_the_calling_thread_waits_for_the_others(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")
    failed, finished = threading.Event(), []

    def fail_in_the_first_chunk(chunk):
        if chunk.start == 0:
            failed.set()
            raise ArithmeticError("first")
        assert failed.wait(10)
        finished.append(chunk)
        raise ArithmeticError("second")

    with pytest.raises(ArithmeticError, match="first"):
        run_in_chunks(fail_in_the_first_chunk, 2, MIN_ELEMENTS_A_THREAD)
    assert finished == [slice(1, 2)]


def test_errors_of_a_thread_are_raised(monkeypatch):
    monkeypatch.setenv("SSTQ_THREADS", "2")

    def fail_in_the_second_chunk(chunk):
        if chunk.start > 0:
            raise ArithmeticError("second")

    with pytest.raises(ArithmeticError, match="second"):
        run_in_chunks(fail_in_the_second_chunk, 2, MIN_ELEMENTS_A_THREAD)
