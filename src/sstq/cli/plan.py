"""`sstq plan`: chooses the mechanism for a task, and shows its error and cost."""

from __future__ import annotations

import inspect
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import ForceOption, check_output
from sstq.cli.numbers import JsonOption, as_participation, figure, safe_figure, write_json
from sstq.cli.plan_classifier import plan_classifier
from sstq.cli.plan_shuffled import plan_shuffled
from sstq.cli.terminal import note, show_facts
from sstq.cli.usage import WrongUsage, check_usage
from sstq.cli.verdicts import refuse_infeasible, show_remedies, verdict_numbers

if TYPE_CHECKING:
    from sstq.planning import Plan, Times, Verdict

__all__ = ["plan"]

# A longer JSON is not shown; --output writes it.
_SPEC_SHOWN = 1000
_NOT_THE_TASK = ("learn", "output", "json", "force")


def plan(
    context: typer.Context,
    dim: Annotated[int | None, typer.Option(help="The length of the vectors.")] = None,
    clients: Annotated[int | None, typer.Option(help="The number of clients per round.")] = None,
    epsilon: Annotated[float | None, typer.Option(help="The ε that one message may spend.")] = None,
    bits: Annotated[int | None, typer.Option(help="The maximum bits per message.")] = None,
    target_error: Annotated[
        float | None, typer.Option(help="The error of the mean to reach, as a fraction of clip.")
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="The number of rounds that one client may take part in.")] = None,
    total_epsilon: Annotated[float | None, typer.Option(help="The total ε of all rounds of a client.")] = None,
    delta: Annotated[
        float | None,
        typer.Option(help="The total δ of all rounds. [dim]\\[default: 0, pure ε; 1e-6 with --trust shuffler][/dim]"),
    ] = None,
    clip: Annotated[float, typer.Option(help="Scale longer vectors down to this norm.")] = 1.0,
    coin: Annotated[
        str,
        typer.Option(
            metavar="private|public|any",
            help="Choose who draws the public part of a message; a public coin saves bits.",
        ),
    ] = "private",
    trust: Annotated[
        str,
        typer.Option(
            metavar="local|shuffler",
            help="Trust nobody (local), or a shuffler; then --epsilon and --delta are the totals behind it.",
        ),
    ] = "local",
    messages: Annotated[
        int | None,
        typer.Option(help="The maximum messages per person, with --trust shuffler. [dim]\\[default: 16][/dim]"),
    ] = None,
    server: Annotated[
        str,
        typer.Option(
            metavar="fast|any",
            help="Require a fast server, O(1) per message; `any` also considers RRSC, whose server is slow.",
        ),
    ] = "fast",
    alike: Annotated[
        float | None, typer.Option(help="The cosine of the clients' vectors with their common direction, if known.")
    ] = None,
    participation: Annotated[
        str | None,
        typer.Option(
            metavar="once|K",
            help="Let each person answer only once, or in K rounds: --clients are all people, --rounds all rounds.",
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the mechanism's JSON for sstq encode to this file.")
    ] = None,
    json: JsonOption = None,
    learn: Annotated[
        bool,
        typer.Option("--learn", help="Plan a classifier for --classes, --features, --clients and a total --epsilon."),
    ] = False,
    classes: Annotated[int | None, typer.Option(help="The number of classes, with --learn.")] = None,
    features: Annotated[int | None, typer.Option(help="The number of features, with --learn.")] = None,
    force: ForceOption = False,
) -> None:
    """Choose a mechanism and its parameters, predict error and cost, and solve for what is left out.

    Give two of ε (or rounds and a total ε), clients and target error; the third is solved for. With all three
    the shortest message with that error is found. More bits are not always better, nor is more ε.

    Predictions are for clients that all hold one typical vector of norm clip.

    The verdict is "feasible" if the mean of all rounds is at least as long as its error (signal-to-noise 1), or if
    it reaches the --target-error. Otherwise the exit code is 1, no mechanism is written, and commands that
    are feasible are shown.

    Example: sstq plan --dim 25450 --clients 100000 --epsilon 3 --bits 20

    Example: sstq plan --dim 25450 --epsilon 3 --target-error 0.05

    Example: sstq plan --dim 25450 --clients 100000 --rounds 100 --total-epsilon 8 --delta 1e-6 --output spec.json

    Example: sstq plan --dim 7850 --clients 6000 --rounds 60 --participation once --total-epsilon 8

    Example: sstq plan --learn --classes 10 --features 441 --clients 59000 --epsilon 3

    Example: sstq plan --trust shuffler --dim 1000 --clients 100000 --epsilon 1 --delta 1e-6
    """
    from sstq import planning as planner
    from sstq.files.atomic import atomic_file

    check_output(output, force)
    check_output(json, force, "--json")
    if learn:
        plan_classifier(_given_options(context), output, json)
        return
    if classes is not None or features is not None:
        raise WrongUsage("--classes and --features need --learn")
    if trust == "shuffler":
        plan_shuffled(_given_options(context), output, json)
        return
    if trust != "local":
        raise WrongUsage(
            f"--trust must be local or shuffler, got {trust!r}; see `sstq compare` for trusted aggregators"
        )
    if messages is not None:
        raise WrongUsage("--messages needs --trust shuffler")
    if dim is None:
        raise WrongUsage("pass --dim, or --learn to plan a classifier")
    with check_usage():
        found = planner.plan(
            dim,
            clients,
            epsilon,
            bits=bits,
            target_error=target_error,
            rounds=rounds,
            total_epsilon=total_epsilon,
            delta=delta or 0.0,
            clip=clip,
            coin=coin,
            server=server,
            alike=alike,
            participation=as_participation(participation),
        )
    spec, verdict = found.spec(), found.verdict()
    show_facts("Plan", _facts(found, verdict, found.times(), spec))
    show_remedies(verdict)
    if json is not None:
        write_json(json, _numbers(found, verdict))
    refuse_infeasible(verdict, f"pass --target-error {safe_figure(found.relative_error)} to accept this error")
    if output is not None:
        with atomic_file(output) as file:
            file.write(spec.encode() + b"\n")
        note(f"wrote {output}")


