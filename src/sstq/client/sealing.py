"""Envelopes: single messages encrypted for the collector, so that the shuffler that forwards them cannot read them.

HPKE (RFC 9180) in base mode with DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM. An envelope is the
encapsulated key (32 bytes), the message in whole bytes, and the tag (16 bytes): all envelopes of a campaign have one
length. The `info` names the campaign, its mechanism and the slot, so an envelope opens nowhere else.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite
from numpy.typing import NDArray

from sstq.messages.batch import Messages

__all__ = [
    "KEY_ID_BYTES",
    "OVERHEAD",
    "SealingKey",
    "envelope_info",
    "key_id",
    "open_envelopes",
    "payloads",
    "seal",
    "seal_people",
]

OVERHEAD = 48
"""The bytes of an envelope besides its message: 32 for the encapsulated key and 16 for the tag."""

KEY_ID_BYTES = 8
"""The length of a key's name in bytes."""

_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)
_PREFIX = b"sstq-envelope-v1\x00"


def key_id(public: bytes) -> str:
    """The name of a public key: 16 hexadecimal digits of its SHA-256."""
    return hashlib.sha256(public).digest()[:KEY_ID_BYTES].hex()


def envelope_info(campaign: str, digest: str, slot: int) -> bytes:
    """Return what an envelope is bound to: a prefix, the campaign's name, its mechanism's digest and the slot.

    Examples:
        >>> envelope_info("steps", "00" * 32, 3).hex()
        '737374712d656e76656c6f70652d7631007374657073000000...00000003'
    """
    return _PREFIX + campaign.encode() + b"\x00" + bytes.fromhex(digest) + slot.to_bytes(4, "big")


@dataclass(frozen=True)
class SealingKey:
    """A key pair of the collector for sealing envelopes, from its 32 secret bytes.

    Examples:
        >>> key = SealingKey.generate()
        >>> info = envelope_info("steps", "00" * 32, 0)
        >>> open_envelopes(key.secret, info, [seal(b"four", key.public, info)])
        [b'four']
        >>> open_envelopes(key.secret, b"another campaign", [seal(b"four", key.public, info)])
        [None]
    """

    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SealingKey:
        """Create a key from the operating system's randomness."""
        return cls(X25519PrivateKey.generate().private_bytes_raw())

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes."""
        return X25519PrivateKey.from_private_bytes(self.secret).public_key().public_bytes_raw()

    @cached_property
    def identity(self) -> str:
        """The name of the public key."""
        return key_id(self.public)


def seal(message: bytes, public: bytes, info: bytes) -> bytes:
    """Seal a message in an envelope that only the owner of the secret key can open."""
    return _SUITE.encrypt(message, X25519PublicKey.from_public_bytes(public), info=info)


def open_envelopes(secret: bytes, info: bytes, envelopes: Iterable[bytes]) -> list[bytes | None]:
    """Open envelopes; None for one that was changed, or sealed for another key, campaign or slot."""
    key = X25519PrivateKey.from_private_bytes(secret)
    found: list[bytes | None] = []
    for envelope in envelopes:
        try:
            found.append(_SUITE.decrypt(envelope, key, info=info))
        except InvalidTag:
            found.append(None)
    return found


def seal_people(slots: NDArray[np.uint8], public: bytes, campaign: str, digest: str) -> bytes:
    """Build the body of an upload: the name of the key, and for each person one envelope per slot.

    Args:
        slots: the messages in whole bytes, (slots, people, bytes).
        public: the key to seal for.
        campaign: the campaign's name.
        digest: the digest of its mechanism.
    """
    infos = [envelope_info(campaign, digest, slot) for slot in range(len(slots))]
    sealed = [bytes.fromhex(key_id(public))]
    for person in range(slots.shape[1]):
        sealed += [seal(slots[slot, person].tobytes(), public, info) for slot, info in enumerate(infos)]
    return b"".join(sealed)


def payloads(messages: Messages, message_bits: int) -> NDArray[np.uint8]:
    """Unpack messages to whole bytes, (n, ⌈bits/8⌉), lowest bit first, padded with 0."""
    packed = np.frombuffer(messages.to_bytes(), dtype=np.uint8)
    bits = np.unpackbits(packed, count=len(messages) * message_bits, bitorder="little")
    return np.packbits(bits.reshape(len(messages), message_bits), axis=1, bitorder="little")
