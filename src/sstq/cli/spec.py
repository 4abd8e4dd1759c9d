"""`sstq spec`: writes the JSON of a mechanism."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sstq.cli.common import (
    BOUNDS,
    FORCE,
    VERBOSE,
    WrongUsage,
    check_output,
    check_usage,
    describe_mechanism,
    given,
    option,
    output_option,
    read_bounds,
    taken_by,
    write_text,
)
from sstq.cli.terminal import note, show_facts, warn

if TYPE_CHECKING:
    from sstq import Mechanism


def spec(
    dim: int | None = option("Encode vectors of this length."),
    epsilon: float | None = option("Spend this ε per message."),
    clients: int | None = option("Expect this many people per round."),
    mechanism: str | None = option(
        "Use this mechanism (sstq compare).",
        "--name",
        show_default="as sstq plan chooses",
    ),
    bits: int | None = option("Use codes of this many bits."),
    clip: float | None = option(
        "Scale longer vectors down to this norm.", show_default="1"
    ),
    setting: list[str] | None = option(
        "Set another argument, as in Python; repeatable.",
        "--set",
        metavar="ARGUMENT=VALUE",
    ),
    bounds: Path | None = BOUNDS,
    output: Path = output_option("Write this JSON file.", Path("mechanism.json")),
    verbose: bool = VERBOSE,
    force: bool = FORCE,
) -> None:
    """Write the mechanism that clients and server share to a JSON file, and show its error and cost.

    The file holds everything public: options, integers and decoding values. Two parties have the same mechanism exactly
    if the digests are equal. An option that does not apply to the mechanism is refused.

    Without --name the mechanism is the one that `sstq plan` chooses, for --clients or for as many as an error of 10 %
    needs. With --bits or --set it is sstq. The file of a survey is a schema (sstq survey init).

    Example: sstq spec --dim 25450 --epsilon 3 --clients 100000 --clip 0.1 --output mechanism.json

    Example: sstq spec --name sstq --dim 25450 --epsilon 3 --set channel=optimal

    Example: sstq spec --name frequencies --set categories=100 --epsilon 2
    """
    check_output(output, force)
    settings = _settings(setting or []) | given(bits=bits, bounds=read_bounds(bounds))
    task = given(dim=dim, epsilon=epsilon, clip=clip)
    with check_usage():
        if mechanism is None and settings.keys() <= {"frame_seed", "bounds"}:
            _check_complete("frameunit", task)
            built = _planned(clients, **task).replace(**settings)
        else:
            built = _named(mechanism or "sstq", clients, task | settings)
    write_text(output, built.to_json() + "\n")
    show_facts(str(output), describe_mechanism(built, clients), verbose=verbose)


def _settings(texts: list[str]) -> dict[str, Any]:
    """Read ARGUMENT=VALUE pairs; values that look like numbers become numbers."""
    settings: dict[str, Any] = {}
    for text in texts:
        argument, separator, value = text.partition("=")
        if not separator or not argument:
            raise WrongUsage(f"--set must be ARGUMENT=VALUE, got {text!r}")
        if argument in ("dim", "epsilon", "clip", "clients"):
            raise WrongUsage(f"--set {argument}: use --{argument}")
        settings[argument.replace("-", "_")] = value
        for kind in (float, int):
            with suppress(ValueError):
                settings[argument.replace("-", "_")] = kind(value)
    return settings


def _planned(
    clients: int | None, dim: int, epsilon: float, clip: float = 1.0
) -> "Mechanism":
    """Return the mechanism that `sstq plan` chooses, and print which one."""
    from sstq.planning import plan

    target = 0.1 if clients is None else None
    chosen = plan(dim, clients, epsilon, clip=clip, target_error=target)
    assumed = (
        ", enough for an error of 10 % (pass --clients if you know the number)"
        * (clients is None)
    )
    note(
        f"no --name: chose {chosen.label}, the least error for {chosen.clients:,} people{assumed}"
    )
    if not chosen.feasible:
        asked = (
            f"sstq plan --dim {dim} --clients {chosen.clients} --epsilon {epsilon:g}"
        )
        warn(
            f"the mean's error is {chosen.relative_error:.3g} of clip: `{asked}` shows what would be feasible"
        )
    return chosen.mechanism


def _named(name: str, clients: int | None, options: dict[str, Any]) -> "Mechanism":
    from sstq.mechanisms import mechanism

    if "clients" in taken_by(name):
        options |= given(clients=clients)
    _check_complete(name, options)
    return mechanism(name, **options)


def _check_complete(name: str, options: dict[str, Any]) -> None:
    """Name the option of what is missing."""
    for argument, parameter in taken_by(name).items():
        if parameter.default is parameter.empty and argument not in options:
            option = {"dim": "--dim", "epsilon": "--epsilon"}.get(
                argument, f"--set {argument}=VALUE"
            )
            raise WrongUsage(f"{name} needs {argument}: pass {option}")
