"""Progress of the minimum-variance channel while it is being solved."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sstq.cli.terminal import progress

__all__ = ["solving_shown"]


@contextmanager
def solving_shown(channel: str | None) -> Iterator[None]:
    """Show progress while the optimal channel is solved within the block; other channels need no solving."""
    if channel != "optimal":
        yield
        return
    from sstq.scalar.optimal import solving_progress

    with progress("solving for the channel", 100) as advance:
        shown = 0

        def report(done: int, total: int) -> None:
            nonlocal shown
            share = 100 * done // total
            advance(share - shown)
            shown = share

        with solving_progress(report):
            yield
