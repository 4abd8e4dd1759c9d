"""Cards for notebooks: a heading and a small table as HTML."""

from collections.abc import Mapping
from html import escape


def card(title: str, facts: Mapping[str, object]) -> str:
    """Return a heading and a table of names and values as HTML, without scripts or styles.

    Examples:
        >>> card("FrameUnit", {"bits per message": 16})
        '<strong>FrameUnit</strong><table><tr><th>bits per message</th><td>16</td></tr></table>'
    """
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(str(value))}</td></tr>" for name, value in facts.items())
    return f"<strong>{escape(title)}</strong><table>{rows}</table>"
