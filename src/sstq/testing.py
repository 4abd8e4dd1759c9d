"""The contract of mechanisms: what a third party's mechanism must pass, as ours do.

Each check takes a mechanism and a seed, and raises an AssertionError that says what is wrong, or returns why there is
nothing to check. What an error says is up to the mechanism: only its type is checked.

A correct mechanism fails `check_mechanism` with probability below 10^-6: it takes fewer than 100 statistical tests, of
which each fails falsely with probability below 10^-9 (`margin_of`), and nothing else is left to chance. A test compares
4,000 answers of one person with what is stated. At ε = 2 in 6 dimensions it finds a bias of 0.4 standard deviations of
one answer, and an expected squared error that is half or twice the true one. Answers that are rare and long take more:
of a survey with vectors, a bias of 1 and an error of three times. Privacy of exact mechanisms is no matter of samples.

Examples:
    >>> import sstq
    >>> check_mechanism(sstq.FrameUnit(dim=6, epsilon=2.0, frame_size=8), seed=1)
    {}
    >>> check_mechanism(sstq.Frequencies(categories=3, epsilon=2.0), seed=1)
    {}
"""

import copy
import hashlib
import inspect
import json
import math
import operator
import os
import pickle
import secrets
import tempfile
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

import sstq
from sstq.audit import check_encoder, empirical_audit
from sstq.exactness import log_upper
from sstq.mechanisms.base import Mechanism
from sstq.messages.batch import Messages
from sstq.messages.files import write_messages
from sstq.messages.layouts import FloatField
from sstq.randomness.secret import BitSource, SecureBits, bit_source
from sstq.testing_studies import check_study as check_study

# The probability that a statistical test of a correct mechanism fails.
_FALSE = 1e-9


def check_mechanism(mechanism: Mechanism, seed: int | None = None) -> dict[str, str]:
    """Run every check on a registered mechanism; AssertionError with the check's name if one fails.

    Small dimensions are best: some checks encode thousands of vectors. If the mechanism is exact, its encoder is
    compared with its law; otherwise ε-LDP is checked on samples, which find gross errors only.

    Args:
        mechanism: the mechanism, with the options that matter.
        seed: that of the random vectors; a fresh one unless given. It is part of the error.

    Returns:
        Why checks were left out, by their names.
    """
    seed = secrets.randbits(32) if seed is None else seed
    left_out = {}
    for check in CHECKS:
        try:
            reason = check(mechanism, seed)
        except AssertionError as error:
            raise AssertionError(f"{check.__name__} (seed {seed}): {error}") from error
        if reason is not None:
            left_out[check.__name__] = reason
    return left_out


def _require(condition: Any, problem: str) -> None:
    """An assert that optimized Python keeps, too."""
    if not condition:
        raise AssertionError(problem)


def _raises(kind: type[Exception], call: Callable[..., Any], *given: Any, **options: Any) -> None:
    """The call raises such an error."""
    try:
        call(*given, **options)
    except kind:
        return
    raise AssertionError(f"no {kind.__name__} for {f'{given} {options}'[:200]}")


def some_messages(mechanism: Mechanism, count: int, rng: Any = None) -> Messages:
    """Messages of so many people, who hold the same whatever the seed."""
    held = mechanism.input.trial(np.random.default_rng(count), count)
    return mechanism.encode(**held, rng=rng)


def _require_alike(first: Mechanism, second: Mechanism, seed: int) -> None:
    """Both encode the same people to the same bytes."""
    same = some_messages(first, 20, seed).to_bytes() == some_messages(second, 20, seed).to_bytes()
    _require(same, "both must encode alike")


def _variant(mechanism: Mechanism, factor: float) -> Mechanism:
    """The mechanism with another clip, or with another ε if it has none."""
    option = "clip" if _has_clip(mechanism) else "epsilon"
    return mechanism.replace(**{option: factor * getattr(mechanism, option)})


def _has_clip(mechanism: Mechanism) -> bool:
    return "clip" in inspect.signature(type(mechanism)).parameters


def trials(mechanism: Mechanism, seed: int) -> dict[str, Any]:
    """What people may hold that differs as much as it can, one row each, by name."""
    held = mechanism.input.extremes(np.random.default_rng(seed))
    return {name: mechanism.input.read(**one) for name, one in held.items()}


