"""What Figures 2 and 13-15 derive from their runs' metrics."""

import json
from pathlib import Path
from tempfile import mkdtemp

import pandas as pd
import pytest

from feature_alignment.errors import UserError
from feature_alignment.papers.beaglehole2024.figures import fig2, fig13_14_15, networks
from feature_alignment.papers.beaglehole2024.parameters import CharacterGPT, ImageMLP, ImageVGG
from feature_alignment.pipeline.figures.figure import Settings
from feature_alignment.pipeline.figures.style import new_figure
from feature_alignment.pipeline.figures.table import Run, Runs

COLUMNS = ["point", "network", "dataset", "settings"]
COLUMNS += ["seed", "step", "layer", "split", "metric", "value"]
NETWORKS = {
    "mlp_mnist_released": ("layers.0", "layers.1"),
    "mlp_svhn_released": ("layers.0", "layers.1"),
    "vgg_cifar10_released": ("features.0", "features.3", "head.0"),
    "gpt_shakespeare_text": tuple(
        f"blocks.{block}.attention.{name}" for block in (0, 1) for name in ("query", "key")
    ),
}


@pytest.fixture
def made(tmp_path):
    """Runs with given metrics, of real data but for the points named."""

    def made(metrics, *stand_ins):
        runs = Runs()
        for point, rows in metrics.groupby("point", sort=False):
            columns = dict(zip(COLUMNS[1:4], point.split("_"), strict=True))
            runs[point] = Run(Path(mkdtemp(dir=tmp_path)) / point, columns)
            runs[point].folder.mkdir()
            source = "embedded" if point in stand_ins else "npz"
            spec = json.dumps({"data": {"dataset": {"source": source}}})
            (runs[point].folder / "spec.json").write_text(spec)
            rows.drop(columns=COLUMNS[:4]).to_csv(runs[point].folder / "metrics.csv", index=False)
        return runs

    return made


@pytest.fixture
def runs(made):
    """UC-NFC .2 at first; C-NFC .5, and .3 more in the second layer or block; then both meet.

    After the first epoch, at which the released settings have not moved yet, all is still 0.9.
    """
    rows = []
    for point, layers in NETWORKS.items():
        last = 9 if point.startswith("mlp_svhn") else 6
        for layer in layers:
            deep = 0.3 if layer in ("layers.1", "features.3") or "blocks.1" in layer else 0.0
            first = 2 if point.endswith("released") else 1
            values = [(0, "nfc", 0.2), (first, "nfc", 0.2), (last, "nfc", 0.6)]
            values += [(first, "weight_change", 0.1), (last, "weight_change", 0.2)]
            values += [(first, "centred_nfc", 0.5 + deep), (last, "centred_nfc", 0.65 + deep)]
            if first == 2:
                values += [(1, "nfc", 0.85), (1, "centred_nfc", 0.9)]
            rows += [
                (point, *point.split("_"), seed, step, layer, "train", metric, value)
                for seed in (0, 1)
                for step, metric, value in values
            ]
    return made(pd.DataFrame(rows, columns=COLUMNS))


def settings(*datasets):
    kinds = ImageMLP(datasets=datasets), ImageVGG(), CharacterGPT()
    return Settings({kind.experiment: kind for kind in kinds})


def test_mnist_is_also_trained_on_pixels_between_0_and_1():
    (extra,) = (
        point
        for point in networks.trajectory_points(settings("svhn", "mnist"))
        if point.columns["settings"] == "unit"
    )
    text = next(p for p in networks.mlp_points(settings("mnist")) if p.name == "mlp_mnist_text")
    assert extra.parameters == text.parameters.but(pixels="unit")
    without = networks.trajectory_points(settings("svhn"))
    assert [point.name for point in without] == ["mlp_svhn_released", "mlp_svhn_text"]


