"""Reading untrusted NumPy archives: sizes are compared with the file before memory is allocated."""

import os
import struct
import tokenize
import zipfile
import zlib
from collections.abc import Collection
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMAGED_ARCHIVE: tuple[type[Exception], ...] = (
    *(
        ValueError,
        KeyError,
        TypeError,
        EOFError,
        OSError,
        SyntaxError,
        RuntimeError,
        OverflowError,
        MemoryError,
    ),
    *(struct.error, tokenize.TokenError, zipfile.BadZipFile, zlib.error),
)
"""The exceptions that reading a damaged NumPy file can raise.

RuntimeError includes NotImplementedError (a compression that zipfile does not know) and "encrypted".
"""


def read_archive(
    path: str | os.PathLike[str], names: Collection[str] | None = None
) -> dict[str, NDArray[Any]]:
    """Read an uncompressed .npz, whose arrays must have these names if any are given; else `DAMAGED_ARCHIVE`."""
    with open(path, "rb") as file, zipfile.ZipFile(file) as archive:
        members = archive.infolist()
        present = [member.filename.removesuffix(".npy") for member in members]
        if len(set(present)) < len(present) or (
            names is not None and set(present) != set(names)
        ):
            raise ValueError("its arrays are not those of this format")
        if any(member.compress_type != zipfile.ZIP_STORED for member in members):
            raise ValueError("it is compressed, but files of this kind never are")
        if (
            sum(member.file_size for member in members)
            > os.fstat(file.fileno()).st_size
        ):
            raise ValueError("its arrays are larger than the file")
        arrays = {}
        for name, member in zip(present, members, strict=True):
            with archive.open(member) as content:
                # NumPy fills the array in small pieces: one that declares more than there is takes no memory.
                arrays[name] = np.lib.format.read_array(content, allow_pickle=False)
                # A dtype without bytes, such as <U0, could declare any number of entries.
                if content.read(1) or not arrays[name].dtype.itemsize:
                    raise ValueError(
                        f"the array {name} is not as long as its header says"
                    )
        return arrays
