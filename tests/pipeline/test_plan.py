import pytest

from feature_alignment.errors import UserError
from feature_alignment.pipeline import plan
from feature_alignment.pipeline.config import resolve_config


def test_figures_are_in_order_of_paper_and_number_with_theory_last():
    names = [
        "beaglehole2024_fig2",
        "baratin2021_fig_theory",
        "baratin2021_fig10",
        "lejeune2024_fig1",
        "baratin2021_fig2",
        "baratin2021_fig2_noise",
    ]
    assert sorted(names, key=plan._figure_order) == [
        "baratin2021_fig2",
        "baratin2021_fig2_noise",
        "baratin2021_fig10",
        "baratin2021_fig_theory",
        "lejeune2024_fig1",
        "beaglehole2024_fig2",
    ]


KMNIST = ("kmnist", "embedded")
MNIST = ("mnist", "embedded")


def test_a_run_may_have_a_further_dataset(smoke_config):
    made = plan.make_plan(smoke_config)
    spec = made.specs["baratin2021_difficulty", "kmnist"]
    assert spec["dataset"]["name"] == "mnist"
    assert spec["difficult_dataset"]["name"] == "kmnist"
    assert spec["difficult_dataset"]["source"] == "embedded"
    # A dataset that is null is none.
    assert "difficult_dataset" not in made.specs["baratin2021_difficulty", "random_labels"]


def test_a_figure_shows_all_datasets_of_its_runs(smoke_config):
    made = plan.make_plan(smoke_config)
    assert made.datasets_of("baratin2021_fig4") == [KMNIST, MNIST]
    assert made.datasets_of("baratin2021_fig13") == [MNIST]
    assert made.datasets_of("baratin2021_fig8") == []


def test_the_options_of_a_further_dataset_are_checked(root):
    settings = {
        "figures": ["baratin2021_fig4"],
        "datasets": {"kmnist": {"source": "npz", "path": "/nowhere/kmnist.npz"}},
    }
    with pytest.raises(UserError, match=r"datasets\.kmnist\.path"):
        plan.make_plan(resolve_config(settings, root / "workflow"))


def test_depths_of_one_figure_do_not_change_the_specs_of_another(root):
    def specs(depths):
        study = {"depth_study": {"linear_layers": depths}}
        settings = {"preset": "smoke", "experiments": {"baratin2021_difficulty": study}}
        return plan.make_plan(resolve_config(settings, root / "workflow")).specs

    few, many = specs([2, 4]), specs([2, 3, 4])
    assert set(many) - set(few) == {("baratin2021_difficulty", "depth3")}
    assert all(many[point] == spec for point, spec in few.items())
