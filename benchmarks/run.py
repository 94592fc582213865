"""Run the benchmarks: every row is a ratio to another library or to a limit, measured in the same run.

    python benchmarks/run.py [--only NAME] [--quick] [--json FILE]

A group is a function ``group(settings)`` that yields rows; add one to `GROUPS` and it is in the table.
"""

import argparse
import json
import statistics
import sys
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

import efficiency
import ising
import log_z
import objectives
import process
import sampling
import tempering
import training
from measure import PEERS_PYTHON, PeerMissing, Row, Settings, Worker, machine

Group = Callable[[Settings], Iterator[Row]]

GROUPS: list[tuple[str, Group]] = [
    ("overhead", sampling.overhead),
    ("peers", sampling.peers),
    ("ess", efficiency.effective),
    ("tempering", tempering.rungs),
    ("tempering", tempering.length),
    ("ising", ising.flips),
    ("log-z", log_z.annealing),
    ("log-z", log_z.population),
    ("model-a", training.model_a),
    ("training-step", training.training_step),
    ("adaptive", training.adaptive),
    ("objectives", objectives.peers),
    ("objectives", objectives.differences),
    ("growth", objectives.growth),
    ("memory", process.memory),
    ("help", process.command_line),
]


def main() -> int:
    options = _options()
    settings = Settings(rounds=3, minimum=0.02, quick=True) if options.quick else Settings()
    facts = machine() | _peer_versions()
    console = Console(width=None if sys.stdout.isatty() else 160)
    console.print("  ".join(f"{name} {value}" for name, value in facts.items()))
    if facts["load"] > 0.5:
        console.print("[yellow]the machine was busy before this run began: the times are not to be trusted[/]")
    rows: list[tuple[str, Row]] = []
    failed = []
    for name, group in GROUPS:
        if not any(part in name for part in options.only):
            continue
        # a plain line: a spinner would redraw itself from another thread while the clock runs
        console.print(f"measuring {name}")
        try:
            for row in group(settings):
                rows.append((name, row))
                ratio = row.ratio()
                console.print(f"  {row.name}, {row.against}: {'-' if ratio is None else f'{ratio:.3g}×'}")
        except Exception:
            # one broken group must not cost the others' results; it is shown, and the exit code says so
            traceback.print_exc()
            failed.append(name)
    console.print(_table(rows))
    for name in failed:
        console.print(f"[red]{name} failed: see the traceback above[/]")
    if options.json is not None:
        options.json.write_text(json.dumps({"machine": facts, "rows": [_as_json(*row) for row in rows]}, indent=2))
        console.print(f"written to {options.json}")
    return 1 if failed else 0


def _options() -> argparse.Namespace:
    names = ", ".join(dict.fromkeys(name for name, _ in GROUPS))
    parser = argparse.ArgumentParser(description="Times Thalweg against its peers and its limits.")
    parser.add_argument(
        "--only", metavar="NAME", action="append", help=f"a group, or part of its name; may be repeated: {names}"
    )
    parser.add_argument("--quick", action="store_true", help="few, short rounds: to see that it runs")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write every round's times here")
    options = parser.parse_args()
    options.only = options.only or [""]
    if not any(part in name for part in options.only for name, _ in GROUPS):
        parser.error(f"expected --only to be one of {names}, got {', '.join(options.only)}")
    return options


def _peer_versions() -> dict[str, str]:
    if not PEERS_PYTHON.exists():
        return {}
    versions: dict[str, str] = {}
    for peer in sampling.PEERS:
        try:
            with Worker("double_well.py", peer) as worker:
                versions |= worker.facts["versions"]
        except PeerMissing as reason:
            versions[peer] = str(reason)
    return versions


def _table(rows: list[tuple[str, Row]]) -> Table:
    table = Table(
        title="Thalweg's bench",
        caption="Times are medians over rounds taken in turns; a ratio is the median of the rounds' own ratios.",
    )
    for header in ("group", "what", "against"):
        table.add_column(header)
    for header in ("thalweg", "other", "ratio", "spread", "target"):
        table.add_column(header, justify="right", no_wrap=True)
    table.add_column("met")
    previous = ""
    for group, row in rows:
        if group != previous and previous:
            table.add_section()
        table.add_row(
            group if group != previous else "",
            row.name,
            row.against,
            _quantity(row.ours, row.unit),
            _quantity(row.theirs, row.unit),
            _times(row.ratio()),
            _spread(row),
            "" if row.target is None else f"{'≤' if row.sense == 'at most' else '≥'} {_times(row.target)}",
            row.note or {True: "[green]yes[/]", False: "[red]no[/]", None: "for information"}[row.met()],
        )
        previous = group
    return table


def _quantity(value: float | None, unit: str) -> str:
    if value is None:
        return "missing"
    if unit != "s":
        return f"{value:.0f} {unit}"
    return f"{value:.2f} s" if value >= 1 else f"{value * 1e3:.3g} ms"


def _times(ratio: float | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio:.0f}×" if ratio >= 100 else f"{ratio:.3g}×" if ratio >= 10 else f"{ratio:.2f}×"


def _spread(row: Row) -> str:
    """The interquartile range of the ratios over rounds, which shows how reliable the median is."""
    if len(row.pairs) < 3:
        return ""
    low, _, high = statistics.quantiles(row.ratios(), n=4)
    return f"{_times(low)[:-1]}-{_times(high)[:-1]}"


def _as_json(group: str, row: Row) -> dict:
    return {"group": group, **row._asdict(), "ratio": row.ratio(), "met": row.met()}


if __name__ == "__main__":
    sys.exit(main())
