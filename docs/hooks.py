"""Hooks of MkDocs: links from notebooks to pages, and the rank of API pages in the search."""

import re
from typing import Any


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Let guides come before the API, which has all of the same words."""
    if page.file.src_uri.startswith("api/"):
        page.meta["search"] = {"boost": 0.3}
    return markdown


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Turn ../planning.md into ../../planning/, the address that the page has on the site.

    The notebook plug-in leaves links as they are in a checkout.
    """
    if not page.file.src_uri.startswith("notebooks/"):
        return html
    return re.sub(r'href="\.\./([\w-]+)\.md(#[\w-]+)?"', r'href="../../\1/\2"', html)
