"""The OpenAPI document: what FastAPI cannot see in the routes, which read and write bytes themselves."""

from __future__ import annotations

from typing import Any

from sstq.service.campaigns import NAME_PATTERN, TIME_PATTERN

__all__ = ["SCHEMAS", "SECURITY", "UPLOAD", "answers", "json_body", "secured"]

Json = dict[str, Any]

SECURITY: Json = {"token": {"type": "http", "scheme": "bearer"}}

_TEXTS: Json = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}}
_TIME: Json = {"type": "string", "pattern": f"^{TIME_PATTERN}$", "example": "2027-01-31T18:00:00Z"}
_NUMBERS: Json = {"type": "array", "items": {"type": ["number", "null"]}}
_TABLE: Json = {"type": "array", "items": _NUMBERS}
_TERMS: Json = {
    "labels": _TEXTS,
    "group_labels": _TEXTS,
    "image_shape": {"type": "array", "items": {"type": "integer", "minimum": 1}},
    "opens": _TIME,
    "closes": _TIME,
    "most_messages": {"type": "integer", "minimum": 1},
    "senders": {"type": "string", "enum": ["everybody", "token", "single-use"]},
    "readers": {"type": "string", "enum": ["administrator", "token", "public"]},
}
_NAME: Json = {"type": "string", "pattern": f"^{NAME_PATTERN}$"}
_MECHANISM: Json = {"type": "object", "description": "What `sstq spec` writes."}
_TOKEN: Json = {"type": "string", "description": "Shown once; only its hash is stored."}


def _object(properties: Json, required: list[str] | None = None) -> Json:
    return {"type": "object", "properties": properties, "required": list(properties) if required is None else required}


_SUMMARY = _TERMS | {
    "name": _NAME,
    "status": {"type": "string", "enum": ["scheduled", "open", "closed"]},
    "mechanism": {"type": "string"},
    "dim": {"type": "integer"},
    "epsilon": {"type": "number"},
    "digest": {"type": "string"},
    "message_bits": {"type": "integer"},
    "received": {"type": "integer"},
    "folded": {"type": "integer"},
    "tokens_issued": {"type": "integer"},
    "tokens_unspent": {"type": "integer"},
}
_REGION = _object({"level": {"type": "number"}, "radius": {"type": ["number", "null"]}, "half_width": _NUMBERS})
_GROUPS = _object(
    {"shares": _NUMBERS, "shares_stderr": _NUMBERS}
    | {name: _TABLE for name in ("sums", "sums_stderr", "means", "means_stderr")}
)

SCHEMAS: Json = {
    "Problem": _object({"status": {"type": "integer"}, "detail": {"type": "string"}}),
    "NewCampaign": _object({"name": _NAME, "mechanism": _MECHANISM} | _TERMS, ["name", "mechanism"])
    | {"additionalProperties": False},
    "Changes": _object(_TERMS, []) | {"additionalProperties": False},
    "Document": _object(
        {"name": _NAME, "mechanism": _MECHANISM, "digest": {"type": "string"}, "keys": {"type": "array"}}
    ),
    "Campaign": _object(
        _SUMMARY | {"send_token": _TOKEN, "read_token": _TOKEN},
        [name for name in _SUMMARY if name not in ("labels", "group_labels", "image_shape", "opens", "closes")],
    ),
    "Campaigns": _object({"campaigns": {"type": "array", "items": {"$ref": "#/components/schemas/Campaign"}}}),
    "Wanted": {
        "oneOf": [
            _object({"count": {"type": "integer", "minimum": 1, "maximum": 100_000}}) | {"additionalProperties": False},
            _object({"renew": {"type": "string", "enum": ["send_token", "read_token"]}})
            | {"additionalProperties": False},
        ]
    },
    "Tokens": _object({"tokens": {"type": "array", "items": _TOKEN}}),
    "Receipt": _object({"count": {"type": "integer", "minimum": 1}}),
    "Health": _object({"status": {"type": "string"}}),
    "Estimate": _object(
        {
            "campaign": _NAME,
            "digest": {"type": "string"},
            "count": {"type": "integer"},
            "value": {"oneOf": [_NUMBERS, {"type": "null"}]},
            "stderr": {"oneOf": [_NUMBERS, {"type": "null"}]},
            "region": {"oneOf": [_REGION, {"type": "null"}]},
            "groups": {"oneOf": [_GROUPS, {"type": "null"}]},
            "note": {"type": "string"},
        }
    ),
}

_MEANINGS = {
    400: "A header or the JSON is missing or malformed.",
    401: "A token is needed.",
    403: "The token is wrong, or was used before.",
    404: "There is no such campaign.",
    408: "The body came too slowly.",
    409: "It does not fit the campaign: another mechanism, a name that is taken, a campaign that is closed.",
    410: "The campaign is closed.",
    413: "The body is too large.",
    415: "The content type is another one.",
    422: "What was sent is malformed; nothing of it was counted.",
    425: "The campaign is not open yet.",
    429: "Too many uploads from this address; see Retry-After.",
    503: "The collector cannot answer or store now; see Retry-After.",
}


def _content(kind: str, schema: str) -> Json:
    return {kind: {"schema": {"$ref": f"#/components/schemas/{schema}"}}}


def answers(
    schema: str | None, *problems: int, status: int = 200, other: tuple[str, ...] = ()
) -> dict[int | str, Json]:
    """The answers of a route: what it returns as JSON or in other media types, and its refusals."""
    content = {} if schema is None else _content("application/json", schema)
    content |= {kind: {"schema": {"type": "string"}} for kind in other}
    found: dict[int | str, Json] = {status: {"description": "Done.", **({"content": content} if content else {})}}
    for code in sorted({*problems, 503}):
        found[code] = {"description": _MEANINGS[code], "content": _content("application/problem+json", "Problem")}
    return found


def secured(*, optional: bool = False) -> Json:
    """The part of a route's description that says that it takes a token."""
    return {"security": [{"token": []}, {}] if optional else [{"token": []}]}


def json_body(schema: str) -> Json:
    """The part of a route's description that says which JSON it takes."""
    return {"requestBody": {"required": True, "content": _content("application/json", schema)}}


def _header(name: str, pattern: str, meaning: str) -> Json:
    schema = {"type": "string", "pattern": f"^{pattern}$"}
    return {"name": name, "in": "header", "required": True, "description": meaning, "schema": schema}


UPLOAD: Json = {
    "post": {
        "summary": "Send messages",
        "description": "Durable when it is answered. The same key counts once and gets the same answer.",
        "operationId": "send_messages",
        **secured(optional=True),
        "parameters": [
            {"name": "name", "in": "path", "required": True, "schema": _NAME},
            _header("Idempotency-Key", "[0-9a-f]{32}", "128 random bits, a new key per upload, the same for retries."),
            _header("SSTQ-Count", "[1-9][0-9]{0,9}", "The number of messages."),
            _header("SSTQ-Digest", "[0-9a-f]{64}", "The digest of the mechanism."),
        ],
        "requestBody": {
            "required": True,
            "content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}},
        },
        "responses": {
            str(status): answer
            for status, answer in answers("Receipt", 400, 401, 403, 404, 408, 409, 410, 413, 415, 422, 425, 429).items()
        },
    }
}
