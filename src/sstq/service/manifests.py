"""Manifests: signed statements of a shuffler about the envelopes it forwards.

A batch is the envelopes of one slot of one crowd, in random order, in parts that fit into a request. The manifest is
sent as a header of each part. Its signature covers the hash of the body, so it is checked before the body is read.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import asdict, dataclass, fields
from typing import Any

import rfc8785

from sstq.checks import check_number
from sstq.client.campaigns import MOST_PEOPLE
from sstq.client.signing import SigningKey, verify
from sstq.files.strict_json import read_json

__all__ = ["BATCH_PREFIX", "CROWD_NAME_BYTES", "LARGEST_PART", "Manifest"]

BATCH_PREFIX = b"sstq-batch-v2\x00"
"""The prefix of a manifest when it is signed."""

CROWD_NAME_BYTES = 12
"""How many bytes of a batch's name are the same for all slots of a crowd that was mixed together."""

LARGEST_PART = 1 << 24
"""The maximum size of one part of a batch in bytes."""

_TEXTS = {"digest": "[0-9a-f]{64}", "crowd": "[0-9a-f]{64}", "batch": "[0-9a-f]{32}", "sha256": "[0-9a-f]{64}"}


@dataclass(frozen=True)
class Manifest:
    """One part of a batch.

    Attributes:
        campaign: the campaign's name.
        digest: the digest of the campaign's mechanism.
        crowd: the name of the crowd: what its people agreed to (`Campaign.crowd`), in hexadecimal.
        slot: which message of each person the envelopes hold.
        batch: 96 random bits and the slot (32 bits) in hexadecimal, the same for all parts and all retries.
        size: the number of envelopes in the whole batch.
        part: the number of this part, from 0.
        parts: the number of parts.
        count: the number of envelopes in this part.
        sha256: the SHA-256 of the body in hexadecimal.
    """

    campaign: str
    digest: str
    crowd: str
    slot: int
    batch: str
    size: int
    part: int
    parts: int
    count: int
    sha256: str

    def __post_init__(self) -> None:
        for name, pattern in _TEXTS.items():
            value = getattr(self, name)
            if not isinstance(value, str) or not re.fullmatch(pattern, value):
                raise ValueError(f"{name} must match {pattern}, got {value!r:.100}")
        check_number("slot", self.slot, 0, 1 << 16, integer=True)
        check_number("size", self.size, 1, MOST_PEOPLE, integer=True)
        check_number("parts", self.parts, 1, self.size, integer=True)
        check_number("part", self.part, 0, self.parts - 1, integer=True)
        check_number("count", self.count, 1, self.size, integer=True)

    def signed(self, key: SigningKey) -> dict[str, str]:
        """Return the headers for uploading this part: the manifest and its signature."""
        described: dict[str, Any] = {"format": "sstq-batch", "version": 2} | asdict(self)
        text = rfc8785.dumps(described)
        return {"SSTQ-Batch": text.decode(), "SSTQ-Signature": key.sign(text, BATCH_PREFIX)}

    def is_of(self, body: bytes) -> bool:
        """Whether the manifest describes this body."""
        return hashlib.sha256(body).hexdigest() == self.sha256


def read_manifest(text: str, signature: str, public: bytes) -> Manifest:
    """Read a manifest and check that the owner of this public key signed it; PermissionError otherwise.

    ValueError for a manifest that cannot be read.
    """
    raw = text.encode("latin-1", "replace")
    try:
        verify(raw, signature, public, BATCH_PREFIX)
    except ValueError as error:
        raise PermissionError("the batch is not signed by the campaign's shuffler") from error
    data: Any = read_json(raw)
    known = {own.name for own in fields(Manifest)}
    if not isinstance(data, dict) or (data.pop("format", None), data.pop("version", None)) != ("sstq-batch", 2):
        raise ValueError("a manifest must have format sstq-batch and version 2")
    if set(data) != known:
        raise ValueError(f"a manifest must have the fields {', '.join(sorted(known))}")
    return Manifest(**data)
