"""Envelopes: single messages encrypted for the collector, so that the shuffler that forwards them cannot read them.

A person's envelopes travel in a cover that only the shuffler can open. Both are HPKE (RFC 9180) in base mode with
DHKEM(X25519, HKDF-SHA256), HKDF-SHA256 and AES-128-GCM: the encapsulated key (32 bytes), the content, and the tag (16
bytes). Their `info` has the crowd (`Campaign.crowd`), so they open under the terms that the person saw and no others.
"""

from __future__ import annotations

from collections.abc import Iterable

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import (
    X25519PrivateKey,
    X25519PublicKey,
)
from cryptography.hazmat.primitives.hpke import AEAD, KDF, KEM, Suite

from sstq.client.signing import SecretKey
from sstq.messages.batch import Messages

OVERHEAD = 48  # bytes that sealing adds: 32 for the encapsulated key and 16 for the tag
CROWD_BYTES = 32  # the length of a crowd's name: a whole SHA-256
_SUITE = Suite(KEM.X25519, KDF.HKDF_SHA256, AEAD.AES_128_GCM)


def envelope_info(crowd: bytes, slot: int) -> bytes:
    """Return what an envelope is bound to: a prefix, the crowd and the slot."""
    return b"sstq-envelope-v2\x00" + crowd + slot.to_bytes(4, "big")


def cover_info(crowd: bytes) -> bytes:
    """Return what a cover is bound to: a prefix and the crowd."""
    return b"sstq-cover-v2\x00" + crowd


class SealingKey(SecretKey):
    """A key pair to seal for."""

    kind = X25519PrivateKey


def seal(content: bytes, public: bytes, info: bytes) -> bytes:
    """Seal content so that only the owner of the secret key can open it."""
    return _SUITE.encrypt(content, X25519PublicKey.from_public_bytes(public), info=info)


def open_envelopes(
    secret: bytes, info: bytes, envelopes: Iterable[bytes]
) -> list[bytes | None]:
    """Open what was sealed; None where it was changed, or sealed for another key, crowd or slot."""
    key = X25519PrivateKey.from_private_bytes(secret)
    contents: list[bytes | None] = []
    for envelope in envelopes:
        try:
            contents.append(_SUITE.decrypt(envelope, key, info=info))
        except InvalidTag:
            contents.append(None)
    return contents


def seal_person(
    messages: Iterable[bytes], crowd: bytes, collector_key: bytes, shuffler_key: bytes
) -> bytes:
    """Build the body of an upload: the crowd, and one envelope per message of a person in a cover for the shuffler."""
    envelopes = [
        seal(message, collector_key, envelope_info(crowd, slot))
        for slot, message in enumerate(messages)
    ]
    return crowd + seal(b"".join(envelopes), shuffler_key, cover_info(crowd))


def payloads(messages: Messages) -> list[bytes]:
    """Return the bytes of each single message: the lowest bit first, padded with zeros."""
    places = range(len(messages))
    return [messages[place : place + 1].to_bytes() for place in places]
