"""What Figures 2 and 13-15 derive from their runs' metrics."""

from types import SimpleNamespace

import pandas as pd
import pytest

from feature_alignment.papers.beaglehole2024.figures import fig2, fig13_14_15, networks
from feature_alignment.papers.beaglehole2024.parameters import CharacterGPT, ImageMLP, ImageVGG
from feature_alignment.pipeline.figures.figure import Settings

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
def runs():
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
    return SimpleNamespace(metrics=pd.DataFrame(rows, columns=COLUMNS))


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
def test_the_panel_of_an_average_says_what_is_missing(runs):
    figure = fig2.draw(fig2.table(runs))
    expected = "mean of 2 datasets,\nwithout CIFAR-10, CIFAR-100, STL-10, GTSRB"
    assert expected in [ax.get_title() for ax in figure.axes]


def test_excess_is_centred_minus_uncentred_after_the_start(runs):
    table = fig13_14_15.excess_table(
        SimpleNamespace(metrics=runs.metrics[runs.metrics["point"].str.startswith("mlp")])
    )
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
