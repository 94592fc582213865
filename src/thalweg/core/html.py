"""Small tables for notebooks: self-contained HTML with all text escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


def html_table(rows: Iterable[Sequence[Any]], header: Sequence[str] = (), title: str = "", note: str = "") -> str:
    """A table whose first column holds the row names, with a title above and a note below.

    >>> from thalweg.core.html import html_table
    >>> "<b>energy</b>" in html_table([("a < b", 1)], title="energy"), "a &lt; b" in html_table([("a < b", 1)])
    (True, True)
    """
    head = f"<tr>{''.join(_cell(word, 'th') for word in header)}</tr>" if header else ""
    body = "".join(f"<tr>{_cell(first, 'th')}{''.join(map(_cell, rest))}</tr>" for first, *rest in rows)
    parts = (
        f"<div><b>{escape(title)}</b></div>" if title else "",
        f"<table>{head}{body}</table>" if head or body else "",
        f"<div>{escape(note)}</div>" if note else "",
    )
    return f"<div>{''.join(parts)}</div>"


def _cell(value: Any, tag: str = "td") -> str:
    return f"<{tag}>{escape(str(value))}</{tag}>"
