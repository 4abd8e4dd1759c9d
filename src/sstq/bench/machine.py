"""What a figure was measured on: without it, none can be compared with another's."""

from __future__ import annotations

import os
import platform
from importlib import metadata
from pathlib import Path

__all__ = ["machine_facts"]

_LIBRARIES = ("sstq", "numpy", "scipy", "numba", "llvmlite")


def machine_facts() -> dict[str, str | int]:
    """The processor, its caches, the cores at hand, what the kernels are compiled for, and the versions.

    Examples:
        >>> facts = machine_facts()
        >>> facts["cores"] >= 1, facts["vector width"] in (8, 16)
        (True, True)
    """
    from sstq.kernels.target import USES_VECTORS, VECTOR_WIDTH
    from sstq.kernels.threads import thread_count

    facts: dict[str, str | int] = {
        "processor": _processor(),
        "architecture": platform.machine(),
        "system": f"{platform.system()} {platform.release()}",
        "cores": thread_count(),
        "kernels": "explicit vectors" if USES_VECTORS else "plain loops",
        "vector width": VECTOR_WIDTH,
    }
    facts |= _caches()
    if hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        facts["memory, MiB"] = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") >> 20
    facts["python"] = platform.python_version()
    return facts | {name: metadata.version(name) for name in _LIBRARIES}


def _processor() -> str:
    """The name that the processor gives itself, where Linux tells it."""
    listing = Path("/proc/cpuinfo")
    if listing.exists():
        for line in listing.read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip() == "model name":
                return value.strip()
    return platform.processor() or "unknown"


def _caches() -> dict[str, str | int]:
    """The data caches of the first core, where Linux tells them."""
    found: dict[str, str | int] = {}
    for folder in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        level, kind, size = ((folder / name).read_text().strip() for name in ("level", "type", "size"))
        if kind != "Instruction":
            found[f"L{level} cache"] = size
    return found
