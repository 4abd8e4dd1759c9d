"""Refusals: every one has a status and a sentence (RFC 9457)."""

from __future__ import annotations

import json
from typing import Any

from fastapi import HTTPException
from starlette.responses import Response

__all__ = ["PROBLEM_SCHEMA", "ClientGone", "Problem", "database_gone", "problem_response", "unauthorized"]

MEDIA_TYPE = "application/problem+json"
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"status": {"type": "integer"}, "detail": {"type": "string"}},
    "required": ["status", "detail"],
}


class Problem(HTTPException):
    """A refusal: its status, a sentence for people, and headers."""


class ClientGone(Exception):  # noqa: N818
    """The client closed the connection before its request was complete."""


def problem_response(problem: HTTPException) -> Response:
    """Return the refusal as application/problem+json."""
    content = json.dumps({"status": problem.status_code, "detail": problem.detail}, ensure_ascii=False).encode()
    return Response(content, problem.status_code, problem.headers, MEDIA_TYPE)


def unauthorized(detail: str) -> Problem:
    """A refusal that asks for a token."""
    return Problem(401, detail, {"WWW-Authenticate": "Bearer"})


def database_gone() -> Problem:
    """The refusal if the database does not respond; nothing was stored."""
    return Problem(503, "The database is not available; nothing was stored. Try again.", {"Retry-After": "5"})
