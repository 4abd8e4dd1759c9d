"""`sstq plan`: chooses the mechanism for a task, and shows its error and cost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from sstq.cli.common import ForceOption, VerboseOption, check_output
from sstq.cli.numbers import figure, safe_figure
from sstq.cli.terminal import note, show_facts
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    from sstq.planning import ClassifierPlan, Plan, ShuffledPlan, Verdict

__all__ = ["plan"]

Facts = list[tuple[str, object]]


def plan(
    dim: Annotated[int, typer.Option(help="Plan for vectors of this length; with --classes, of features.")],
    clients: Annotated[int | None, typer.Option(help="Plan for this many people per round.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="Allow each person this total ε, over all rounds.")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="Reach this error of the mean, as a fraction of clip.")
    ] = None,
    rounds: Annotated[int, typer.Option(help="Let each person take part in this many rounds.")] = 1,
    delta: Annotated[
        float | None,
        typer.Option(help="Allow this total δ. [dim]\\[default: 0, pure ε; 1e-6 with --trust shuffler][/dim]"),
    ] = None,
    bits: Annotated[int | None, typer.Option(help="Send at most this many bits per message.")] = None,
    trust: Annotated[
        str, typer.Option(metavar="local|shuffler", help="Trust nobody, or a shuffler that mixes the messages.")
    ] = "local",
    classes: Annotated[
        int | None, typer.Option(help="Plan a classifier for this many classes from one answer per person.")
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the mechanism's JSON for sstq encode to this file.")
    ] = None,
    verbose: VerboseOption = False,
    force: ForceOption = False,
) -> None:
    """Choose a mechanism, predict its error and cost, and solve for what is left out.

    Give two of --epsilon, --clients and --target-error; the third is solved for. With all three the shortest
    message with that error is found. Predictions are for people that all hold one typical vector of norm clip.

    The verdict is "feasible" if the mean of all rounds is at least as long as its error, or if it reaches the
    --target-error. Otherwise the exit code is 1, no mechanism is written, and the options that suffice are shown.

    Example: sstq plan --dim 25450 --clients 100000 --epsilon 3 --bits 20

    Example: sstq plan --dim 25450 --epsilon 3 --target-error 0.05

    Example: sstq plan --dim 25450 --clients 100000 --rounds 100 --epsilon 8 --delta 1e-6 --output spec.json

    Example: sstq plan --classes 10 --dim 441 --clients 59000 --epsilon 3

    Example: sstq plan --trust shuffler --dim 1000 --clients 100000 --epsilon 1 --delta 1e-6
    """
    from sstq import planning
    from sstq.files.atomic import atomic_file

    check_output(output, force)
    found: Plan | ShuffledPlan | ClassifierPlan
    once = classes is not None or trust != "local"
    if once and (clients is None or epsilon is None or target_error is not None or rounds != 1):
        raise WrongUsage(
            "--classes and --trust shuffler need --clients and --epsilon, and neither --target-error nor --rounds"
        )
    with check_usage(total_epsilon="--epsilon", features="--dim"):
        if classes is not None:
            found = planning.plan_classifier(classes, dim, clients or 0, epsilon or 0.0, trust=trust, delta=delta)
            facts = _classifier_facts(found)
        elif trust == "local":
            each, total = (epsilon, None) if rounds == 1 else (None, epsilon)
            goal = {"target_error": target_error, "total_epsilon": total, "rounds": None if rounds == 1 else rounds}
            local: Plan = planning.plan(dim, clients, each, bits=bits, delta=delta, **goal)  # type: ignore[call-overload]
            found, facts = local, _facts(local)
        else:
            options = {"trust": trust, "bits": bits, "delta": delta}
            shuffled: ShuffledPlan = planning.plan(dim, clients, epsilon, **options)  # type: ignore[call-overload]
            found, facts = shuffled, _shuffled_facts(shuffled)
    verdict = found.verdict()
    show_facts("Plan", [("verdict", _in_short(verdict)), *facts], verbose=verbose)
    if not verdict.feasible:
        show_facts("What would be feasible instead", _remedies(verdict))
        raise ValueError(f"{_in_short(verdict)}; no mechanism is written")
    if output is not None:
        with atomic_file(output) as file:
            file.write(found.mechanism.to_json().encode() + b"\n")
        note(f"wrote {output}")


def _in_short(verdict: Verdict) -> str:
    return f"{'feasible' if verdict.feasible else 'infeasible'}: {verdict.reason}"


def _remedies(verdict: Verdict) -> Facts:
    """Return each number that suffices as the option to pass instead."""
    options = {"clients": "--clients", "epsilon": "--epsilon", "total_epsilon": "--epsilon"}
    return [(str(remedy), f"{options.get(remedy.argument, '--dim')} {remedy.value!r}") for remedy in verdict.remedies]


def _of_clip(length: float, clip: float = 1.0) -> str:
    return f"{figure(length / clip)} of clip"


def _facts(found: Plan) -> Facts:
    total = found.total_epsilon_basic if found.total_epsilon_optimal is None else found.total_epsilon_optimal
    delta = f", delta {found.request.delta:g}" if found.request.delta else ""
    times = found.times()
    facts: Facts = [
        ("mechanism", f"{found.label}, {found.bits} bits per message"),
        ("people per round", f"{found.clients:,}"),
        ("total epsilon per person", f"{safe_figure(total)}{delta} (epsilon {found.epsilon!r} x {found.rounds})"),
        ("error of the mean", f"{_of_clip(found.error)} (bias {_of_clip(found.bias)})"),
        ("solved for", found.solved_for),
        ("total bytes", found.total_bytes),
        ("encode", f"{figure(1e3 * times.encode)} ms per message, measured here"),
        ("aggregate", f"{figure(1e6 * times.add)} µs per message, measured here"),
        ("why", found.explanation),
    ]
    for other in found.alternatives:
        needs = f" (needs {other.needs})" if other.needs else ""
        facts.append((f"instead: {other.label}", f"{other.bits} bits, {_of_clip(other.error)}{needs}"))
    return [*facts, ("python", found.python())]


def _shuffled_facts(found: ShuffledPlan) -> Facts:
    return [
        ("mechanism", f"FrameUnit, {found.messages} messages of {found.mechanism.message_bits} bits per person"),
        ("total epsilon per person", f"{found.epsilon:g}, delta {found.delta:g}, behind the shuffler"),
        ("epsilon if the shuffler cheats", safe_figure(found.cheated_epsilon)),
        ("error of the mean", _of_clip(found.error)),
        ("bytes per person", found.person_bytes),
        ("total bytes", found.total_bytes),
        ("bias", _of_clip(found.bias)),
        ("instead: trust nobody", _of_clip(found.local_error)),
        ("instead: trust the server", f"{_of_clip(found.central_error)}, Gaussian noise"),
        ("python", found.python()),
    ]


def _classifier_facts(found: ClassifierPlan) -> Facts:
    return [
        ("mechanism", f"GroupUnit, {found.classes} groups, {found.mechanism.message_bits} bits per message"),
        ("total epsilon per person", found.total),
        ("noise per coordinate of a class mean", f"{figure(found.noise)} (features have norm 1)"),
        ("features worth their noise", f"about {found.usual_features:,}, at most {found.most_features:,}"),
        ("people", f"{found.clients:,}"),
        ("messages per person", found.mechanism.messages),
        ("total bytes", found.total_bytes),
        ("mechanism in python", f"sstq.{found.mechanism!r}"),
        ("simulate in python", found.python()),
    ]
