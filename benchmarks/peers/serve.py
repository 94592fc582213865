"""The peers' side of the bench: answer one JSON line to each JSON line on standard input.

Runs under the peers' interpreter, so nothing of Thalweg and nothing beyond torch is imported here.
"""

import json
import os
import sys
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any, TextIO

import torch


def serve(
    build: Callable[..., Callable[[], Any]],
    packages: tuple[str, ...],
    describe: Callable[[Any], dict] = lambda result: {},
    **facts: Any,
) -> None:
    """Time what ``build(**case)`` returns, as often as asked; ``describe`` adds what is to be known of the last result.

    The first line says which versions of ``packages`` are installed, and the ``facts`` given here. A case is built once
    and kept, as its compilation and its first call are no part of any timing.
    """
    answers = _answers()
    torch.set_num_threads(os.cpu_count() or 1)
    versions = {name: version(name) for name in packages}
    _say(answers, {"versions": versions, "threads": torch.get_num_threads(), **facts})
    built: dict[str, Callable[[], Any]] = {}
    for line in sys.stdin:
        request = json.loads(line)
        calls = request.pop("calls")
        name = json.dumps(request, sort_keys=True)
        try:
            if name not in built:
                built[name] = build(**request)
            run = built[name]
            start = time.perf_counter()
            for _ in range(calls):
                result = run()
            seconds = time.perf_counter() - start
            _say(answers, {"seconds": seconds, **describe(result)})
        except Exception as error:
            # The other side decides what a failed case means; the worker stays up for the cases that work.
            _say(answers, {"error": f"{type(error).__name__}: {error}"})


def _answers() -> TextIO:
    """Standard output for answers alone: whatever the libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    return answers


def _say(answers: TextIO, answer: dict) -> None:
    answers.write(json.dumps(answer) + "\n")
    answers.flush()
