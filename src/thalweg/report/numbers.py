"""Numbers with intervals as text: as many digits as the interval supports."""

import math
from typing import Any


def format_number(value: float | None, low: float | None = None, high: float | None = None) -> tuple[str, str]:
    """The text of a number and of its interval, with two digits of half the interval's width; empty if unknown.

    >>> format_number(-1.16241, -1.19411, -1.13072)
    ('-1.162', '[-1.194, -1.131]')
    >>> format_number(1234.567), format_number(None)
    (('1234.6', ''), ('', ''))
    """
    if value is None or not math.isfinite(value):
        return ("" if value is None else f"{value:g}"), ""
    if low is None or high is None or not math.isfinite(low) or not math.isfinite(high):
        return f"{value:.5g}", ""
    half = (high - low) / 2
    if half <= 1e-6 * max(abs(value), 1e-6):
        return f"{value:.5g}", f"[{low:.5g}, {high:.5g}]"
    decimals = max(0, 1 - math.floor(math.log10(half)))
    if decimals > 6 or half >= 1e6:
        return f"{value:.3g}", f"[{low:.3g}, {high:.3g}]"
    return f"{value:.{decimals}f}", f"[{low:.{decimals}f}, {high:.{decimals}f}]"


def finite_number(value: Any) -> float | None:
    """A value of a JSON file as a number; None if it is not a finite one.

    >>> finite_number(1), finite_number("1"), finite_number(True)
    (1.0, None, None)
    """
    known = isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
    return float(value) if known else None
