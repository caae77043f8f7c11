from feature_alignment import plan


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
