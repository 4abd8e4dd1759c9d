"""Checks of how mechanisms are made, written, read and copied, and of what they refuse."""

import copy
import hashlib
import json
import math
import operator
import pickle
from collections.abc import Iterator
from typing import Any

import numpy as np

import sstq
from sstq.mechanisms.base import Mechanism
from sstq.testing.tools import (
    has_clip,
    raises,
    require,
    require_alike,
    some_messages,
    variant,
)


def check_options(mechanism: Mechanism, seed: int) -> None:  # noqa: ARG001
    """`repr` evaluates to an equal mechanism, variants are as built anew, and bad options are refused by name."""
    names = {name: getattr(sstq, name) for name in dir(sstq)} | {
        type(mechanism).__name__: type(mechanism)
    }
    require(eval(repr(mechanism), names) == mechanism, "eval(repr(m)) must be m")  # noqa: S307
    changes: list[dict[str, Any]] = [{}, {"epsilon": 0.75}]
    bad: dict[str, tuple[Any, ...]] = {"epsilon": (0.0, math.nan, math.inf, "2")}
    if has_clip(mechanism):
        bad |= {"clip": (0.0, "1", math.nan), "dim": (0, 2.5)}
        # Bounds are those of dim columns.
        changes = [
            {},
            {"clip": 0.75},
            *([{"dim": mechanism.dim + 1}] if mechanism.bounds is None else []),
        ]
    if mechanism.seed_option is None:
        require(
            mechanism.with_seed(5) is mechanism,
            "without public randomness with_seed must return the mechanism",
        )
    else:
        bad[mechanism.seed_option] = (-1,)
        changes += [
            {mechanism.seed_option: 2**64 - 1},
            {mechanism.seed_option: 5, "clip": 2.0},
        ]

    def built(**change: Any) -> Mechanism:
        return type(mechanism)(**{**mechanism.options, **change})

    for change in changes:
        variant = mechanism.replace(**change)
        anew = built(**change)
        same = (variant.options, repr(variant), variant.digest()) == (
            anew.options,
            repr(anew),
            anew.digest(),
        )
        require(same, f"replace must give what is built anew with {change}")
        require_alike(variant, anew, 3)
    for make in (built, mechanism.replace):
        for name in bad.keys() & {*mechanism.options, "clip", mechanism.seed_option}:
            for value in bad[name]:
                raises(ValueError, make, **{name: value})
        raises(TypeError, make, flavour="vanilla")


def check_attributes(mechanism: Mechanism, seed: int) -> None:  # noqa: ARG001
    """Attributes have the types and values that callers rely on."""
    require(
        isinstance(mechanism.unbiased, sstq.Unbiased),
        "unbiased must be an sstq.Unbiased",
    )
    require(isinstance(mechanism.exact, bool), "exact must be a bool")


def check_bad_inputs(mechanism: Mechanism, seed: int) -> str | None:
    """What nobody can hold is refused before anything is sampled."""
    refused = mechanism.input.refused()
    if not refused:
        return "its input names nothing that is refused"
    rng = np.random.default_rng(seed)
    before = rng.bit_generator.state
    for bad in refused:
        raises(ValueError, mechanism.encode, **bad, rng=rng)
        require(
            rng.bit_generator.state == before, "it sampled before the input was checked"
        )
    return None


def check_immutable(mechanism: Mechanism, seed: int) -> None:
    """Mechanisms cannot be changed; pickles and copies are equal and encode alike."""
    raises(AttributeError, setattr, mechanism, "clip", 9.0)
    raises(AttributeError, delattr, mechanism, "clip")
    raises(TypeError, operator.setitem, mechanism.options, "clip", 9.0)
    for same in (
        pickle.loads(pickle.dumps(mechanism)),  # noqa: S301
        copy.copy(mechanism),
        copy.deepcopy(mechanism),
    ):
        require(type(same) is type(mechanism), "a copy must be of the same class")
        equal = (same, same.options, hash(same)) == (
            mechanism,
            mechanism.options,
            hash(mechanism),
        )
        require(equal, "copies must be equal")
        require_alike(same, mechanism, seed)


def check_bits(mechanism: Mechanism, seed: int) -> None:
    """Messages take exactly `message_bits` each; damaged bytes are refused."""
    for count in (0, 1, 9):
        messages = some_messages(mechanism, count, seed)
        raw = messages.to_bytes()
        sent = count * mechanism.messages
        require(len(messages) == sent, "there must be `messages` messages per row")
        require(
            len(raw) == -(-sent * mechanism.message_bits // 8),
            "messages must take message_bits each",
        )
        again = mechanism.messages_from_bytes(raw, sent)
        require(again.to_bytes() == raw, "messages must survive bytes")
        decoded = mechanism.decode(again)
        require(
            decoded.shape == (sent, mechanism.estimate_dim), "decode must return (n, d)"
        )
        require(
            np.array_equal(decoded, mechanism.decode(messages)),
            "messages must decode alike after bytes",
        )
    for damaged in (raw[:-1], raw + b"\0", b""):
        raises(ValueError, mechanism.messages_from_bytes, damaged, sent)


def check_json(mechanism: Mechanism, seed: int) -> None:
    """The JSON form gives the same mechanism, and the digest that any language computes."""
    import rfc8785

    again = sstq.from_json(mechanism.to_json())
    require(type(again) is type(mechanism), "from_json must return the same class")
    require(
        (again, again.to_json()) == (mechanism, mechanism.to_json()),
        "from_json must return an equal mechanism",
    )
    require_alike(again, mechanism, seed)
    require(
        variant(again, 0.75) == variant(mechanism, 0.75) != mechanism,
        "it must have the same variants",
    )
    require(
        again.with_seed(7) == mechanism.with_seed(7), "it must have the same variants"
    )
    for one in (mechanism, mechanism.with_seed(2**64 - 1)):
        # JavaScript has doubles only: what it reads and writes with sorted keys must be the same text.
        text = rfc8785.dumps(json.loads(one.to_json(), parse_int=float))
        require(text.decode() == one.to_json(), "integers beyond 2^53 must be text")
        require(
            hashlib.sha256(text).hexdigest() == one.digest(),
            "digest must be that of the JSON",
        )


def check_tampered_json(mechanism: Mechanism, seed: int) -> None:  # noqa: ARG001
    """Whatever is missing, of another type, out of any range or unknown is refused."""
    data = json.loads(mechanism.to_json())
    # Names of columns are free.
    fixed = {key: value for key, value in data.items() if key != "bounds"}
    changed = [
        data | {key: wrong}
        for key, value in fixed.items()
        for wrong in (-1, -1.5, *_wrong_values(value))
    ]
    # Without `messages` there is one message per person.
    changed += [
        {name: data[name] for name in data if name != key}
        for key in fixed
        if key != "messages"
    ]
    changed += [
        data | more
        for more in ({"extra": None}, {"version": 1}, {"version": 3}, {"version": "2"})
    ]
    for tampered in changed:
        raises(ValueError, sstq.from_json, json.dumps(tampered))


def _wrong_values(value: Any) -> Iterator[Any]:
    """What no part of a JSON form may be instead of the value; or a list of one with one such entry."""
    for wrong in (
        None,
        True,
        [],
        {},
        "",
        "word",
        [value],
        1e300,
        str(value),
        {"value": value},
    ):
        if wrong is True or wrong != value:
            yield wrong
    if isinstance(value, list):
        for place in {0, len(value) - 1}:
            yield from (
                [*value[:place], wrong, *value[place + 1 :]]
                for wrong in _wrong_values(value[place])
            )
