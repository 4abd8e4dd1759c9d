"""`sstq account`: the total ε of many rounds, and the content of a ledger."""

from pathlib import Path

from sstq.cli.common import WrongUsage, check_usage, option, read_mechanism
from sstq.cli.terminal import safe_figure, show_facts, show_table, warn

_CAPTION = (
    "sum: of all ε, without δ. with δ: the best possible bound. Totals are rounded up, ε per round down. "
    "80 rounds of 0.1, as computers store it, are above 8."
)
_SHUFFLED = "the shuffled bound holds only if a trusted shuffler mixes the messages and removes all metadata"


def account(
    epsilon: float | None = option("Spend this ε per round."),
    rounds: int | None = option("Let a client answer so many rounds."),
    delta: float = option(
        "Allow this total δ of all rounds; 0 for pure ε.", default=0.0
    ),
    total_epsilon: float | None = option(
        "Allow this total ε of all rounds, and solve for the rest."
    ),
    mechanism: Path | None = option(
        "Shuffle the messages of this mechanism.", "--mechanism", "-m"
    ),
    clients: int | None = option(
        "Let a trusted shuffler mix the messages of this many clients."
    ),
    messages: int | None = option(
        "Shuffle so many messages per client and round, each in its own slot."
    ),
    ledger: Path | None = option("Show this ledger file instead."),
) -> None:
    """Compute a client's total ε over many rounds, or show a client's ledger.

    With --total-epsilon, also compute how many rounds of --epsilon fit, and the largest ε per round for --rounds.
    Without δ the sum of all ε is the best bound.

    Example: sstq account --epsilon 0.1 --rounds 100 --delta 1e-6 --total-epsilon 8

    Example: sstq account --mechanism m.json --clients 100000 --messages 16 --delta 1e-6

    Example: sstq account --ledger client.ledger
    """
    if ledger is not None:
        others = (epsilon, rounds, total_epsilon, clients, mechanism, messages)
        if any(value is not None for value in others) or delta:
            raise WrongUsage(
                "--ledger cannot be combined with other options: a ledger has its own terms"
            )
        _show_ledger(ledger)
        return
    with check_usage():
        if mechanism is not None:
            if (
                clients is None
                or not delta
                or epsilon is not None
                or total_epsilon is not None
            ):
                raise WrongUsage(
                    "--mechanism needs --clients and --delta, and neither --epsilon nor --total-epsilon"
                )
            _show_shuffled(mechanism, clients, delta, messages, rounds or 1)
        elif clients is not None or messages is not None:
            raise WrongUsage("--clients and --messages need --mechanism")
        elif sum(value is not None for value in (epsilon, rounds, total_epsilon)) < 2:
            raise WrongUsage(
                "pass two of --epsilon, --rounds and --total-epsilon, or --ledger"
            )
        else:
            _show_bounds(epsilon, rounds, delta, total_epsilon)


def _show_bounds(
    epsilon: float | None, rounds: int | None, delta: float, total: float | None
) -> None:
    """Print what can be computed of two of the three, by each bound."""
    from sstq.accounting import compose, epsilon_per_round, rounds_allowed

    rows = []
    for label, allowed in (
        {"sum": 0.0, "with δ": delta}.items() if delta else [("sum", 0.0)]
    ):
        figures = {"bound": label, "delta": f"{allowed:g}"}
        if epsilon is not None and rounds is not None:
            spent = compose(epsilon, rounds, allowed)
            figures[f"epsilon of {rounds} round{'' if rounds == 1 else 's'}"] = (
                safe_figure(spent)
            )
        if epsilon is not None and total is not None:
            figures[f"rounds within {total:g}"] = str(
                rounds_allowed(epsilon, total, allowed)
            )
        if rounds is not None and total is not None:
            each = epsilon_per_round(rounds, total, allowed)
            figures[f"epsilon per round, {rounds} rounds within {total:g}"] = (
                safe_figure(each, up=False)
            )
        rows.append(list(figures.values()))
    each_round = "" if epsilon is None else f", ε = {safe_figure(epsilon)} per round"
    show_table(
        f"One client's rounds, δ = {delta:g}{each_round}",
        list(figures),
        rows,
        caption=_CAPTION,
    )


def _show_shuffled(
    path: Path, clients: int, delta: float, messages: int | None, rounds: int
) -> None:
    """Print the bound by the mechanism's own law beside that of any mechanism."""
    from sstq.accounting import shuffled_epsilon

    mechanism = read_mechanism(path)
    messages = messages or mechanism.messages
    epsilon = mechanism.privacy_loss()
    by_law, generic = (
        shuffled_epsilon(m, clients, delta, messages=messages, rounds=rounds)
        for m in (mechanism, epsilon)
    )
    rows = [
        [
            f"shuffled, by the law of {mechanism.name}",
            f"{delta:g}",
            safe_figure(by_law),
        ],
        ["shuffled, any mechanism", f"{delta:g}", safe_figure(generic)],
        ["if the shuffler cheats", "0", safe_figure(epsilon * messages * rounds)],
    ]
    sent = f"{messages * rounds} messages of ε = {safe_figure(epsilon)} per client, {clients} clients"
    show_table(
        f"Shuffled: {sent}",
        ["bound", "delta", "epsilon"],
        rows,
        caption="All totals are rounded up.",
    )
    warn(_SHUFFLED)


def _show_ledger(path: Path) -> None:
    from sstq.accounting import Ledger

    ledger = Ledger(path)
    facts = {
        name: repr(getattr(ledger, name)) for name in ("epsilon", "spent", "remaining")
    }
    cap = "none" if ledger.round_cap is None else repr(ledger.round_cap)
    show_facts(str(path), facts | {"round cap": cap, "rounds": len(ledger.entries)})
    if ledger.entries:
        rows = [[one.round_id, repr(one.epsilon), one.time] for one in ledger.entries]
        show_table(
            "Rounds",
            ["round", "epsilon", "time"],
            rows,
            caption="In the order of spending.",
        )
