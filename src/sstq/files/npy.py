"""NumPy files from anybody: what they declare must be what they hold, before memory is taken for it."""

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
"""What reading a damaged NumPy file can raise.

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
    """The array of a .npy file; one of `DAMAGED_ARCHIVE` if it is damaged or something else."""
    with open(path, "rb") as file:
        return read_array(file, os.fstat(file.fileno()).st_size)


def read_archive(path: str | os.PathLike[str], names: Collection[str] | None = None) -> dict[str, NDArray[Any]]:
    """The arrays of an uncompressed .npz, which must have these names if any are given; else `DAMAGED_ARCHIVE`."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        found = [member.filename.removesuffix(".npy") for member in members]
        if len(set(found)) < len(found) or (names is not None and set(found) != set(names)):
            raise ValueError("it holds other arrays")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed, which no file of this kind is")
        if sum(member.file_size for member in members) > os.fstat(file.fileno()).st_size:
            raise ValueError("its arrays are larger than the file")
        arrays = {}
        for name, member in zip(found, members, strict=True):
            with archive.open(member) as content:
                arrays[name] = read_array(content, member.file_size)
        return arrays


def read_array(file: IO[bytes], size: int) -> NDArray[Any]:
    """The array of a .npy stream of that many bytes; ValueError if its header declares more or less than follows it."""
    shape, fortran, dtype = read_header(file)
    # A dtype without bytes, such as <U0, could declare any number of entries.
    if dtype.hasobject or not dtype.itemsize or file.tell() + math.prod(shape) * dtype.itemsize != size:
        raise ValueError(f"an array of shape {shape} and dtype {dtype} does not take the bytes that are there")
    array: NDArray[Any] = np.empty(shape, dtype, order="F" if fortran else "C")
    raw = array.reshape(-1, order="A").view(np.uint8).data
    while len(raw):
        part = file.read(min(len(raw), _BYTES_AT_A_TIME))
        if not part:
            raise EOFError("the array is cut off")
        raw[: len(part)] = part
        raw = raw[len(part) :]
    return array
