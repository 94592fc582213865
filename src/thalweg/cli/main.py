"""The command ``thalweg``. Heavy imports are inside the commands, so that help appears at once."""

import sys
import time
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.exceptions import TyperException

from thalweg import __version__
from thalweg.cli.console import print_table
from thalweg.cli.evaluation import evaluate
from thalweg.runs.hints import did_you_mean
from thalweg.runs.progress import say, working

app = typer.Typer(
    name="thalweg",
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
data = typer.Typer(
    help="List and fetch data sets.", rich_markup_mode=None, context_settings={"help_option_names": ["-h", "--help"]}
)
app.add_typer(data, name="data")

RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a run, such as runs/digits-1.")]
Assignments = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Set a key, such as train.steps=500 or objective.kernel.step_size=0.5; none unsets it. May be repeated.",
    ),
]


def _version(asked: bool) -> bool:
    if asked:
        typer.echo(f"thalweg {__version__}")
        raise typer.Exit
    return asked


@app.callback()
def thalweg(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Show the version.")
    ] = False,
) -> None:
    """Train energy-based models, draw samples from them, and evaluate them.

    Start with `thalweg train`, which lists the presets, or with `thalweg train two-moons`.
    """


@app.command(short_help="Train a model, sample from it, write a report.")
def train(
    config: Annotated[
        str | None,
        typer.Argument(metavar="PRESET|FILE|FOLDER", help="A preset, a TOML or CSV file, a folder of pictures."),
    ] = None,
    assignments: Assignments = None,
    run_dir: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Where the run goes; by default runs/NAME-NUMBER.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(metavar="RUN", help="Continue an interrupted run from its newest checkpoint.")
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Replace the run that is already in --run-dir.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only print the complete configuration, as a TOML file.")
    ] = False,
) -> None:
    """Train a model, then sample from it, evaluate the samples and write a report.

    Without an argument, lists the presets. Given a table or a folder of pictures, chooses a model and its settings and
    prints them before training (--set changes them); samples of a table are written as a CSV file too. Everything goes
    to a run folder: the complete configuration, the metrics, checkpoints, samples, results and report.html. Ctrl-C
    saves a checkpoint and stops; --resume continues and gives exactly the result of an uninterrupted run.

    If a training runs away, a message says so on screen and at the top of the report. Exit codes: 0, success; 1, the
    training ran away and was stopped, and the last good weights are kept; 2, invalid input; 3, finished with findings.

    \b
    Examples:
      thalweg train two-moons
      thalweg train customers.csv --set data.drop='["name"]'
      thalweg train pictures/
      thalweg train digits --set train.steps=500 --set optimizer.learning_rate=3e-4
      thalweg train digits --dry-run > mine.toml
      thalweg train mine.toml
      thalweg train --resume runs/digits-1
    """
    from thalweg.cli import configurations

    if config is None and resume is None:
        if assignments or run_dir is not None or fresh or dry_run:
            raise ValueError("expected a preset or a TOML file to train, got none; `thalweg train` lists the presets")
        rows = [(name, configurations.about(text)) for name, text in configurations.presets().items()]
        print_table(("preset", "what it trains"), rows)
        return
    if resume is not None and (config is not None or run_dir is not None or fresh):
        raise ValueError("--resume: expected nothing but a run to go on with, got more; its folder says the rest")
    if fresh and run_dir is None:
        raise ValueError("--fresh: expected --run-dir with the run to replace, got none; without it every run is new")
    with working("starting"):
        from thalweg.runs import configuration, own_data, training
        from thalweg.runs.build import rules
    changes = assignments or []
    if resume is not None and not dry_run:
        _finish(training.resume(resume, changes, progress=True))
        return
    if resume is not None:
        settings = configuration.change(
            configuration.read_configuration(resume), changes, training.updates_done(resume)
        )
    else:
        own = configurations.own_data(str(config))
        choice = None if own is None else own_data.choose_settings(own, changes)
        given = configurations.find(str(config)) if choice is None else choice.config
        settings = configuration.parse_configuration(given, str(config), changes)
        for line in () if choice is None else (*choice.sentences, own_data.describe_settings(settings.start)):
            typer.echo(line, err=True)
    for stage in settings.stages():
        rules(stage.config)
    if dry_run:
        typer.echo(settings.text(), nl=False)
        return
    _finish(training.train(settings, Path(str(config)).stem, run_dir, fresh=fresh, progress=True))


