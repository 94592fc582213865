"""``python -m thalweg``: the command line."""

from thalweg.cli.main import run

run()
