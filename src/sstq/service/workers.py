"""Processes for work that would hold up the requests: opening envelopes, and estimates from many frames.

A worker lives as long as the process that started it: when that process is killed, the pipe ends, and so does the
worker.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Iterator
from itertools import islice
from multiprocessing.connection import Connection
from typing import Any

__all__ = ["Workers"]


class Workers:
    """Processes that are started when they are first needed."""

    def __init__(self, count: int | None = None) -> None:
        self._wanted = count or os.cpu_count() or 1
        self._workers: list[tuple[multiprocessing.process.BaseProcess, Connection]] = []

    def close(self) -> None:
        """Stop the workers."""
        for process, pipe in self._workers:
            pipe.close()
            process.join()
        self._workers = []

    def kill(self) -> None:
        """Stop the workers in the middle of their work."""
        for process, _ in self._workers:
            process.kill()
        self.close()

    def map(self, function: Callable[..., Any], tasks: Iterator[tuple[Any, ...]]) -> Iterator[Any]:
        """Call the function with the arguments of each task; returns the answers in the order of the tasks."""
        if not self._workers:
            self._workers = [_started() for _ in range(self._wanted)]
        try:
            while some := list(islice(tasks, len(self._workers))):
                for task, (_, pipe) in zip(some, self._workers, strict=False):
                    pipe.send((function, task))
                answers = [pipe.recv() for _, (_, pipe) in zip(some, self._workers, strict=False)]
                for error, answer in answers:
                    if error is not None:
                        raise error
                    yield answer
        except (EOFError, OSError):
            # A worker died. The others may have answers in their pipes: start afresh.
            self.kill()
            raise


def _started() -> tuple[multiprocessing.process.BaseProcess, Connection]:
    # A new interpreter: a fork of a process with threads may hang, and would hold the pipes of the others open.
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs,), daemon=True, name="sstq-worker")
    process.start()
    theirs.close()
    return process, ours


def _work(pipe: Connection) -> None:
    os.nice(5)  # requests come first
    try:
        while True:
            function, task = pipe.recv()
            answer: tuple[Exception | None, Any]
            try:
                answer = (None, function(*task))
            except Exception as error:
                answer = (error, None)
            pipe.send(answer)
    except (EOFError, OSError, KeyboardInterrupt):
        return
