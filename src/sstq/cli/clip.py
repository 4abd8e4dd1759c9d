"""`sstq clip`: suggests a clip from vectors that are public or your own."""

from pathlib import Path

from sstq.cli.common import (
    COLUMNS,
    MECHANISM,
    NO_HEADER,
    argument,
    chosen,
    option,
    read_mechanism,
)
from sstq.cli.terminal import progress, show_facts, warn


def clip(
    vectors: list[Path] = argument(
        "Take the norms of these vectors, such as public data.", metavar="VECTORS..."
    ),
    mechanism: Path = MECHANISM,
    clients: int | None = option(
        "Suggest it for a mean of so many clients.",
        min=1,
        show_default="as many as vectors",
    ),
    columns: str | None = COLUMNS,
    no_header: bool = NO_HEADER,
) -> None:
    """Suggest the clip of least error for a mechanism, whose own clip is ignored.

    The clip depends on the vectors: use it only if they are public or nobody else's. For people's own vectors, ask
    for the norm in a survey (sstq survey) and pass its histogram to sstq.planning.clipping.suggest_clip.

    Example: sstq clip sample.npy --mechanism mechanism.json --clients 100000
    """
    import numpy as np

    from sstq.planning.clipping import suggest_clip

    shared = read_mechanism(mechanism)
    people = shared.input.open(vectors, columns=chosen(columns, no_header))
    lengths = []
    with progress("Reading", people.count) as advance:
        for piece in people.pieces():
            lengths.append(np.linalg.norm(piece.X, axis=1))
            advance(piece.count)
    norms = np.concatenate(lengths)
    choice = suggest_clip(norms, shared, clients or people.count)
    show_facts(
        f"For a mean of {clients or people.count:,} clients",
        {
            "clip": f"{choice.clip:.4g}",
            "vectors clipped": f"{100 * choice.clipped:.3g} %",
            "error of the mean": f"{choice.error:.4g} (bias at most {choice.bias:.4g}, noise {choice.noise:.4g})",
            **{
                f"quantile {q:g} of the norms": f"{np.quantile(norms, q):.4g}"
                for q in (0.5, 0.9)
            },
        },
    )
    if choice.note:
        warn(choice.note)
