"""`sstq account`: the total ε of many rounds, and the content of a ledger."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from sstq.cli.common import read_mechanism, safe_figure
from sstq.cli.terminal import note, show_facts, show_table, warn
from sstq.cli.usage import WrongUsage, check_usage

_CAPTION = (
    "sum: of all ε, without δ. with δ: the best possible bound. Totals are rounded up, ε per round down. "
    "80 rounds of 0.1, as computers store it, are above 8."
)

_SHUFFLED = (
    "the shuffled bound holds only if a trusted shuffler mixes the messages and removes identifiers: "
    "it does not hold for mechanisms with a public coin"
)


def account(
    epsilon: Annotated[float | None, typer.Option(help="The ε of one round.")] = None,
    rounds: Annotated[int | None, typer.Option(help="The number of rounds that a client takes part in.")] = None,
    delta: Annotated[float, typer.Option(help="The total δ of all rounds; 0 for pure ε.")] = 0.0,
    total_epsilon: Annotated[float | None, typer.Option(help="The total ε of all rounds: solve for the rest.")] = None,
    clients: Annotated[int | None, typer.Option(help="The number of clients whose messages are shuffled.")] = None,
    shuffled: Annotated[
        bool, typer.Option("--shuffled", help="Let a trusted shuffler mix the messages of each round; needs --clients.")
    ] = False,
    participation: Annotated[
        str | None,
        typer.Option(metavar="once|K", help="Let each client answer only once, or in K of the --rounds, in cohorts."),
    ] = None,
    mechanism: Annotated[
        Path | None,
        typer.Option(
            "--mechanism", "-m", help="Use the law of the mechanism in this JSON file for its shuffled messages."
        ),
    ] = None,
    messages: Annotated[
        int | None, typer.Option(help="The shuffled messages per client and round, each in its own slot.")
    ] = None,
    ledger: Annotated[Path | None, typer.Option(help="Show this ledger instead.")] = None,
) -> None:
    """Compute a client's total ε over many rounds, without and with δ; or show a client's ledger.

    With --total-epsilon, also compute how many rounds of --epsilon fit, and the largest ε per round for --rounds.
    Without δ the sum of all ε is the best bound.

    Example: sstq account --epsilon 0.1 --rounds 100 --delta 1e-6 --total-epsilon 8

    Example: sstq account --epsilon 8 --rounds 60 --participation once

    Example: sstq account --mechanism m.json --shuffled --clients 100000 --messages 16 --delta 1e-6

    Example: sstq account --ledger client.ledger
    """
    if ledger is not None:
        others = (epsilon, rounds, total_epsilon, clients, participation, mechanism, messages)
        if any(value is not None for value in others) or delta or shuffled:
            raise WrongUsage("--ledger cannot be combined with other options: a ledger has its own terms")
        _show_ledger(ledger)
        return
    with check_usage():
        if participation is not None:
            rounds = _answers(rounds, participation)
        if mechanism is not None or messages is not None:
            if not shuffled or clients is None or not delta:
                raise WrongUsage("--mechanism and --messages need --shuffled, --clients and --delta")
            if (epsilon is None) == (mechanism is None) or total_epsilon is not None:
                raise WrongUsage("--messages can only be combined with --rounds and either --mechanism or --epsilon")
            _show_shuffled(epsilon, mechanism, clients, delta, messages, rounds or 1)
            return
        if sum(value is not None for value in (epsilon, rounds, total_epsilon)) < 2:
            raise WrongUsage("pass two of --epsilon, --rounds and --total-epsilon, or --ledger")
        if shuffled != (clients is not None):
            raise WrongUsage(
                "--shuffled and --clients must be given together: without shuffling, other clients hide nobody"
            )
        _show_bounds(epsilon, rounds, delta, total_epsilon, clients)


def _answers(rounds: int | None, participation: str) -> int:
    """Return the rounds that a client pays for: those that it answers."""
    if rounds is None:
        raise WrongUsage("--participation needs --rounds, the number of rounds of the whole training")
    from sstq.planning.cohorts import answers_of

    answers = answers_of(int(participation) if participation.isdecimal() else participation)
    if answers > rounds:
        raise WrongUsage(f"--participation must be at most the {rounds} of --rounds, got {participation}")
    note(f"each client answers in {answers} of {rounds} rounds and pays only for these: totals are per person")
    return answers


def _show_bounds(
    epsilon: float | None, rounds: int | None, delta: float, total_epsilon: float | None, clients: int | None
) -> None:
    bounds: dict[str, tuple[float, int | None]] = {"sum": (0.0, None)}
    if delta:
        bounds["with δ"] = delta, None
    if clients is not None:
        bounds["shuffled"] = delta, clients
    rows = []
    for label, (allowed, crowd) in bounds.items():
        figures = _figures(epsilon, rounds, allowed, total_epsilon, crowd)
        rows.append([label, f"{allowed:g}", *figures.values()])
    each = "" if epsilon is None else f", ε = {safe_figure(epsilon)} per round"
    show_table(f"One client's rounds, δ = {delta:g}{each}", ["bound", "delta", *figures], rows, caption=_CAPTION)
    if clients is not None:
        warn(_SHUFFLED)


def _show_shuffled(
    epsilon: float | None, path: Path | None, clients: int, delta: float, messages: int | None, rounds: int
) -> None:
    from sstq.accounting import shuffled_epsilon

    rows = []
    if path is not None:
        mechanism = read_mechanism(path)
        own = shuffled_epsilon(mechanism, clients, delta, messages=messages, rounds=rounds)
        rows.append([f"shuffled, by the law of {mechanism.name}", f"{delta:g}", safe_figure(own)])
        messages = getattr(mechanism, "messages", 1) if messages is None else messages
        epsilon = mechanism.privacy_loss()
    if epsilon is None or messages is None:
        raise WrongUsage("pass --mechanism or --epsilon")
    generic = shuffled_epsilon(epsilon, clients, delta, messages=messages, rounds=rounds)
    rows.append(["shuffled, any mechanism", f"{delta:g}", safe_figure(generic)])
    rows.append(["if the shuffler cheats", "0", safe_figure(epsilon * messages * rounds)])
    sent = f"{messages * rounds} messages of ε = {safe_figure(epsilon)} per client, {clients} clients"
    show_table(f"Shuffled: {sent}", ["bound", "delta", "epsilon"], rows, caption="All totals are rounded up.")
    warn(_SHUFFLED)


def _figures(
    epsilon: float | None, rounds: int | None, delta: float, total: float | None, clients: int | None
) -> dict[str, str]:
    """Return what can be computed of two of the three, with the heads of the columns."""
    from sstq.accounting import compose, epsilon_per_round, rounds_allowed

    figures = {}
    if epsilon is not None and rounds is not None:
        spent = compose(epsilon, rounds, delta, clients=clients)
        figures[f"epsilon of {rounds} round{'' if rounds == 1 else 's'}"] = safe_figure(spent)
    if epsilon is not None and total is not None:
        figures[f"rounds within {total:g}"] = str(rounds_allowed(epsilon, total, delta, clients=clients))
    if rounds is not None and total is not None:
        each = epsilon_per_round(rounds, total, delta, clients=clients)
        figures[f"epsilon per round, {rounds} rounds within {total:g}"] = safe_figure(each, up=False)
    return figures


def _show_ledger(path: Path) -> None:
    from sstq.accounting import Ledger

    ledger = Ledger(path)
    show_facts(
        str(path),
        [
            ("epsilon", repr(ledger.epsilon)),
            ("round cap", "none" if ledger.round_cap is None else repr(ledger.round_cap)),
            ("rounds", len(ledger.entries)),
            ("spent", repr(ledger.spent)),
            ("remaining", repr(ledger.remaining)),
        ],
    )
    if ledger.entries:
        rows = [[one.round_id, repr(one.epsilon), one.time] for one in ledger.entries]
        show_table("Rounds", ["round", "epsilon", "time"], rows, caption="In the order of spending.")
