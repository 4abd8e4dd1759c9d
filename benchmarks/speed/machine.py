"""Facts about the machine, without which benchmark figures cannot be compared."""

from __future__ import annotations

import os
import platform
from contextlib import suppress
from importlib import metadata
from pathlib import Path

__all__ = ["machine_facts"]

_LIBRARIES = ("sstq", "numpy", "scipy", "numba", "llvmlite")


def machine_facts() -> dict[str, str | int]:
    """Return the processor, its caches, the available cores, the kernels' target, and the versions.

    Facts that the system does not provide are left out.

    Examples:
        >>> facts = machine_facts()
        >>> facts["cores"] >= 1, facts["threads"] >= 1, facts["vector width"] in (8, 16)
        (True, True, True)
    """
    from sstq.kernels.target import USES_VECTORS, VECTOR_WIDTH
    from sstq.kernels.threads import core_count, thread_count

    facts: dict[str, str | int] = {
        "processor": _processor(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": core_count(),
        "threads": thread_count(),
        "kernels": "explicit vectors" if USES_VECTORS else "plain loops",
        "vector width": VECTOR_WIDTH,
    }
    facts |= _caches()
    with suppress(AttributeError, OSError, ValueError):
        facts["memory, MiB"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    facts["python"] = platform.python_version()
    for name in _LIBRARIES:
        with suppress(metadata.PackageNotFoundError):
            facts[name] = metadata.version(name)
    return facts


def _processor() -> str:
    """The name of the processor, on Linux."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def _caches(listing: Path = Path("/sys/devices/system/cpu/cpu0/cache")) -> dict[str, str | int]:
    """The data caches of the first core, on Linux; in virtual machines some lack a size."""
    found: dict[str, str | int] = {}
    for folder in sorted(listing.glob("index*")):
        with suppress(OSError):
            level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
            if kind != "Instruction":
                found[f"L{level} cache"] = size
    return found
