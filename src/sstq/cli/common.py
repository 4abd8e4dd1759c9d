"""What several commands share: options, wrong usage, reading and describing mechanisms, and writing files."""

import json
import math
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from sstq.cli.terminal import Facts, note

if TYPE_CHECKING:
    from collections.abc import Mapping
    from inspect import Parameter

    from sstq import Mechanism
    from sstq.studies import Study

_UNBIASED = {
    "always": "yes",
    "over frames": "on average over random frames; one frame is slightly biased: use a fresh one every round",
    "never": "no",
}
_STUDIES = {
    "sstq-study": "it is the state of a study (sstq study plan, sstq study result)",
    "sstq-study-question": "it is the question of a study (sstq study answer)",
}


def option(text: str, *flags: str, default: Any = None, **settings: Any) -> Any:
    """Return an option with its help, to stand where a function has the default of an argument."""
    return typer.Option(default, *flags, help=text, **settings)


def required(text: str, *flags: str, **settings: Any) -> Any:
    """Return an option that must be given, with its help."""
    return option(text, *flags, default=..., **settings)


def flag(text: str, *flags: str, **settings: Any) -> Any:
    """Return an option without a value, with its help."""
    return option(text, *flags, default=False, **settings)


def argument(text: str, *, default: Any = ..., **settings: Any) -> Any:
    """Return an argument with its help; it must be given unless it has a default."""
    return typer.Argument(default, help=text, **settings)


def output_option(text: str, default: Any = ...) -> Any:
    """Return the option --output; it must be given unless it has a default."""
    return option(text, "--output", "-o", default=default)


MECHANISM = required(
    "Use the mechanism in this JSON file (sstq spec).", "--mechanism", "-m"
)
COLUMNS = option("Read these columns, such as age,bmi; or one list column of Parquet.")
NO_HEADER = flag("Take the first line of CSV files for a person.", "--no-header")
GROUPS = option(
    "Take the PRIVATE groups in this .npy, beside the vectors.", "--private-group"
)
BOUNDS = option('Take vectors in the units of this JSON file: {"age": [0, 110], …}.')
VERBOSE = flag("Show all facts.", "--verbose", "-v")
PLOT = option("Draw the result to this picture: .png, .svg or .pdf.")
FORCE = flag("Overwrite existing files.", "--force")


class WrongUsage(ValueError):  # noqa: N818 (a mistake of the user, not a failure)
    """The command line is wrong, whatever the data are."""


def refuse_empty_variables(*names: str) -> None:
    """Refuse variables of the environment that are set to nothing, which Typer takes for variables that are not set."""
    for name in names:
        if os.environ.get(name) == "":
            raise WrongUsage(
                f"{name} must have a value, got ''; to go without, run: unset {name}"
            )


@contextmanager
def check_usage() -> Iterator[None]:
    """Turn a ValueError or TypeError of the library within the block into a usage error."""
    try:
        yield
    except (ValueError, TypeError) as error:
        raise WrongUsage(str(error)) from error


def given(**options: Any) -> dict[str, Any]:
    """The options that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def take_only(options: Iterable[str], taken: Collection[str], when: str) -> None:
    """Refuse an option that would be ignored."""
    from sstq.checks import ArgumentError

    for name in options:
        if name not in taken:
            raise ArgumentError(name, f"must be left out {when}")


def split(columns: str | None) -> list[str] | None:
    """The names of columns, which commas separate."""
    return None if columns is None else [name.strip() for name in columns.split(",")]


def chosen(columns: str | None, no_header: bool) -> list[str] | None:
    """The names of columns; none of a file without a header."""
    if no_header and columns is not None:
        raise WrongUsage(
            "--columns must be left out with --no-header: columns are found by their names"
        )
    return [] if no_header else split(columns)


def read_bounds(path: Path | None) -> dict[str, Any] | None:
    """Read a JSON file of bounds, which the mechanism checks."""
    from sstq.files.strict_json import read_json

    if path is None:
        return None
    try:
        ranges = read_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise WrongUsage(f"--bounds {path} is not JSON: {error}") from error
    if not isinstance(ranges, dict):
        raise WrongUsage(
            f'--bounds {path} must be {{"column": [low, high], …}}, got {type(ranges).__name__}'
        )
    return ranges


def read_mechanism(path: Path) -> "Mechanism":
    """Read a mechanism, a survey's schema or a campaign's document; ValueError, naming the file, for anything else."""
    from sstq.files.strict_json import read_json
    from sstq.mechanisms.registry import from_document

    try:
        document = read_json(path.read_bytes(), booleans=True)
        kind = document.get("format") if isinstance(document, dict) else None
        if kind == "sstq-survey":
            from sstq import Survey

            return Survey.from_schema(document)
        if kind == "sstq-campaign":
            document = document.get("mechanism")
        elif str(kind) in _STUDIES:
            raise ValueError(f"{_STUDIES[str(kind)]}, not a mechanism")
        return from_document(document)
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(
            f"{path} must be the JSON file of a mechanism; sstq spec writes one"
        ) from error
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


@contextmanager
def check_file(path: Path, what: str) -> Iterator[None]:
    """Name the file in a ValueError of the library within the block, and what it must be."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"{path} must be {what}: {error}") from error


