"""The worker process of another library: it answers each JSON line on standard input with one JSON line.

It runs under that library's interpreter, so it imports nothing of Thalweg and nothing beyond torch.
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
    """Time the function that ``build(**case)`` returns, as often as asked; ``describe`` adds facts of the last result.

    The first line contains the installed versions of ``packages`` and the given ``facts``. A case is built once and
    kept; its compilation and its first call are not timed.
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
