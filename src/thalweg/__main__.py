"""``python -m thalweg``: the command line."""

from thalweg.cli.main import run

if __name__ == "__main__":
    run()
