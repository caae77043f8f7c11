"""The look of every figure, and the one way to write it: same drawing, same bytes.

matplotlib and seaborn are imported inside the functions, because the Snakefile imports the figure
modules for their experiment points and must stay quick.
"""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pandas as pd

from feature_alignment.files import whole_file

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.collections import QuadMesh
    from matplotlib.figure import Figure

OKABE_ITO = {
    "black": "#000000",
    "orange": "#E69F00",
    "sky blue": "#56B4E9",
    "bluish green": "#009E73",
    "yellow": "#F0E442",
    "blue": "#0072B2",
    "vermillion": "#D55E00",
    "reddish purple": "#CC79A7",
}
"""The colour-blind-safe palette of Okabe and Ito."""

COLOURS = {"reference": "#767676"} | {
    thing: OKABE_ITO[colour]
    for colour, things in {
        "black": "paper",
        "orange": "binarised, adaptive, factorised, omega2, supernat fixed",
        "sky blue": "linear, uncentred, follower, supernat lambda_max",
        "bluish green": "easy, full, omega3, supernat trace",
        "blue": "train, outside, fixed, ridgeless, omega1, gradient descent, norm bound",
        "vermillion": "test, inside, centred, solver, speed limited, complexity, supernat max, "
        "optimal bound",
        "reddish purple": "difficult, supernat literal",
    }.items()
    for thing in things.split(", ")
}
"""One colour per thing, the same in every figure. Things never shown together may share one."""

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
    "figure.dpi": 150,  # laid out at the resolution that it is saved at: hinted text differs
    "savefig.dpi": 150,
    "pdf.fonttype": 42,  # TrueType: text stays text in the PDF
}
"""Everything that differs from seaborn's theme for ticks on paper."""

# None takes away what matplotlib would write by itself: the date, and the version that drew it.
_METADATA: dict[str, dict[str, None]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
_FOOTER_POINTS = 6.0
_FOOTER_CHARACTERS_PER_INCH = 19.0


def apply_style() -> None:
    """Set this process's rcParams to seaborn's theme for ticks on paper, changed by `RC`.

    The whole process, because legends added later read the settings too; from matplotlib's
    defaults, because a user's own matplotlibrc must not change the figures.
    """
    import matplotlib
    import seaborn

    matplotlib.rcdefaults()
    scale = 9 / 9.6  # text of 9 points, that of ticks and legends of 8.25
    palette = list(OKABE_ITO.values())
    seaborn.set_theme("paper", "ticks", palette, font_scale=scale, color_codes=False, rc=RC)


def new_figure(nrows: int, ncols: int, width: float, height: float) -> "tuple[Figure, np.ndarray]":
    """A figure, width by height inches, with a grid of axes as a 2-d array (nrows, ncols).

    Applies the style first, lays labels out without overlap, and leaves no pyplot state to close.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    apply_style()
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots(nrows, ncols, squeeze=False)


def sequence_colours(number: int) -> list[str]:
    """Colours of an ordered series, such as layers from input to output, dark to light.

    Taken evenly from the cividis map, short of its lightest end, which vanishes on white.

    Example:
        >>> sequence_colours(2)
        ['#00224e', '#d6c35d']
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["cividis"](0.85 * i / max(number - 1, 1))) for i in range(number)]


def panel_label(ax: "Axes", letter: str) -> None:
    """Write a panel's bold letter above its left edge."""
    ax.set_title(letter, loc="left", fontweight="bold")


def describe(values: pd.Series) -> str:
    """Mean and standard deviation (n − 1) of some values; of a single value, the value alone.

    Example:
        >>> describe(pd.Series([0.1, 0.3]))
        '0.20 ± 0.14'
    """
    mean = f"{values.mean():.2f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1):.2f}"


