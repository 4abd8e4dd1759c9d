"""HTTP requests to a collector or a shuffler, with nothing but the standard library."""

from __future__ import annotations

import errno
import http.client
import io
import json
import os
import re
import ssl
import urllib.error
import urllib.request
from collections.abc import Mapping
from email.message import Message
from functools import cache
from typing import Any, BinaryIO, NamedTuple
from urllib.parse import urlsplit

__all__ = ["Answer", "RequestError", "request"]

_SECONDS = 30.0
_LARGEST_ANSWER = 1 << 28
_CHUNK = 1 << 20


class RequestError(ValueError):
    """A request failed; `status` is that of the refusal, or None without a whole answer: then it may have arrived."""

    def __init__(
        self, problem: str, status: int | None = None, retry_after: float = 0.0
    ) -> None:
        super().__init__(problem)
        self.status = status
        self.retry_after = retry_after


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
    into: BinaryIO | None = None,
) -> Answer:
    """Send a request to a server; raises RequestError for a status of 300 or more, or without a whole answer.

    The content of the answer is written `into` a file, if one is given; otherwise it is limited to 256 MiB.
    """
    server = urlsplit(url).netloc
    if urlsplit(url).scheme not in ("http", "https") or not server:
        raise ValueError(f"url must begin with http:// or https://, got {url!r}")
    # Reveal nothing about the machine: the default user agent names the Python version.
    all_headers = {"User-Agent": "sstq", **(headers or {})}
    if token is not None:
        all_headers["Authorization"] = f"Bearer {token}"
    asked = urllib.request.Request(url, body, all_headers, method=method)  # noqa: S310 (the scheme is checked)
    content = io.BytesIO()
    size = 0
    try:
        with _opener(os.environ.get("SSL_CERT_FILE")).open(
            asked, timeout=_SECONDS
        ) as response:
            while chunk := response.read(_CHUNK):
                size += len(chunk)
                if into is None and size > _LARGEST_ANSWER:
                    raise RequestError(
                        f"the answer from {server} has more than {_LARGEST_ANSWER} bytes"
                    )
                (into or content).write(chunk)
            # `read` does not notice
            if size < int(response.headers.get("Content-Length") or 0):
                raise http.client.IncompleteRead(b"")
    except urllib.error.HTTPError as error:
        with error:
            raise _refusal(server, error) from None
    except http.client.IncompleteRead as error:
        raise RequestError(
            f"the answer from {server} was cut off; try again"
        ) from error
    except (OSError, http.client.HTTPException) as error:
        # of the file to write
        if getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT):
            raise
        reason = getattr(error, "reason", error)
        # another try would not change it
        if isinstance(reason, ssl.SSLCertVerificationError):
            raise ValueError(
                f"the certificate of {server} cannot be verified: {reason.verify_message}; if "
                "your own authority issued it, set SSL_CERT_FILE to that authority's certificate (PEM)"
            ) from error
        raise RequestError(f"no answer from {server}: {reason}") from error
    return Answer(response.headers, content.getvalue())


def _refusal(server: str, error: urllib.error.HTTPError) -> RequestError:
    """The sentence with which a server refused, and the seconds that it asks to wait, if any."""
    try:
        detail = str(json.loads(error.read(1 << 16))["detail"])
    except (OSError, http.client.HTTPException, ValueError, KeyError, TypeError):
        detail = str(error.reason)
    wait = error.headers.get("Retry-After", "")
    seconds = float(wait) if re.fullmatch("[0-9]{1,6}", wait) else 0.0
    return RequestError(
        f"{server} refused the request ({error.code}): {detail}", error.code, seconds
    )


@cache
def _opener(authority: str | None) -> urllib.request.OpenerDirector:  # noqa: ARG001 (a new one if it changes)
    """Reading the certificates of all authorities takes longer than a request."""
    return urllib.request.build_opener(
        _NoRedirect, urllib.request.HTTPSHandler(context=ssl.create_default_context())
    )
