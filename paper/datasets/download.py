"""Downloads that resume after an interruption."""

from __future__ import annotations

import http.client
import re
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

__all__ = ["Report", "download"]

Report = Callable[[str, int, int | None], None]
"""Called with a description of the work, the bytes done, and the total if known."""

_ATTEMPTS = 5
_BLOCK = 1 << 18


def download(url: str, part: Path, *, limit: int, report: Report, timeout: float = 30.0) -> None:
    """Download a file into `part`, resuming after the bytes that already exist.

    A broken transfer is resumed a few times. If that does not help, the bytes received so far stay in the file,
    so the next call resumes from there. Only the length is verified.

    Args:
        url: the address, http or https.
        part: the file to fill.
        limit: the maximum size in bytes.
        report: called after every block.
        timeout: seconds without a byte or an answer after which a transfer counts as broken.

    Raises:
        OSError: there is no answer, or a bad one, or the transfer broke too often.
        ValueError: the file is larger than the limit.
    """
    for _ in range(_ATTEMPTS):
        if _transfer(url, part, limit, report, timeout):
            return
    raise ConnectionError(
        f"{url}: the connection broke {_ATTEMPTS} times; the {_size(part):,} bytes received are kept, so try again"
    )


def _transfer(url: str, part: Path, limit: int, report: Report, timeout: float) -> bool:
    """Make one attempt; return whether the file is complete."""
    have = _size(part)
    headers = {"User-Agent": "sstq", "Accept-Encoding": "identity"}
    if have:
        headers["Range"] = f"bytes={have}-"
    request = urllib.request.Request(url, headers=headers)  # noqa: S310 - all URLs are constants of this package
    try:
        response = urllib.request.urlopen(request, timeout=timeout)  # noqa: S310
    except urllib.error.HTTPError as error:
        with error:
            if error.code != http.client.REQUESTED_RANGE_NOT_SATISFIABLE or not have:
                raise
            # There is nothing after what we have: the file is complete, or a different one.
            if _total_of_range(error.headers) == have:
                return True
        part.unlink()
        return False
    except http.client.HTTPException as error:
        raise ConnectionError(f"{url} did not answer with HTTP: {error!r}") from error
    with response:
        start, total = _extent(response, have)
        _refuse_above(limit, total, url)
        with part.open("r+b" if start else "wb") as file:
            file.seek(start)
            return _copy(response, file, start, total, lambda done: _advance(url, part, done, total, limit, report))


def _advance(url: str, part: Path, done: int, total: int | None, limit: int, report: Report) -> None:
    if done > limit:
        part.unlink()
    _refuse_above(limit, done, url)
    report(f"downloading {url.rpartition('/')[2]}", done, total)


def _copy(response: Any, file: Any, start: int, total: int | None, advance: Callable[[int], None]) -> bool:
    done = start
    while True:
        try:
            block = response.read1(_BLOCK)
        except (OSError, http.client.HTTPException):
            return False
        if not block:
            # http.client does not report a body that is shorter than announced.
            return total is None or done == total
        file.write(block)
        done += len(block)
        advance(done)


def _extent(response: Any, have: int) -> tuple[int, int | None]:
    """Return where the body begins within the file, and the length of the file if it is known."""
    if response.status == http.client.PARTIAL_CONTENT:
        begins = re.match(r"bytes (\d+)-", response.headers.get("Content-Range", ""))
        if begins is None or int(begins[1]) != have:
            raise ConnectionError(f"asked for bytes from {have}, got {response.headers.get('Content-Range')!r}")
        return have, _total_of_range(response.headers)
    # The server does not support ranges and sends the whole file.
    length = response.headers.get("Content-Length", "")
    return 0, int(length) if length.isdecimal() else None


def _total_of_range(headers: Any) -> int | None:
    total = re.search(r"/(\d+)$", headers.get("Content-Range", ""))
    return int(total[1]) if total else None


def _refuse_above(limit: int, size: int | None, url: str) -> None:
    if size is not None and size > limit:
        raise ValueError(f"{url} sends more than {limit:,} bytes, so it is not the expected file")


def _size(part: Path) -> int:
    return part.stat().st_size if part.exists() else 0
