"""Parts of a page: sections, and figures in a light and a dark theme."""

import base64
from collections.abc import Callable
from html import escape

from matplotlib.figure import Figure

from thalweg.report import figures


def section(title: str, words: str, *content: str) -> str:
    """A section with a sentence under its title; ``content`` is HTML.

    >>> section("Chain", "a < b", "<hr>")
    '<section>\\n<h2>Chain</h2>\\n<p>a &lt; b</p>\\n<hr>\\n</section>'
    """
    said = f"<p>{escape(words)}</p>\n" if words else ""
    return f"<section>\n<h2>{escape(title)}</h2>\n{said}{''.join(content)}\n</section>"


def placeholder(title: str, words: str) -> str:
    """A section that says what is not there yet.

    >>> "missing" in placeholder("Chain", "No chain yet.")
    True
    """
    return f'<section>\n<h2>{escape(title)}</h2>\n<p class="missing">{escape(words)}</p>\n</section>'


def picture(alt: str, draw: Callable[[figures.Theme], Figure], *, narrow: bool = False) -> str:
    """A figure in the light and in the dark theme; the browser chooses. ``narrow``: at most half the page wide."""
    light, dark = (
        "data:image/png;base64," + base64.b64encode(figures.png(draw(theme))).decode("ascii")
        for theme in (figures.LIGHT, figures.DARK)
    )
    source = f'<source media="(prefers-color-scheme: dark)" srcset="{dark}">'
    shape = ' class="narrow"' if narrow else ""
    return f'<picture>{source}<img{shape} alt="{escape(alt)}" src="{light}"></picture>'