@app.command(short_help="Draw new samples from a trained model.")
def sample(
    run: RunFolder,
    chains: Annotated[int | None, typer.Option(help="How many samples; by default as configured.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of every chain; by default as configured.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another number gives other samples.")] = None,
    best: Annotated[
        bool, typer.Option("--best", help="Sample the best checkpoint, kept by train.keep_best, not the newest.")
    ] = False,
) -> None:
    """Draw new samples from a trained model, from fresh noise, and evaluate them.

    The samples replace samples/samples.npz in the run folder, and their numbers go to results.json. Build the report
    again with `thalweg report RUN` to see them.
    """

    with working("starting"):
        from thalweg.runs import sampling
    path = sampling.sample(run, chains=chains, steps=steps, seed=seed, best=best, progress=True)
    typer.echo(f"samples: {path}")


app.command(short_help="Evaluate a trained model: log-likelihood, tests, scores.")(evaluate)


@app.command(short_help="Build the report of a run again.")
def report(run: RunFolder) -> None:
    """Build report.html again from the files of a run, without training or sampling."""

    with working("starting"):
        from thalweg.runs import sampling
    with working("writing the report"):
        path = sampling.report(run)
    typer.echo(f"report: {path}")


@app.command(short_help="Run a published experiment again.")
def reproduce(
    name: Annotated[
        str | None, typer.Argument(metavar="NAME", help="An experiment; without it, lists the experiments.")
    ] = None,
    folder: Annotated[Path, typer.Option(metavar="FOLDER", help="Where the figure and the numbers go.")] = Path(
        "reproduced"
    ),
    seed: Annotated[int, typer.Option(min=0, help="Another number gives other random numbers.")] = 0,
    scale: Annotated[
        str | None,
        typer.Option(metavar="SCALE", help="For thesis experiments (Xu 2022): smoke, small (the default) or thesis."),
    ] = None,
    images: Annotated[
        str | None, typer.Option("--data", metavar="SET", help="For thesis experiments on images: another data set.")
    ] = None,
    updates: Annotated[int | None, typer.Option(min=1, help="Training updates, if the experiment trains.")] = None,
    rate: Annotated[float | None, typer.Option(help="For thesis experiments on images: another learning rate.")] = None,
    seeds: Annotated[int | None, typer.Option(min=1, help="For thesis-table-5-2: trainings per interval.")] = None,
) -> None:
    """Run a published experiment again and write its figure, NAME.png, and its numbers, NAME.json.

    An experiment of many trainings keeps each of them in NAME/runs; the same command continues where it was stopped.
    The thesis is Nathaniel Xu (2022), Self-Adapting Noise-Contrastive Estimation for Energy-Based Models.

    \b
    Examples:
      thalweg reproduce mala-banana
      thalweg reproduce thesis-table-5-2 --scale small
      thalweg reproduce thesis-figure-3-1 --scale smoke
    """
    from thalweg.cli import durations
    from thalweg.experiments import EXPERIMENTS

    if name is None:
        took = durations.read(folder)
        rows = [
            (each, experiment.title, experiment.source, durations.in_words(took.get(each)))
            for each, experiment in EXPERIMENTS.items()
        ]
        print_table(("experiment", "what it shows", "source", "took here"), rows, unbroken=1)
        typer.echo(f"How long one takes is noted in {folder / durations.FILE} when it is run.")
        return
    if name not in EXPERIMENTS:
        known = ", ".join(EXPERIMENTS)
        raise ValueError(f"{name}: expected an experiment ({known}), got none; {did_you_mean(name, EXPERIMENTS)}")
    with working("starting"):
        import jax
    given = {"scale": scale, "data": images, "updates": updates, "rate": rate, "seeds": seeds}
    options = {option: value for option, value in given.items() if value is not None}
    before, begun = durations.changed_at(folder), time.perf_counter()
    numbers = EXPERIMENTS[name].run(jax.random.key(seed), folder, True, **options)
    seconds = time.perf_counter() - begun
    written = [path for path, at in durations.changed_at(folder).items() if before.get(path) != at]
    durations.note(folder, name, seconds)
    for each in ("settings_table", "table", "intervals_table"):
        if each in numbers:
            print_table(numbers[each]["columns"], numbers[each]["rows"])
    for said in ("network", "verdict"):
        if said in numbers:
            typer.echo(f"{said}: {numbers[said]}")
    for path in sorted(written, key=lambda path: (path.suffix == ".json", path)):
        kind = {".json": "numbers", ".png": "figure", ".gif": "animation"}.get(path.suffix, "file")
        typer.echo(f"{kind}: {path}")
    typer.echo(f"took: {durations.in_words(seconds)}, noted in {folder / durations.FILE}")


