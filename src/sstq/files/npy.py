"""Reading untrusted NumPy files: the header is checked against the content before memory is allocated."""

import math
import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

_BYTES_AT_A_TIME = 1 << 20

DAMAGED_ARCHIVE: tuple[type[Exception], ...] = (
    *(ValueError, KeyError, TypeError, EOFError, OSError, SyntaxError, RuntimeError, OverflowError, MemoryError),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""The exceptions that reading a damaged NumPy file can raise.

RuntimeError includes NotImplementedError (a compression that zipfile does not know) and "encrypted".
"""


def read_header(file: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """The shape of a .npy stream, whether it is in Fortran order, and its dtype."""
    version = np.lib.format.read_magic(file)
    if version == (1, 0):
        return np.lib.format.read_array_header_1_0(file)
    if version == (2, 0):
        return np.lib.format.read_array_header_2_0(file)
    raise ValueError(f"version {version[0]}.{version[1]} of the .npy format does not hold plain numbers")


def read_npy(path: str | os.PathLike[str]) -> NDArray[Any]:
    """Read a .npy file; raises one of `DAMAGED_ARCHIVE` if it is damaged or something else."""
    with open(path, "rb") as file:
        return read_array(file, os.fstat(file.fileno()).st_size)


def read_archive(path: str | os.PathLike[str], names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """Read an uncompressed .npz, whose arrays must have these names if any are given; else `DAMAGED_ARCHIVE`."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        present = [member.filename.removesuffix(".npy") for member in members]
        if len(set(present)) < len(present) or (names is not None and set(present) != set(names)):
            raise ValueError("its arrays are not those of this format")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed, but files of this kind never are")
        if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
            raise ValueError("its arrays are larger than the file")
        arrays = {}
        for name, member in zip(present, members, strict=True):
            with archive.open(member) as content:
                arrays[name] = read_array(content, member.file_size)
        return arrays


def read_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """Read the array of a .npy stream of this many bytes; ValueError if its header declares another size."""
    shape, fortran, dtype = read_header(file)
    # A dtype without bytes, such as <U0, could declare any number of entries.
    if dtype.hasobject or not dtype.itemsize or file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"the size of the file does not match its array of shape {shape} and dtype {dtype}")
    array: NDArray[Any] = np.empty(shape, dtype, order="F" if fortran else "C")
    raw = array.reshape(-1, order="A").view(np.uint8).data
    while len(raw):
        part = file.read(min(len(raw), _BYTES_AT_A_TIME))
        if not part:
            raise EOFError("the array is cut off")
        raw[: len(part)] = part
        raw = raw[len(part) :]
    return array
