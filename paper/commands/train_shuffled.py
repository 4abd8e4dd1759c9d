"""`sstq train --trust shuffler`: its options, and the mechanism of a round."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.usage import WrongUsage

if TYPE_CHECKING:
    from sstq import Mechanism
    from paper.training import Cohorts, Problem, Settings

__all__ = ["DeltaOption", "MessagesOption", "TrustOption", "check_trust", "shuffled_runs"]

TrustOption = Annotated[
    str,
    typer.Option(
        metavar="local|shuffler",
        help="Trust nobody (local), or a shuffler that mixes each round's messages. With a shuffler --epsilon "
        "and --delta are a client's total over all its answers, and frameunit is set up for them.",
    ),
]
DeltaOption = Annotated[
    float | None, typer.Option(help="The δ of a client's total, with --trust shuffler. [dim]\\[default: 1e-6][/dim]")
]
MessagesOption = Annotated[
    int | None,
    typer.Option(
        help="The messages per answer, each mixed in its own slot, with --trust shuffler. [dim]\\[default: 1][/dim]"
    ),
]


def check_trust(trust: str, of_shuffler: dict[str, object], of_local: dict[str, object]) -> bool:
    """Return whether there is a shuffler; refuse options (not None) of the other kind of trust."""
    from sstq.checks import check_option

    shuffled = check_option("trust", trust, ("local", "shuffler")) == "shuffler"
    strange = [option for option, value in (of_local if shuffled else of_shuffler).items() if value is not None]
    if strange and shuffled:
        raise WrongUsage(f"{', '.join(strange)} cannot be combined with --trust shuffler")
    if strange:
        raise WrongUsage(f"{', '.join(strange)} needs --trust shuffler")
    return shuffled


def shuffled_runs(
    mechanisms: list[str] | None,
    problem: Problem,
    epsilon: float,
    delta: float,
    messages: int,
    settings: Settings,
    cohorts: Cohorts | None,
) -> dict[str, Mechanism]:
    """Return FrameUnit with the best draw for a client's total (ε, δ) over all its answers, by label."""
    from sstq.planning import shuffled_mechanism

    for text in mechanisms or []:
        if text != "frameunit":
            raise WrongUsage(
                f"--mechanism must be frameunit without arguments with --trust shuffler, which sets them, got {text}"
            )
    people, answers = (problem.clients, settings.rounds) if cohorts is None else (cohorts.least, cohorts.answers)
    built = shuffled_mechanism(
        problem.model.dim, epsilon, delta, people, messages=messages, rounds=answers, clip=settings.clip
    )
    return {"frameunit": built}
