"""Tables on stdout."""

from collections.abc import Sequence


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table with the given column heads."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(*heads)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
