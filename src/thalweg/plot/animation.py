"""Animations: chains on their energy landscape, and a landscape during training."""

import base64
import io
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from PIL import Image

from thalweg.core import require_energy, whole_number
from thalweg.core.files import write_whole
from thalweg.plot.draws import points_of
from thalweg.plot.landscape import chain_view, draw_curve, draw_map
from thalweg.plot.points import spread
from thalweg.plot.style import LIGHT, Theme, canvas, panel
from thalweg.plot.views import View, view

_TAIL = 8  # draws behind each point
_DOTS = 500
_DPI, _COLOURS = 80, 64
_LAST = 2000  # milliseconds for which the last picture is shown


class Animation:
    """A sequence of figures; displays itself in a notebook, and `save` writes a GIF.

    >>> import jax.numpy as jnp, thalweg as tw
    >>> wells = [lambda x, width=width: jnp.sum((x / width) ** 2) for width in (1.0, 2.0)]
    >>> pictures = [tw.plot.energy(well, limits=(-2, 2)) for well in wells]
    >>> tw.plot.Animation(pictures).gif()[:3]
    b'GIF'
    """

    def __init__(self, pictures: Sequence[Figure], milliseconds: int = 120):
        if not pictures:
            raise ValueError("expected at least one picture, got none; give a list of figures")
        self.frames = len(pictures)
        self._gif = _as_gif(pictures, milliseconds)

    def gif(self) -> bytes:
        """The bytes of the GIF file."""
        return self._gif

    def save(self, path: str | Path) -> Path:
        """Write the animation to ``path``, which must end in ``.gif``."""
        place = Path(path)
        if place.suffix.lower() != ".gif":
            raise ValueError(f"expected a path that ends in .gif, got {str(path)!r}; write for example 'chains.gif'")
        return write_whole(place, self._gif)

    def _repr_html_(self) -> str:
        return f'<img alt="animation" src="data:image/gif;base64,{base64.b64encode(self._gif).decode()}">'


def animate(
    energy: Any,
    chains: Any = None,
    *,
    frames: int = 40,
    limits: Any = None,
    milliseconds: int = 120,
    theme: Theme = LIGHT,
) -> Animation:
    """Animate chains on their energy landscape, draw by draw; or a landscape during training, with the data on it.

    Args:
        energy: one energy of one or two dimensions, on which the ``chains`` move; or the models of one training, as a
            list or as a dictionary from the update's number to the model, for example collected by a callback of
            `tw.fit`.
        chains: `Chains` or draws ``(chains, draws, *event)``; for the models of a training, optionally the data
            ``(n, *event)``.
        frames: the number of pictures, at most; they are evenly spaced.
        limits: ``(low, high)`` for each coordinate; by default where the chains or data are, or the last model's mass.
        milliseconds: how long each picture is shown.
        theme: the colours.

    >>> import jax, jax.numpy as jnp, thalweg as tw
    >>> well, key = tw.energies.DoubleWell(4.0), jax.random.key(0)
    >>> ran = tw.sample(well, tw.samplers.MALA(0.3), jnp.ones((4, 2)), key=key, draws=50)
    >>> tw.plot.animate(well, ran, frames=3).gif()[:3]
    b'GIF'
    >>> tw.plot.animate({0: well, 100: tw.energies.DoubleWell(8.0)}).frames
    2
    """
    frames, milliseconds = whole_number("frames", frames, 2), whole_number("milliseconds", milliseconds)
    if isinstance(energy, (Mapping, list, tuple)):
        return Animation(_training(energy, chains, frames, limits, theme), milliseconds)
    require_energy("plot.animate", energy)
    if chains is None:
        raise ValueError(
            "plot.animate: expected chains to move on the energy, got none; give what tw.sample returns, or several "
            "models of one training"
        )
    seen, draws = chain_view("plot.animate", energy, chains, limits)
    moments = spread(np.arange(draws.shape[1]), frames)
    pictures = []
    for moment in moments:
        title = f"{len(draws)} chains, draw {moment + 1}"
        picture, axes = _stage(seen, title, theme)
        tail = draws[:, max(0, moment - _TAIL) : moment + 1]
        if len(seen.places) == 1:
            heights = np.interp(draws[:, moment, 0], *_curve(axes))
            axes.plot(draws[:, moment, 0], heights, "o", color=theme.samples, markersize=5, alpha=0.7)
        else:
            axes.plot(*np.moveaxis(tail, 2, 0).swapaxes(1, 2), color=theme.samples, linewidth=0.6, alpha=0.4)
            axes.scatter(*draws[:, moment].T, s=16, color=theme.samples, edgecolors=theme.paper, linewidths=0.4)
        pictures.append(picture)
    return Animation(pictures, milliseconds)


def _training(models: Any, data: Any, frames: int, limits: Any, theme: Theme) -> list[Figure]:
    named = sorted(models.items()) if isinstance(models, Mapping) else list(enumerate(models, start=1))
    if not named:
        raise ValueError("plot.animate: expected at least one model, got none; keep some by a callback of tw.fit")
    for _, model in named:
        require_energy("plot.animate", model)
    word = "update" if isinstance(models, Mapping) else "model"
    last = view("plot.animate", named[-1][1], data, None, None, limits)
    points = None if data is None else spread(points_of(data), _DOTS).reshape(-1, len(last.places))
    pictures = []
    for place in spread(np.arange(len(named)), frames):
        name, model = named[place]
        picture, axes = _stage(last._replace(model=model), f"Energy, {word} {name}", theme, pale=False)
        if points is not None and len(last.places) == 2:
            axes.scatter(*points.T, s=5, color="white", edgecolors="black", linewidths=0.3)
        elif points is not None:
            axes.plot(points[:, 0], np.zeros(len(points)), "|", color=theme.samples, markersize=10, alpha=0.4)
        pictures.append(picture)
    return pictures


def _stage(seen: View, title: str, theme: Theme, pale: bool = True) -> tuple[Figure, Axes]:
    """A small figure of the landscape, and its axes."""
    if len(seen.places) == 1:
        figure = canvas(6.0, 3.2, theme)
        axes = panel(figure, (1, 1, 1), theme, title=title, x=seen.names[0], y="E(x) − lowest, nats")
        draw_curve(axes, seen, theme)
    else:
        figure = canvas(4.6, 4.4, theme)
        axes = panel(figure, (1, 1, 1), theme, title=title, x=seen.names[0], y=seen.names[1])
        draw_map(axes, seen, theme, pale=pale)
    return figure, axes


def _curve(axes: Axes) -> tuple[np.ndarray, np.ndarray]:
    x, y = axes.lines[0].get_data()
    return np.asarray(x), np.asarray(y)


def _as_gif(pictures: Sequence[Figure], milliseconds: int) -> bytes:
    images = []
    for figure in pictures:
        figure.set_dpi(_DPI)
        figure.canvas.draw()
        pixels = np.asarray(figure.canvas.buffer_rgba())[..., :3]  # pyright: ignore[reportAttributeAccessIssue]
        images.append(Image.fromarray(pixels).quantize(_COLOURS, dither=Image.Dither.NONE))
    buffer = io.BytesIO()
    times = [*[milliseconds] * (len(images) - 1), max(milliseconds, _LAST)]
    images[0].save(buffer, "GIF", save_all=True, append_images=images[1:], duration=times, loop=0)
    return buffer.getvalue()
