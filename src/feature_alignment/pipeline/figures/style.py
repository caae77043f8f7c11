"""The look of every figure, and the one way to save it: same drawing, same bytes.

matplotlib and seaborn are imported inside the functions, because the Snakefile imports the figure
modules for their experiment points and must stay quick.
"""

import io
import textwrap
from collections.abc import Hashable, Iterable, Sequence
from itertools import cycle
from pathlib import Path
from string import ascii_uppercase
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
import pandas as pd

from feature_alignment.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

Thing = TypeVar("Thing", bound=Hashable)

PALETTE = {
    "black": "#000000",
    "orange": "#BF8300",
    "sky blue": "#3A98D0",
    "bluish green": "#009E73",
    "blue": "#005A9C",
    "vermillion": "#C03A00",
    "reddish purple": "#C46A9C",
    "grey": "#767676",
}
"""The hues of Okabe and Ito's colour-blind-safe palette, each with a contrast of 3 : 1 on white."""

_THINGS = {
    ("black", "-"): "paper, stated",
    ("grey", "-"): "reference",
    ("blue", "-"): "train, outside, fixed, omega1",
    ("blue", "--"): "gradient descent, norm bound",
    ("blue", ":"): "ridgeless",
    ("vermillion", "-"): "inside, centred, solver, speed limited, complexity, supernat max, "
    "optimal bound, printed",
    ("vermillion", "--"): "test",
    ("bluish green", "-"): "easy, omega3, supernat trace, corrected, median eigenvalue",
    ("bluish green", "-."): "full",
    ("reddish purple", "-"): "mean eigenvalue, supernat literal",
    ("reddish purple", "--"): "difficult",
    ("reddish purple", ":"): "whole gradient",
    ("orange", "-"): "binarised, omega2, largest eigenvalue, supernat fixed",
    ("orange", "--"): "adaptive, factorised",
    ("sky blue", "-"): "follower, supernat lambda_max",
    ("sky blue", "--"): "linear, uncentred",
    ("sky blue", "-."): "other rate",
}
_LOOKS = {thing: look for look, things in _THINGS.items() for thing in things.split(", ")}
COLOURS = {thing: PALETTE[colour] for thing, (colour, _) in _LOOKS.items()}
"""One colour per thing, the same in every figure. Things never shown together may share one."""
LINES = {thing: line for thing, (_, line) in _LOOKS.items()}
"""The line style of each thing, so that things shown together differ even without colours."""
SEQUENCE_END = 0.6
SEQUENCE_LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))

RC: dict[str, Any] = {
    "font.family": "DejaVu Sans",  # ships with matplotlib, so every machine sets the same glyphs
    "mathtext.fontset": "dejavusans",
    "axes.linewidth": 0.8,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#E3E3E3",
    "grid.linewidth": 0.6,
    "lines.linewidth": 1.5,
    "lines.markersize": 4.0,
    "patch.force_edgecolor": False,
    "legend.frameon": False,
    "image.interpolation": "nearest",
    "figure.dpi": 150,  # the same for layout as for saving: hinted text differs
    "savefig.dpi": 150,
    "pdf.fonttype": 42,  # TrueType: text stays text in the PDF
}
"""Everything that differs from seaborn's theme of context "paper" and style "ticks"."""

