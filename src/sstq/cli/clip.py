"""`sstq clip`: runs a private survey of the clients' norms and suggests a clip."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import (
    ColumnsOption,
    DelimiterOption,
    Facts,
    ForceOption,
    SeedOption,
    VectorsArgument,
    check_output,
    open_files,
    output_option,
    read_mechanism,
    to_json,
    warn_of_seed,
    write_text,
)
from sstq.cli.terminal import note, progress, show_facts, show_table, warn
from sstq.cli.usage import WrongUsage, command_group

if TYPE_CHECKING:
    from sstq import Mechanism, Messages
    from sstq.messages.vectors import VectorFile
    from sstq.planning.clipping import Interval, NormProfile, NormSurvey

_HELP = """
Choose clip by a private survey, in which every client answers one yes-or-no question about its norm.

A survey is shared (sstq clip spec), answered on the clients (sstq clip encode) and evaluated on the server (sstq clip
aggregate). To try a survey on vectors that you hold, use sstq clip suggest.
"""

EpsilonOption = Annotated[float, typer.Option(help="The ε of one answer, in addition to the ε of the mean.")]
LowestOption = Annotated[float, typer.Option(help="The smallest threshold.")]
HighestOption = Annotated[float, typer.Option(help="The largest threshold; larger norms are only counted.")]
ThresholdsOption = Annotated[int, typer.Option(help="The number of thresholds, in geometric progression.")]
SurveyOption = Annotated[Path, typer.Option("--survey", "-s", help="The JSON file of the survey (sstq clip spec).")]
MechanismOption = Annotated[
    Path | None, typer.Option("--mechanism", "-m", help="Suggest a clip for this mechanism, whose own clip is ignored.")
]
ClientsOption = Annotated[
    int | None,
    typer.Option(min=1, help="The number of clients of the mean. [dim]\\[default: as many as answered][/dim]"),
]
JsonOption = Annotated[Path | None, output_option(help="Write all numbers as JSON.")]


def spec(
    lowest: LowestOption,
    highest: HighestOption,
    epsilon: EpsilonOption = 0.5,
    thresholds: ThresholdsOption = 16,
    output: Annotated[Path, output_option(help="Write the survey to this JSON file.")] = Path("survey.json"),
    force: ForceOption = False,
) -> None:
    """Write the survey that clients and server share to a JSON file.

    Choose a wide range: additional thresholds cost little, and norms outside the range cannot be distinguished.

    Example: sstq clip spec --lowest 0.01 --highest 100 --epsilon 0.5 --output survey.json
    """
    from sstq.planning.clipping import NormSurvey

    check_output(output, force)
    survey = NormSurvey(epsilon, lowest, highest, thresholds)
    write_text(output, survey.to_json() + "\n")
    show_facts(str(output), _describe(survey))


def encode(
    vectors: VectorsArgument,
    survey: SurveyOption,
    output: Annotated[Path, output_option(help="Write the answers to this message file.")],
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = ",",
    seed: SeedOption = None,
    force: ForceOption = False,
) -> None:
    """Encode one private answer about the norm of each vector; rows that cannot be read count as zero vectors.

    Example: sstq clip encode vectors.npy --survey survey.json --output answers.sstq
    """
    from sstq import write_messages
    from sstq.mechanisms.answers import answer_files

    check_output(output, force)
    shared = _read_survey(survey)
    files = open_files(vectors, None, columns, delimiter, unreadable="nan")
    count = write_messages(output, _answers(shared, answer_files(files)[0], seed))
    show_facts(str(output), [("answers", count), *_describe(shared)])
    if seed is not None:
        warn_of_seed("the answers come from --seed and are marked as simulated")


def aggregate(
    answers: Annotated[
        list[Path], typer.Argument(metavar="ANSWERS...", help="Read the answers from these files (sstq clip encode).")
    ],
    survey: SurveyOption,
    mechanism: MechanismOption = None,
    clients: ClientsOption = None,
    output: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Estimate quantiles of the norms from the answers and, with --mechanism, suggest a clip.

    All intervals hold simultaneously with probability 95 %.

    Example: sstq clip aggregate monday.sstq tuesday.sstq --survey survey.json --mechanism mechanism.json
    """
    check_output(output, force)
    aggregator = _read_survey(survey).aggregator()
    for path in answers:
        if not aggregator.update_from_file(path):
            note(f"{path} was already counted and skipped")
    profile = aggregator.profile()
    _show(profile, aggregator.count, mechanism, clients, output)
    if profile.simulated:
        warn_of_seed("some of these answers were simulated with a seed")


