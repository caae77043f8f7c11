"""The multiverse: every claim judged over all settings that a paper's text leaves open.

Steegen et al. 2016 (multiverse analysis), Simonsohn et al. 2020 (specification curves).
"""