def read_study(path: Path) -> "Study":
    """Read the state of a study."""
    from sstq.studies import Study

    with check_file(path, "the file of a study (sstq study new)"):
        study = Study.from_json(path.read_text(encoding="utf-8"))
        _check_learned(study)
        return study


def _check_learned(study: "Study") -> None:
    """ValueError if there should be a result, and what was learned gives none: somebody has changed the file."""
    try:
        _ = study.result
    except ValueError:
        return  # not yet, as the command will say
    except (TypeError, KeyError, IndexError, AttributeError) as error:
        raise ValueError(f"what it has learned is damaged: {error!r}") from error


def taken_by(name: str) -> "Mapping[str, Parameter]":
    """The arguments of the mechanism with this name."""
    from sstq.mechanisms.registry import options_of

    return options_of(name)


def describe_mechanism(mechanism: "Mechanism", clients: int | None = None) -> Facts:
    """Return facts about a mechanism as names and values; with clients, also about the error of their mean."""
    allowed = mechanism.clients_allowed
    return {
        "mechanism": mechanism.name,
        "epsilon": f"{mechanism.epsilon!r}",
        "bits per message": mechanism.message_bits,
        **(
            _errors(mechanism, mechanism.clients or clients)
            if mechanism.input.has_clip
            else {}
        ),
        "epsilon spent, rounded up": f"{mechanism.privacy_loss()!r}",
        "exact": (
            "yes, integer by integer" if mechanism.exact else "no, up to floating point"
        ),
        **several_messages(mechanism),
        "unbiased": _UNBIASED[mechanism.unbiased],
        "clients for which these frames suffice": (
            f"up to {allowed:,} in a round" if allowed else None
        ),
        "in python": f"sstq.{mechanism!r}",
        "digest": mechanism.digest(),
    }


def _errors(mechanism: "Mechanism", clients: int | None) -> Facts:
    """The errors of means of typical vectors of norm clip."""
    error = mechanism.typical_error()
    clip = mechanism.clip
    facts: Facts = {
        "error of one client": f"{math.sqrt(error.total) / clip:.4g} of clip (typical vector)",
    }
    if clients is not None:
        total = mechanism.typical_error(clients).total
        facts[f"error of the round of {clients:,}"] = (
            f"{math.sqrt(total) / clip:.4g} of clip"
        )
    if mechanism.clients is None:
        tenth = (0.1 * clip) ** 2
        needed = (
            f"out of reach: the bias is {math.sqrt(error.bias2) / clip:.3g} of clip"
        )
        if error.bias2 < tenth:
            needed = f"{max(1, math.ceil(error.variance / (tenth - error.bias2))):,}"
        elif "clients" in taken_by(mechanism.name):
            # With frames for so many clients; one in ten more than the error of many frames needs.
            needed += f"; pass --clients {math.ceil(1.1 * error.total / tenth)} instead"
        facts["clients for an error of 10 %"] = needed
    return facts


def several_messages(mechanism: "Mechanism") -> Facts:
    """Return the totals of several messages per person; empty for one message."""
    if mechanism.messages == 1:
        return {}
    without = (
        f"{mechanism.bundle_epsilon:g} ({mechanism.messages} x {mechanism.epsilon:g})"
    )
    return {
        "messages per person": mechanism.messages,
        "bits per person": mechanism.messages * mechanism.message_bits,
        "epsilon per person without a shuffler": without,
    }


def privacy_of(simulated: bool) -> str:
    """Return whether messages are private, in words."""
    return "no: simulated with a seed" if simulated else "yes, every single message"


def check_output(
    path: Path | None,
    force: bool,
    option: str = "--output",
    inputs: Iterable[Path] = (),
    suffixes: Sequence[str] = (),
) -> None:
    """Refuse an existing file (unless forced), an input, a missing folder or another suffix, before any work."""
    if path is None:
        return
    if not path.parent.is_dir():
        raise WrongUsage(f"{option} {path}: there is no folder {path.parent}")
    if path.is_dir():
        raise WrongUsage(f"{option} must be a file, got the folder {path}")
    if path.exists() and any(path.samefile(given) for given in inputs):
        raise WrongUsage(f"{option} must not be an input file, got {path}")
    if path.exists() and not force:
        raise WrongUsage(
            f"{option} {path} already exists; pass --force to overwrite it"
        )
    if suffixes and path.suffix.lower() not in suffixes:
        raise WrongUsage(f"{option} {path}: the name must end in {', '.join(suffixes)}")


def check_picture(path: Path | None, force: bool) -> None:
    """Refuse a picture that cannot be drawn, before any work."""
    if path is not None:
        from sstq.plots.canvas import require_matplotlib

        check_output(path, force, "--plot", suffixes=(".png", ".svg", ".pdf"))
        require_matplotlib()


def save_picture(figure: Any, path: Path) -> None:
    """Write a figure, and say so."""
    from sstq.plots.canvas import save

    save(figure, path)
    note(f"wrote {path}")


def write_text(path: Path, text: str) -> None:
    """Write a file, completely or not at all, and say so."""
    from sstq.files.atomic import atomic_file

    with atomic_file(path) as file:
        file.write(text.encode())
    note(f"wrote {path}")
