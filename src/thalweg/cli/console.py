"""Tables on stdout."""

from collections.abc import Sequence


def print_table(heads: Sequence[str], rows: Sequence[Sequence[str]], unbroken: int = 0) -> None:
    """Print a table with the given column heads; the cells of the first ``unbroken`` columns stay on one line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for place, head in enumerate(heads):
        table.add_column(head, no_wrap=place < unbroken)
    for row in rows:
        table.add_row(*map(Text, row))
    Console().print(table)