def check_options(mechanism: Mechanism, seed: int) -> None:  # noqa: ARG001
    """`repr` evaluates to an equal mechanism, variants are as built anew, and bad options are refused by name."""
    names = {name: getattr(sstq, name) for name in dir(sstq)} | {type(mechanism).__name__: type(mechanism)}
    _require(eval(repr(mechanism), names) == mechanism, "eval(repr(m)) must be m")  # noqa: S307
    changes: list[dict[str, Any]] = [{}, {"epsilon": 0.75}]
    bad: dict[str, tuple[Any, ...]] = {"epsilon": (0.0, math.nan, math.inf, "2")}
    if _has_clip(mechanism):
        bad |= {"clip": (0.0, "1", math.nan), "dim": (0, 2.5)}
        # Bounds are those of dim columns.
        changes = [{}, {"clip": 0.75}, *([{"dim": mechanism.dim + 1}] if mechanism.bounds is None else [])]
    if mechanism.seed_option is None:
        _require(mechanism.with_seed(5) is mechanism, "without public randomness with_seed must return the mechanism")
    else:
        bad[mechanism.seed_option] = (-1,)
        changes += [{mechanism.seed_option: 2**64 - 1}, {mechanism.seed_option: 5, "clip": 2.0}]

    def built(**change: Any) -> Mechanism:
        return type(mechanism)(**{**mechanism.options, **change})

    for change in changes:
        variant = mechanism.replace(**change)
        anew = built(**change)
        same = (variant.options, repr(variant), variant.digest()) == (anew.options, repr(anew), anew.digest())
        _require(same, f"replace must give what is built anew with {change}")
        _require_alike(variant, anew, 3)
    for make in (built, mechanism.replace):
        for name in bad.keys() & {*mechanism.options, "clip", mechanism.seed_option}:
            for value in bad[name]:
                _raises(ValueError, make, **{name: value})
        _raises(TypeError, make, flavour="vanilla")


def check_attributes(mechanism: Mechanism, seed: int) -> None:  # noqa: ARG001
    """Attributes have the types and values that callers rely on."""
    _require(isinstance(mechanism.unbiased, sstq.Unbiased), "unbiased must be an sstq.Unbiased")
    _require(isinstance(mechanism.exact, bool), "exact must be a bool")


def check_bad_inputs(mechanism: Mechanism, seed: int) -> str | None:
    """What nobody can hold is refused before anything is sampled."""
    refused = mechanism.input.refused()
    if not refused:
        return "its input names nothing that is refused"
    rng = np.random.default_rng(seed)
    before = rng.bit_generator.state
    for held in refused:
        _raises(ValueError, mechanism.encode, **held, rng=rng)
        _require(rng.bit_generator.state == before, "it sampled before the input was checked")
    return None


def check_immutable(mechanism: Mechanism, seed: int) -> None:
    """Mechanisms cannot be changed; pickles and copies are equal and encode alike."""
    _raises(AttributeError, setattr, mechanism, "clip", 9.0)
    _raises(AttributeError, delattr, mechanism, "clip")
    _raises(TypeError, operator.setitem, mechanism.options, "clip", 9.0)
    for same in (pickle.loads(pickle.dumps(mechanism)), copy.copy(mechanism), copy.deepcopy(mechanism)):  # noqa: S301
        _require(type(same) is type(mechanism), "a copy must be of the same class")
        equal = (same, same.options, hash(same)) == (mechanism, mechanism.options, hash(mechanism))
        _require(equal, "copies must be equal")
        _require_alike(same, mechanism, seed)


