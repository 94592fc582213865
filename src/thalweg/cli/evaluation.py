"""The command ``thalweg evaluate``. Heavy imports are inside, so that help appears at once."""

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from thalweg.cli.console import print_table
from thalweg.runs.progress import say, working

if TYPE_CHECKING:
    from thalweg.runs import Evaluation

# letters of the first three columns with all lines, and of a text that stays in the table; longer ones go below it
_NUMBERS, _SHORT = 70, 24


def evaluate(
    run: Annotated[
        Path | None,
        typer.Argument(
            metavar="RUN", help="The folder of a run, such as runs/digits-1; without it, lists the metrics."
        ),
    ] = None,
    metrics: Annotated[
        str | None,
        typer.Option(metavar="NAME,NAME", help="Which metrics, or all; by default those that suit the run."),
    ] = None,
    against: Annotated[
        str | None,
        typer.Option(metavar="DATA", help="Other data, by name or path: how well does the energy tell them apart?"),
    ] = None,
    data: Annotated[
        str | None, typer.Option(metavar="DATA", help="Rows to evaluate on, by name or path; by default the test rows.")
    ] = None,
    confidence: Annotated[float, typer.Option(help="The probability that an interval covers the truth.")] = 0.95,
    seed: Annotated[int | None, typer.Option(min=0, help="Another number gives other random numbers.")] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Compute everything again.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON in place of the table.")] = False,
) -> None:
    """Evaluate a trained model: its test log-likelihood, and how its samples compare with the data.

    Without a RUN, lists the metrics. Each number has a confidence interval where there is one. A metric that does not
    fit the model says why. The numbers go to results.json and to report.html in the run folder, and are reused as long
    as the checkpoint, the data and the samples are the same. Samples are those of the run; if the checkpoint is newer,
    new ones are drawn as by `thalweg sample`.

    Exit codes: 0, success; 1, no metric could be computed; 2, invalid input.

    \b
    Examples:
      thalweg evaluate runs/two-moons-1
      thalweg evaluate runs/digits-1 --metrics log_likelihood,mmd
      thalweg evaluate runs/mnist-1 --against fashion
      thalweg evaluate runs/digits-1 --json > numbers.json
    """
    if run is None and (metrics or against or data or fresh or as_json):
        raise ValueError("expected a run to evaluate, got none; `thalweg evaluate` alone lists the metrics")
    with working("starting"):
        from thalweg.runs import evaluation, sampling
        from thalweg.runs.metrics import METRICS
    if run is None:
        print_table(("metric", "what it is"), [(name, metric.about) for name, metric in METRICS.items()])
        return
    found = evaluation.evaluate(
        run, metrics, against=against, data=data, seed=seed, confidence=confidence, fresh=fresh, progress=True
    )
    if any(not row.kept for row in found.rows) or not (run / "report.html").exists():
        with working("writing the report"):
            sampling.report(run)
    if as_json:
        _print_json(found)
    else:
        _print(found)
    if not any(row.computed for row in found.rows):
        say(f"{run}: expected a metric that can be computed, got none; see the remarks")
        raise typer.Exit(1)


def _print(found: "Evaluation") -> None:
    """Print the table, long remarks below it, and which numbers are from an earlier call."""
    from thalweg.runs.evaluation_rows import HEADS, cells

    levels = {row.confidence for row in found.rows if row.confidence is not None}
    interval = f"{100 * levels.pop():g} % interval" if len(levels) == 1 else HEADS[2]
    room = shutil.get_terminal_size().columns - _NUMBERS
    wide = room >= 2 * _SHORT
    table, notes = [], {}
    for row in found.rows:
        *numbers, method, remark = cells(row)
        texts = [method, remark] if wide else ["; ".join(each for each in (method, remark) if each)]
        for place, text in enumerate(texts):
            if len(text) > (room - _SHORT if wide and place == 0 else _SHORT):
                notes.setdefault(text, []).append(row.name)
                texts[place] = f"see [{list(notes).index(text) + 1}]"
        table.append((*numbers, *texts))
    heads = HEADS[3:] if wide else ("method and remark",)
    print_table((*HEADS[:2], interval, *heads), table, unbroken=3)
    for number, (text, names) in enumerate(notes.items(), start=1):
        typer.echo(f"[{number}] {', '.join(names)}: {text}")
    kept: dict[str, list[str]] = {}
    for row in found.rows:
        if row.kept and row.metric not in kept.setdefault(row.kept, []):
            kept[row.kept].append(row.metric)
    for date, names in kept.items():
        typer.echo(f"kept from {date}: {', '.join(names)} (--fresh computes them again)")
    typer.echo(f"report: {found.folder / 'report.html'}")


def _print_json(found: "Evaluation") -> None:
    import json

    from thalweg.core.files import without_nan

    rows = [row._asdict() for row in found.rows]
    values = {"run": str(found.folder), "updates": found.updates, "metrics": rows}
    typer.echo(json.dumps(without_nan(values), indent=2, allow_nan=False, ensure_ascii=False))
