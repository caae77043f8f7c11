"""example2030, Figures 1 and 2: coins that fall and losses that fall."""

from feature_alignment.papers.example2030.parameters import Coin, Descent
from feature_alignment.pipeline.figures.drawing import draw_curve, draw_points
from feature_alignment.pipeline.figures.figure import Figure, Picture, Point, Settings
from feature_alignment.pipeline.figures.style import COLOURS, new_figure
from feature_alignment.pipeline.figures.table import FigureTable

PROBABILITIES = {"fair": 0.5, "bent": 0.9}


def coins(settings: Settings) -> list[Point]:
    """One point for each coin."""
    return [
        Point(name, settings[Coin].but(probability=probability), {"probability": probability})
        for name, probability in PROBABILITIES.items()
    ]


def draw_shares(table: FigureTable) -> Picture:
    """The coins side by side."""
    figure, ((ax,),) = new_figure(1, 1, width=4.0, height=3.0)
    places = {probability: f"{name} coin" for name, probability in PROBABILITIES.items()}
    colours = dict.fromkeys(places, COLOURS["train"])
    draw_points(ax, table.rows(metric="heads_share"), places, colours, by="probability")
    ax.set(ylabel="share of heads", ylim=(0, 1))
    return figure


def draw_losses(table: FigureTable) -> Picture:
    """The loss against the step."""
    figure, ((ax,),) = new_figure(1, 1, width=4.0, height=3.0)
    ax.set(xlabel="step", ylabel="loss", yscale="log")
    draw_curve(ax, table.rows(metric="loss"), COLOURS["train"])
    return figure


FIGURES = (
    Figure(
        name="fig1",
        title="The share of heads is near their probability",
        caption="Share of heads in the throws of a fair and of a bent coin. Dots are seeds, short "
        "bars their mean, with one standard deviation either way from four seeds on.",
        points=coins,
        table=lambda runs: FigureTable(runs.metrics),
        draw=draw_shares,
    ),
    Figure(
        name="fig2",
        title="The loss falls at a geometric rate",
        caption="Mean squared error of a linear model against the step of gradient descent. The "
        "line is the mean over seeds of the loss's logarithm; the band is one standard deviation "
        "either way, and of fewer than four seeds each has a thin line instead.",
        points=lambda settings: [Point("default", settings[Descent])],
        table=lambda runs: FigureTable(runs.metrics),
        draw=draw_losses,
    ),
)
