"""The disk cache of compiled kernels: files named by content, read from several folders.

**Names.** Numba's own cache numbers the files of a function in a table, and two processes that compile at the same time
may take the same number. Here a file's name is the digest of all that its code depends on.

**Places.** Numba's own cache passes over folders that it cannot write to, such as one that was filled when a container
image was built. Here code is looked for in all of these, up to the first that can be written to, where new code is
kept: the folder that NUMBA_CACHE_DIR names, `__pycache__` beside the sources, and the user's own cache
(`sstq.files.atomic`).

**Trust.** Code is read with pickle, as in Numba's own cache: whoever can change a file can run anything. So files and
folders are passed over that a group or everybody can write to, and those of another owner than this user, root, or
whoever owns the sources themselves.
"""

import contextlib
import functools
import hashlib
import os
import pickle
import stat
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numba
from numba.core.caching import FunctionCache
from numba.core.compiler import CompileResult
from numba.core.serialize import dumps

from sstq.compilation import first_compilation
from sstq.files.atomic import atomic_file, cache_folder

_SUFFIX = ".kernel"
_MODE = 0o755  # at most: what others can write to is not read
_CHECKSUM_BYTES = hashlib.sha256().digest_size
_PYTHON = f"{sys.implementation.cache_tag}{getattr(sys, 'abiflags', '')}"


class Places(NamedTuple):
    """The folders in which code is looked for, in this order, and the one in which new code is kept, if any."""

    read: tuple[Path, ...]
    write: Path | None


@functools.cache
def places() -> Places:
    """Where the code of this installation is, and where more of it can be kept."""
    read = []
    for folder in _candidates():
        writable = _is_writable(folder)
        if folder.exists() and not _is_trusted(folder.stat()):
            continue
        read.append(folder)
        if writable:
            return Places(tuple(read), folder)
    return Places(tuple(read), None)


def chosen_folder() -> Path | None:
    """The folder that NUMBA_CACHE_DIR names."""
    config: Any = numba.config
    return Path(config.CACHE_DIR).absolute() if config.CACHE_DIR else None


def _candidates() -> list[Path]:
    sources = Path(__file__).resolve().parent
    # Installations share the folders of a user, but not their names: each clears away what it has outlived.
    own = f"kernels-{hashlib.sha256(str(sources).encode()).hexdigest()[:16]}"
    candidates = [chosen / own] if (chosen := chosen_folder()) else []
    candidates.append(sources / "__pycache__")
    with contextlib.suppress(RuntimeError):  # there is no home folder
        candidates.append(cache_folder() / own)
    return candidates


def _is_writable(folder: Path) -> bool:
    """Whether a file can be made there; permissions alone do not tell of read-only and full disks."""
    try:
        folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _is_trusted(status: os.stat_result) -> bool:
    """Whether nobody can write to a file or folder who could not change this program as well."""
    owners = {os.geteuid(), 0, Path(__file__).stat().st_uid}
    return status.st_uid in owners and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _read(path: Path) -> bytes | None:
    """The code kept there; None if there is none, or it is damaged or not to be trusted."""
    try:
        with path.open("rb") as file:
            stored = file.read() if _is_trusted(os.fstat(file.fileno())) else b""
    except OSError:
        return None
    checksum, payload = stored[:_CHECKSUM_BYTES], stored[_CHECKSUM_BYTES:]
    return payload if checksum == hashlib.sha256(payload).digest() else None


def _find(name: str) -> bytes | None:
    """The code of that name, from the first folder that holds it."""
    return next((payload for folder in places().read if (payload := _read(folder / name)) is not None), None)


class KernelCache(FunctionCache):
    """The compiled code of one kernel, given a digest of the sources of all (one may be compiled into another).

    `target` is whatever else the code depends on that Numba does not know of.
    """

    def __init__(self, kernel: Callable[..., Any], sources: str, target: str) -> None:
        # Not that of Numba's class, which looks for a folder and files of its own.
        self._name, self._py_func = repr(kernel), kernel
        module = kernel.__module__.rpartition(".")[2]
        self._stem = f"{module}.{kernel.__qualname__}-".replace("<", "").replace(">", "")
        self._current_stem = f"{self._stem}{sources[:16]}-"
        self._sources, self._target = sources, target
        self.enable()

    @property
    def cache_path(self) -> str | None:
        """The folder in which new code is kept."""
        return str(folder) if (folder := places().write) else None

    def flush(self, but: str | None = None) -> None:
        """Forget the code that is kept, but for names that begin so: those of other sources are no more."""
        folder = places().write
        for path in folder.glob(f"{self._stem}*{_SUFFIX}") if folder else ():
            if but is None or not path.name.startswith(but):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _index_key(self, sig: Any, codegen: Any) -> tuple[Any, ...]:
        place = self._stem, self._py_func.__code__.co_firstlineno
        versions = _PYTHON, numba.__version__, self._sources, self._target
        return (*super()._index_key(sig, codegen), place, versions)

    def _file_name(self, sig: Any, codegen: Any) -> str:
        digest = hashlib.sha256(repr(self._index_key(sig, codegen)).encode()).hexdigest()
        return f"{self._current_stem}{digest[:32]}{_SUFFIX}"

    def _load_overload(self, sig: Any, target_context: Any) -> Any:
        if not self._enabled:
            return None
        name = self._file_name(sig, target_context.codegen())
        payload = _find(name)
        if payload is None and first_compilation():
            payload = _find(name)
        if payload is None:
            return None
        return CompileResult._rebuild(target_context, *pickle.loads(payload))  # noqa: S301 (as Numba's own)

    def _save_overload(self, sig: Any, data: Any) -> None:
        folder = places().write
        if not self._enabled or folder is None or data.library.has_dynamic_globals:
            return
        folder.mkdir(mode=_MODE, parents=True, exist_ok=True)
        payload = dumps(data._reduce())
        with atomic_file(folder / self._file_name(sig, data.codegen)) as file:
            os.fchmod(file.fileno(), stat.S_IMODE(os.fstat(file.fileno()).st_mode) & _MODE)
            file.write(hashlib.sha256(payload).digest() + payload)
        self.flush(but=self._current_stem)
