"""`sstq warmup`: compiles the kernels now instead of on the first call."""

from __future__ import annotations

import typer

from sstq.cli.terminal import complain, live_line, note, show_table, warn

__all__ = ["compile_together", "warmup"]


def compile_together() -> None:
    """Compile all kernels when the first one is missing on disk, so that no later command has to wait."""
    import os

    from sstq.runs.warmup import cache_place, compile_in_processes

    if cache_place() is None:
        return  # nothing can be kept, so every process compiles what it needs
    if not os.environ.get("SSTQ_QUIET"):
        note("sstq: compiling all kernels for this machine (once, up to half a minute) ...")
    for _ in compile_in_processes():
        pass


def warmup() -> None:
    """Compile all kernels for this machine and cache them on disk, so that no first call has to wait.

    It takes up to half a minute, or a few seconds if everything is already compiled. Without it the first command that
    needs a kernel does the same. For a container image or a CI cache run it once while building the image, with
    NUMBA_CACHE_DIR set to a persistent folder that the program can read. Code is cached per processor type: an image
    for several types may compile again on some. The exit code is 1 if something was compiled and could not be kept.

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
        note("everything was already compiled")
        return
    place, chosen = cache_place(), chosen_place()
    if place is None:
        complain("nothing was kept, because no folder is writable: set NUMBA_CACHE_DIR to a writable folder")
        raise typer.Exit(1)
    note(f"{compiled} of {len(steps)} compiled and kept in {place}")
    if chosen is not None and not place.is_relative_to(chosen):
        warn(f"NUMBA_CACHE_DIR is {chosen}, which is not writable: the code is only in {place}")
