"""Data sets: real ones, their embedded stand-ins, and synthetic generators.

`registry` names the sets and checks their options; `prepare` turns any source into canonical
arrays; `canonical` keeps those in one verified file; `synthetic` generates inputs and targets.
"""
