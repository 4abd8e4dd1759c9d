"""The collector's OpenAPI document, for authors of clients: what each route accepts and returns."""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from sstq.client.campaigns import MOST_TOKENS, NAME_PATTERN, TIME_PATTERN

__all__ = ["DESCRIPTION", "OPTIONAL_TOKEN", "TOKEN", "answers", "install", "json_body", "schema"]

DESCRIPTION = (
    "Collects ε-locally differentially private messages and estimates the mean. Every refusal is "
    "application/problem+json (RFC 9457) with a sentence. After 429, 503 or no answer, repeat the request "
    "with the same Idempotency-Key: its messages count once."
)

_STATUSES = {
    304: "The client has this version already.",
    400: "A header or the body cannot be read.",
    401: "A token is needed.",
    403: "The token is wrong or was used before.",
    404: "There is no campaign with this name.",
    408: "The body arrived too slowly.",
    409: "The request contradicts the campaign: another mechanism, a name that is taken, or a closed campaign.",
    410: "The campaign is closed.",
    413: "The body is too large.",
    415: "The Content-Type is wrong.",
    422: "The content is malformed: a wrong length, a code out of range, or an invalid field.",
    425: "The campaign is not open yet.",
    429: "Too many uploads from this address; Retry-After says when to continue.",
    503: "The collector cannot store now; Retry-After says when to try again.",
}

TOKEN: dict[str, Any] = {"security": [{"token": []}]}
"""For routes that need a token."""

OPTIONAL_TOKEN: dict[str, Any] = {"security": [{}, {"token": []}]}
"""For routes that need a token for some campaigns."""

NAME = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
KEY = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
_TIME = {"type": ["string", "null"], "pattern": f"^{TIME_PATTERN}$", "examples": ["2027-01-31T18:00:00Z"]}
_NUMBERS = {"type": ["array", "null"], "items": {"type": ["number", "null"]}}
_TABLE = {"type": "array", "items": {"type": "array", "items": {"type": ["number", "null"]}}}
_POINTS = {
    "type": "array",
    "items": {"type": "array", "items": {"type": "number"}, "minItems": 2, "maxItems": 2},
}
_LABELS = {"type": ["array", "null"], "items": {"type": "string", "minLength": 1, "maxLength": 200}}
COUNT = {"type": "integer", "minimum": 0}
_TERMS: dict[str, Any] = {
    "labels": _LABELS,
    "group_labels": _LABELS,
    "image_shape": {"type": ["array", "null"], "items": {"type": "integer", "minimum": 1}},
    "opens": _TIME,
    "closes": _TIME,
    "most_messages": {"type": ["integer", "null"], "minimum": 1},
    "senders": {"enum": ["everybody", "token", "single-use"]},
    "readers": {"enum": ["administrator", "token", "public"]},
}
_SHUFFLING = {
    "anyOf": [
        {"type": "null"},
        {
            "type": "object",
            "description": "The shuffler that mixes the messages before they arrive; it cannot change.",
            "properties": {
                "url": {"type": "string", "description": "The shuffler's address."},
                "key": KEY | {"description": "Its Ed25519 public key."},
                "sealing_key": KEY | {"description": "Its X25519 public key."},
                "threshold": {
                    "type": "integer",
                    "minimum": 2,
                    "maximum": 10**9,
                    "description": "Minimum number of people per crowd.",
                },
                "delta": {"type": "number", "minimum": 1e-15, "maximum": 0.1},
                "below_threshold": {"enum": ["drop", "local"]},
            },
            "required": ["url", "key", "sealing_key", "threshold"],
            "additionalProperties": False,
        },
    ]
}
_TOKENS = {"send_token": {"type": "string"}, "read_token": {"type": "string"}}
_MECHANISM = {"type": "object", "description": "What `sstq spec` writes."}


def described_object(properties: dict[str, Any], required: list[str] | None = None, **more: Any) -> dict[str, Any]:
    wanted = list(properties) if required is None else required
    return {"type": "object", "properties": properties, "required": wanted, "additionalProperties": False} | more


