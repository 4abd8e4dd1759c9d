"""The mechanisms, one module each, and the registry of their names.

(The package is not called mechanisms because `sstq.list_mechanisms()` is the function that lists them.)
"""

from __future__ import annotations

import inspect
from typing import Any

from sstq.frames.tight import default_frame_size
from sstq.mechanisms.base import JSON_FORMAT, JSON_VERSION, ExpectedError, LocalReport, Mechanism, check_number
from sstq.mechanisms.candidates.compressed_privunitg import CompressedPrivUnitG
from sstq.mechanisms.candidates.mmrc import MMRC
from sstq.mechanisms.candidates.rrsc import RRSC
from sstq.mechanisms.clean import Clean
from sstq.mechanisms.csgm.mechanism import CSGM, L2CSGM
from sstq.mechanisms.frameunit.mechanism import FrameUnit
from sstq.mechanisms.privunit.mechanism import PrivUnit, PrivUnitG
from sstq.mechanisms.projunit.mechanism import ProjUnit
from sstq.mechanisms.sqkr.mechanism import SQKR
from sstq.mechanisms.sstq import SSTQ
from sstq.mechanisms.turboquant import TurboQuant
from sstq.mechanisms.vqsgd import VqSGD
from sstq.strict_json import read_json
from sstq.suggestions import did_you_mean

__all__ = [
    "CSGM",
    "L2CSGM",
    "MMRC",
    "RRSC",
    "SQKR",
    "SSTQ",
    "Clean",
    "CompressedPrivUnitG",
    "ExpectedError",
    "FrameUnit",
    "LocalReport",
    "Mechanism",
    "PrivUnit",
    "PrivUnitG",
    "ProjUnit",
    "TurboQuant",
    "VqSGD",
    "from_json",
    "mechanism",
    "mechanism_class",
    "mechanisms",
]

_ALL: tuple[type[Mechanism], ...] = (
    SSTQ,
    FrameUnit,
    VqSGD,
    SQKR,
    PrivUnit,
    PrivUnitG,
    ProjUnit,
    RRSC,
    MMRC,
    CompressedPrivUnitG,
    TurboQuant,
    CSGM,
    L2CSGM,
    Clean,
)
# What JSON may ask for. Tuned frames are up to 4 times the default, FrameUnit's are at least 256, and the paper's
# recipe takes 30 steps.
_FRAME_FACTOR, _LEAST_FRAME, _MOST_STEPS = 8, 256, 128

_REGISTRY: dict[str, type[Mechanism]] = {chosen.name: chosen for chosen in _ALL}


def mechanisms() -> list[str]:
    """The names of all mechanisms.

    Examples:
        >>> "sstq" in mechanisms()
        True
    """
    return list(_REGISTRY)


def mechanism(name: str, **arguments: Any) -> Mechanism:
    """The mechanism of that name; an argument that means nothing to it is a ValueError.

    Examples:
        >>> mechanism("sstq", dim=100, epsilon=1.0).message_bits
        12
    """
    chosen = mechanism_class(name)
    known = inspect.signature(chosen).parameters
    for argument in arguments:
        if argument not in known:
            close = did_you_mean(argument, known)
            raise ValueError(f"{name} takes no argument {argument!r}; it takes {', '.join(known)}{close}")
    for argument, parameter in known.items():
        if parameter.default is parameter.empty and argument not in arguments:
            raise ValueError(f"{name} needs the argument {argument!r}")
    return chosen(**arguments)


def from_json(text: str, *, max_frame_size: int | None = None, max_steps: int | None = None) -> Mechanism:
    """The mechanism whose `to_json` this is, integer by integer; ValueError for anything else.

    A few bytes of JSON can ask for any amount of memory and time, so its frame and its steps are bounded.

    Args:
        text: of `to_json`.
        max_frame_size: the greatest frame size; by default 8 times the default one, or 2048 if that is more.
        max_steps: the greatest number of steps of the representation; 128 by default.

    Examples:
        >>> original = mechanism("sstq", dim=100, epsilon=1.0)
        >>> from_json(original.to_json()).digest() == original.digest()
        True
    """
    try:
        data = read_json(text)
    except ValueError as error:
        raise ValueError(f"the mechanism is not JSON: {error}") from error
    if not isinstance(data, dict) or data.pop("format", None) != JSON_FORMAT:
        raise ValueError(f"this JSON is not a mechanism: its format must be {JSON_FORMAT!r}")
    version = data.pop("version", None)
    if type(version) is not int or version != JSON_VERSION:
        raise ValueError(
            f"the mechanism has version {version} of the format, this library reads version {JSON_VERSION}"
        )
    chosen = mechanism_class(data.pop("mechanism", None))
    try:
        _check_cost(data, max_frame_size, max_steps)
        loaded = chosen.from_dict(data)
    except (KeyError, TypeError, AttributeError, OverflowError) as error:
        raise ValueError(f"the mechanism's JSON is incomplete or malformed: {error!r}") from error
    if loaded.to_dict() != data:
        raise ValueError("the mechanism's JSON holds something that this library does not know or would not keep")
    return loaded


def _check_cost(data: dict[str, Any], max_frame_size: int | None, max_steps: int | None) -> None:
    """Refuse a frame or a number of steps that would cost whoever encodes more than `dim` makes plausible."""
    dim = check_number("dim", data["dim"], 1, 2**30, integer=True)
    usual = _FRAME_FACTOR * max(default_frame_size(dim), _LEAST_FRAME)
    for name, part, key, most in (
        ("frame_size", "frame", "size", usual if max_frame_size is None else max_frame_size),
        ("steps", "kashin", "steps", _MOST_STEPS if max_steps is None else max_steps),
    ):
        value = data[part][key] if part in data else 0
        if value > most:
            raise ValueError(f"{name} must be at most {most} for dim = {dim}, got {value}; max_{name} allows more")


def mechanism_class(name: Any) -> type[Mechanism]:
    """The class of the mechanism of that name."""
    if not isinstance(name, str) or name not in _REGISTRY:
        close = did_you_mean(name, _REGISTRY)
        raise ValueError(f"mechanism must be one of {', '.join(map(repr, _REGISTRY))}, got {name!r}{close}")
    return _REGISTRY[name]
