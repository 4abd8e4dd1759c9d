"""The shuffler's OpenAPI document."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI

from sstq.service import openapi
from sstq.service.openapi import COUNT, KEY, NAME, described_object
from sstq.service.uploads import UPLOADS

__all__ = ["DESCRIPTION", "install"]

DESCRIPTION = (
    "Receives sealed messages (HPKE) of differentially private campaigns, mixes those of many people and forwards them "
    "to the collector. Every refusal is application/problem+json (RFC 9457) with a sentence. After 429, "
    "503 or no answer, repeat the request with the same Idempotency-Key: its envelopes count once."
)

_UPLOAD: dict[str, Any] = openapi.UPLOAD | {
    "summary": "Send sealed messages",
    "description": (
        "SSTQ-Count is 1: one person. The body is the crowd (32 bytes) and, sealed for the shuffler, one envelope of "
        "envelope_bytes bytes per slot, in the order of the slots. The shuffler answers once they are durable. Sending "
        "again with the same key counts once and gets the same answer."
    ),
    "operationId": "send_envelopes",
}

_STATUS = described_object(
    {
        "name": NAME,
        "status": {"enum": ["scheduled", "open", "closed"]},
        "threshold": COUNT | {"description": "Minimum number of people in a crowd."},
        "waiting": {
            "type": "object",
            "additionalProperties": COUNT,
            "description": "People whose envelopes are waiting, by crowd.",
        },
        "outgoing": COUNT | {"description": "Mixed envelopes that the collector has not acknowledged yet."},
        "tokens_issued": COUNT,
        "tokens_unspent": COUNT,
        "refused_change": {
            "type": ["string", "null"],
            "description": "What the collector tried to change although people had agreed to something else.",
        },
    }
)

_KEYS = described_object({"key": KEY, "sealing_key": KEY})


def install(app: FastAPI) -> None:
    """Describe the app."""
    openapi.install(app, UPLOADS, _UPLOAD, {"Status": _STATUS, "Key": _KEYS})
