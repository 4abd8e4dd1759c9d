"""What reading a damaged NumPy file can raise: NumPy, zipfile and zlib each have their own."""

import struct
import tokenize
import zipfile
import zlib

__all__ = ["DAMAGED_ARCHIVE"]

DAMAGED_ARCHIVE: tuple[type[Exception], ...] = (
    ValueError,
    KeyError,
    TypeError,
    EOFError,
    OSError,
    SyntaxError,
    RuntimeError,
    OverflowError,
    MemoryError,
    struct.error,
    tokenize.TokenError,
    zipfile.BadZipFile,
    zlib.error,
)
"""RuntimeError includes NotImplementedError (a compression that zipfile does not know) and "encrypted"."""
