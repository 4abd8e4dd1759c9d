"""Signatures of documents: Ed25519 with a prefix that says what is signed, so no signature is valid elsewhere."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, Self

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import (
    Ed25519PrivateKey,
    Ed25519PublicKey,
)

__all__ = ["CAMPAIGN_PREFIX", "SHUFFLER_PREFIX", "SigningKey", "signer", "verify"]

# Of a campaign's document, when the collector signs it and when the shuffler does.
CAMPAIGN_PREFIX = b"sstq-campaign-v2\x00"
SHUFFLER_PREFIX = b"sstq-shuffler-v2\x00"


@dataclass(frozen=True)
class SecretKey:
    """A key pair, from its 32 secret bytes."""

    kind: ClassVar[Any]
    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> Self:
        """Create a key from the operating system's randomness."""
        return cls(cls.kind.generate().private_bytes_raw())

    @cached_property
    def _key(self) -> Any:
        return self.kind.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes, which documents name."""
        raw: bytes = self._key.public_key().public_bytes_raw()
        return raw


class SigningKey(SecretKey):
    """A key pair to sign with; clients pin the public key."""

    kind = Ed25519PrivateKey

    def sign(self, document: bytes, prefix: bytes = CAMPAIGN_PREFIX) -> str:
        """Sign a document; returns base64 for the header SSTQ-Signature."""
        return base64.b64encode(self._key.sign(prefix + document)).decode()


def verify(
    document: bytes, signature: str, public: bytes, prefix: bytes = CAMPAIGN_PREFIX
) -> None:
    """Check that this key signed this document; ValueError otherwise."""
    try:
        raw = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(raw, prefix + document)
    except (InvalidSignature, ValueError) as error:
        raise ValueError(
            "the signature does not match this document and key"
        ) from error


def signer(
    document: bytes, signature: str, keys: Iterable[bytes], pinned: str | None
) -> str:
    """Return the key that signed the document, in hexadecimal; ValueError unless `keys` has it and it is pinned."""
    named = [key.hex() for key in keys]
    if pinned is not None and pinned not in named:
        raise ValueError(
            f"the collector's key {' '.join(named)} is not the pinned one; nothing was sent"
        )
    for key in named if pinned is None else [pinned]:
        with suppress(ValueError):
            verify(document, signature, bytes.fromhex(key))
            return key
    raise ValueError(
        "the campaign's signature is wrong, so it may have been tampered with; nothing was sent"
    )
