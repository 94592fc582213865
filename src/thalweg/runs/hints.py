"""Parts of error messages: the nearest known name, the given value."""

import difflib
from collections.abc import Iterable
from typing import Any

_NEAR = 0.6


def did_you_mean(word: str, names: Iterable[Any], otherwise: str = "choose one of them", near: float = _NEAR) -> str:
    """The nearest name as the end of an error message, or ``otherwise`` if none is near.

    >>> did_you_mean("langevn", ["HMC", "Langevin"])
    "did you mean 'Langevin'?"
    >>> did_you_mean("banana", ["HMC", "Langevin"])
    'choose one of them'
    """
    spelt = {str(name).lower(): str(name) for name in names}
    found = difflib.get_close_matches(word.lower(), spelt, n=1, cutoff=near)
    return f"did you mean '{spelt[found[0]]}'?" if found else otherwise


def shown(value: Any) -> str:
    """A value written roughly as in TOML, for a message.

    >>> shown(True), shown("adam"), shown(0.5)
    ('true', '"adam"', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def unknown(where: str, key: str, known: Iterable[str], elsewhere: Iterable[str] = ()) -> ValueError:
    """The error for an unknown key, with the nearest known one.

    ``elsewhere`` holds dotted keys of other tables; one that ends in ``key`` is suggested first.
    """
    names = list(known)
    dotted, place = (f"{where}.{key}", f"a key of [{where}]") if where else (key, "a key or a table")
    moved = [each for each in elsewhere if each.rpartition(".")[2] == key]
    fix = did_you_mean(key, moved, near=0.0) if moved else did_you_mean(key, names, "remove it")
    return ValueError(
        f"{dotted}: expected {place}, that is one of {', '.join(names) or 'none'}, got an unknown one; {fix}"
    )
