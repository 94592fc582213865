"""The last part of a refusal: the nearest name, the value that came."""

import difflib
from collections.abc import Iterable
from typing import Any


def did_you_mean(word: str, names: Iterable[Any]) -> str:
    """The nearest name, as the last part of a sentence; there is always a nearest one.

    >>> did_you_mean("langevn", ["HMC", "Langevin"])
    "did you mean 'Langevin'?"
    """
    spelt = {str(name).lower(): str(name) for name in names}
    near = difflib.get_close_matches(word.lower(), spelt, n=1, cutoff=0)
    return f"did you mean '{spelt[near[0]]}'?" if near else "remove it"


def shown(value: Any) -> str:
    """A value as it would stand in TOML, near enough for a message.

    >>> shown(True), shown("adam"), shown(0.5)
    ('true', '"adam"', '0.5')
    """
    if isinstance(value, bool):
        return str(value).lower()
    return f'"{value}"' if isinstance(value, str) else str(value)


def unknown(where: str, key: str, known: Iterable[str], elsewhere: Iterable[str] = ()) -> ValueError:
    """The refusal of a key that does not exist, with the nearest one that does.

    ``elsewhere`` are dotted keys of other tables, preferred where one of them ends like this.
    """
    names = list(known)
    dotted, place = (f"{where}.{key}", f"a key of [{where}]") if where else (key, "a key or a table")
    moved = [each for each in elsewhere if each.rpartition(".")[2] == key]
    return ValueError(
        f"{dotted}: expected {place}, that is one of {', '.join(names) or 'none'}, got an unknown one; "
        f"{did_you_mean(key, moved or names)}"
    )