_CLAIM = {
    "anyOf": [
        described_object(
            {
                "batches": COUNT | {"description": "Opened batches of the shuffler."},
                "accepted": COUNT | {"description": "Envelopes of these batches that are counted."},
                "refused": described_object(dict.fromkeys(("foreign", "malformed", "repeated"), COUNT)),
                "crowds": {
                    "type": "array",
                    "description": "What each crowd that was mixed together justifies for its people.",
                    "items": described_object(
                        {
                            "people": COUNT | {"description": "Accepted envelopes of its smallest batch."},
                            "epsilon": {"type": "number"},
                            "delta": {"type": "number"},
                            "epsilon_if_half_fake": {"type": "number"},
                        }
                    ),
                },
                "local_epsilon": {"type": "number", "description": "The ε that remains if the shuffler cheats."},
            }
        ),
        {"type": "null"},
    ],
    "description": "The (ε, δ) of a shuffled campaign, from the batches that arrived; null if not shuffled.",
}

_STATUS = described_object(
    {
        "name": NAME,
        "status": {"enum": ["scheduled", "open", "closed"]},
        "received": COUNT | {"description": "Acknowledged messages."},
        "folded": COUNT | {"description": "Messages added to the state."},
        "covered": COUNT | {"description": "Messages covered by the newest estimate."},
        "tokens_issued": COUNT,
        "tokens_unspent": COUNT,
        "shuffling": _CLAIM,
    }
)

_SCHEMAS: dict[str, Any] = {
    "Problem": described_object({"status": {"type": "integer"}, "detail": {"type": "string"}}),
    "NewCampaign": described_object(
        {"name": NAME, "mechanism": _MECHANISM} | _TERMS | {"shuffling": _SHUFFLING}, ["name", "mechanism"]
    ),
    "Change": described_object(
        _TERMS
        | {
            "closed": {"const": True, "description": "Close the campaign for good."},
            "renew": {"type": "array", "items": {"enum": [*_TOKENS, "sealing_key"]}, "description": "Replace these."},
        },
        [],
        minProperties=1,
    ),
    "Document": {
        "type": "object",
        "description": "The campaign in canonical JSON (RFC 8785); verify the signature of its bytes first.",
        "properties": _TERMS
        | {
            "format": {"const": "sstq-campaign"},
            "version": {"const": 2},
            "name": NAME,
            "mechanism": _MECHANISM,
            "digest": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
            "message_bits": {"type": "integer", "minimum": 1},
            "keys": {"type": "array", "items": {"type": "string", "pattern": "^[0-9a-f]{64}$"}},
            "shuffling": _SHUFFLING,
            "slots": {"type": "integer", "minimum": 1, "description": "Messages per person, if shuffled."},
            "envelope_bytes": {"type": "integer", "minimum": 49, "description": "Size of a sealed message."},
            "sealing_keys": {
                "type": "array",
                "description": "X25519 keys to seal messages for, the newest first.",
                "items": KEY,
            },
        },
        "required": ["format", "version", "name", "mechanism", "digest", "message_bits", "keys", "most_messages"],
    },
    "Tokens": described_object({"name": NAME} | _TOKENS, ["name"]),
    "TokenRequest": described_object({"count": {"type": "integer", "minimum": 1, "maximum": MOST_TOKENS}}),
    "SingleUseTokens": described_object({"tokens": {"type": "array", "items": {"type": "string"}}}),
    "Status": _STATUS,
    "Campaigns": described_object({"campaigns": {"type": "array", "items": _STATUS}}),
    "Progress": described_object(
        {
            "measured": _POINTS | {"description": "Pairs: number of messages, standard error of the estimate."},
            "predicted": _POINTS | {"description": "The same, predicted by the mechanism's typical error."},
            "bias": {"type": "number", "description": "The error that no number of messages removes."},
            "arrivals": _POINTS | {"description": "Pairs: hour (as seconds since 1970), messages folded."},
            "epsilon": {"type": "number", "description": "The nominal ε of a message."},
            "privacy_loss": {"type": "number", "description": "The exact privacy loss of a message."},
        }
    ),
    "Certificate": {"type": "object", "description": "What `sstq audit certify` writes."},
    "Receipt": described_object({"count": {"type": "integer", "minimum": 1}}),
    "Key": described_object({"key": KEY}),
    "Health": described_object({"status": {"enum": ["ok", "starting"]}}),
    "Estimate": described_object(
        {
            "campaign": NAME,
            "digest": {"type": "string"},
            "count": COUNT | {"description": "Messages covered."},
            "shuffling": _CLAIM,
            "value": _NUMBERS,
            "stderr": _NUMBERS,
            "region": {
                "anyOf": [
                    described_object(
                        {"level": {"type": "number"}, "radius": {"type": ["number", "null"]}, "half_width": _NUMBERS}
                    ),
                    {"type": "null"},
                ],
                "description": "With this probability, value ± half_width covers all coordinates of the mean at once.",
            },
            "groups": {
                "anyOf": [
                    described_object(
                        {"shares": _NUMBERS, "shares_stderr": _NUMBERS}
                        | dict.fromkeys(("sums", "sums_stderr", "means", "means_stderr"), _TABLE)
                    ),
                    {"type": "null"},
                ]
            },
            "note": {"type": "string"},
        }
    ),
}


