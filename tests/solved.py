"""Mechanisms as they were written down, where solving them again gives the same on this processor.

The library's digests cover doubles whose last digit may differ between processors, as NumPy's exp and LAPACK do.
Clients and servers share the JSON, so that they agree; records that must agree on every machine do the same.
"""

import json
import math

import sstq


def as_written(solved, text):
    """The mechanism of this JSON text, or the solved one if they differ in more than the last digits of doubles."""
    now = solved.to_json()
    if text in (None, now) or not _alike(json.loads(now), json.loads(text)):
        return solved
    return sstq.from_json(text)


def _alike(now, then):
    if isinstance(now, dict) and isinstance(then, dict):
        return now.keys() == then.keys() and all(_alike(now[name], then[name]) for name in now)
    if isinstance(now, list) and isinstance(then, list):
        return len(now) == len(then) and all(map(_alike, now, then))
    if isinstance(now, float) and isinstance(then, float):
        return math.isclose(now, then, rel_tol=1e-12, abs_tol=1e-12)
    return now == then
