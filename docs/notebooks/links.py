"""A hook of MkDocs for links from notebooks to pages, which the notebook plug-in leaves as they are in a checkout."""

import re
from typing import Any


def on_page_content(html: str, page: Any, **_: Any) -> str:
    """Turn ../planning.md into ../../planning/, the address that the page has on the site."""
    if not page.file.src_uri.startswith("notebooks/"):
        return html
    return re.sub(r'href="\.\./([\w-]+)\.md(#[\w-]+)?"', r'href="../../\1/\2"', html)
