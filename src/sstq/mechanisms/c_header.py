"""A mechanism as a C header: the parameters of the client in `clients/c`, every number exact."""

import re
from typing import Any

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms.base import Mechanism
from sstq.mechanisms.frameunit.mechanism import FrameUnit
from sstq.mechanisms.frameunit.rows import RowMechanism
from sstq.mechanisms.groupunit.mechanism import GroupUnit
from sstq.mechanisms.sstq import SSTQ

_KINDS = {"frameunit": "SSTQ_FRAMEUNIT", "groupunit": "SSTQ_GROUPUNIT", "sstq": "SSTQ_FLAT"}
_KNOWN = {"channel": "flat", "kashin": "certified", "frame": "hadamard"}
_LARGEST_FRAME = 1 << 30
_WORDS = ("frame_seed", "threshold", "share_threshold", "own", "other")  # of 64 bits


def c_header(mechanism: Mechanism, name: str) -> str:
    """Write a C header that defines `static const sstq_params NAME`; ValueError for what the C client cannot do.

    Examples:
        >>> import sstq
        >>> print(c_header(sstq.FrameUnit(dim=3, epsilon=2.0), "rooms"))
        /* frameunit, dim = 3, epsilon = 2.0, clip = 1.0, 9 bits per message.
         * Written by `sstq spec --c-header`; all of it is public. */
        #ifndef SSTQ_PARAMETERS_ROOMS
        #define SSTQ_PARAMETERS_ROOMS
        <BLANKLINE>
        #include "sstq.h"
        <BLANKLINE>
        static const sstq_params rooms = {
            .mechanism = SSTQ_FRAMEUNIT,
        ...
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(f"name must be letters, digits and underscores and begin with a letter, got {name!r}")
    tables, values = [], {"mechanism": _KINDS.get(mechanism.name, ""), "digest": f'"{mechanism.digest()}"'}
    for field, value in c_parameters(mechanism).items():
        if isinstance(value, np.ndarray):
            tables.append(_table(f"{name}_{field}", value))
            values[field] = f"{name}_{field}"
        else:
            values[field] = _number(field, value)
    guard = f"SSTQ_PARAMETERS_{name.upper()}"
    options = f"dim = {mechanism.dim}, epsilon = {mechanism.epsilon!r}, clip = {mechanism.clip!r}"
    about = f"/* {mechanism.name}, {options}, {mechanism.message_bits} bits per message.\n"
    if mechanism.messages > 1:
        about += f" * A person sends {mechanism.messages} messages, epsilon = {mechanism.bundle_epsilon:.6g} in all: "
        about += "call sstq_encode once for each.\n"
        about += (
            " * They are for a shuffler, and this client does not seal: see Shuffled campaigns in docs/sending.md.\n"
        )
    about += " * Written by `sstq spec --c-header`; all of it is public. */\n"
    fields = "".join(f"    .{field} = {value},\n" for field, value in values.items())
    begin = f'{about}#ifndef {guard}\n#define {guard}\n\n#include "sstq.h"\n\n'
    return f"{begin}{''.join(tables)}static const sstq_params {name} = {{\n{fields}}};\n\n#endif\n"


def c_parameters(mechanism: Mechanism) -> dict[str, Any]:
    """The fields of `sstq_params` in their order, without the mechanism's kind and digest; those left out are 0.

    ValueError for what the C client cannot do.
    """
    _check_known(mechanism)
    frame: Any = mechanism.frame  # type: ignore[attr-defined]
    common = {"epsilon": mechanism.epsilon, "clip": mechanism.clip, "dim": mechanism.dim}
    common |= {"frame_size": frame.size, "frame_seed": frame.seed, "public_coin": int(mechanism.coin == "public")}
    if isinstance(mechanism, SSTQ):
        channel: Any = mechanism.channel
        # The representation of the C client has no caps.
        schedule = mechanism.kashin.schedule(frame)[:, [0, 1, 3]]
        parts = {"bits": mechanism.bits, "steps": len(schedule), "schedule": schedule}
        return common | parts | {"codebook": mechanism.codebook.values, "own": channel.own, "other": channel.other}
    rows: Any = mechanism
    draw = {"rounds": frame.rounds, "frames": rows.frames}
    if isinstance(mechanism, FrameUnit):
        draw["row_bits"] = mechanism.bits or 0
    draw |= {"inside": rows.choice.inside, "threshold": rows.choice.threshold}
    if isinstance(mechanism, GroupUnit):
        draw |= {name: getattr(mechanism, name) for name in ("groups", "blocks", "vector_frames")}
        if mechanism.share_codes is not None:
            shares = mechanism.share_codes.draw
            draw |= {"share_size": shares.size, "share_inside": shares.inside, "share_threshold": shares.threshold}
    return common | draw


def _check_known(mechanism: Mechanism) -> None:
    unknown = [] if isinstance(mechanism, RowMechanism) else [repr(mechanism.name)]
    if isinstance(mechanism, SSTQ):
        names = {"channel": mechanism.channel.name, "kashin": mechanism.kashin.name, "frame": mechanism.frame.name}
        unknown = [f"{option}={name!r}" for option, name in names.items() if name != _KNOWN[option]]
    if unknown:
        options = ", ".join(f"{option}={name!r}" for option, name in _KNOWN.items())
        raise ValueError(
            f"mechanism must be frameunit, groupunit, or sstq with {options} for the C client, got {', '.join(unknown)}"
        )
    if mechanism.bounds is not None:
        raise ValueError("bounds must be left out for the C client: scale the vectors before sstq_encode")
    size = mechanism.frame.size  # type: ignore[attr-defined]
    if size > _LARGEST_FRAME:
        raise ValueError(f"frame_size must be at most {_LARGEST_FRAME} for the C client, got {size}")


def _number(field: str, value: float) -> str:
    """A C constant with exactly this value."""
    if isinstance(value, float):
        return _hexadecimal(value)
    return f"UINT64_C({value})" if field in _WORDS else f"{value}u"


def _table(name: str, values: NDArray[Any]) -> str:
    """The definition of a constant array, in the precision that the values have."""
    single = values.dtype == np.float32
    suffix, kind = ("f", "float") if single else ("", "double")
    numbers = [f"{_hexadecimal(float(value))}{suffix}" for value in values.flat]
    rows = numbers
    if values.ndim == 2:
        width = values.shape[1]
        rows = [f"{{{', '.join(numbers[i : i + width])}}}" for i in range(0, len(numbers), width)]
    shape = "".join(f"[{length}]" for length in values.shape)
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {kind} {name}{shape} = {{\n{body}}};\n\n"


def _hexadecimal(value: float) -> str:
    """A number as C99 writes it exactly, without zeros at the end."""
    digits, exponent = value.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}p{exponent}"
