"""baratin2021, Figure 1: tangent-kernel eigenfunctions on the disk dataset, during training."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from feature_alignment.pipeline.figures.make import FigureTable, Runs
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.spec import Point

if TYPE_CHECKING:
    from matplotlib.figure import Figure

TITLE = "Eigenfunctions of the tangent kernel take the shape of the classes"
CAPTION = (
    "Eigenfunctions of the centred tangent kernel on a grid over the square, by rank of their "
    "eigenvalue (columns) at several iterations of gradient descent (rows), for seed 0; the "
    "circle is the class boundary. Beside each row: the ratio of the 20th to the first "
    "eigenvalue, mean over seeds."
)
EXPERIMENT = "baratin2021_disk"
POINT = "default"
RANKS = (1, 2, 3, 4, 5, 10, 20)


def points(experiments: Mapping[str, Any]) -> list[Point]:
    """One point: the paper's setting."""
    return [Point(EXPERIMENT, POINT)]


def table(runs: Runs) -> FigureTable:
    """All metrics, and the eigenfunctions of seed 0 at every measured step."""
    run = runs[POINT]
    prefix = "seed0/eigenfunctions/"
    functions = {
        name.removeprefix("seed0/"): array
        for name, array in run.arrays.items()
        if name.startswith(prefix)
    }
    return FigureTable(run.metrics, functions)


def draw(table: FigureTable) -> "Figure":
    """A grid of images: iterations down, ranks across."""
    from matplotlib.patches import Circle

    from feature_alignment.data.synthetic import DISK_RADIUS

    steps = sorted(int(name.rpartition("step")[2]) for name in table.arrays)
    ratio = table.frame[table.frame["metric"] == "eigenvalue_ratio_20"]
    ratio = ratio.groupby("step")["value"].mean()
    figure, axes = new_figure(len(steps), len(RANKS), 1.15 * len(RANKS) + 0.7, 1.2 * len(steps))
    for row, step in zip(axes, steps, strict=True):
        functions = table.arrays[f"eigenfunctions/step{step}"]  # (20, m, m)
        for ax, rank in zip(row, RANKS, strict=True):
            image = functions[rank - 1]
            limit = abs(image).max()
            ax.imshow(
                image,
                cmap="PuOr_r",
                vmin=-limit,
                vmax=limit,
                extent=(-1, 1, -1, 1),
                origin="lower",
            )
            ax.add_patch(Circle((0, 0), DISK_RADIUS, fill=False, linewidth=0.5, linestyle="--"))
            ax.set(xticks=[], yticks=[])
            ax.grid(False)
        share = f"$\\lambda_{{20}}/\\lambda_1$ = {100 * ratio[step]:.2g} %"
        row[0].set_ylabel(f"iteration {step}\n{share}", fontsize=7)
    for ax, rank in zip(axes[0], RANKS, strict=True):
        ax.set_title(f"$u_{{{rank}}}$")
    return figure
