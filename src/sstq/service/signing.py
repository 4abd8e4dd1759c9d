"""Signatures of documents: Ed25519 under a prefix that says what is signed, so that no signature fits elsewhere."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass, field
from functools import cached_property

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

__all__ = ["CAMPAIGN_PREFIX", "SHUFFLER_PREFIX", "SigningKey", "signer", "verify"]

CAMPAIGN_PREFIX = b"sstq-campaign-v1\x00"
"""What stands before the document of a campaign when it is signed."""

SHUFFLER_PREFIX = b"sstq-shuffler-v1\x00"
"""What stands before the collector's document when a shuffler signs it as well."""


@dataclass(frozen=True)
class SigningKey:
    """The collector's key, from its 32 secret bytes.

    Examples:
        >>> key = SigningKey.generate()
        >>> verify(b"a document", key.sign(b"a document"), key.public)
        >>> verify(b"another one", key.sign(b"a document"), key.public)
        Traceback (most recent call last):
        ...
        ValueError: the signature is not that of this document and key
    """

    secret: bytes = field(repr=False)

    @classmethod
    def generate(cls) -> SigningKey:
        """A new key, from the operating system's randomness."""
        return cls(Ed25519PrivateKey.generate().private_bytes_raw())

    @cached_property
    def _key(self) -> Ed25519PrivateKey:
        return Ed25519PrivateKey.from_private_bytes(self.secret)

    @cached_property
    def public(self) -> bytes:
        """The public key, 32 bytes: what documents name and clients pin."""
        return self._key.public_key().public_bytes_raw()

    def sign(self, document: bytes, prefix: bytes = CAMPAIGN_PREFIX) -> str:
        """The signature of a document in base64, as the header SSTQ-Signature carries it."""
        return base64.b64encode(self._key.sign(prefix + document)).decode()


def verify(document: bytes, signature: str, public: bytes, prefix: bytes = CAMPAIGN_PREFIX) -> None:
    """Return if the signature is that of this document by this key; ValueError otherwise."""
    try:
        raw = base64.b64decode(signature, validate=True)
        Ed25519PublicKey.from_public_bytes(public).verify(raw, prefix + document)
    except (InvalidSignature, binascii.Error, ValueError) as error:
        raise ValueError("the signature is not that of this document and key") from error


def signer(document: bytes, signature: str, keys: tuple[bytes, ...], pinned: str | None) -> str:
    """The key that signed the document, in hexadecimal; ValueError unless it is the pinned one, or one it names."""
    if pinned is not None:
        try:
            wanted = [bytes.fromhex(pinned)]
        except ValueError as error:
            raise ValueError(f"pinned_key must be 64 hexadecimal digits, got {pinned!r}") from error
        if wanted[0] not in keys:
            found = " ".join(key.hex() for key in keys)
            raise ValueError(f"the collector has another key than the pinned one: {found}; nothing was sent")
    else:
        wanted = list(keys)
    for key in wanted:
        try:
            verify(document, signature, key)
        except ValueError:
            continue
        return key.hex()
    raise ValueError("the campaign's signature is wrong: somebody changed it on the way; nothing was sent")
