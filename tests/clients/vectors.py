"""The test vectors of `clients/vectors`, whose README says how numbers are written, and what the library sends."""

import hashlib
import json
from pathlib import Path

import numpy as np

import sstq
from sstq.randomness import streams
from tests.scripted import ScriptedBits

FOLDER = Path(__file__).parents[2] / "clients" / "vectors"


def load(name):
    """The content of a file."""
    return json.loads((FOLDER / f"{name}.json").read_text(encoding="utf-8"))


def mechanisms_of(name):
    """The mechanisms of a file by their labels."""
    return {
        label: sstq.from_json(text, max_frame_size=1 << 17)
        for label, text in load(name)["mechanisms"].items()
    }


def read_singles(text):
    return np.array([int(part, 16) for part in text.split()], dtype=np.uint32).view(
        np.float32
    )


def read_doubles(text):
    return np.array([int(part, 16) for part in text.split()], dtype=np.uint64).view(
        np.float64
    )


def read_words(text):
    return np.array([int(part, 16) for part in text.split()], dtype=np.uint64)


def sha256_of_singles(values):
    """The SHA-256 of single-precision numbers in little-endian order."""
    return hashlib.sha256(np.asarray(values).astype("<f4").tobytes()).hexdigest()


def vector_of(case):
    """The vector of a case, written down, or numbers of 24 bits from a public stream."""
    if "x" in case:
        return read_singles(case["x"])
    stream = case["x_stream"]
    high = (
        streams.words(int(stream["seed"]), stream["purpose"], stream["count"])
        >> np.uint64(40)
    ).astype(np.int64)
    return np.ldexp((high - 2**23).astype(np.float64), stream["exponent"]).astype(
        np.float32
    )


def records_of(mechanism, values, groups=None):
    """People as the library holds them: vectors, categories, or records of a survey, of which it refuses nothing."""
    if mechanism.name == "survey":
        table = {name: [value[name] for value in values] for name in values[0]}
        return mechanism.input.substitute(table, source=ScriptedBits())
    if mechanism.name == "frequencies":
        return np.array(values, dtype=float)[:, None]
    return mechanism.input.read(np.stack(values), groups)


def sent_by_library(mechanism, people, words):
    """The fields of the messages that those words make, a list each."""
    columns = mechanism.encode_rows(people, ScriptedBits(words), None)
    return np.stack([column.astype(np.int64) for column in columns], axis=1).tolist()


def packed(mechanism, messages):
    """Messages as bytes, in hexadecimal."""
    columns = (
        np.array(column, dtype=np.uint64) for column in zip(*messages, strict=True)
    )
    return mechanism.layout.pack(tuple(columns)).hex()
