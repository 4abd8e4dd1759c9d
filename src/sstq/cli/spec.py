"""`sstq spec`: writes the JSON of a mechanism."""

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from sstq.cli.common import (
    BoundsOption,
    ForceOption,
    VerboseOption,
    WrongUsage,
    check_output,
    check_usage,
    describe_mechanism,
    option,
    output_option,
    read_bounds,
    write_text,
)
from sstq.cli.terminal import note, show_facts, warn

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sstq import Mechanism


def spec(
    dim: Annotated[int | None, option("Encode vectors of this length.")] = None,
    epsilon: Annotated[float | None, option("Spend this ε per message.")] = None,
    clients: Annotated[int | None, option("Expect this many people per round.")] = None,
    mechanism: Annotated[
        str | None, option("Use this mechanism (see sstq compare).", "--name", show_default="as sstq plan chooses")
    ] = None,
    bits: Annotated[int | None, option("Use codes of this many bits.")] = None,
    clip: Annotated[float, option("Scale longer vectors down to this norm.")] = 1.0,
    setting: Annotated[
        list[str] | None, option("Set another argument, as in Python; repeatable.", "--set", metavar="ARGUMENT=VALUE")
    ] = None,
    bounds: BoundsOption = None,
    output: Annotated[Path, output_option("Write this JSON file.")] = Path("mechanism.json"),
    verbose: VerboseOption = False,
    force: ForceOption = False,
) -> None:
    """Write the mechanism that clients and server share to a JSON file, and show its error and cost.

    The file holds everything public: options, integers and decoding values. Two parties have the same mechanism exactly
    if the digests are equal. An option that does not apply to the mechanism is refused.

    Without --name the mechanism is the one that `sstq plan` chooses, for --clients or for as many as an error of 10 %
    needs. With --bits or --set it is sstq.

    Example: sstq spec --dim 25450 --epsilon 3 --clients 100000 --clip 0.1 --output mechanism.json

    Example: sstq spec --name sstq --dim 25450 --epsilon 3 --set channel=optimal

    Example: sstq spec --name frequencies --set categories=100 --epsilon 2
    """
    check_output(output, force)
    if mechanism == "survey":
        raise WrongUsage("a survey has a schema: sstq survey init people.csv --epsilon 2")
    given: dict[str, Any] = {} if epsilon is None else {"epsilon": epsilon}
    with check_usage():
        takes_vectors = mechanism is None or "dim" in taken_by(mechanism)
    if takes_vectors or dim is not None or clip != 1.0:
        given |= {"dim": dim, "clip": clip}
        if dim is None:
            raise WrongUsage("pass --dim, the length of the vectors")
    settings = _settings(setting or [])
    others = settings if bits is None else settings | {"bits": bits}
    ranges = {} if bounds is None else {"bounds": read_bounds(bounds)}
    with check_usage():
        if mechanism is None and others.keys() <= {"frame_seed"}:
            built = _planned(given["dim"], clients, epsilon, clip)
            built = built.replace(**others, **ranges) if others or ranges else built
        else:
            built = _named(mechanism or "sstq", clients, given | others | ranges)
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


def _planned(dim: int, clients: int | None, epsilon: float | None, clip: float) -> "Mechanism":
    """Return the mechanism that `sstq plan` chooses, and print which one."""
    from sstq.planning import plan

    if epsilon is None:
        raise WrongUsage("pass --epsilon")
    chosen = plan(dim, clients, epsilon, clip=clip, target_error=0.1 if clients is None else None)
    crowd = f"{chosen.clients:,} people"
    assumed = f"{crowd}, enough for an error of 10 % (pass --clients if you know the number)"
    note(f"no --name: chose {chosen.label}, the least error for {assumed if clients is None else crowd}")
    if not chosen.feasible:
        asked = f"sstq plan --dim {dim} --clients {chosen.clients} --epsilon {epsilon:g}"
        warn(f"the mean's error is {chosen.relative_error:.3g} of clip: `{asked}` shows what would be feasible")
    return chosen.mechanism


def taken_by(name: str) -> "Mapping[str, Any]":
    """The options of the mechanism with this name."""
    import inspect

    from sstq.mechanisms import mechanism_class

    return inspect.signature(mechanism_class(name)).parameters


def _named(name: str, clients: int | None, options: dict[str, Any]) -> "Mechanism":
    """Return the mechanism with this name; print which frames are assumed if their number is not given."""
    from sstq.mechanisms import mechanism

    if clients is not None and "clients" in taken_by(name):
        options = {**options, "clients": clients}
    elif name == "frameunit" and "frames" not in options:
        note("no --clients: one frame is assumed; pass --clients N or --set frames=G for more")
    return mechanism(name, **options)
