"""What the tests of training share: a counter of compilations, and calls without the checks of types."""

import contextlib

import jax
import jaxtyping
import pytest

_COMPILED = []


def _listen(event, *_, **__):
    if event == "/jax/core/compile/backend_compile_duration":
        _COMPILED.append(event)


jax.monitoring.register_event_duration_secs_listener(_listen)


@pytest.fixture
def compilations():
    """``with compilations() as made: ...``, after which ``len(made)`` programs were compiled inside."""

    @contextlib.contextmanager
    def counting():
        before, made = len(_COMPILED), []
        yield made
        made.extend(_COMPILED[before:])

    return counting


@pytest.fixture
def unchecked():
    """Types as a user has them, without the checker of the tests, which would refuse bad input before us."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)
