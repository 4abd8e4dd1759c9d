"""`sstq plan`: chooses the mechanism for a task, and shows its error and cost."""

import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.common import (
    FORCE,
    VERBOSE,
    WrongUsage,
    check_output,
    option,
    output_option,
    required,
    write_text,
)
from sstq.cli.terminal import Facts, safe_figure, show_facts

if TYPE_CHECKING:
    from sstq.planning import Plan


def plan(
    dim: int = required(
        "Plan for vectors of this length; with --classes, of features."
    ),
    clients: int | None = option("Plan for this many people per round."),
    epsilon: float | None = option("Allow each person this total ε, over all rounds."),
    target_error: float | None = option(
        "Reach this error of the mean, as a fraction of clip."
    ),
    mean_norm: float | None = option(
        "Expect a mean of this norm, as a fraction of clip, for the verdict."
    ),
    rounds: int = option("Let each person take part in this many rounds.", default=1),
    delta: float | None = option(
        "Allow this total δ.", show_default="0, pure ε; 1e-6 with --trust shuffler"
    ),
    trust: str = option(
        "Trust nobody, or a shuffler that mixes the messages.",
        default="local",
        metavar="local|shuffler",
    ),
    classes: int | None = option(
        "Plan a classifier for this many classes from one answer per person."
    ),
    output: Path | None = output_option(
        "Write the mechanism's JSON for sstq encode to this file.", None
    ),
    verbose: bool = VERBOSE,
    force: bool = FORCE,
) -> None:
    """Choose a mechanism, predict its error and cost, and compute what is left out.

    Give two of --epsilon, --clients and --target-error; plan computes the third. With all three it finds the
    shortest message with that error. Predictions are for people that all hold one typical vector of norm clip.

    The verdict is "feasible" if the mean of all rounds is at least as long as its error, or if it reaches the
    --target-error. Without --mean-norm the mean is taken to be as long as clip, which is the most that it can be.
    If the plan is infeasible the exit code is 1, no mechanism is written, and the options that suffice are shown.

    Example: sstq plan --dim 25450 --clients 100000 --epsilon 3 --mean-norm 0.3

    Example: sstq plan --dim 25450 --epsilon 3 --target-error 0.05

    Example: sstq plan --dim 25450 --clients 100000 --rounds 100 --epsilon 8 --delta 1e-6 --output spec.json

    Example: sstq plan --classes 10 --dim 441 --clients 59000 --epsilon 3

    Example: sstq plan --trust shuffler --dim 1000 --clients 100000 --epsilon 1 --delta 1e-6
    """
    from sstq import planning

    check_output(output, force)
    once = classes is not None or trust != "local"
    if once and (
        clients is None or epsilon is None or target_error is not None or rounds != 1
    ):
        raise WrongUsage(
            "--classes and --trust shuffler need --clients and --epsilon, and neither --target-error nor --rounds"
        )
    if sum(given is None for given in (clients, epsilon, target_error)) > 1:
        raise WrongUsage("pass at least two of --epsilon, --clients and --target-error")
    goal: dict[str, Any] = {
        "trust": trust,
        "delta": delta,
        "mean_norm": mean_norm,
        "classes": classes,
    }
    chosen = planning.plan(
        dim, clients, epsilon, target_error=target_error, rounds=rounds, **goal
    )
    verdict = chosen.verdict()
    show_facts(
        "Plan",
        {
            "verdict": verdict.summary,
            **_facts(chosen),
        },
        verbose=verbose,
    )
    if not verdict.feasible:
        remedies = {
            str(one): f"--{one.argument} {one.value!r}" for one in verdict.remedies
        }
        show_facts("Each of these would be feasible instead", remedies)
        raise ValueError(
            f"infeasible: signal-to-noise {verdict.signal_to_noise:.3g}; no mechanism is written"
        )
    if output is not None:
        write_text(output, chosen.build().to_json() + "\n")


def _facts(chosen: "Plan") -> Facts:
    """What a plan predicts, by name."""
    mechanism = chosen.mechanism
    shuffled = chosen.request.trust == "shuffler"
    of_classes = chosen.request.classes is not None
    facts: Facts = {
        "mechanism": f"{chosen.label}, {chosen.bits} bits per message",
        "total epsilon per person": _total_epsilon(chosen),
        "epsilon if the shuffler cheats": (
            safe_figure(mechanism.bundle_epsilon) if shuffled else None
        ),
        **(_of_classes(chosen) if of_classes else _of_a_mean(chosen)),
        "total bytes": chosen.total_bytes,
    }
    if shuffled and not of_classes:
        facts |= {
            "bytes per person": chosen.total_bytes // chosen.clients,
            "instead: trust nobody": f"{chosen.local_error:.3g} of clip",
            "instead: trust the server": f"{chosen.central_error:.3g} of clip, Gaussian noise",
        }
    built = f"sstq.{mechanism!r}"
    simulated = chosen.python()
    facts["mechanism in python"] = built
    if simulated != built:
        facts["simulate in python"] = simulated
    return facts


def _total_epsilon(chosen: "Plan") -> str:
    """The privacy that a person spends in all rounds."""
    asked = chosen.request
    delta = f", delta {asked.delta:g}" if asked.delta else ""
    if asked.trust == "shuffler":
        return f"{asked.epsilon:g}{delta}, behind the shuffler"
    total = f"{safe_figure(chosen.total_epsilon)}{delta}"
    if asked.rounds > 1:
        total += f" (epsilon {chosen.epsilon!r} x {asked.rounds})"
    return total


def _of_classes(chosen: "Plan") -> Facts:
    """How well a classifier tells classes apart."""
    # A class mean of norm 1 is as long as the noise of so many directions, for any data.
    most = math.floor(chosen.noise**-2)
    return {
        "noise per coordinate of a class mean": f"{chosen.noise:.3g} (features have norm 1)",
        "directions worth their noise": f"about {chosen.mechanism.dim:,}, at most {most:,}",
        "likely to beat the most frequent class": f"while it has less than {chosen.useful_below:.0%} of the people",
        "unlikely to beat it": f"where it has more than {chosen.useless_above:.0%} of the people",
        "chance if classes are equally frequent": f"{chosen.chance:.2f}",
        "people": f"{chosen.clients:,}",
    }


def _of_a_mean(chosen: "Plan") -> Facts:
    """The error of a mean, and how it was planned."""
    return {
        "error of the mean": f"{chosen.error:.3g} of clip (bias {chosen.bias:.3g} of clip)",
        "people per round": f"{chosen.clients:,}",
        "computed": chosen.solved_for,
        "why": chosen.explanation,
    }
