"""lejeune2024, around Figure 1: other settings, and average against final features (Section 4)."""

from feature_alignment.papers.lejeune2024.figures.digit_kernels import TARGETS
from feature_alignment.papers.lejeune2024.parameters import DigitRegression
from feature_alignment.pipeline.figures import style
from feature_alignment.pipeline.figures.drawing import draw_curve, draw_paper, draw_points
from feature_alignment.pipeline.figures.figure import Axes, Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.table import FigureTable, all_metrics

FLIPS = (0.0, 0.05, 0.1, 0.2)
SETTINGS = {
    "released": "released\ncode",
    "figure1": "as Figure 1",
    "few": "fewer\nimages",
    "text": "fewer images,\nno biases",
}
CHANGES: dict[str, tuple[str, dict[str, str | float]]] = {
    "few-binarised": ("{}, width 128, depth 3", {}),
    "width-32": ("width 32", {"width": 32}),
    "width-256": ("width 256", {"width": 256}),
    "depth-2": ("depth 2", {"hidden_layers": 1}),
    "depth-4": ("depth 4, learning rate 0.02", {"hidden_layers": 3, "learning_rate": 0.02}),
    "rate-0.05": ("learning rate 0.05", {"learning_rate": 0.05}),
    "rate-0.02": ("learning rate 0.02", {"learning_rate": 0.02}),
    "kmnist": ("KMNIST", {"dataset": "kmnist"}),
}
PANELS = {
    "final_average_cosine": "cosine of final and average kernel",
    "final_average_scale": "norm of final over average kernel",
    "average_initial_cosine": "cosine of average and initial kernel",
}


def fewer_images(settings: Settings) -> DigitRegression:
    """Parameters for training on the binarised targets of the kernel's images only."""
    parameters = settings[DigitRegression]
    return parameters.but(targets="binarised", train_samples=parameters.kernel_samples)


