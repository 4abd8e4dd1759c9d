"""The demo: mean images of the ten digits, from one small private message a client.

The data are scikit-learn's 1,797 handwritten digits of 8×8 pixels. Pixels lie in [0, 1], so an image minus mid-grey has
entries in [-1/2, 1/2] and norm at most √64/2 = 4. That bound is public and holds for every image, so nothing is
clipped and nothing of the data is used to set it; without the shift the bound would be 8 and the error up to twice as
large. The number of bits is also chosen without the data: the best for a typical vector.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.files.atomic import atomic_file
from sstq.mechanisms import SSTQ
from sstq.mechanisms.structured import typical_vector
from sstq.randomness.secret import RngLike

__all__ = ["Demo", "DemoRow", "choose_mechanism", "load_images", "planned_clients", "run_demo", "save_results"]

DIM = 64
CLASSES = 10
MID_GREY = 0.5
CLIP = 4.0
EPSILONS = (1.0, 2.0, 4.0, 8.0)
COPIES = (1, 100)
IMAGES = 1797

_BITS = (1, 2, 3, 4)


@dataclass(frozen=True, eq=False)
class DemoRow:
    """One crowd at one ε.

    Attributes:
        epsilon: ε of one message.
        privacy_loss: what is spent of it, exactly, rounded up.
        copies: the clients that hold each image.
        clients: in all.
        message_bits: of each of them.
        bytes_sent: by all of them.
        bytes_as_floats: what 64 single-precision numbers each would take.
        predicted: the expected error of the ten means over their norm.
        measured: the error that came out.
        images: (10, 64), the estimates in the unit of pixels.
    """

    epsilon: float
    privacy_loss: float
    copies: int
    clients: int
    message_bits: int
    bytes_sent: int
    bytes_as_floats: int
    predicted: float
    measured: float
    images: NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Demo:
    """All of the demo: the true class means (10, 64), the estimates, and whether a seed replaced secret randomness."""

    truth: NDArray[np.float64]
    rows: tuple[DemoRow, ...]
    simulated: bool


def load_images() -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Return the images as (1797, 64) pixels in [0, 1], and their digits."""
    try:
        from sklearn.datasets import load_digits
    except ImportError as error:
        raise ImportError("the demo needs scikit-learn: pip install 'sstq[demo]'") from error
    pixels, digits = load_digits(return_X_y=True)
    return pixels / 16.0, digits


def choose_mechanism(epsilon: float) -> SSTQ:
    """Return the flat mechanism for the images with the number of bits that suits a typical vector of norm clip best.

    Examples:
        >>> choose_mechanism(2.0).message_bits
        10
    """
    typical = typical_vector(DIM, CLIP)
    candidates = [SSTQ(dim=DIM, epsilon=epsilon, bits=bits, clip=CLIP) for bits in _BITS]
    return min(candidates, key=lambda mechanism: mechanism.expected_mse(typical).total)


def planned_clients(epsilons: Sequence[float] = EPSILONS, copies: Sequence[int] = COPIES) -> int:
    """Return the number of clients that `run_demo` simulates."""
    return IMAGES * len(epsilons) * sum(copies)


def run_demo(
    rng: RngLike = None,
    epsilons: Sequence[float] = EPSILONS,
    copies: Sequence[int] = COPIES,
    advance: Callable[[int], None] = lambda _: None,
) -> Demo:
    """Estimate the class means at every ε with every crowd.

    Args:
        rng: None for the operating system's randomness, a seed or a Generator for the same result again.
        epsilons: the values of ε.
        copies: the crowds, as numbers of clients that hold each image.
        advance: called with a number of clients whenever so many are done.

    """
    pixels, digits = load_images()
    groups = [pixels[digits == digit] for digit in range(CLASSES)]
    truth = np.stack([group.mean(axis=0) for group in groups])
    source = rng if rng is None else np.random.default_rng(rng)
    rows = []
    for epsilon in epsilons:
        mechanism = choose_mechanism(epsilon)
        for crowd in copies:
            rows.append(_one_crowd(mechanism, groups, truth, crowd, source, advance))
    return Demo(truth, tuple(rows), simulated=rng is not None)


def _one_crowd(
    mechanism: SSTQ,
    groups: list[NDArray[np.float64]],
    truth: NDArray[np.float64],
    copies: int,
    rng: np.random.Generator | None,
    advance: Callable[[int], None],
) -> DemoRow:
    images = np.empty_like(truth)
    predicted = 0.0
    clients = bytes_sent = 0
    for digit, group in enumerate(groups):
        shifted = group - MID_GREY
        held = np.repeat(shifted, copies, axis=0)
        # The server gets these bytes and nothing else.
        raw = mechanism.encode(held, rng).to_bytes()
        aggregator = mechanism.aggregator()
        aggregator.update(mechanism.messages_from_bytes(raw, len(held)))
        images[digit] = aggregator.mean().value + MID_GREY
        error = mechanism.expected_mse(shifted)
        predicted += error.bias2 + error.variance / copies
        clients += len(held)
        bytes_sent += len(raw)
        advance(len(held))
    norm = float(np.linalg.norm(truth))
    return DemoRow(
        epsilon=mechanism.epsilon,
        privacy_loss=mechanism.privacy_loss(),
        copies=copies,
        clients=clients,
        message_bits=mechanism.message_bits,
        bytes_sent=bytes_sent,
        bytes_as_floats=4 * DIM * clients,
        predicted=math.sqrt(predicted) / norm,
        measured=float(np.linalg.norm(images - truth)) / norm,
        images=images,
    )


def save_results(demo: Demo, path: str | os.PathLike[str]) -> None:
    """Write the numbers of the table as JSON."""
    rows: list[dict[str, Any]] = []
    for row in demo.rows:
        numbers = asdict(row)
        del numbers["images"]
        rows.append(numbers)
    document = {"clip": CLIP, "simulated": demo.simulated, "rows": rows}
    with atomic_file(path) as file:
        file.write(json.dumps(document, indent=2).encode() + b"\n")