def show_matrix(
    ax: "Axes",
    matrix: np.ndarray | pd.DataFrame,
    vmax: float,
    label: str | None,
    *,
    diverging: bool = False,
    **options: Any,
) -> "QuadMesh":
    """Draw a matrix as a heat map with a labelled colour bar, by `seaborn.heatmap`.

    The colour range is [0, vmax], or [-vmax, vmax] when diverging. It does not follow the data,
    so panels with the same vmax can be compared; the bar's ends are pointed where entries fall
    outside the range.

    Args:
        ax: where to draw; cells are unit squares, the first from 0 to 1.
        matrix: (rows, columns), finite; the axes of a data frame give the axes' labels.
        vmax: the entry that gets the last colour, positive, in the matrix's units.
        label: the colour bar's label: the quantity, and its unit if it has one; None for no bar,
            where a neighbour with the same range has one.
        diverging: whether entries of both signs matter.
        options: of seaborn, such as `annot=True, fmt=".2f"` to write the entries into their cells
            and `xticklabels=5` to name each fifth column.

    Raises:
        ValueError: if the matrix is not 2-d and finite, or vmax is not positive.
    """
    import seaborn

    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(f"{label}: a heat map needs a finite 2-d matrix, got {matrix}.")
    if not vmax > 0:
        raise ValueError(f"{label}: vmax must be positive, got {vmax}.")
    vmin = -vmax if diverging else 0.0
    below, above = int(values.min() < vmin), int(values.max() > vmax)
    extend = ("neither", "min", "max", "both")[below + 2 * above]
    options = {"xticklabels": False, "yticklabels": False, "square": True, **options}
    options |= {"cbar": label is not None, "annot_kws": {"fontsize": 7}}
    options["cbar_kws"] = {"label": label, "extend": extend, "shrink": 0.8}
    # seaborn renders the figure at once to measure its labels; the layout must wait for the rest.
    figure = ax.get_figure(root=True)
    assert figure is not None, "an axis of no figure"
    layout = figure.get_layout_engine()
    figure.set_layout_engine("none")
    ax.grid(False)
    cmap = "PuOr_r" if diverging else "viridis"
    # Rasterized: thousands of cells would make a slow PDF, with hairlines between them.
    seaborn.heatmap(matrix, vmin=vmin, vmax=vmax, cmap=cmap, rasterized=True, ax=ax, **options)
    figure.set_layout_engine(layout)
    ax.tick_params(length=0, labelrotation=0)
    return cast("QuadMesh", ax.collections[0])


def stamp(figure: "Figure", settings: str, data: str, seeds: str = "") -> None:
    """Write settings, data and seeds (see `make` and `drawing`) small and grey at the foot.

    In as many lines as the figure's width needs.
    """
    columns = int(_FOOTER_CHARACTERS_PER_INCH * figure.get_figwidth())
    words = (settings, f"data: {data}", seeds)
    lines = textwrap.wrap("   ".join(filter(None, words)), columns)
    line = 1.2 * _FOOTER_POINTS / 72 / figure.get_figheight()
    height = (len(lines) + 0.5) * line
    figure.set_layout_engine("constrained", rect=(0, height, 1, 1 - height))
    small = {"fontsize": _FOOTER_POINTS, "color": COLOURS["reference"]}
    figure.text(0.995, 0.375 * line, "\n".join(lines), ha="right", va="bottom", **small)


def _rounded(bounds: tuple[float, float, float, float]) -> tuple[float, float, float, float]:
    left, bottom, width, height = (round(edge, 6) for edge in bounds)
    return left, bottom, width, height


def save(figure: "Figure", path: "Path | str") -> None:
    """Write the figure as .pdf or .png, by the path's suffix, free of dates and versions.

    The file appears whole or not at all: it is written beside its place, then moved.

    Raises:
        ValueError: if the suffix is another one.
    """
    path = Path(path)
    if path.suffix not in _METADATA:
        raise ValueError(f"{path}: a figure is saved as one of {', '.join(_METADATA)}.")
    # Lay out once: a second pass would move things, and the file depend on what was saved before.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    # The layout solver's last bit varies between processes; a PDF's ten digits would show it.
    for ax in figure.axes:
        ax.set_position(_rounded(ax.get_position(original=True).bounds))
    with whole_file(path) as partial:
        figure.savefig(partial, format=path.suffix[1:], metadata=_METADATA[path.suffix])
