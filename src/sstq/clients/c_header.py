"""A mechanism as a C header: the parameters of the client in C, every number exact."""

import re
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from sstq.mechanisms.base import Mechanism
from sstq.mechanisms.frequencies import Frequencies
from sstq.mechanisms.groupunit.groupunit import GroupUnit
from sstq.mechanisms.sstq import SSTQ
from sstq.mechanisms.survey.survey import Survey
from sstq.mechanisms.two_level_draw import KClosest

_KNOWN = {"channel": "flat", "kashin": "certified", "frame": "hadamard"}
_LARGEST_FRAME = 1 << 30
# in the order of sstq_type
_TYPES = ("choice", "multichoice", "number", "vector", "by", "count", "mean")
# of 64 bits
_WORDS = ("frame_seed", "threshold", "share_threshold", "own", "other", "draw")


class _Header(NamedTuple):
    """What a header says: the type and the encoder in C, a line for people, tables, and the members."""

    kind: str
    encoder: str
    about: str
    tables: list[str]
    values: dict[str, str]


def c_header(mechanism: Mechanism, name: str) -> str:
    """Write a C header that defines `static const sstq_params NAME`, or `sstq_survey NAME`.

    ValueError for what the C client cannot do.
    """
    if not re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name):
        raise ValueError(
            f"the header's name must be letters, digits and underscores and begin with a letter, got {name!r}"
        )
    kind, encoder, about, tables, values = _HEADERS.get(mechanism.name, _header)(
        mechanism, name
    )
    lines = [
        f"/* {mechanism.name}, {about}, {mechanism.message_bits} bits per message."
    ]
    if mechanism.messages > 1:
        total = f"{mechanism.messages} messages, epsilon = {mechanism.bundle_epsilon:.6g} in all"
        lines += [
            f" * A person sends {total}: call {encoder} once for each.",
            " * They are for a shuffler, and this client does not seal: see Shuffled campaigns in docs/sending.md.",
        ]
    values["digest"] = f'"{mechanism.digest()}"'
    guard = f"SSTQ_PARAMETERS_{name.upper()}"
    lines += [
        " * Written by sstq inspect --c-header; all of it is public. */",
        f"#ifndef {guard}",
        f"#define {guard}",
        "",
    ]
    lines += ['#include "sstq.h"', "", *tables, f"static const {kind} {name} = {{"]
    lines += [f"    .{field} = {value}," for field, value in values.items()]
    return "\n".join([*lines, "};", "", "#endif", ""])


def _header(mechanism: Mechanism, name: str) -> _Header:
    """A header with one `sstq_params`."""
    about = f"dim = {mechanism.dim}, epsilon = {mechanism.epsilon!r}, clip = {mechanism.clip!r}"
    return _Header("sstq_params", "sstq_encode", about, *_members(mechanism, name))


def _header_of_frequencies(mechanism: Frequencies, name: str) -> _Header:
    about = f"categories = {mechanism.categories}, epsilon = {mechanism.epsilon!r}"
    return _header(mechanism, name)._replace(about=about)


def _header_of_survey(survey: Survey, name: str) -> _Header:
    about = f"{len(survey.questions)} questions, epsilon = {survey.epsilon!r}"
    return _Header("sstq_survey", "sstq_encode_survey", about, *_survey(survey, name))


_HEADERS: dict[str, Callable[[Any, str], _Header]] = {
    "frequencies": _header_of_frequencies,
    "survey": _header_of_survey,
}


def _members(mechanism: Mechanism, name: str) -> tuple[list[str], dict[str, str]]:
    """The tables of a mechanism, and the members of its `sstq_params` in their order."""
    tables = []
    parameters = c_parameters(mechanism)
    values = {"mechanism": _KINDS[mechanism.name][0], "digest": "0"}
    for field, value in parameters.items():
        if isinstance(value, np.ndarray):
            tables.append(_table(f"{name}_{field}", value))
            values[field] = f"{name}_{field}"
        else:
            values[field] = _number(field, value)
    return tables, values


def _survey(survey: Survey, name: str) -> tuple[list[str], dict[str, str]]:
    """The questions of a survey with the names of their labels, and the members of its `sstq_survey`."""
    tables = []
    rows = []
    for number, (question, entry) in enumerate(
        zip(survey.questions.values(), c_questions(survey), strict=True)
    ):
        labels = question.for_devices().get("label_names")
        part = _members(survey.parts[number].mechanism, name)[1]
        members = {
            field: _number(field, value)
            for field, value in entry.items()
            if field not in ("type", "name")
        }
        members |= {
            "type": f"SSTQ_{question.type.upper()}",
            "name": _text(entry["name"]),
        }
        members["part"] = (
            f"{{{', '.join(f'.{field} = {value}' for field, value in part.items())}}}"
        )
        if labels is not None:
            members["label_names"] = f"{name}_labels{number}"
            texts = "".join(f"    {_text(str(label))},\n" for label in labels)
            tables.append(
                f"static const char *const {name}_labels{number}[] = {{\n{texts}}};\n"
            )
        rows.append(
            f"    {{{', '.join(f'.{field} = {value}' for field, value in members.items())}}},\n"
        )
    tables.append(
        f"static const sstq_question {name}_questions[] = {{\n{''.join(rows)}}};\n"
    )
    values = {
        "digest": "0",
        "epsilon": _hexadecimal(survey.epsilon),
        "count": f"{len(rows)}u",
    }
    return tables, values | {"questions": f"{name}_questions"}