# None removes what matplotlib would write by itself: the date, and the version that drew it.
_METADATA: dict[str, dict[str, None]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
BAND_SEEDS = 4
"""The smallest number of seeds whose standard deviation is written or drawn."""
_FOOTER_POINTS = 6.0
_FOOTER_CHARACTERS_PER_INCH = 19.0


def apply_style() -> None:
    """Set this process's rcParams to seaborn's theme ("paper", "ticks"), changed by `RC`.

    They are set for the whole process, because legends added later read them, too, and on top of
    matplotlib's defaults, because a user's own matplotlibrc must not change the figures.
    """
    import matplotlib
    import seaborn

    matplotlib.rcdefaults()
    scale = 9 / 9.6  # text of 9 points, that of ticks and legends of 8.25
    palette = list(PALETTE.values())
    seaborn.set_theme("paper", "ticks", palette, font_scale=scale, color_codes=False, rc=RC)


def new_figure(nrows: int, ncols: int, width: float, height: float) -> "tuple[Figure, np.ndarray]":
    """A figure, width by height inches, with a grid of axes as a 2-d array (nrows, ncols).

    Applies the style first, lays labels out without overlap, and leaves no pyplot state to close.
    """
    from matplotlib.figure import Figure

    apply_style()
    # With its own canvas, seaborn would render the whole figure for each heat map.
    figure = Figure(figsize=(width, height), layout="constrained")
    return figure, figure.subplots(nrows, ncols, squeeze=False)


def sequence_colours(things: Iterable[Thing]) -> dict[Thing, str]:
    """Colours for an ordered series, such as layers from input to output, from dark to light.

    Evenly spaced on the plasma map, without its end of less than 3 : 1 contrast on white.

    Example:
        >>> sequence_colours(["layer 1", "layer 2"])
        {'layer 1': '#0d0887', 'layer 2': '#e16462'}
    """
    from matplotlib.colors import to_hex

    things = list(things)
    colours = sequence_map()(np.linspace(0, 1, len(things)))
    return {thing: to_hex(colour) for thing, colour in zip(things, colours, strict=True)}


def sequence_map() -> "Colormap":
    """The map of `sequence_colours`, for colour bars."""
    from matplotlib import colormaps
    from matplotlib.colors import ListedColormap

    return ListedColormap(colormaps["plasma"](np.linspace(0, SEQUENCE_END, 256)))


def sequence_looks(things: Iterable[Thing]) -> dict[Thing, dict[str, Any]]:
    """Colours and line styles for an ordered series, as keywords of `draw_curve`."""
    looks = zip(sequence_colours(things).items(), cycle(SEQUENCE_LINES), strict=False)
    return {thing: {"colour": colour, "linestyle": line} for (thing, colour), line in looks}


def panel_letters(*axes: "Axes") -> None:
    """Write bold letters, A, B and so on, at the upper left corners of panels."""
    corner = {"xy": (0, 1), "xycoords": "axes fraction"}
    corner |= {"xytext": (-4, 4), "textcoords": "offset points", "ha": "right"}
    for ax, letter in zip(axes, ascii_uppercase, strict=False):
        ax.annotate(letter, **corner, fontweight="bold")


def broken_axis(ax: "Axes", steps: "pd.Series") -> None:
    """Make the horizontal axis logarithmic from the first step after 0, with a place for 0 before.

    No curve of `draw_curve` crosses the gap between them.
    """
    first, last = steps[steps > 0].min(), steps.max()
    decades = np.log10(last / first)
    ax.set_xscale("symlog", linthresh=first, linscale=0.12 * max(decades, 0.5))
    ax.set_xlim(-0.25 * first, last * 10 ** (0.03 * decades))
    factors = (1,) if decades > 2 else (1, 2, 5)
    powers = range(len(str(int(last))))
    numbers = [factor * 10**power for power in powers for factor in factors]
    ticks = [0, *(number for number in numbers if first <= number <= last)]
    ax.set_xticks(ticks, [str(tick) for tick in ticks])
    ax.set_xticks([], minor=True)
    place = {"transform": ax.get_xaxis_transform(), "clip_on": False, "linestyle": "none"}
    slash = {"marker": [(-1, -2), (1, 2)], "markersize": 6, "color": "black", "zorder": 5}
    ax.plot([0.42 * first, 0.58 * first], [0, 0], **place, **slash, scalex=False, scaley=False)


def describe(values: pd.Series, digits: int = 2) -> str:
    """Mean and standard deviation (n − 1) of some values; for fewer than four, the values.

    Example:
        >>> describe(pd.Series([0.1, 0.3])), describe(pd.Series([1, 2, 3, 4.0]), 3)
        ('0.10, 0.30', '2.500 ± 1.291')
    """
    if len(values) < BAND_SEEDS:
        return ", ".join(f"{value:.{digits}f}" for value in values)
    return f"{values.mean():.{digits}f} ± {values.std(ddof=1):.{digits}f}"


def show_matrix(
    ax: "Axes",
    matrix: np.ndarray | pd.DataFrame,
    vmax: float,
    label: str | None,
    *,
    vmin: float = 0.0,
    diverging: bool = False,
    **options: Any,
) -> "QuadMesh":
    """Draw a matrix as a heat map with a labelled colour bar, by `seaborn.heatmap`.

    The colour range is [vmin, vmax], or [-vmax, vmax] if both signs matter (`diverging`), in the
    matrix's units. It does not depend on the data, so panels with the same vmax can be compared;
    the bar has a pointed end if entries lie beyond it. The axes of a data frame give the axes'
    labels; cells are unit squares, the first from 0 to 1. The bar's `label` is the quantity, and
    its unit if it has one; None for no bar, if a neighbour with the same range has one. The options
    are seaborn's, such as `annot=True, fmt=".2f"` to write the entries into their cells.

    Raises:
        ValueError: if the matrix is not 2-d and finite, or vmax is not above vmin.
    """
    import seaborn

    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(f"{label}: a heat map needs a finite 2-d matrix, got {matrix}.")
    if not vmax > vmin:
        raise ValueError(f"{label}: vmax must be above {vmin:g}, got {vmax}.")
    vmin = -vmax if diverging else vmin
    below, above = int(values.min() < vmin), int(values.max() > vmax)
    extend = ("neither", "min", "max", "both")[below + 2 * above]
    options = {"xticklabels": False, "yticklabels": False, "square": True, **options}
    options |= {"cbar": label is not None, "annot_kws": {"fontsize": 7}}
    options["cbar_kws"] = {"label": label, "extend": extend, "shrink": 0.8}
    ax.grid(False)
    cmap = "PuOr_r" if diverging else "viridis"
    # Rasterized: thousands of cells would make a slow PDF, with hairlines between them.
    seaborn.heatmap(matrix, vmin=vmin, vmax=vmax, cmap=cmap, rasterized=True, ax=ax, **options)
    ax.tick_params(length=0, labelrotation=0)
    return cast("QuadMesh", ax.collections[0])


def show_matrices(
    axes: "Sequence[Axes]",
    matrices: Sequence[np.ndarray],
    *,
    diverging: bool = True,
    shrink: float = 0.8,
) -> None:
    """Draw matrices, each divided by its largest entry, with one colour bar for all."""
    meshes = [
        show_matrix(ax, matrix / matrix.max(), 1.0, None, diverging=diverging)
        for ax, matrix in zip(axes, matrices, strict=True)
    ]
    figure = axes[0].figure
    figure.colorbar(meshes[0], ax=list(axes), label="entry / largest entry", shrink=shrink)


def stamp(figure: "Figure", settings: str, data: str, seeds: str = "") -> None:
    """Write settings, data and seeds (see `make` and `drawing`) small and grey at the foot.

    The text takes as many lines as the figure's width requires.
    """
    columns = int(_FOOTER_CHARACTERS_PER_INCH * figure.get_figwidth())
    words = (settings, f"data: {data}", seeds)
    lines = textwrap.wrap("   ".join(filter(None, words)), columns)
    line = 1.2 * _FOOTER_POINTS / 72 / figure.get_figheight()
    height = (len(lines) + 0.5) * line
    figure.set_layout_engine("constrained", rect=(0, height, 1, 1 - height))
    small = {"fontsize": _FOOTER_POINTS, "color": COLOURS["reference"]}
    figure.text(0.995, 0.375 * line, "\n".join(lines), ha="right", va="bottom", **small)


def save(figure: "Figure", *paths: "Path | str") -> None:
    """Write the figure as .pdf or .png, by the paths' suffixes, free of dates and versions.

    Each file appears whole or not at all: it is written next to its place, then moved.
    """
    from matplotlib.transforms import Bbox

    # Lay out once: a second pass would move things, so a file would depend on earlier ones.
    if (layout := figure.get_layout_engine()) is not None:
        layout.execute(figure)
    figure.set_layout_engine(None)  # with "none" each file is drawn once more before it is written
    # The layout solver's last bit varies between processes; a PDF's ten digits would show it.
    for ax in figure.axes:
        bounds = ax.get_position(original=True).bounds
        ax.set_position(Bbox.from_bounds(*(round(edge, 6) for edge in bounds)))
    for file in map(Path, paths):
        drawn = io.BytesIO()  # Matplotlib's own writer handles a full disk badly
        figure.savefig(drawn, format=file.suffix[1:], metadata=_METADATA[file.suffix])
        with whole_file(file) as partial:
            partial.write_bytes(drawn.getbuffer())
