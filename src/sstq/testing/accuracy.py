"""Checks of estimates: their mean and error are as stated, and do not depend on shards, files and saved states."""

import math
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from sstq.mechanisms.base import Mechanism
from sstq.messages.files import write_messages
from sstq.messages.layouts import FloatField
from sstq.randomness.secret import BitSource, bit_source
from sstq.testing.tools import raises, require, some_messages, variant

# The probability that a statistical test of a correct mechanism fails.
_FALSE = 1e-9


def trials(mechanism: Mechanism, seed: int) -> dict[str, Any]:
    """What people may hold that differs as much as it can, one row each, by name."""
    extremes = mechanism.input.extremes(np.random.default_rng(seed))
    return {name: mechanism.input.read(**one) for name, one in extremes.items()}


def margin_of(values: Any, spread: float) -> float:
    """How far the mean of independent numbers may be off, whose range is at most so wide.

    That of a correct mechanism is off by more with probability below 10^-9 (Maurer and Pontil 2009, Theorem 4, for
    both sides): also if what is rare, such as a wrong answer at a large ε, does not occur in these numbers.
    """
    unlikely = math.log(4 / _FALSE)
    scatter = float(np.std(values, ddof=1)) * math.sqrt(2 * unlikely / len(values))
    return scatter + 7 * spread * unlikely / (3 * (len(values) - 1))


class _Stretched:
    """Words of which half are the least or the largest: what is rare for honest words occurs."""

    simulated = True

    def __init__(self, seed: int) -> None:
        self._rng = np.random.default_rng(seed)

    def words(self, count: int) -> Any:
        """Return so many words."""
        drawn = self._rng.integers(0, 1 << 64, size=count, dtype=np.uint64)
        kind = self._rng.integers(0, 4, size=count)
        drawn[kind == 0] = 0
        drawn[kind == 1] = 2**64 - 1
        return drawn


def _estimates(mechanism: Mechanism, person: Any, count: int, source: BitSource) -> Any:
    """The estimates from so many messages of one person, slot by slot."""
    slots = mechanism.messages
    messages = mechanism.encode_slots(np.tile(person, (count, 1)), source, None, slots)
    return mechanism.decode(messages).reshape(slots, count, -1)


def check_estimates(
    mechanism: Mechanism, seed: int, names: tuple[str, ...] = (), count: int = 4000
) -> None:
    """The mean of the estimates and their squared error are what the mechanism states.

    The mean is x itself if it says that it is unbiased. `names` are
    the vectors to try, all by default; records have other names.
    """
    mechanism = mechanism.with_seed(seed)
    tried = trials(mechanism, seed)
    for name in [name for name in names if name in tried] or tried:
        person = tried[name]
        single = _estimates(mechanism, person, count, bit_source(seed))
        decoded = single.mean(axis=0)
        every = single
        if not any(isinstance(field, FloatField) for field in mechanism.layout.fields):
            every = np.concatenate(
                [single, _estimates(mechanism, person, count, _Stretched(seed))], axis=1
            )
        expected = mechanism.row_error(person)[0]
        target = mechanism.input.truth(person)
        if mechanism.unbiased:
            off = np.linalg.norm(expected - target)
            require(
                off <= 1e-3 * mechanism.clip,
                f"{name}: it says that it is unbiased, but it is off by {off:g}",
            )
        for direction in [
            *target,
            *np.random.default_rng(seed).standard_normal((3, target.shape[1])),
        ]:
            along = decoded @ direction
            margin = margin_of(
                along, float(np.ptp(every @ direction))
            ) + 1e-6 * mechanism.clip * float(np.linalg.norm(direction))
            require(
                abs(along.mean() - expected[0] @ direction) <= margin,
                f"{name}: the mean is not the stated one",
            )
        squared = np.sum((decoded - target) ** 2, axis=1)
        total = mechanism.mean_error(person, 1).total
        largest = float(np.max(np.sum((every - target) ** 2, axis=-1)))
        margin = margin_of(squared, largest) + 1e-6 * (total + mechanism.clip**2)
        require(
            abs(squared.mean() - total) <= margin,
            f"{name}: the squared error is not the expected one",
        )


def check_aggregation(mechanism: Mechanism, seed: int) -> None:
    """The mean is that of the estimates, from shards, files and saved states alike; what is foreign is refused."""
    messages = some_messages(mechanism, min(300, mechanism.clients or 300), seed)
    whole = mechanism.aggregator()
    merged = mechanism.aggregator()
    sixth = len(messages) // 6
    half = len(messages) // 2
    raises(ValueError, whole.mean)
    whole.update(messages)
    for part in (messages[half:], messages[:sixth], messages[sixth:half]):
        merged.merge(mechanism.aggregator().update(part))
    alike = [merged]
    other = variant(mechanism, 0.625)
    with tempfile.TemporaryDirectory() as folder:
        for name in (
            ("messages.sstq", "messages.parquet")
            if find_spec("pyarrow")
            else ("messages.sstq",)
        ):
            write_messages(Path(folder) / name, messages)
            alike.append(mechanism.aggregator())
            require(
                alike[-1].update_from_file(Path(folder) / name),
                "a new file must be added",
            )
        whole.save(Path(folder) / "state")
        alike.append(mechanism.load_aggregator(Path(folder) / "state"))
        raises(ValueError, other.load_aggregator, Path(folder) / "state")
    require(
        {one.count for one in (whole, *alike)} == {len(messages)},
        "count must be the number of messages",
    )
    raises(ValueError, whole.update, some_messages(other, 3, seed))
    estimate = whole.mean()
    for same in (one.mean() for one in alike):
        require(
            np.array_equal(same.value, estimate.value),
            "the mean must not depend on shards and files",
        )
        require(
            np.array_equal(same.stderr, estimate.stderr),
            "stderr must not depend on shards and files",
        )
        require(same.simulated, "messages from a seed must be marked as simulated")
    if not mechanism.estimator.averages:
        return
    decoded = mechanism.input.outward(mechanism.decode(messages))
    off = np.abs(estimate.value - decoded.mean(axis=0)).max()
    require(
        off <= 1e-9 * np.abs(decoded).max(), "the mean must be that of the estimates"
    )