def released_code(settings: Settings) -> DigitRegression:
    """Parameters of the released code, which differs from Figure 1's in these two.

    At smaller sizes than the paper's in the same proportions: width 256 for 128, and a step size of
    the targets that falls to 0 in 100 of 400 epochs, rises in the next 100, and so on.
    """
    figure1 = settings[DigitRegression]
    annealed = max(1, figure1.target_epochs // 4)
    return figure1.but(width=2 * figure1.width, target_annealing_epochs=annealed)


def around_points(settings: Settings) -> list[Point]:
    """The points of Figure 1, of the other settings and of the shares of flipped labels."""
    few = fewer_images(settings)
    of_settings = {
        "released": released_code(settings),
        "figure1": settings[DigitRegression],
        "few": few,
        "text": few.but(bias=False),
    }
    found = []
    for setting, parameters in of_settings.items():
        for targets in TARGETS:
            name = targets if setting == "figure1" else f"{setting}-{targets}"
            columns = {"setting": setting, "targets": targets}
            unflipped = {"flips": FLIPS[0]} if name == "few-binarised" else {}
            found.append(Point(name, parameters.but(targets=targets), columns | unflipped))
    return found + [
        Point(f"flips-{share}", few.but(label_flips=share), {"flips": share}) for share in FLIPS[1:]
    ]


def draw_around(table: FigureTable) -> Picture:
    """Four panels."""
    figure, axes = style.new_figure(2, 2, width=8.0, height=6.0)
    figure.suptitle(table.dataset)
    flips, similarity, layers, residual = axes.flat
    flipped = table.rows(metric="label_similarity", flips=FLIPS)
    draw_curve(flips, flipped, "binarised", x="flips", marker="o")
    flips.set(xlabel="share of flipped labels", ylabel="similarity with the label kernel")
    flips.set_xticks(FLIPS)
    flips.set_ylim(bottom=0)
    _draw_settings(similarity, table, "label_similarity")
    similarity.set_ylabel("similarity with the label kernel")
    similarity.legend(ncols=2, loc="lower center", bbox_to_anchor=(0.5, 1.0))
    for targets in TARGETS:
        draw_paper(similarity, table.of_claim(f"fig1b.text_settings_{targets}"), colour=targets)
    _draw_layers(layers, table)
    _draw_settings(residual, table, "mixture_residual")
    residual.set_ylabel("residual of $aK_0 + bK_{\\hat{y}}$")
    style.panel_letters(*axes.flat)
    return figure


def _draw_settings(ax: Axes, table: FigureTable, metric: str) -> None:
    rows = table.rows(metric=metric, setting=list(SETTINGS))
    rows = rows.assign(targets=rows["targets"] + " targets")
    colours = {f"{targets} targets": style.COLOURS[targets] for targets in TARGETS}
    values = rows.pivot(index=["targets", "seed"], columns="setting", values="value")
    names = dict(SETTINGS)
    if values["few"].equals(values["figure1"]):  # which then trains on the same few images
        del names["few"]
        names |= {"figure1": "as Figure 1, which\nhas no more images", "text": "no biases"}
    draw_points(ax, rows, names, colours, by="setting", group="targets")
    ax.set_ylim(bottom=0)


def _draw_layers(ax: Axes, table: FigureTable) -> None:
    rows = table.rows(metric="label_change_share", setting="figure1")
    layers = sorted(rows["layer"].unique())
    names = {layer: f"layer {number}" for number, layer in enumerate(layers, start=1)}
    colours = style.sequence_colours(names.values())
    places = {targets: f"{targets} targets" for targets in TARGETS}
    rows = rows.assign(layer=rows["layer"].map(names.get))
    draw_points(ax, rows, places, colours, by="targets", group="layer")
    ax.set_ylabel("share of the change along $K_{\\hat{y}}$")
    ax.legend()


def average_points(settings: Settings) -> list[Point]:
    """One point for each changed setting."""
    base = fewer_images(settings)
    return [Point(name, base.but(**change)) for name, (_, change) in CHANGES.items()]


def draw_average(table: FigureTable) -> Picture:
    """One panel for each measure, settings as rows."""
    figure, axes = style.new_figure(1, 3, width=10.0, height=3.2)
    places = {name: text.format(table.dataset) for name, (text, _) in CHANGES.items()}
    colours = dict.fromkeys(CHANGES, style.COLOURS["binarised"])
    for ax, (metric, label) in zip(axes[0], PANELS.items(), strict=True):
        draw_points(ax, table.rows(metric=metric), places, colours, horizontal=True)
        ax.set_xlabel(label)
        if metric.endswith("cosine"):
            ax.set_xlim(right=1)
    style.panel_letters(*axes[0])
    for ax in axes[0, 1:]:
        ax.tick_params(labelleft=False)
    return figure


FIGURES = (
    Figure(
        name="fig1b",
        title="Around Figure 1: random labels, settings and layers",
        caption="A: similarity of the adapted kernel with the label kernel when the signs of some "
        "binarised targets are flipped at random; training on the kernel's images only. B: the "
        "same similarity under all settings of the released code, under those of Figure 1 here "
        "(half the width, and targets whose training is annealed once), with fewer training "
        "images, and also without biases, as the text has it; dotted lines are the paper's "
        "numbers. Where Figure 1 has no more images than the kernels, two settings are one. C: "
        "what each layer brings to the change of the kernel along the label kernel. D: relative "
        "Frobenius residual of the best fit K ≈ aK₀ + bK_ŷ, for the settings of B. "
        "The curve and the short bars are means over seeds. From four seeds on, the band and the "
        "error bars are one standard deviation either way; of fewer seeds, A has a thin line for "
        "each. Dots are seeds.",
        points=around_points,
        table=all_metrics,
        draw=draw_around,
    ),
    Figure(
        name="fig1c",
        title="Average and final tangent features",
        caption="Kernels of the tangent features at the end of training and of their average along "
        "its straight path, for networks trained on binarised targets of as many images as the "
        "kernels have, the fewer images of Figure 1b. A: their cosine similarity. B: the ratio of "
        "their Frobenius norms. C: cosine similarity of the average kernel with the initial one, "
        "which is 1 where features do not move. Each row changes one setting of the first (at "
        "depth 4 also the learning rate, since 0.1 can diverge). Dots are seeds, upright bars "
        "their mean, with one standard deviation either way from four seeds on.",
        points=average_points,
        table=all_metrics,
        draw=draw_average,
    ),
)