@app.command(short_help="Check this installation.")
def doctor() -> None:
    """Check this installation: versions, devices, memory, data, optional packages, and whether a chain runs.

    The exit code is 0 if all is well, and 1 if there are problems; each is printed with what to do about it.
    """
    with working("looking"):
        from thalweg.cli.doctor import examine

        findings = examine()
    print_table(("what", "found"), [(finding.what, finding.found) for finding in findings])
    problems = [finding for finding in findings if finding.problem]
    for finding in problems:
        typer.echo(f"{finding.what}: {finding.problem}")
    typer.echo(f"{len(problems)} problem{'s' * (len(problems) > 1)} found." if problems else "All is well.")
    raise typer.Exit(1 if problems else 0)


@data.command("list")
def data_list() -> None:
    """List the data sets that can be loaded by name, and whether they are already on this machine."""

    with working("starting"):
        from thalweg.data import data_folder, listing
    rows = []
    for row in listing():
        here = "made on the spot" if row.size == 0 else "here" if row.present else f"to fetch, {row.size / 1e6:.0f} MB"
        rows.append((row.name, row.what, row.shape, here))
    print_table(("data set", "what it is", "shape", "where"), rows)
    typer.echo(f"Fetched files lie in {data_folder()} (set THALWEG_DATA for another folder).")


@data.command("get")
def data_get(
    name: Annotated[str, typer.Argument(help="A data set that `thalweg data list` shows as 'to fetch'.")],
) -> None:
    """Download the files of a data set; an interrupted download is resumed, and every file is checked."""
    with working("starting"):
        from thalweg.data import CATALOGUE, download
    if name not in CATALOGUE:
        known = [source.name for source in CATALOGUE.values() if source.files]
        raise ValueError(f"{name}: expected a data set ({', '.join(known)}), got none; {did_you_mean(name, known)}")
    typer.echo(f"{name}: {download(name, progress=True)}")


@data.command("classifier")
def data_classifier(
    name: Annotated[str, typer.Argument(help="A labelled image set, such as digits or mnist, or a path to one.")],
    seed: Annotated[int, typer.Option(min=0, help="Another number gives another classifier.")] = 0,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Updates of 128 images; by default enough for a good classifier.")
    ] = None,
) -> None:
    """Train the classifier that scores samples of an image set, and print its accuracy.

    Its weights are kept, so that it is trained only once. On two cores this takes some seconds for digits and some
    minutes for mnist.
    """
    with working("starting"):
        import jax

        from thalweg.evaluate import digit_network
    network = digit_network(name, key=jax.random.key(seed), steps=steps, progress=True)
    typer.echo(network.name)
    typer.echo(f"weights: {network.path}")


def _finish(folder: Path) -> None:
    """Print the results of a run; the exit code is 3 if there are findings."""
    if _print_results(folder):
        raise typer.Exit(3)


def _print_results(folder: Path) -> bool:
    """Print the results of a run in three lines, and a line for each finding; returns whether there are findings."""
    from thalweg.core.files import read_json

    results: dict[str, Any] = read_json(folder / "results.json")
    typer.echo(f"trained: {results['updates']} updates in {results['training_seconds']:.1f} s")
    typer.echo(f"samples: {folder / 'samples' / 'samples.npz'}, {results['chains']} chains of {results['steps']} steps")
    typer.echo(f"report: {folder / 'report.html'}")
    findings = results.get("findings", [])
    for finding in findings:
        typer.echo(f"finding: {finding['words']}")
    return bool(findings)


def run(arguments: list[str] | None = None) -> None:
    """The entry point: invalid input gives one sentence on stderr and exit code 2, a diverged training code 1."""
    sys.exit(_exit_code(sys.argv[1:] if arguments is None else arguments))


def _exit_code(arguments: list[str]) -> int:
    """Run a command; returns its exit code."""
    try:
        return app(arguments or ["--help"], prog_name="thalweg", standalone_mode=False) or 0
    except TyperException as refusal:
        say(refusal.format_message())
        return 2
    except ValueError as refusal:
        say(str(refusal))
        return 2
    except OSError as problem:
        say(f"{problem.filename}: {problem.strerror}" if problem.filename else str(problem))
        return 2
    except RuntimeError as problem:
        from thalweg.train import DivergedError

        if not isinstance(problem, DivergedError):
            raise
        say(str(problem))
        return 1
    except ImportError as problem:
        from thalweg.core import MissingExtraError

        if not isinstance(problem, MissingExtraError):
            raise
        say(str(problem))
        return 2
