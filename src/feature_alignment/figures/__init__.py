"""Figures: one module for each, which says what runs it needs, makes its table and draws it.

A module here, named `<paper>_fig<number>`, defines `TITLE`, `CAPTION`, `points(experiments)`,
`table(runs)` and `draw(table)`; see `feature_alignment.figures.make`.
"""
