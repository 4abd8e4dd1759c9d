"""`sstq warmup`: compile the kernels now instead of at the first call."""

from __future__ import annotations

import typer

from sstq.cli.terminal import complain, live_line, note, show_table, warn

__all__ = ["compile_together", "warmup"]


def compile_together() -> None:
    """Compile all kernels before the first that is on no disk, so that no later command has to wait again."""
    import os

    from sstq.runs.warmup import cache_place, compile_in_processes

    if cache_place() is None:
        return  # every process has to compile what it needs
    if not os.environ.get("SSTQ_QUIET"):
        note("sstq: compiling all kernels for this machine (once, up to half a minute) ...")
    for _ in compile_in_processes():
        pass


def warmup() -> None:
    """Compile all kernels for this machine and keep them on disk, so that no first call has to wait.

    Takes up to half a minute, or a few seconds if everything is there already. Without it the first command that needs
    a kernel does the same. For a container image or a CI cache run it
    once where the image is built, with NUMBA_CACHE_DIR set to a folder that is kept and that the program sees, too; it
    is enough that the program can read it. Code is kept by processor: one image for several kinds of machines may
    compile again on some. The exit code is 1 if something was compiled and could not be kept.

    Example: NUMBA_CACHE_DIR=/var/cache/sstq sstq warmup
    """
    from sstq.runs.warmup import cache_place, chosen_place, count_steps, warm_up

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
        caption="In several processes; the first line of each includes the start of Numba itself.",
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
