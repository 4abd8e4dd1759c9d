"""How the test vectors of clients write numbers: exactly, in a way that every language reads.

Floats are the hexadecimal digits of their bits, 64-bit words are 16 hexadecimal digits, and several numbers are one
text with single spaces between them. `clients/vectors/README.md` says it to readers.
"""

import hashlib
import json
from pathlib import Path

import numpy as np

from sstq.randomness import streams

FOLDER = Path(__file__).parents[2] / "clients" / "vectors"


def singles(values):
    """Single-precision numbers, 8 digits each."""
    return " ".join(f"{bits:08x}" for bits in np.asarray(values, dtype=np.float32).reshape(-1).view(np.uint32).tolist())


def doubles(values):
    """Double-precision numbers, 16 digits each."""
    return " ".join(
        f"{bits:016x}" for bits in np.asarray(values, dtype=np.float64).reshape(-1).view(np.uint64).tolist()
    )


def words(values):
    """64-bit words, 16 digits each."""
    return " ".join(f"{int(word):016x}" for word in np.asarray(values, dtype=np.uint64).reshape(-1))


def sha256_of_singles(values):
    """The SHA-256 of single-precision numbers in little-endian order."""
    return hashlib.sha256(np.asarray(values).astype("<f4").tobytes()).hexdigest()


def read_singles(text):
    return np.array([int(part, 16) for part in text.split()], dtype=np.uint32).view(np.float32)


def read_doubles(text):
    return np.array([int(part, 16) for part in text.split()], dtype=np.uint64).view(np.float64)


def read_words(text):
    return np.array([int(part, 16) for part in text.split()], dtype=np.uint64)


def words_around(integer):
    """The words whose 62 bits are an integer, least and largest, and the neighbours of both."""
    low, high = integer << 2, integer << 2 | 3
    return [word for word in (low - 1, low, high, high + 1) if 0 <= word <= 2**64 - 1]


def hashed_words(label, count):
    """Words that are the same for ever, whatever NumPy does."""
    return np.frombuffer(hashlib.shake_256(label.encode()).digest(8 * count), dtype="<u8").astype(np.uint64)


def hashed_singles(label, count):
    """Numbers between −1 and 1, the same for ever."""
    return (hashed_words(label, count).astype(np.float64) / 2**63 - 1).astype(np.float32)


def streamed(dim, seed, exponent):
    """A vector that is too long to be written down: numbers of 24 bits from a public stream, and how a file says it."""
    high = (streams.words(seed, "vector", dim) >> np.uint64(40)).astype(np.int64)
    x = np.ldexp((high - 2**23).astype(np.float64), exponent).astype(np.float32)
    return x, {"x_stream": {"seed": str(seed), "purpose": "vector", "count": dim, "exponent": exponent}}


def vector_of(case):
    """The vector of a case, written down or streamed."""
    if "x" in case:
        return read_singles(case["x"])
    stream = case["x_stream"]
    return streamed(stream["count"], int(stream["seed"]), stream["exponent"])[0]


def as_text(step, about, content):
    """The text of a file: one line per case."""
    head = {"format": "sstq-client-vectors", "version": 1, "step": step, "about": about}
    lines = [f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}" for name, value in head.items()]
    for name, value in content.items():
        if isinstance(value, list):
            cases = ",\n".join(json.dumps(case, ensure_ascii=False) for case in value)
            lines.append(f"{json.dumps(name)}: [\n{cases}\n]")
        elif isinstance(value, dict):
            entries = ",\n".join(f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in value.items())
            lines.append(f"{json.dumps(name)}: {{\n{entries}\n}}")
        else:
            lines.append(f"{json.dumps(name)}: {json.dumps(value, ensure_ascii=False)}")
    return "{\n" + ",\n".join(lines) + "\n}\n"