def test_released_settings_scale_the_rate_by_classes_and_begin_slowly():
    points = {
        point.name: point.parameters for point in networks.mlp_points(settings("cifar100", "mnist"))
    }
    assert points["mlp_cifar100_released"].learning_rate == pytest.approx(20)
    assert points["mlp_cifar100_released"].first_epoch_rate == pytest.approx(1e-4)
    assert points["mlp_cifar100_text"].learning_rate == pytest.approx(0.2)
    assert points["mlp_cifar100_text"].first_epoch_rate is None
    assert points["mlp_cifar100_text"].epochs == 150
    assert points["mlp_mnist_text"].epochs == 50
    vgg = [point.parameters for point in networks.other_points(settings("mnist"))[:2]]
    assert [parameters.momentum for parameters in vgg] == pytest.approx([0.9, 0.0])


def test_a_run_does_not_depend_on_the_other_datasets():
    (alone, *_), (among, *_) = (
        networks.mlp_points(settings(*datasets)) for datasets in (["svhn"], ["svhn", "mnist"])
    )
    assert alone == among


def test_what_an_average_lacks_is_named_for_the_verdicts(runs):
    assert networks.left_out(list(networks.TEXT_RATES)) == ""
    table = fig2.table(runs)
    expected = "without CIFAR-10, CIFAR-100, STL-10, GTSRB"
    mlp = table.frame["network"] == "mlp"
    assert set(table.frame.loc[mlp, "remark"]) == {expected}
    assert set(table.frame.loc[~mlp, "remark"]) == {""}


@pytest.mark.slow
def test_an_average_says_of_which_datasets_and_epochs_it_is_and_what_is_missing(runs):
    figure = fig2.draw(fig2.table(runs))
    assert "mean of 2 datasets" in [ax.get_title() for ax in figure.axes]
    legends = [ax.get_legend() for ax in figure.axes if ax.get_legend()]
    told = [" ".join(legend.get_title().get_text().split()) for legend in legends]
    assert told == ["B: mean of MNIST, SVHN without CIFAR-10, CIFAR-100, STL-10, GTSRB"]
    labels = [text.get_text() for legend in legends for text in legend.get_texts()]
    assert labels[-2:] == ["B, early: epoch 2", "B, late: epoch 6 or 9"]


def test_excess_is_centred_minus_uncentred_after_the_start(runs, made):
    only = runs.metrics[runs.metrics["point"].str.startswith("mlp")]
    table = fig13_14_15.excess_table(made(only))
    rows = table.frame[table.frame["metric"] == "centred_excess"]
    assert (rows["step"] > 0).all()
    first = rows[(rows["layer"] == "layers.0") & (rows["step"] == 2)]
    assert first["value"].to_numpy() == pytest.approx(0.3)
    assert not rows.duplicated(["seed", "series"]).any()


def test_early_is_after_the_first_full_epoch_and_late_the_end_of_each_run(runs):
    table = fig2.table(runs)
    for point in ("mlp_mnist_released", "mlp_svhn_released", "mean"):
        early = table.values("nfc_early", point=point, layer="layers.0")
        late = table.values("centred_excess_late", point=point, layer="layers.1")
        assert early.to_numpy() == pytest.approx(0.2)
        assert late.to_numpy() == pytest.approx(0.35)


@pytest.mark.parametrize(
    ("released", "text", "expected"),
    [
        ((1, 5, 10, 11), (1, 5, 10), (5, 5)),
        ((1, 2, 3, 4), (1, 2, 3), (2, 2)),
        ((1, 11), (1, 10), (11, 10)),  # epochs between the first and the last are not measured
        ((1, 6, 11), (1, 4, 8), (6, 8)),
    ],
)
def test_early_is_the_same_epoch_with_either_settings_if_it_is_measured(released, text, expected):
    rows = [
        (f"mlp_svhn_{name}", "mlp", "svhn", name, 0, step, "layers.0", "train", "nfc", float(step))
        for name, steps in (("released", released), ("text", text))
        for step in (0, *steps)
    ]
    both = networks.ends(pd.DataFrame(rows, columns=COLUMNS)).set_index(["settings", "metric"])
    early = [both.at[(name, "nfc_early"), "value"] for name in ("released", "text")]
    assert tuple(early) == expected
    late = [both.at[(name, "nfc_late"), "value"] for name in ("released", "text")]
    assert late == [released[-1], text[-1]]