def _given_options(context: typer.Context) -> dict[str, Any]:
    """Return the options of the task that differ from their defaults."""
    defaults = {name: parameter.default for name, parameter in inspect.signature(plan).parameters.items()}
    typed = {name: value for name, value in context.params.items() if name not in _NOT_THE_TASK}
    return {name: value for name, value in typed.items() if value != defaults[name]}


def _facts(found: Plan, verdict: Verdict, times: Times, spec: str) -> list[tuple[str, object]]:
    from sstq.planning.cohorts import cohort_facts

    how = "measured here" if times.measured else "estimated"
    # The total is per person, over the rounds that they answer.
    total = "total epsilon of all rounds" if found.cohorts is None else "total epsilon per person"
    facts: list[tuple[str, object]] = [
        ("verdict", str(verdict)),
        ("mechanism", found.label),
        ("solved for", found.solved_for),
        ("epsilon", f"{found.epsilon!r}"),
        ("clients" if found.cohorts is None else "clients per round", found.clients),
        ("bits per message", found.bits),
        ("coin", found.coin),
        ("error of the mean", _both(found.error, found.clip)),
        ("bias", _both(found.bias, found.clip)),
        ("standard deviation", _both(found.standard_deviation, found.clip)),
        ("rounds" if found.cohorts is None else "answers per person", found.rounds),
        ("total bytes", found.total_bytes),
        ("encode", f"{figure(1e3 * times.encode)} ms per client ({how})"),
        ("decode", f"{figure(times.decode)} s per round ({how})"),
        (f"{total}, sum", f"{found.total_epsilon_basic:.10g}"),
    ]
    if found.total_epsilon_optimal is not None:
        facts.append((f"{total}, delta {found.delta:g}", f"{found.total_epsilon_optimal:.10g}"))
    facts += cohort_facts(found)
    facts.append(("why", found.explanation))
    for other in found.alternatives:
        needs = f" (needs {other.needs})" if other.needs else ""
        facts.append((f"instead: {other.label}", f"{other.bits} bits, {_both(other.error, found.clip)}{needs}"))
    facts.append(("python", found.python()))
    facts.append(
        (
            "spec",
            spec if len(spec) <= _SPEC_SHOWN else f"{len(spec)} characters of JSON; pass --output FILE to write them",
        )
    )
    return facts


def _both(length: float, clip: float) -> str:
    return f"{figure(length)} ({figure(length / clip)} of clip)"


def _numbers(found: Plan, verdict: Verdict) -> dict[str, Any]:
    names = (
        "dim",
        "clients",
        "epsilon",
        "clip",
        "rounds",
        "delta",
        "solved_for",
        "label",
        "bits",
        "coin",
        "error",
        "bias",
    )
    more = ("standard_deviation", "total_bytes", "total_epsilon_basic", "total_epsilon_optimal", "explanation")
    numbers = {name: getattr(found, name) for name in (*names, *more)}
    alternatives = [asdict(other) for other in found.alternatives]
    return {**verdict_numbers(verdict), **numbers, "alternatives": alternatives, "python": found.python()}
