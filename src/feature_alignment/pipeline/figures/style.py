"""The look of every figure, and the one way to write it: same drawing, same bytes.

matplotlib and seaborn are imported inside the functions, because the Snakefile imports the figure
modules for their experiment points and must stay quick.
"""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
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

COLOURS = {
    "paper": OKABE_ITO["black"],
    "reference": "#767676",
    "train": OKABE_ITO["blue"],
    "test": OKABE_ITO["vermillion"],
    "inside": OKABE_ITO["vermillion"],
    "outside": OKABE_ITO["blue"],
    "linear": OKABE_ITO["sky blue"],
    "binarised": OKABE_ITO["orange"],
    "easy": OKABE_ITO["bluish green"],
    "difficult": OKABE_ITO["reddish purple"],
    "uncentred": OKABE_ITO["sky blue"],
    "centred": OKABE_ITO["vermillion"],
    "fixed": OKABE_ITO["blue"],
    "adaptive": OKABE_ITO["orange"],
    "full": OKABE_ITO["bluish green"],
    "ridgeless": OKABE_ITO["blue"],
    "solver": OKABE_ITO["vermillion"],
    "factorised": OKABE_ITO["orange"],
    "omega1": OKABE_ITO["blue"],
    "omega2": OKABE_ITO["orange"],
    "omega3": OKABE_ITO["bluish green"],
    "gradient descent": OKABE_ITO["blue"],
    "speed limited": OKABE_ITO["vermillion"],
    "complexity": OKABE_ITO["vermillion"],
    "follower": OKABE_ITO["sky blue"],
    "supernat max": OKABE_ITO["vermillion"],
    "supernat fixed": OKABE_ITO["orange"],
    "supernat literal": OKABE_ITO["reddish purple"],
    "supernat trace": OKABE_ITO["bluish green"],
    "supernat lambda_max": OKABE_ITO["sky blue"],
    "norm bound": OKABE_ITO["blue"],
    "optimal bound": OKABE_ITO["vermillion"],
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
_FONT_SCALE = 0.9375
"""Makes that theme's text 9 points large, and the text of ticks and legends 8.25."""

# None takes away what matplotlib would write by itself: the date, and the version that drew it.
_METADATA: dict[str, dict[str, None]] = {
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    ".png": {"Software": None},
}
_FOOTER_POINTS = 6.0
_FOOTER_CHARACTERS_PER_INCH = 19.0
_POINTS_PER_INCH = 72.0


def apply_style() -> None:
    """Set this process's rcParams to seaborn's theme for ticks on paper, changed by `RC`.

    The whole process, because legends and labels added later read the settings too; from
    matplotlib's defaults, because a user's own matplotlibrc must not change the figures.
    """
    import matplotlib
    import seaborn

    matplotlib.rcdefaults()
    seaborn.set_theme(
        "paper", "ticks", list(OKABE_ITO.values()), font_scale=_FONT_SCALE, color_codes=False, rc=RC
    )


def new_figure(nrows: int, ncols: int, width: float, height: float) -> "tuple[Figure, np.ndarray]":
    """A figure with a grid of axes, laid out so that labels do not overlap.

    Applies the style first (`apply_style`). Makes no pyplot state, so nothing needs closing.

    Args:
        nrows: rows of the grid.
        ncols: columns of the grid.
        width: inches.
        height: inches.

    Returns:
        The figure and its axes, always a 2-d array (nrows, ncols).
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

    Args:
        number: length of the series, at least 1.

    Returns:
        Hexadecimal colours.

    Example:
        >>> sequence_colours(1)
        ['#00224e']
        >>> len(set(sequence_colours(6)))
        6
    """
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return [to_hex(colormaps["cividis"](0.85 * i / max(number - 1, 1))) for i in range(number)]


def panel_label(ax: "Axes", letter: str) -> None:
    """Write a panel's bold letter above its left edge."""
    ax.set_title(letter, loc="left", fontweight="bold")


def describe(values: "pd.Series") -> str:
    """Mean and standard deviation (n − 1) of some values; of a single value, the value alone.

    Example:
        >>> import pandas as pd
        >>> describe(pd.Series([0.1, 0.3]))
        '0.20 ± 0.14'
    """
    mean = f"{values.mean():.2f}"
    return mean if len(values) == 1 else f"{mean} ± {values.std(ddof=1):.2f}"


def show_matrix(
    ax: "Axes",
    matrix: "np.ndarray | pd.DataFrame",
    vmax: float,
    label: str | None,
    *,
    diverging: bool = False,
    number_format: str | None = None,
    ticks: int = 0,
    square: bool = True,
) -> "QuadMesh":
    """Draw a matrix as a heat map with a labelled colour bar.

    The colour range is [0, vmax], or [-vmax, vmax] when diverging. It does not follow the data,
    so panels with the same vmax can be compared; the bar's ends are pointed where entries fall
    outside the range. Cells are unit squares, the first from 0 to 1.

    Args:
        ax: where to draw.
        matrix: (rows, columns), finite. The names of a data frame's rows and columns go to the
            axes: as labels its index and its columns', as ticks those that `ticks` asks for.
        vmax: the entry that gets the last colour, positive, in the matrix's units.
        label: the colour bar's label: the quantity, and its unit if it has one; None for no bar,
            where a neighbour with the same range has one.
        diverging: whether entries of both signs matter.
        number_format: how to write each entry into its cell, such as ".2f"; None to write none.
        ticks: 1 to name every row and column, n to name each n-th from the first, 0 to name none.
        square: whether cells are square, rather than filling the axes.

    Returns:
        The coloured cells.

    Raises:
        ValueError: if the matrix is not 2-d and finite, or vmax is not positive.
    """
    import numpy as np
    import seaborn

    values = np.asarray(matrix, dtype=float)
    if values.ndim != 2 or not np.isfinite(values).all():
        raise ValueError(
            f"{label}: a heat map needs a finite 2-d matrix, got shape {values.shape} with "
            f"{np.count_nonzero(~np.isfinite(values))} non-finite entries."
        )
    if not vmax > 0:
        raise ValueError(f"{label}: vmax must be positive, got {vmax}.")
    vmin = -vmax if diverging else 0.0
    outside = bool(values.min() < vmin), bool(values.max() > vmax)
    extend = {(False, False): "neither", (True, False): "min", (False, True): "max"}
    # seaborn renders the figure at once to measure its labels; the layout must wait for the rest.
    layout = ax.figure.get_layout_engine()
    ax.figure.set_layout_engine("none")
    ax.grid(False)
    seaborn.heatmap(
        matrix,
        vmin=vmin,
        vmax=vmax,
        cmap="PuOr_r" if diverging else "viridis",
        annot=number_format is not None,
        fmt=number_format or "",
        annot_kws={"fontsize": 7},
        cbar=label is not None,
        cbar_kws={"label": label, "extend": extend.get(outside, "both"), "shrink": 0.8},
        xticklabels=ticks,
        yticklabels=ticks,
        square=square,
        rasterized=True,  # thousands of cells would make a slow PDF, with hairlines between them
        ax=ax,
    )
    ax.figure.set_layout_engine(layout)
    ax.tick_params(length=0, labelrotation=0)
    return ax.collections[0]


def stamp(figure: "Figure", preset: str, data: str, seeds: str = "") -> None:
    """Write the preset, the data's source and the seeds in small grey letters at the foot of the figure.

    In as many lines as the figure's width needs.

    Args:
        figure: a figure of `new_figure`, whose layout makes room for the lines.
        preset: the preset's name.
        data: where the data come from, stand-ins named as such.
        seeds: how many seeds there are and how they are drawn, as `describe_seeds` says it.
    """
    columns = int(_FOOTER_CHARACTERS_PER_INCH * figure.get_figwidth())
    words = (f"preset: {preset}", f"data: {data}", seeds)
    lines = textwrap.wrap("   ".join(filter(None, words)), columns)
    line = 1.2 * _FOOTER_POINTS / _POINTS_PER_INCH / figure.get_figheight()
    height = (len(lines) + 0.5) * line
    figure.get_layout_engine().set(rect=(0, height, 1, 1 - height))
    figure.text(
        0.995,
        0.375 * line,
        "\n".join(lines),
        ha="right",
        va="bottom",
        fontsize=_FOOTER_POINTS,
        color=COLOURS["reference"],
    )


def save(figure: "Figure", path: "Path | str") -> None:
    """Write the figure in the format of the path's suffix, free of dates and versions.

    The file appears whole or not at all: it is written beside its place, then moved.

    Args:
        figure: a figure of `new_figure`.
        path: where to; ends in .pdf or .png. Missing folders are made.

    Raises:
        ValueError: if the suffix is another one.
    """
    path = Path(path)
    if path.suffix not in _METADATA:
        raise ValueError(f"{path}: a figure is saved as one of {', '.join(_METADATA)}.")
    path.parent.mkdir(parents=True, exist_ok=True)
    # Lay out once: a second pass would move things, and the file depend on what was saved before.
    figure.draw_without_rendering()
    figure.set_layout_engine("none")
    # The layout solver's last bit varies between processes; a PDF's ten digits would show it.
    for ax in figure.axes:
        ax.set_position([round(edge, 6) for edge in ax.get_position(original=True).bounds])
    partial = path.with_name(f".{path.name}.partial")
    try:
        figure.savefig(partial, format=path.suffix[1:], metadata=_METADATA[path.suffix])
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)
