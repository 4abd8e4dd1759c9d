"""`sstq spec`: writes the JSON of a mechanism."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from sstq.cli.common import ForceOption, check_output, describe_mechanism
from sstq.cli.settings import parse_settings
from sstq.cli.solving import solving_shown
from sstq.cli.terminal import note, show_facts, warn
from sstq.cli.usage import WrongUsage, check_usage

if TYPE_CHECKING:
    from sstq import Mechanism

__all__ = ["spec"]


def spec(
    dim: Annotated[int, typer.Option(help="The length of the vectors.")],
    epsilon: Annotated[float | None, typer.Option(help="The ε of one message (local differential privacy).")] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="Write this JSON file; by default mechanism.json, or none with --c-header."
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Option(help="Use this mechanism (see `sstq mechanisms`). [dim]\\[default: as sstq plan chooses][/dim]"),
    ] = None,
    clients: Annotated[
        int | None, typer.Option(help="The number of clients per round, which determines the frames of frameunit.")
    ] = None,
    bits: Annotated[
        int | None, typer.Option(help="The bits of the code; more is not always better. [dim]\\[default: 4][/dim]")
    ] = None,
    clip: Annotated[float, typer.Option(help="Scale longer vectors down to this norm.")] = 1.0,
    channel: Annotated[
        str | None,
        typer.Option(
            metavar="flat|metric-aware|optimal", help="Randomize codes with this channel. [dim]\\[default: flat][/dim]"
        ),
    ] = None,
    codebook: Annotated[
        str | None,
        typer.Option(
            metavar="optimized|uniform|panter-dite|loss-optimal",
            help="Round coordinates to this codebook. [dim]\\[default: optimized for flat, else uniform][/dim]",
        ),
    ] = None,
    decoder: Annotated[
        str | None,
        typer.Option(
            metavar="unbiased|identity",
            help="Decode without bias, or as codewords. [dim]\\[default: unbiased for flat, else identity][/dim]",
        ),
    ] = None,
    rate: Annotated[
        str | None,
        typer.Option(
            metavar="calibrated|paper",
            help="Let the metric-aware channel spend all of ε, or as in the paper. [dim]\\[default: calibrated][/dim]",
        ),
    ] = None,
    kashin: Annotated[
        str | None,
        typer.Option(
            metavar="certified|paper",
            help="Choose the bounded representation; the paper's is biased. [dim]\\[default: certified][/dim]",
        ),
    ] = None,
    level: Annotated[
        float | None, typer.Option(help="The Kashin level K. [dim]\\[default: by dimension][/dim]")
    ] = None,
    steps: Annotated[
        int | None, typer.Option(help="The number of steps of the representation. [dim]\\[default: by level][/dim]")
    ] = None,
    coin: Annotated[
        str | None,
        typer.Option(
            metavar="private|public",
            help="Let the client draw the coordinate in secret, or a public coin. [dim]\\[default: private][/dim]",
        ),
    ] = None,
    frame: Annotated[
        str | None,
        typer.Option(
            metavar="hadamard|orthogonal|fourier", help="Use this tight frame. [dim]\\[default: hadamard][/dim]"
        ),
    ] = None,
    frame_size: Annotated[
        int | None, typer.Option(help="The number N of vectors in the frame. [dim]\\[default: 2^⌈log₂ 2.5d⌉][/dim]")
    ] = None,
    frame_seed: Annotated[
        int | None, typer.Option(help="The public seed; use a new one every round. [dim]\\[default: 0][/dim]")
    ] = None,
    tune: Annotated[
        bool,
        typer.Option(
            "--tune", help="Choose N and K of sstq for the least error, at up to two more bits and slower encoding."
        ),
    ] = False,
    setting: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="ARGUMENT=VALUE", help="Set any other argument of a mechanism; repeatable."),
    ] = None,
    c_header: Annotated[
        Path | None,
        typer.Option(
            "--c-header",
            metavar="PATH",
            help="Write the parameters for the C client (clients/c) to this header; rooms.h defines rooms_params.",
        ),
    ] = None,
    force: ForceOption = False,
) -> None:
    """Write the mechanism that clients and server share to a JSON file, and show its error and cost.

    The file holds everything public: options, integers and decoding values. Two parties have the same mechanism exactly
    if the digests are equal. An option that does not apply to the mechanism is refused.

    Without --name the mechanism is the one that `sstq plan` chooses, for --clients or for as many as an error of 10 %
    needs. If options of sstq are given, such as --bits, it is sstq.

    Example: sstq spec --dim 25450 --epsilon 3 --clients 100000 --clip 0.1 --output mechanism.json

    Example: sstq spec --name sstq --dim 25450 --epsilon 3 --channel optimal --tune

    Example: sstq spec --name privunit --dim 1000 --epsilon 3 --set split=hemisphere

    Example: sstq spec --name frameunit --dim 16 --epsilon 4 --c-header rooms.h
    """
    from sstq.files.atomic import atomic_file

    if output is None and c_header is None:
        output = Path("mechanism.json")
    check_output(output, force)
    check_output(c_header, force, "--c-header")
    if c_header is not None and output is not None and c_header.absolute() == output.absolute():
        raise WrongUsage(f"--c-header and --output must be different files, got {output} for both")
    options = {
        "epsilon": epsilon,
        "bits": bits,
        "channel": channel,
        "codebook": codebook,
        "decoder": decoder,
        "rate": rate,
        "kashin": kashin,
        "level": level,
        "steps": steps,
        "coin": coin,
        "frame": frame,
        "frame_size": frame_size,
        "frame_seed": frame_seed,
    }
    given = {option: value for option, value in options.items() if value is not None}
    settings = parse_settings(setting or [], {"dim", "clip", "clients", *options})
    with solving_shown(channel), check_usage(mechanism="--name"):
        if name is None and not tune and not settings and given.keys() <= {"epsilon", "frame_seed"}:
            built = _planned(dim, clients, epsilon, clip, frame_seed)
        else:
            built = _named(name or "sstq", dim, clients, given, tune, {"clip": clip, **settings})
        header = None if c_header is None else _c_header(built, c_header)
    facts = describe_mechanism(built, clients)
    contents = {output: built.to_json() + "\n", c_header: header}
    written = {path: text for path, text in contents.items() if path is not None and text is not None}
    for path, text in written.items():
        with atomic_file(path) as file:
            file.write(text.encode())
    names = [str(path) for path in written]
    show_facts(names[0], facts)
    note(f"wrote {' and '.join(names)}")


def _c_header(mechanism: Mechanism, path: Path) -> str:
    """Return the text of the header; the parameters are named after the file."""
    from sstq.mechanisms.c_header import c_header

    stem = path.stem.replace("-", "_")
    if not stem.isascii() or not stem.isidentifier() or stem.startswith("_"):
        raise WrongUsage(f"--c-header must be a file such as rooms.h, whose name is used in C, got {path}")
    return c_header(mechanism, f"{stem}_params")


def _planned(dim: int, clients: int | None, epsilon: float | None, clip: float, frame_seed: int | None) -> Mechanism:
    """Return the mechanism that `sstq plan` chooses, and print which one."""
    from sstq.checks import check_argument
    from sstq.planning import plan

    if epsilon is None:
        raise ValueError("pass --epsilon, or a mechanism without it: --name clean")
    for name, value in (("dim", dim), ("epsilon", epsilon), ("clip", clip)):
        check_argument(name, value)
    try:
        found = plan(dim, clients, epsilon, clip=clip, target_error=0.1 if clients is None else None)
    except ValueError as error:
        raise ValueError(f"{error}; pass --clients" if clients is None else str(error)) from error
    crowd = f"{found.clients:,} clients"
    assumed = (
        f"{crowd}, enough for an error of 10 % (pass --clients if you know the number)" if clients is None else crowd
    )
    note(f"no --name: chose {found.label}, the least error for {assumed}")
    if not found.feasible:
        asked = f"sstq plan --dim {dim} --clients {found.clients} --epsilon {epsilon:g}"
        warn(f"the mean's error is {found.relative_error:.3g} of clip: `{asked}` shows what would be feasible")
    built = found.build()
    return built if frame_seed is None else built.with_seed(frame_seed)


def _named(
    name: str, dim: int, clients: int | None, given: dict[str, Any], tune: bool, others: dict[str, Any]
) -> Mechanism:
    """Return the mechanism with this name; print which frames are assumed if their number is not given."""
    import inspect

    from sstq.mechanisms import mechanism, mechanism_class

    if clients is not None and "clients" in inspect.signature(mechanism_class(name)).parameters:
        others = {**others, "clients": clients}
    elif name == "frameunit" and "frames" not in others:
        note("no --clients: one frame is assumed; pass --clients N or --set frames=G for more")
    if tune:
        given = given | _tuned(name, dim, given)
    return mechanism(name, dim=dim, **given, **others)


def _tuned(name: str, dim: int, given: dict[str, Any]) -> dict[str, Any]:
    """Return the tuned frame size, level and steps, and print what they gain."""
    from sstq.planning.tuning import tune

    if name != "sstq":
        raise WrongUsage(f"--tune needs --name sstq; {name} has no level and redundancy to tune")
    tunable = ("epsilon", "bits", "channel", "codebook", "decoder")
    fixed = [option for option in given if option not in (*tunable, "coin", "frame_seed")]
    if fixed:
        raise WrongUsage(f"--tune cannot be combined with --{fixed[0].replace('_', '-')}, which it chooses")
    if "epsilon" not in given:
        raise WrongUsage("--tune needs --epsilon")
    found = tune(dim, **{option: given[option] for option in tunable if option in given})
    size, recipe = found.mechanism.frame.size, found.mechanism.kashin
    note(
        f"tuned: N = {size}, K = {recipe.level:.6g}; the predicted error is {found.mse:.4g}·d·clip² with a "
        f"private coin's {found.mechanism.message_bits} bits, {100 * found.gain:.1f} % below the default's with "
        f"{found.default.message_bits}"
    )
    return {"frame_size": size, "level": recipe.level, "steps": recipe.steps}
