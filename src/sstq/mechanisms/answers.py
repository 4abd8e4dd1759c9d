"""Encoding files, and answers to a server's document: a device sends a message whatever its data are.

Whether a device answers is seen by the server. So data that cannot be encoded are replaced here, where a mechanism's
`encode`, which the owner of the data calls, raises an error. Only what does not depend on private values is refused:
shapes, types, options.
"""

import logging
import warnings
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from sstq.inputs import LocalReport, People
from sstq.mechanisms.base import Mechanism
from sstq.messages.batch import Messages
from sstq.randomness.secret import RngLike, bit_source


@np.errstate(all="ignore")  # whatever the application has NumPy raise
def answer(
    mechanism: Mechanism,
    X: Any,
    groups: ArrayLike | None = None,
    rng: RngLike = None,
) -> Messages:
    """Encode each row as one message; what cannot be encoded is replaced by something harmless and logged.

    A row with nan or infinity becomes the zero vector. So does that of a group that does not exist, and its group is
    drawn uniformly: the same number of random words is taken for every row. For mechanisms without vectors an unknown
    category is drawn uniformly, and a question without a usable value has no answer.

    Args:
        mechanism: the mechanism that the document names.
        X: what people hold, as the mechanism's `encode` takes it; for a survey also one person's values, as a dict.
        groups: one private group per row, for mechanisms that have them; any value outside of them stands for no group.
        rng: None for the operating system's randomness (needed for privacy); a seed or Generator for simulations.

    Examples:
        >>> import numpy as np, sstq
        >>> len(answer(sstq.GroupUnit(2, 1.0, groups=3), [[1.0, np.nan], [0.0, 1.0]], groups=[0, 7]))
        2
    """
    source = bit_source(rng)
    report = LocalReport()
    rows = mechanism.input.substitute(X, groups, source=source, report=report)
    _log(report)
    return mechanism.encode_slots(rows, source, None, mechanism.messages)


def encode_files(
    mechanism: Mechanism,
    people: People,
    rng: RngLike = None,
    *,
    report: LocalReport | None = None,
    advance: Callable[[int], None] = lambda _: None,
    answering: bool = False,
) -> Iterator[Messages]:
    """Yield the messages of files, a bounded piece at a time; `advance` is called with the size of each piece.

    Slots come one after the other, as in `Mechanism.encode`, so files are read once per slot. Files that were opened
    with a column of public labels yield these with the messages. What cannot be encoded is an error or, if `answering`
    a server, replaced as in `answer`.
    """
    source = bit_source(rng)
    seen = LocalReport()
    for slot in range(mechanism.messages):
        # Each person is reported once.
        once = report if slot == 0 else None
        for piece in people.pieces():
            counted = seen if slot == 0 else None
            if answering:
                with np.errstate(all="ignore"):
                    rows = mechanism.input.substitute(
                        piece.X, piece.groups, source=source, report=counted
                    )
            else:
                try:
                    rows = mechanism.input.read(piece.X, piece.groups, counted)
                except ValueError as error:
                    raise ValueError(f"{piece.place}: {error}") from error
            yield replace(
                mechanism.encode_slots(rows, source, once, slots=1), labels=piece.labels
            )
            advance(piece.count)
    if answering:
        _log(seen)
    else:
        for warning in seen.warnings():
            warnings.warn(warning, stacklevel=2)
    if report is not None:
        report.add(seen)


def _log(report: LocalReport) -> None:
    for warning in report.warnings():
        logging.getLogger("sstq").warning("%s", warning)
