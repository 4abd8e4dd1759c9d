"""HTTP requests to a collector or a shuffler, with nothing but the standard library."""

from __future__ import annotations

import http.client
import json
import os
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from email.message import Message
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

__all__ = ["Answer", "Refused", "Unreachable", "download", "request"]

_SECONDS = 30.0
_LARGEST_ANSWER = 1 << 28


class Refused(ValueError):  # noqa: N818
    """A server refused a request: status, sentence, and the seconds to wait before a retry, if that may help."""

    def __init__(self, server: str, status: int, detail: str, retry_after: float | None) -> None:
        super().__init__(f"{server} refused the request ({status}): {detail}")
        self.status, self.retry_after = status, retry_after


class Unreachable(ValueError):  # noqa: N818
    """The collector did not answer; the request may or may not have arrived."""


class Answer(NamedTuple):
    """A server's answer."""

    headers: Message
    content: bytes

    def json(self) -> Any:
        """The content, parsed."""
        return json.loads(self.content)


class _NoRedirect(urllib.request.HTTPRedirectHandler):
    """Refuses redirects: neither server redirects, and the target would receive the token."""

    def redirect_request(self, *_: Any) -> None:
        """Do not follow the redirect."""


def request(
    method: str,
    url: str,
    *,
    token: str | None = None,
    headers: Mapping[str, str] | None = None,
    body: bytes | None = None,
) -> Answer:
    """Send a request to a server; raises Refused for a status of 400 or more, Unreachable without an answer."""
    with _answered(method, url, token, headers, body) as response:
        content = response.read(_LARGEST_ANSWER + 1)
        _check_length(response, len(content))
    if len(content) > _LARGEST_ANSWER:
        raise Unreachable(f"the answer from {urlsplit(url).netloc} has more than {_LARGEST_ANSWER} bytes")
    return Answer(response.headers, content)


def download(url: str, path: Path, *, token: str) -> None:
    """Download to a file, which appears only when it is complete."""
    part = path.with_name(f"{path.name}.part")
    try:
        with part.open("wb") as file:
            for chunk in _chunks(url, token):
                file.write(chunk)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def _chunks(url: str, token: str) -> Iterator[bytes]:
    size = 0
    with _answered("GET", url, token) as response:
        while chunk := response.read(1 << 20):
            size += len(chunk)
            yield chunk
        _check_length(response, size)


def _check_length(response: http.client.HTTPResponse, size: int) -> None:
    if size < int(response.headers.get("Content-Length") or 0):  # `read` does not notice
        raise http.client.IncompleteRead(b"")


@contextmanager
def _answered(
    method: str, url: str, token: str | None, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> Iterator[http.client.HTTPResponse]:
    """Yield the answer; whatever goes wrong until it is read is Refused, Unreachable or a certificate."""
    server = urlsplit(url).netloc
    if urlsplit(url).scheme not in ("http", "https") or not server:
        raise ValueError(f"url must begin with http:// or https://, got {url!r}")
    # Reveal nothing about the machine: the default user agent names the Python version.
    whole = {"User-Agent": "sstq", **(headers or {})} | ({} if token is None else {"Authorization": f"Bearer {token}"})
    asked = urllib.request.Request(url, body, whole, method=method)  # noqa: S310 (the scheme is checked)
    try:
        with _opener(os.environ.get("SSL_CERT_FILE")).open(asked, timeout=_SECONDS) as response:
            yield response
    except urllib.error.HTTPError as error:
        with error:
            raise _refused(server, error) from None
    except http.client.IncompleteRead as error:
        raise Unreachable(f"the answer from {server} was cut off; try again") from error
    except (OSError, http.client.HTTPException) as error:
        reason = getattr(error, "reason", error)
        if isinstance(reason, ssl.SSLCertVerificationError):  # another try would not change it
            raise ValueError(
                f"the certificate of {server} cannot be verified: {reason.verify_message}; if "
                "your own authority issued it, set SSL_CERT_FILE to that authority's certificate (PEM)"
            ) from error
        raise Unreachable(f"no answer from {server}: {reason}") from error


@cache
def _opener(authority: str | None) -> urllib.request.OpenerDirector:  # noqa: ARG001 (a new one if it changes)
    """Reading the certificates of all authorities takes longer than a request."""
    return urllib.request.build_opener(_NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context()))


def _refused(server: str, error: urllib.error.HTTPError) -> Refused:
    try:
        detail = str(json.loads(error.read(1 << 16))["detail"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        detail = str(error.reason)
    wait = error.headers.get("Retry-After", "")
    return Refused(server, error.code, detail, float(wait) if wait.isascii() and wait.isdigit() else None)