def schema(name: str) -> dict[str, Any]:
    """The content of a JSON body with this schema."""
    return {"application/json": {"schema": {"$ref": f"#/components/schemas/{name}"}}}


def json_body(name: str) -> dict[str, Any]:
    """A JSON request body with this schema."""
    return {"requestBody": {"required": True, "content": schema(name)}}


def answers(success: dict[int, dict[str, Any]], *refusals: int) -> dict[int | str, dict[str, Any]]:
    """The answers of a route: its success, and refusals by status."""
    problem = {"application/problem+json": {"schema": {"$ref": "#/components/schemas/Problem"}}}
    refused: dict[int | str, dict[str, Any]] = {}
    for status in (*refusals, 503):
        refused[status] = {"description": _STATUSES[status]} | ({} if status == 304 else {"content": problem})
        if status in (429, 503):
            refused[status]["headers"] = {"Retry-After": _header("Seconds to wait.")}
    found: dict[int | str, dict[str, Any]] = dict(success.items())
    return found | refused


def _header(meaning: str, pattern: str | None = None) -> dict[str, Any]:
    return {"description": meaning, "schema": {"type": "string"} | ({"pattern": pattern} if pattern else {})}


DOCUMENT_ANSWER: dict[int, dict[str, Any]] = {
    200: {
        "description": "The document.",
        "content": schema("Document"),
        "headers": {
            "ETag": _header("The version of the document; send it as If-None-Match."),
            "SSTQ-Signature": _header("Ed25519 over `sstq-campaign-v2`, a zero byte and the document; base64."),
        },
    }
}

UPLOAD = {
    "summary": "Send messages",
    "description": (
        "The body is SSTQ-Count messages of message_bits bits each, packed without gaps, the lowest bit of a byte "
        "first. The collector answers once they are durable. Sending again with the same key counts once and gets the "
        "same answer."
    ),
    "operationId": "send_messages",
    **OPTIONAL_TOKEN,
    "parameters": [
        {"name": "name", "in": "path", "required": True, "schema": NAME},
        {
            "name": "Idempotency-Key",
            "in": "header",
            "required": True,
            "description": "128 random bits, new for each upload and repeated in its retries.",
            "schema": {"type": "string", "pattern": "^[0-9a-f]{32}$"},
        },
        {
            "name": "SSTQ-Count",
            "in": "header",
            "required": True,
            "description": "The number of messages.",
            "schema": {"type": "integer", "minimum": 1, "maximum": 9_999_999_999},
        },
        {
            "name": "SSTQ-Digest",
            "in": "header",
            "required": True,
            "description": "The digest of the mechanism, from the document.",
            "schema": {"type": "string", "pattern": "^[0-9a-f]{64}$"},
        },
    ],
    "requestBody": {
        "required": True,
        "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
    },
    "responses": {
        str(status): value
        for status, value in answers(
            {200: {"description": "The messages are durable.", "content": schema("Receipt")}},
            *(400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 425, 429),
        ).items()
    },
}


def install(app: FastAPI, path: str, upload: dict[str, Any] = UPLOAD, more: dict[str, Any] | None = None) -> None:
    """Describe the app: adds the upload route at `path`, which FastAPI does not know, and further schemas."""

    def described() -> dict[str, Any]:
        if app.openapi_schema is None:
            found = get_openapi(title=app.title, version=app.version, description=app.description, routes=app.routes)
            found["paths"][path] = {"post": upload}
            for operations in found["paths"].values():
                for operation in operations.values():
                    for parameter in operation.get("parameters", ()):
                        if parameter["in"] == "path":
                            parameter["schema"] = NAME
            found["components"] = {
                "schemas": _SCHEMAS | (more or {}),
                "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            }
            app.openapi_schema = found
        return app.openapi_schema

    app.openapi = described  # type: ignore[method-assign]
