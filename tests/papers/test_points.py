"""Points have the settings that texts and released code state, at the full sizes of `paper`."""

from pathlib import Path

import pytest

from feature_alignment.pipeline.config import resolve_config
from feature_alignment.pipeline.plan import make_plan

VGG = {"learning_rate": 0.01, "momentum": 0.9, "batch_size": 100, "kernel_samples": 100}
DEPTH = {"width": 60, "learning_rate": 0.01, "momentum": 0.9, "batch_size": 100}
RELEASED = {"first_epoch_rate": 1e-4, "batch_size": 128, "width": 256, "hidden_layers": 5}
TEXT = {**RELEASED, "first_epoch_rate": None}
DIGITS = {"classes": [2, 3], "width": 128, "hidden_layers": 2, "learning_rate": 0.1}
FEW = {"targets": "binarised", "train_samples": 500, "kernel_samples": 500}
STATED = {
    "baratin2021_classification": {
        "vgg19-random0": {**VGG, "model": "vgg19", "dataset": "cifar10", "random_label_share": 0},
        "vgg19-random20": {**VGG, "random_label_share": 0.2},
        "vgg19-random50": {**VGG, "random_label_share": 0.5},
        "vgg19-random0-lr0.003": {**VGG, "learning_rate": 0.003, "random_label_share": 0},
        "vgg19-random50-lr0.003": {**VGG, "learning_rate": 0.003, "random_label_share": 0.5},
        "mlp": {"dataset": "mnist", "learning_rate": 0.02, "width": 80, "linear_layers": 6},
        "resnet18": {**VGG, "model": "resnet18", "dataset": "cifar10"},
    },
    "baratin2021_complexity": {
        "corruption-0.4": {"width": 256, "random_label_share": 0.4, "loss_goal": 0.01},
    },
    "baratin2021_difficulty": {
        "random_labels": {"easy_samples": 10000, "difficult_samples": 1000, "learning_rate": 0.02},
        "kmnist": {"difficult_dataset": "kmnist", "width": 80, "linear_layers": 6},
        "depth4": {**DEPTH, "linear_layers": 4},
        "depth10": {**DEPTH, "linear_layers": 10},
    },
    "baratin2021_disk": {"default": {"samples": 500, "grid": 50, "width": 256, "linear_layers": 6}},
    "baratin2021_interpolators": {"default": {"points": 1000, "gamma": 1}},
    "baratin2021_supernat": {
        "default": {"samples": 50, "noise_features": 10, "noise_variance": 0.1},
    },
    "beaglehole2024_adaptive_slo": {
        **{
            f"slo_{reading}": {"learning_rate": 0.05, "epsilon": 0.01, "speed": 20, "rank": 3}
            for reading in ("ends", "all", "first")
        },
        "slo_global_ends": {"learning_rate": 0.05, "gradient_norm": "global"},
        "gd_all": {"learning_rate": 0.25, "initial_scale": 0.1, "hidden_layers": 3},
    },
    "beaglehole2024_alignment_reversing": {
        "tempered": {"size": 1024, "reading": "tempered", "delta": 1e-3, "moment_networks": 30},
        "softer": {"reading": "tempered", "delta": 1e-2},
        **{reading: {"reading": reading} for reading in ("square", "compact", "rounded")},
    },
    "beaglehole2024_aspect_ratios": {"erf": {"activation": "erf", "weight_variance": 100}},
    "beaglehole2024_chain_monomial": {
        "default": {"samples": 384, "dimension": 32, "width": 128, "first_layer_scale": 0.01},
    },
    "beaglehole2024_image_mlp": {
        "mlp_cifar10_released": {**RELEASED, "learning_rate": 2, "epochs": 150},
        "mlp_cifar100_released": {**RELEASED, "learning_rate": 20},
        "mlp_svhn_released": {**RELEASED, "learning_rate": 2},
        "mlp_stl10_released": {**RELEASED, "learning_rate": 0.1},
        "mlp_gtsrb_released": {**RELEASED, "learning_rate": pytest.approx(0.43)},
        "mlp_mnist_released": {**RELEASED, "learning_rate": 10, "epochs": 50},
        "mlp_cifar10_text": {**TEXT, "learning_rate": 0.2, "epochs": 150},
        "mlp_cifar100_text": {**TEXT, "learning_rate": 0.2},
        "mlp_svhn_text": {**TEXT, "learning_rate": 0.2},
        "mlp_stl10_text": {**TEXT, "learning_rate": 0.1},
        "mlp_gtsrb_text": {**TEXT, "learning_rate": 0.1},
        "mlp_mnist_text": {**TEXT, "learning_rate": 10, "epochs": 50},
    },
    "beaglehole2024_image_vgg": {
        "vgg_cifar10_released": {"learning_rate": 1, "momentum": 0.9, "epochs": 50},
        "vgg_cifar10_text": {"learning_rate": 1, "momentum": 0, "first_epoch_rate": None},
    },
    "beaglehole2024_spectra": {
        "flat": {"decay": None, "learning_rate": 0.05, "steps": 800, "measure_every": 5},
        "inverse": {"decay": 1, "unit_variance": False, "scaled_layers": "first"},
        "inverse_square": {"decay": 2, "unit_variance": False, "scaled_layers": "first"},
        "inverse_trace_d": {"decay": 1, "unit_variance": True, "first_layer_scales": [1, 0.01]},
        "inverse_square_layer2": {"decay": 2, "scaled_layers": "second", "steps": 20},
    },
    "beaglehole2024_svhn_slo": {
        "gd": {"optimizer": "gd", "learning_rate": 0.2, "samples": 4000, "epochs": 3000},
        "slo": {"optimizer": "slo", "learning_rate": 0.3, "first_speed": 2.5, "epsilon": 0.2},
    },
    "lejeune2024_digit_regression": {
        "linear": {**DIGITS, "targets": "linear", "momentum": 0.9},
        "binarised": {**DIGITS, "targets": "binarised", "label_flips": 0},
        "text-linear": {**DIGITS, "targets": "linear", "train_samples": 500, "bias": False},
        "few-binarised": {**DIGITS, **FEW, "bias": True},
        "flips-0.05": {**DIGITS, **FEW, "label_flips": 0.05},
        "flips-0.2": {**DIGITS, **FEW, "label_flips": 0.2},
        "depth-2": {**DIGITS, **FEW, "hidden_layers": 1},
        "depth-4": {**DIGITS, **FEW, "hidden_layers": 3, "learning_rate": 0.02},
        "width-32": {**DIGITS, **FEW, "width": 32},
        "rate-0.02": {**DIGITS, **FEW, "learning_rate": 0.02},
        "kmnist": {**DIGITS, **FEW, "dataset": "kmnist"},
    },
    "lejeune2024_sample_complexity": {
        f"{dataset}-{sampling}-{model}": {"dataset": dataset, "network": network, "model": model}
        | {"sampling": sampling, "momentum": 0.9, "sgd_rate": 0.01, "adam_rate": 0.001}
        for dataset, network in (("mnist", "mlp"), ("cifar10", "cnn"))
        for sampling in ("kept", "redrawn")
        for model in ("fixed", "adaptive", "full")
    },
    "synthesis_runs": {
        f"{network}-{optimizer}-random{100 * share:.0f}": {"network": network, "dataset": dataset}
        | {"optimizer": optimizer, "random_label_share": share}
        for network, dataset in (("mlp", "mnist"), ("vgg", "cifar10"), ("gpt", "shakespeare"))
        for optimizer in ("gd", "slo")
        for share in (0, 0.5)
    },
}


@pytest.fixture(scope="module")
def plan():
    return make_plan(resolve_config({}, Path(__file__).parents[2] / "workflow", preset="paper"))


@pytest.mark.parametrize("of", STATED)
def test_points_have_the_settings_that_are_stated(plan, of):
    for point, settings in STATED[of].items():
        parameters = plan.specs[of, point]["parameters"]
        assert {key: parameters[key] for key in settings} == settings, point