def check_bits(mechanism: Mechanism, seed: int) -> None:
    """Messages take exactly `message_bits` each; damaged bytes are refused."""
    for count in (0, 1, 9):
        messages = some_messages(mechanism, count, seed)
        raw = messages.to_bytes()
        sent = count * mechanism.messages
        _require(len(messages) == sent, "there must be `messages` messages per row")
        _require(len(raw) == -(-sent * mechanism.message_bits // 8), "messages must take message_bits each")
        again = mechanism.messages_from_bytes(raw, sent)
        _require(again.to_bytes() == raw, "messages must survive bytes")
        decoded = mechanism.decode(again)
        _require(decoded.shape == (sent, mechanism.estimate_dim), "decode must return (n, d)")
        _require(np.array_equal(decoded, mechanism.decode(messages)), "messages must decode alike after bytes")
    for damaged in (raw[:-1], raw + b"\0", b""):
        _raises(ValueError, mechanism.messages_from_bytes, damaged, sent)


def check_json(mechanism: Mechanism, seed: int) -> None:
    """The JSON form gives the same mechanism, and the digest that any language computes."""
    import rfc8785

    again = sstq.from_json(mechanism.to_json())
    _require(type(again) is type(mechanism), "from_json must return the same class")
    _require((again, again.to_json()) == (mechanism, mechanism.to_json()), "from_json must return an equal mechanism")
    _require_alike(again, mechanism, seed)
    _require(_variant(again, 0.75) == _variant(mechanism, 0.75) != mechanism, "it must have the same variants")
    _require(again.with_seed(7) == mechanism.with_seed(7), "it must have the same variants")
    for one in (mechanism, mechanism.with_seed(2**64 - 1)):
        # JavaScript has doubles only: what it reads and writes with sorted keys must be the same text.
        text = rfc8785.dumps(json.loads(one.to_json(), parse_int=float))
        _require(text.decode() == one.to_json(), "integers beyond 2^53 must be text")
        _require(hashlib.sha256(text).hexdigest() == one.digest(), "digest must be that of the JSON")


def check_tampered_json(mechanism: Mechanism, seed: int) -> None:  # noqa: ARG001
    """Whatever is missing, of another type, out of any range or unknown is refused."""
    data = json.loads(mechanism.to_json())
    # Names of columns are free.
    fixed = {key: value for key, value in data.items() if key != "bounds"}
    changed = [data | {key: wrong} for key, value in fixed.items() for wrong in (-1, -1.5, *_wrong_values(value))]
    # Without `messages` there is one message per person.
    changed += [{name: data[name] for name in data if name != key} for key in fixed if key != "messages"]
    changed += [data | more for more in ({"extra": None}, {"version": 1}, {"version": 3}, {"version": "2"})]
    for tampered in changed:
        _raises(ValueError, sstq.from_json, json.dumps(tampered))


def _wrong_values(value: Any) -> Iterator[Any]:
    """What no part of a JSON form may be instead of the value; or a list of one with one such entry."""
    for wrong in (None, True, [], {}, "", "word", [value], 1e300, str(value), {"value": value}):
        if wrong is True or wrong != value:
            yield wrong
    if isinstance(value, list):
        for place in {0, len(value) - 1}:
            yield from ([*value[:place], wrong, *value[place + 1 :]] for wrong in _wrong_values(value[place]))


def check_randomness(mechanism: Mechanism, seed: int) -> None:
    """Seeds are reproducible and marked; otherwise all randomness is words of the operating system."""
    _require_alike(mechanism, mechanism, seed)
    _require(some_messages(mechanism, 64, seed).simulated, "messages from a seed must be marked as simulated")
    drawn: list[Any] = []

    def drawing(count: int) -> Any:
        drawn.append(np.frombuffer(os.urandom(8 * count), dtype=np.uint64))
        return drawn[-1]

    fresh = _from_words(mechanism, drawing)
    _require(not fresh.simulated, "messages from entropy must not be marked as simulated")
    again = _from_words(mechanism, lambda _: drawn.pop(0))
    _require(fresh.to_bytes() == again.to_bytes(), "the same words of the operating system must give the same messages")
    # No law has one outcome only for both ends of every draw and some words between them.
    low = _from_words(mechanism, lambda count: np.zeros(count, dtype=np.uint64))
    high = _from_words(mechanism, lambda count: np.full(count, 2**64 - 1, dtype=np.uint64))
    different = {messages.to_bytes() for messages in (low, fresh, high)}
    _require(len(different) > 1, "messages must be drawn from words of the operating system")


def _from_words(mechanism: Mechanism, words: Callable[[int], Any]) -> Messages:
    """Messages of 64 people while this is what the operating system's generator returns."""
    with patch.object(SecureBits, "words", lambda _, count: words(count).copy()):
        return some_messages(mechanism, 64)


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


def check_estimates(mechanism: Mechanism, seed: int, names: tuple[str, ...] = (), count: int = 4000) -> None:
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
            every = np.concatenate([single, _estimates(mechanism, person, count, _Stretched(seed))], axis=1)
        expected = mechanism.row_error(person)[0]
        target = mechanism.input.truth(person)
        if mechanism.unbiased:
            off = np.linalg.norm(expected - target)
            _require(off <= 1e-3 * mechanism.clip, f"{name}: it says that it is unbiased, but it is off by {off:g}")
        for direction in [*target, *np.random.default_rng(seed).standard_normal((3, target.shape[1]))]:
            along = decoded @ direction
            margin = margin_of(along, float(np.ptp(every @ direction))) + 1e-6 * mechanism.clip * float(
                np.linalg.norm(direction)
            )
            _require(abs(along.mean() - expected[0] @ direction) <= margin, f"{name}: the mean is not the stated one")
        squared = np.sum((decoded - target) ** 2, axis=1)
        total = mechanism.mean_error(person, 1).total
        largest = float(np.max(np.sum((every - target) ** 2, axis=-1)))
        margin = margin_of(squared, largest) + 1e-6 * (total + mechanism.clip**2)
        _require(abs(squared.mean() - total) <= margin, f"{name}: the squared error is not the expected one")


def check_privacy(mechanism: Mechanism, seed: int) -> None:
    """The encoder of an exact mechanism follows its law, whose ratios are within e^ε.

    Of others no pair of inputs can be told apart better than ε allows, as far as samples can tell.
    """
    if mechanism.exact:
        report = check_encoder(mechanism, rng=seed)
        _require(not report.problem, report.problem)
        bound = log_upper(max(report.ratio, mechanism.law().ratio()))
    else:
        bound = empirical_audit(mechanism, samples=16_000, alpha=1e-9, rng=seed).lower_bound
    _require(bound <= mechanism.epsilon, f"ε is at least {bound:.3f}, not {mechanism.epsilon}")


def check_aggregation(mechanism: Mechanism, seed: int) -> None:
    """The mean is that of the estimates, from shards, files and saved states alike; what is foreign is refused."""
    messages = some_messages(mechanism, min(300, mechanism.clients or 300), seed)
    whole = mechanism.aggregator()
    merged = mechanism.aggregator()
    sixth = len(messages) // 6
    half = len(messages) // 2
    _raises(ValueError, whole.mean)
    whole.update(messages)
    for part in (messages[half:], messages[:sixth], messages[sixth:half]):
        merged.merge(mechanism.aggregator().update(part))
    alike = [merged]
    other = _variant(mechanism, 0.625)
    with tempfile.TemporaryDirectory() as folder:
        for name in ("messages.sstq", "messages.parquet") if find_spec("pyarrow") else ("messages.sstq",):
            write_messages(Path(folder) / name, messages)
            alike.append(mechanism.aggregator())
            _require(alike[-1].update_from_file(Path(folder) / name), "a new file must be added")
        whole.save(Path(folder) / "state")
        alike.append(mechanism.load_aggregator(Path(folder) / "state"))
        _raises(ValueError, other.load_aggregator, Path(folder) / "state")
    _require({one.count for one in (whole, *alike)} == {len(messages)}, "count must be the number of messages")
    _raises(ValueError, whole.update, some_messages(other, 3, seed))
    estimate = whole.mean()
    for same in (one.mean() for one in alike):
        _require(np.array_equal(same.value, estimate.value), "the mean must not depend on shards and files")
        _require(np.array_equal(same.stderr, estimate.stderr), "stderr must not depend on shards and files")
        _require(same.simulated, "messages from a seed must be marked as simulated")
    if not mechanism.estimator.averages:
        return
    decoded = mechanism.input.outward(mechanism.decode(messages))
    off = np.abs(estimate.value - decoded.mean(axis=0)).max()
    _require(off <= 1e-9 * np.abs(decoded).max(), "the mean must be that of the estimates")


CHECKS: tuple[Callable[[Mechanism, int], str | None], ...] = (
    check_options,
    check_attributes,
    check_bad_inputs,
    check_immutable,
    check_bits,
    check_json,
    check_tampered_json,
    check_randomness,
    check_estimates,
    check_privacy,
    check_aggregation,
)
"""What `check_mechanism` runs."""
