"""Where a client sends: the address of a campaign, and the keys that its user knows from elsewhere.

All of it is checked before the first request, so that a mistyped key is an error and never no key.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from sstq.checks import ArgumentError
from sstq.client.campaigns import NAME_PATTERN, check_address, check_key

__all__ = ["Target", "read_target"]

_PIN = re.compile("(collector-key|shuffler-key)=([0-9a-f]{64})")


class Target(NamedTuple):
    """The address of a service, the name of a campaign there, and the public keys that must sign it, where known."""

    address: str
    name: str
    collector_key: str | None
    shuffler_key: str | None

    @property
    def url(self) -> str:
        """The address of the campaign's document; uploads go below it."""
        return f"{self.address}/v1/campaigns/{self.name}"


def read_target(
    url: str,
    *,
    pinned_key: str | None = None,
    pinned_shuffler: str | None = None,
    shuffler_url: str | None = None,
) -> Target:
    """Read an address or a link, and join its keys with those that are given; ValueError for anything that is unclear.

    Args:
        url: the address with the campaign's name; a link has the keys behind it.
        pinned_key: the collector's public key in hexadecimal.
        pinned_shuffler: the shuffler's public key in hexadecimal.
        shuffler_url: the address that the campaign must be at.

    Examples:
        >>> target = read_target("https://collect.example/steps#collector-key=" + "0a" * 32)
        >>> target.address, target.name, target.collector_key == "0a" * 32, target.shuffler_key
        ('https://collect.example', 'steps', True, None)
    """
    campaign, has_pins, fragment = url.partition("#")
    address, _, name = campaign.rstrip("/").rpartition("/")
    if not re.fullmatch(NAME_PATTERN, name) or "//" not in address.rstrip("/"):
        raise ArgumentError(
            "url",
            f"must be an address with the campaign's name, such as {campaign}/NAME, got {url!r}",
        )
    check_address("url", address)
    if shuffler_url is not None:
        check_address("shuffler_url", shuffler_url)
        if address != shuffler_url:
            raise ArgumentError(
                "url",
                f"must be at the shuffler's address {shuffler_url}, got {url!r}; nothing was sent",
            )
    pins = _read_pins(fragment) if has_pins else {}
    return Target(
        address,
        name,
        _one_key("pinned_key", pinned_key, pins.get("collector-key")),
        _one_key("pinned_shuffler", pinned_shuffler, pins.get("shuffler-key")),
    )


def _read_pins(fragment: str) -> dict[str, str]:
    """The keys of a link, by name."""
    pins: dict[str, str] = {}
    for part in fragment.split("&"):
        pin = _PIN.fullmatch(part)
        if pin is None or pin[1] in pins:
            allowed = "must end in #collector-key=KEY, #shuffler-key=KEY or both joined by &, each once"
            digits = "KEY being 64 hexadecimal digits (0-9, a-f)"
            raise ArgumentError(
                "url", f"{allowed}, {digits}, got #{fragment:.200}; nothing was sent"
            )
        pins[pin[1]] = pin[2]
    return pins


def _one_key(name: str, given: str | None, linked: str | None) -> str | None:
    """The key that is given or in the link; ValueError for two that differ."""
    if given is None:
        return linked
    check_key(name, given)
    if linked not in (None, given):
        raise ArgumentError(
            name,
            f"must be the key of the link, {linked}, got {given}; nothing was sent",
        )
    return given
