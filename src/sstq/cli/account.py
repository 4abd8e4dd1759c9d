"""`sstq account`: what many rounds cost a client together, and what a ledger says."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.numbers import as_participation, safe_figure
from sstq.cli.terminal import note, show_facts, show_table, warn
from sstq.cli.usage import WrongUsage, check_usage

__all__ = ["account"]

_CAPTION = (
    "basic: the sum of all ε, without δ. advanced: the classical bound. optimal: exact. pld: numerical, the same but "
    "for its error. Totals are rounded up, ε a round down."
)


def account(
    epsilon: Annotated[float | None, typer.Option(help="ε of one round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="T, the rounds that a client takes part in.")] = None,
    delta: Annotated[float, typer.Option(help="δ of all rounds together; 0 for pure ε.")] = 0.0,
    total_epsilon: Annotated[float | None, typer.Option(help="ε of all rounds together: solve for the rest.")] = None,
    clients: Annotated[int | None, typer.Option(help="n, the clients whose messages are shuffled.")] = None,
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="A trusted shuffler mixes the messages of each round; needs --clients.")
    ] = False,
    participation: Annotated[
        str | None,
        typer.Option(metavar="once|K", help="Each client answers in so many of the --rounds only, in cohorts."),
    ] = None,
    probability: Annotated[
        float | None,
        typer.Option(help="q: clients take part with this secret probability and otherwise send a message of zero."),
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Show this ledger instead.")] = None,
) -> None:
    """Say what many rounds cost a client together, by each composition theorem; or show a client's ledger.

    With --total-epsilon also how many rounds of --epsilon fit, and the largest ε for that many --rounds. Without δ
    nothing is better than the sum of all ε. The method pld needs the extra `accounting`.

    Example: sstq account --epsilon 0.1 --rounds 100 --delta 1e-6 --total-epsilon 8

    Example: sstq account --epsilon 8 --rounds 60 --participation once

    Example: sstq account --ledger client.ledger
    """
    if ledger is not None:
        others = (epsilon, rounds, total_epsilon, clients, participation, probability)
        if any(value is not None for value in others) or delta or shuffled:
            raise WrongUsage("--ledger stands alone: a ledger has its own terms")
        _show_ledger(ledger)
        return
    if sum(value is not None for value in (epsilon, rounds, total_epsilon)) < 2:
        raise WrongUsage("two of --epsilon, --rounds and --total-epsilon are needed, or --ledger")
    if shuffled != (clients is not None):
        raise WrongUsage("--shuffled and --clients go together: unless they are shuffled, other clients hide nobody")
    with check_usage():
        if participation is not None:
            rounds = _answers(rounds, participation)
        if probability is not None:
            epsilon = _subsampled(epsilon, probability)
        _show_methods(epsilon, rounds, delta, total_epsilon, clients)


def _answers(rounds: int | None, participation: str) -> int:
    """Return the rounds that a client pays for: those that it answers."""
    if rounds is None:
        raise WrongUsage("--participation needs --rounds, of which each client answers in so many")
    from sstq.runs.cohorts import answers_of

    answers = answers_of(as_participation(participation))
    if answers > rounds:
        raise WrongUsage(f"--participation must be at most the {rounds} of --rounds, got {participation}")
    note(f"each client answers in {answers} of {rounds} rounds, and pays for these: the totals are a person's")
    return answers


def _subsampled(epsilon: float | None, probability: float) -> float:
    from sstq.accounting import subsampled_epsilon

    if epsilon is None:
        raise WrongUsage("--probability needs --epsilon, which it lowers")
    amplified = subsampled_epsilon(epsilon, probability)
    warn(
        f"ε = {epsilon:g} counts as {safe_figure(amplified)} a round only if nobody can tell who takes part: "
        "clients that do not must send a message all the same"
    )
    return amplified


def _show_methods(
    epsilon: float | None, rounds: int | None, delta: float, total_epsilon: float | None, clients: int | None
) -> None:
    from sstq.accounting import METHODS

    columns, rows = ["method", "delta"], []
    if epsilon is not None and rounds is not None:
        columns.append(f"epsilon of {rounds} round{'' if rounds == 1 else 's'}")
    if epsilon is not None and total_epsilon is not None:
        columns.append(f"rounds within {total_epsilon:g}")
    if rounds is not None and total_epsilon is not None:
        columns.append(f"epsilon a round, {rounds} rounds within {total_epsilon:g}")
    crowds = [None] if clients is None else [None, clients]
    for crowd in crowds:
        for method in METHODS if delta else METHODS[:1]:
            label = method if crowd is None else f"shuffled, {method}"
            try:
                figures = _figures(epsilon, rounds, delta, total_epsilon, method, crowd)
            except (ImportError, ValueError) as error:
                # Numerical convolution may be missing or out of its range; what is wrong for all methods is an error.
                if method != "pld":
                    raise
                note(f"left out: {label}: {error}")
                continue
            pure = method == "basic" and crowd is None
            rows.append([label, "0" if pure else f"{delta:g}", *figures])
    each = "" if epsilon is None else f", ε = {safe_figure(epsilon)} a round"
    show_table(f"One client's rounds, δ = {delta:g}{each}", columns, rows, caption=_CAPTION)
    if epsilon is not None and total_epsilon is not None:
        _explain_doubles(epsilon, total_epsilon)
    if clients is not None:
        warn(
            "shuffled holds only against whoever sees the messages after a trusted shuffler, without identifiers: "
            "not for mechanisms with a public coin"
        )


def _figures(
    epsilon: float | None, rounds: int | None, delta: float, total: float | None, method: str, clients: int | None
) -> list[str]:
    from sstq.accounting import compose, epsilon_per_round, rounds_allowed

    figures = []
    if epsilon is not None and rounds is not None:
        figures.append(safe_figure(compose(epsilon, rounds, delta, method, clients=clients)))
    if epsilon is not None and total is not None:
        figures.append(str(rounds_allowed(epsilon, total, delta, method, clients=clients)))
    if rounds is not None and total is not None:
        figures.append(safe_figure(epsilon_per_round(rounds, total, delta, method, clients=clients), up=False))
    return figures


def _explain_doubles(epsilon: float, total: float) -> None:
    """Say why 0.3 has room for two rounds of 0.1 only, where the decimals that were typed suggest one more."""
    from fractions import Fraction

    from sstq.accounting import rounds_allowed

    rounds = rounds_allowed(epsilon, total)
    if (rounds + 1) * Fraction(repr(epsilon)) <= Fraction(repr(total)):
        note(
            f"basic has one round less than {total!r}/{epsilon!r} because the doubles are taken at their exact values: "
            f"{rounds + 1} times {epsilon!r} is a little more than {total!r}"
        )


def _show_ledger(path: Path) -> None:
    from sstq.accounting import Ledger

    ledger = Ledger(path)
    entries = ledger.entries
    show_facts(
        str(path),
        [
            ("epsilon", repr(ledger.epsilon)),
            ("delta", repr(ledger.delta)),
            ("composition", ledger.composition),
            ("cap of a round", "none" if ledger.round_cap is None else repr(ledger.round_cap)),
            ("rounds", len(entries)),
            ("spent", repr(ledger.spent)),
            ("remaining", repr(ledger.remaining)),
        ],
    )
    if entries:
        rows = [[entry.round_id, repr(entry.epsilon), entry.time] for entry in entries]
        show_table("Rounds", ["round", "epsilon", "time"], rows, caption="In the order in which they were spent.")
