"""Limits per address, in memory only: how fast it may ask, and how many bytes of it may be on their way.

All addresses of one IPv6 /64 count as one, because one person usually has all of it.
"""

from __future__ import annotations

import ipaddress
import math
import time

from sstq.service.problems import Problem

__all__ = ["AddressLimits", "BodyShares", "network"]

_MOST_BYTES, _MOST_BYTES_PER_ADDRESS = 1 << 28, 1 << 26


class AddressLimits:
    """A bucket per address, which holds `burst` units and refills at a constant rate; a rate of 0 is no limit."""

    _MOST_ADDRESSES = 100_000

    def __init__(self, per_second: float, burst: int) -> None:
        self._rate, self._burst = per_second, float(burst)
        # When the bucket of each address will be full again, which determines how full it is at any time.
        self._full_at: dict[str, float] = {}

    def wait(self, address: str, units: float = 1.0, now: float | None = None) -> float:
        """Take units from the address's bucket and return 0, or return the seconds until they are there.

        More units than a bucket holds are taken from a full one.
        """
        if not self._rate:
            return 0.0
        now = time.monotonic() if now is None else now
        who = network(address)
        full_at = max(self._full_at.get(who, now), now) + units / self._rate
        excess = full_at - now - max(self._burst, units) / self._rate
        if excess > 1e-9:
            return excess
        self._keep(who, full_at, now)
        return 0.0

    def charge(self, address: str, units: float) -> None:
        """Take units that were used already, even if that leaves a debt."""
        if self._rate:
            now, who = time.monotonic(), network(address)
            self._keep(who, max(self._full_at.get(who, now), now) + units / self._rate, now)

    def _keep(self, who: str, full_at: float, now: float) -> None:
        if len(self._full_at) >= self._MOST_ADDRESSES:
            self.forget(now)
            if len(self._full_at) >= self._MOST_ADDRESSES:  # so many at once: start afresh rather than grow
                self._full_at = {}
        self._full_at[who] = full_at

    def forget(self, now: float | None = None) -> None:
        """Drop the addresses whose bucket is full again, which need no entry."""
        now = time.monotonic() if now is None else now
        self._full_at = {known: full for known, full in self._full_at.items() if full > now}


def too_fast(what: str, seconds: float) -> Problem:
    """The refusal for an address that asks too fast."""
    return Problem(
        429, f"Too many {what} from this address; try again later.", {"Retry-After": f"{math.ceil(seconds)}"}
    )


class BodyShares:
    """The bytes of bodies that have arrived and are not read to their end: a total, and a share of it per address."""

    def __init__(self) -> None:
        self._total = 0
        self._of: dict[str, int] = {}

    def take(self, address: str, size: int) -> None:
        """Count bytes that arrived; raises a Problem if that is too much."""
        who = network(address)
        mine = self._of.get(who, 0) + size
        if mine > _MOST_BYTES_PER_ADDRESS:
            raise Problem(429, "Too much is arriving from this address at once; try again.", {"Retry-After": "1"})
        if self._total + size > _MOST_BYTES:
            raise Problem(503, "Too many uploads are arriving at once; try again.", {"Retry-After": "1"})
        self._total += size
        self._of[who] = mine

    def give_back(self, address: str, size: int) -> None:
        """Forget bytes that were counted."""
        who = network(address)
        self._total -= size
        self._of[who] -= size
        if not self._of[who]:
            del self._of[who]


def network(address: str) -> str:
    """The address, or the network that stands for one person."""
    if ":" not in address:
        return address
    try:
        return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))
    except ValueError:
        return address