def test_of_vgg_only_the_convolutions_count(runs):
    frame = fig2.table(runs).frame
    assert set(frame.loc[frame["network"] == "vgg", "layer"]) == {"features.0", "features.3", "all"}


def test_depth_gain_compares_last_with_first_layer_or_block(runs):
    table = fig2.table(runs)
    for network, per_seed in (("mlp", 2), ("vgg", 1), ("gpt", 2)):
        gains = table.values("depth_gain_early", network=network)
        assert len(gains) == 2 * per_seed
        assert gains.to_numpy() == pytest.approx(0.3)


def test_converged_share_counts_layers_whose_correlations_meet(runs):
    shares = fig2.table(runs).values("converged_share", network="mlp")
    assert shares.tolist() == [0.5, 0.5]


def test_correlations_that_have_passed_each_other_have_not_met():
    frame = pd.DataFrame({"value": [-0.3, -0.05, 0.05, 0.3], "metric": "centred_excess_late"})
    run = {"network": "mlp", "settings": "text", "seed": 0, "split": "train"}
    assert fig2._converged_shares(frame.assign(**run))["value"].tolist() == [0.5]


@pytest.fixture
def with_diverged(runs, made):
    """Of three seeds, the last diverged on SVHN after epoch 2, with the highest correlations."""
    metrics = runs.metrics
    third = metrics[metrics["seed"] == 1].assign(seed=2)
    lost = third["point"] == "mlp_svhn_released"
    third.loc[lost, "value"] = 0.99
    mark = third[lost].head(1).assign(metric="diverged_after", step=2, value=2.0, layer="all")
    third = third[~lost | (third["step"] <= 2)]
    return made(pd.concat([metrics, third, mark], ignore_index=True))


def test_what_diverged_is_counted_in_no_average_and_no_claim(runs, with_diverged):
    table, without = fig2.table(with_diverged), fig2.table(runs)
    for metric in ("centred_excess", "nfc_early", "centred_excess_late", "depth_gain_early"):
        of_point = table.values(metric, point="mlp_svhn_released")
        assert of_point.tolist() == without.values(metric, point="mlp_svhn_released").tolist()
        assert set(table.rows(metric=metric, point="mlp_mnist_released")["seed"]) == {0, 1, 2}
    for metric in ("nfc_early", "centred_nfc_late", "converged_share"):
        derived = {"network": "mlp", "dataset": ["mean", "all"]}
        assert (
            table.values(metric, **derived).tolist() == without.values(metric, **derived).tolist()
        )
    assert set(table.rows(metric="converged_share", network="vgg")["seed"]) == {0, 1, 2}


def test_what_diverged_is_named_for_the_verdicts_and_drawn_up_to_there(with_diverged):
    table = fig2.table(with_diverged)
    (remark,) = table.rows(network="mlp")["remark"].unique()
    assert remark.endswith("; not counted, since diverged: 1 of 3 networks on SVHN")
    drawn = table.rows(point="mlp_svhn_released", metric="nfc", seed=2)
    assert set(drawn["step"]) == {0, 1, 2}
    ax = new_figure(1, 1, 3, 3)[1][0, 0]
    networks.mark_diverged(ax, table.rows(point="mlp_mnist_released"))
    assert not ax.lines
    networks.mark_diverged(ax, table.rows(point="mlp_svhn_released"))
    assert ax.lines[0].get_xydata().tolist() == [[2.0, 0.0]]


