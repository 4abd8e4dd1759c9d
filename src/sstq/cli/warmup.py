"""`sstq warmup`: compile the kernels now instead of at the first call."""

from __future__ import annotations

import typer

from sstq.cli.terminal import complain, live_line, note, show_table, warn

__all__ = ["warmup"]


def warmup() -> None:
    """Compile all kernels for this machine and keep them on disk, so that no first call has to wait.

    Takes about half a minute, or a second if everything is there already. For a container image or a CI cache run it
    once where the image is built, with NUMBA_CACHE_DIR set to a folder that is kept and that the program sees, too; it
    is enough that the program can read it. Code is kept by processor: one image for several kinds of machines may
    compile again on some. The exit code is 1 if something was compiled and could not be kept.

    Example: NUMBA_CACHE_DIR=/var/cache/sstq sstq warmup
    """
    import os

    from sstq.warmup import cache_place, chosen_place, count_steps, warm_up

    os.environ["SSTQ_QUIET"] = "1"  # there is a table of what is compiled
    steps = []
    with live_line("Compiling", count_steps()) as show:
        for step in warm_up():
            steps.append(step)
            show(len(steps), step.name)
    compiled = sum(step.compiled for step in steps)
    show_table(
        "Kernels for this machine",
        ["kernel", "seconds", "from"],
        [[step.name, f"{step.seconds:.2f}", "compiler" if step.compiled else "cache"] for step in steps],
        caption="The first line includes the start of Numba itself.",
    )
    if not compiled:
        note("everything was compiled already")
        return
    place, chosen = cache_place(), chosen_place()
    if place is None:
        complain("no folder can be written to, so nothing is kept: set NUMBA_CACHE_DIR to one that can")
        raise typer.Exit(1)
    note(f"{compiled} of {len(steps)} compiled, and kept in {place}")
    if chosen is not None and not place.is_relative_to(chosen):
        warn(f"NUMBA_CACHE_DIR is {chosen}, which cannot be written to: a program finds the code in {place} only")