def c_questions(survey: Survey) -> list[dict[str, Any]]:
    """The members of each `sstq_question` but its part and the names of its labels; the type is its number."""
    places = {name: place for place, name in enumerate(survey.questions)}
    entries = []
    asked = zip(survey.questions.items(), survey.parts, survey.draws, strict=True)
    for (name, question), part, draw in asked:
        entry: dict[str, Any] = {
            "type": 1 + _TYPES.index(question.type),
            "name": name,
            "draw": draw,
            "items": part.items,
        }
        fields = question.for_devices()
        fields.pop("label_names", None)
        # A name of another question is its place.
        entry |= {field: places.get(value, value) for field, value in fields.items()}
        entries.append(entry)
    return entries


def _text(text: str) -> str:
    """A C string of UTF-8; what is not plain is written in octal."""
    plain = {*map(ord, '?"\\\\')}
    return f'"{"".join(chr(b) if 32 <= b < 127 and b not in plain else f"{chr(92)}{b:03o}" for b in text.encode())}"'


def c_parameters(mechanism: Mechanism) -> dict[str, Any]:
    """The fields of `sstq_params` in their order, without the mechanism's kind and digest; those left out are 0.

    ValueError for what the C client cannot do.
    """
    if mechanism.name not in _KINDS:
        _refuse(repr(mechanism.name))
    return _KINDS[mechanism.name][1](mechanism)


def _refuse(unknown: str) -> None:
    options = ", ".join(f"{option}={name!r}" for option, name in _KNOWN.items())
    raise ValueError(
        f"mechanism must be frameunit, groupunit, frequencies, survey, or sstq with {options} for the C client, "
        f"got {unknown}"
    )


def _sets(mechanism: Frequencies) -> dict[str, Any]:
    return {"epsilon": mechanism.epsilon, "groups": mechanism.categories} | _shares(
        mechanism.draw
    )


def _shares(draw: KClosest) -> dict[str, Any]:
    return {
        "share_size": draw.size,
        "share_inside": draw.inside,
        "share_threshold": draw.threshold,
    }


def _framed(mechanism: Any) -> dict[str, Any]:
    """The members of all mechanisms with a frame."""
    if mechanism.bounds is not None:
        raise ValueError(
            "bounds must be left out for the C client: scale the vectors before sstq_encode"
        )
    frame = mechanism.frame
    if frame.size > _LARGEST_FRAME:
        raise ValueError(
            f"frame_size must be at most {_LARGEST_FRAME} for the C client, got {frame.size}"
        )
    common = {
        "epsilon": mechanism.epsilon,
        "clip": mechanism.clip,
        "dim": mechanism.dim,
    }
    return common | {"frame_size": frame.size, "frame_seed": frame.seed}


def _flat(mechanism: SSTQ) -> dict[str, Any]:
    names = {
        "channel": mechanism.channel.name,
        "kashin": mechanism.kashin.name,
        "frame": mechanism.frame.name,
    }
    if unknown := [
        f"{option}={name!r}" for option, name in names.items() if name != _KNOWN[option]
    ]:
        _refuse(", ".join(unknown))
    channel: Any = mechanism.channel
    # The representation of the C client has no caps.
    schedule = mechanism.kashin.schedule(mechanism.frame)[:, [0, 1, 3]]
    parts = {"bits": mechanism.bits, "steps": len(schedule), "schedule": schedule}
    parts |= {
        "codebook": mechanism.codebook.values,
        "own": channel.own,
        "other": channel.other,
    }
    return _framed(mechanism) | parts


def _rows(mechanism: Any) -> dict[str, Any]:
    choice = mechanism.choice
    members = {"rounds": mechanism.frame.rounds, "frames": mechanism.frames}
    return (
        _framed(mechanism)
        | members
        | {"inside": choice.inside, "threshold": choice.threshold}
    )


def _groups(mechanism: GroupUnit) -> dict[str, Any]:
    members = {
        name: getattr(mechanism, name) for name in ("groups", "blocks", "vector_frames")
    }
    shares = {} if mechanism.share_sets is None else _shares(mechanism.share_sets.draw)
    return _rows(mechanism) | members | shares


# What the C client knows: the name of each mechanism there, and its members.
_KINDS: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "frameunit": ("SSTQ_FRAMEUNIT", _rows),
    "groupunit": ("SSTQ_GROUPUNIT", _groups),
    "sstq": ("SSTQ_FLAT", _flat),
    "frequencies": ("SSTQ_FREQUENCIES", _sets),
}


def _number(field: str, value: float) -> str:
    """A C constant with exactly this value."""
    if isinstance(value, float):
        return _hexadecimal(value)
    return f"UINT64_C({value})" if field in _WORDS else f"{value}u"


def _table(name: str, values: NDArray[Any]) -> str:
    """The definition of a constant array, in the precision that the values have."""
    is_single = values.dtype == np.float32
    suffix = "f" if is_single else ""
    kind = "float" if is_single else "double"
    rows = [
        ", ".join(
            f"{_hexadecimal(float(value))}{suffix}" for value in np.atleast_1d(row)
        )
        for row in values
    ]
    if values.ndim == 2:
        rows = [f"{{{row}}}" for row in rows]
    shape = "".join(f"[{length}]" for length in values.shape)
    body = "".join(f"    {row},\n" for row in rows)
    return f"static const {kind} {name}{shape} = {{\n{body}}};\n"


def _hexadecimal(value: float) -> str:
    """A number as C99 writes it exactly, without zeros at the end."""
    digits, exponent = value.hex().split("p")
    return f"{digits.rstrip('0').rstrip('.') if '.' in digits else digits}p{exponent}"