def test_a_point_all_of_whose_networks_diverged_is_an_error(runs, made):
    metrics = runs.metrics[runs.metrics["point"] == "mlp_svhn_released"]
    marks = metrics.groupby("seed").head(1).assign(metric="diverged_after")
    with pytest.raises(UserError, match="mlp_svhn_released: all of its 2 networks diverged"):
        networks.trajectories(made(pd.concat([metrics, marks])))


def test_stand_ins_are_shown_but_not_averaged_where_other_data_are_real(runs, made):
    metrics = runs.metrics
    svhn = metrics["dataset"] == "svhn"
    metrics.loc[svhn, "value"] *= 0.5  # or means would be the same with it
    mixed = made(metrics, "mlp_svhn_released", "gpt_shakespeare_text")
    table, alone = (fig2.table(given).frame for given in (mixed, made(metrics[~svhn])))
    svhn, gpt = table["point"] == "mlp_svhn_released", table["network"] == "gpt"
    assert table["stand_in"].tolist() == (svhn | gpt).astype(int).tolist()
    assert networks.averaged(table) == ["mnist"]
    assert set(networks.datasets_of(table)) == {"mnist", "svhn"}
    (remark,) = table.loc[table["network"] == "mlp", "remark"].unique()
    assert remark == "without CIFAR-10, CIFAR-100, SVHN, STL-10, GTSRB"
    derived = table["dataset"].isin(["mean", "all"]).to_numpy()
    expected = alone[alone["dataset"].isin(["mean", "all"])]
    pd.testing.assert_frame_equal(
        table[derived].drop(columns="stand_in").reset_index(drop=True),
        expected.drop(columns="stand_in").reset_index(drop=True),
    )


def test_of_stand_ins_alone_everything_is_averaged(runs, made):
    every = made(runs.metrics, *runs.metrics["point"].unique())
    table, real = fig2.table(every).frame, fig2.table(runs).frame
    assert set(table["stand_in"]) == {1}
    pd.testing.assert_frame_equal(table.assign(stand_in=0), real)


def test_the_mean_excess_is_over_layers_and_steps(runs):
    table = fig13_14_15.excess_table(runs)
    for point in ("mlp_mnist_released", "vgg_cifar10_released"):
        excess = table.rows(metric="centred_excess", point=point, seed=0)["value"]
        mean = table.values("centred_excess_mean", point=point, seed=0).item()
        assert mean == pytest.approx(excess.mean())
        assert mean != pytest.approx(excess.median())


def test_the_gain_with_depth_is_that_of_early_steps(runs, made):
    metrics = runs.metrics
    late = (metrics["metric"] == "centred_nfc") & metrics["layer"].isin(["layers.1", "features.3"])
    late &= metrics["step"].isin([6, 9])
    metrics.loc[late, "value"] += 0.1
    assert fig2.table(made(metrics)).values("depth_gain_early", network="mlp").to_numpy() == (
        pytest.approx(0.3)
    )


def test_the_tenth_layer_comes_after_the_second(runs, made):
    metrics = runs.metrics
    names = {"features.0": "features.2", "features.3": "features.10"}
    metrics["layer"] = metrics["layer"].replace(names)
    gains = fig2.table(made(metrics)).values("depth_gain_early", network="vgg")
    assert gains.to_numpy() == pytest.approx(0.3)


def test_slow_first_epochs_are_not_drawn(runs):
    metrics = runs.metrics
    slow = metrics[(metrics["metric"] == "weight_change") & (metrics["step"] == 2)]
    rows = pd.concat([metrics, slow.assign(step=1, value=1e-3)])
    ax = new_figure(1, 1, 3, 3)[1][0, 0]
    own = rows[rows["point"] == "mlp_mnist_released"]
    networks.draw_weight_changes(ax, own, {"layers.0": "1", "layers.1": "2"})
    assert {float(x) for line in ax.lines for x in line.get_xdata()} == {2.0, 6.0}