def suggest(
    vectors: Annotated[
        Path, typer.Option(help="Run the survey on these vectors: a sample, public data or last year's.")
    ],
    epsilon: EpsilonOption = 0.5,
    lowest: LowestOption = 1e-3,
    highest: HighestOption = 1e3,
    thresholds: ThresholdsOption = 32,
    mechanism: MechanismOption = None,
    clients: ClientsOption = None,
    columns: ColumnsOption = None,
    delimiter: DelimiterOption = ",",
    seed: SeedOption = None,
    output: JsonOption = None,
    force: ForceOption = False,
) -> None:
    """Run a whole survey on vectors that you hold, to see what clients with such vectors would reveal.

    The output is as private as that of a real survey, unless --seed is given.

    Example: sstq clip suggest --vectors file.npy --epsilon 0.5 --mechanism mechanism.json
    """
    from sstq.planning.clipping import NormSurvey

    check_output(output, force)
    survey = NormSurvey(epsilon, lowest, highest, thresholds)
    aggregator = survey.aggregator()
    for messages in _answers(survey, open_files([vectors], None, columns, delimiter), seed):
        aggregator.update(messages)
    _show(aggregator.profile(), aggregator.count, mechanism, clients, output)
    if seed is not None:
        warn_of_seed("the answers come from --seed")


clip = command_group("clip", _HELP, spec, encode, aggregate, suggest)


def _read_survey(path: Path) -> NormSurvey:
    from sstq.planning.clipping import NormSurvey

    try:
        return NormSurvey.from_json(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def _describe(survey: NormSurvey) -> Facts:
    return [
        ("thresholds", f"{len(survey.thresholds)}, from {survey.thresholds[0]:g} to {survey.thresholds[-1]:g}"),
        ("epsilon spent, rounded up", repr(survey.privacy_loss())),
        ("bits per message", survey.message_bits),
        ("clients for shares within 2 %", f"{survey.clients_for(0.02):,}"),
        ("digest", survey.digest()),
    ]


def _answers(survey: NormSurvey, files: list[VectorFile], seed: int | None) -> Iterator[Messages]:
    import numpy as np

    rng = None if seed is None else np.random.default_rng(seed)
    total = sum(file.count for file in files)
    with progress("Checking", total) as advance:
        for file in files:
            for rows in file.chunks():
                advance(len(rows))
    with progress("Answering", total) as advance:
        for file in files:
            for rows in file.chunks():
                yield survey.encode(rows, rng)
                advance(len(rows))


def _show(profile: NormProfile, count: int, mechanism: Path | None, clients: int | None, output: Path | None) -> None:
    found = {q: profile.quantile(q) for q in (0.5, 0.9, 0.99)}
    show_table(
        f"Norms, from {count:,} answers",
        ["quantile", "norm", "at least", "at most"],
        [[f"{q:g}", *map(_figure, interval)] for q, interval in found.items()],
        caption="All intervals hold simultaneously in 95 of 100 surveys.",
    )
    document: dict[str, Any] = {
        "answers": count,
        "simulated": profile.simulated,
        "quantiles": [{"q": q, **_finite(interval)} for q, interval in found.items()],
        "thresholds": profile.thresholds.tolist(),
        "above": profile.above.tolist(),
        "above_low": profile.low.tolist(),
        "above_high": profile.high.tolist(),
    }
    if mechanism is not None:
        document |= _suggest(profile, read_mechanism(mechanism), clients or count)
    elif clients is not None:
        raise WrongUsage("--clients needs --mechanism, for which a clip is suggested")
    if output is not None:
        write_text(output, to_json(document))


def _suggest(profile: NormProfile, mechanism: Mechanism, clients: int) -> dict[str, float]:
    """Print the clip of least error, and return its numbers."""
    from sstq.planning.clipping import suggest_clip

    choice = suggest_clip(profile, mechanism, clients)
    facts = [
        ("clip", f"{choice.clip:.4g}"),
        ("vectors clipped", f"{100 * choice.clipped.value:.3g} %"),
        ("error seen", f"{_figure(choice.error)} (bias {_figure(choice.bias.value)}, noise {_figure(choice.noise)})"),
        ("error at most", f"{_figure(choice.largest_error)} (bias {_figure(choice.bias.high)})"),
    ]
    show_facts(f"Suggestion for a mean of {clients:,} clients", facts)
    if choice.note:
        warn(choice.note)
    errors = {"error_seen": choice.error, "error_at_most": choice.largest_error}
    return {"clip": choice.clip, "relative_error": choice.noise / choice.clip, **errors}


def _figure(value: float) -> str:
    return "beyond" if math.isinf(value) else f"{value:.4g}"


def _finite(interval: Interval) -> dict[str, float | None]:
    """Return the interval for JSON, with None for infinity."""
    return {name: value if math.isfinite(value) else None for name, value in interval._asdict().items()}
