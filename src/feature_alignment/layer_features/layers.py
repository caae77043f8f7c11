"""The layers of a model: its products with matrices of parameters, by name."""

from collections.abc import Mapping, Sequence

from torch import nn

from feature_alignment.errors import suggestion
from feature_alignment.gradients.capture import Recording
from feature_alignment.gradients.matrix_uses import MatrixUse, matrix_uses


def owners_of_matrices(model: nn.Module, layers: Sequence[str] | None) -> dict[str, str]:
    """First names of the parameters that may be matrices of the layers, and the layers' names.

    Raises:
        ValueError: if a layer that was asked for is not in the model or has no matrix.
    """
    modules = dict(model.named_modules(remove_duplicate=False))
    first = {id(p): name for name, p in model.named_parameters()}
    owners: dict[str, str] = {}
    for name, parameter in model.named_parameters(remove_duplicate=False):
        owner, _, key = name.rpartition(".")
        if parameter.ndim >= 2 and not isinstance(modules[owner], nn.Embedding):
            owners.setdefault(first[id(parameter)], owner if key == "weight" else name)
    if layers is None:
        return owners
    wanted = {name.partition("[")[0] for name in layers}
    for name in layers:
        if name.partition("[")[0] not in owners.values():
            kind = f"a {type(modules[name]).__name__}" if name in modules else "not in the model"
            raise ValueError(
                f"layers: {name!r} is {kind}; only products with matrices of parameters and "
                f"convolutions are measured; {suggestion(name, list(owners.values()))}."
            )
    return {parameter: name for parameter, name in owners.items() if name in wanted}


def layers_of(
    recording: Recording, owners: Mapping[str, str]
) -> tuple[dict[str, MatrixUse], dict[str, str]]:
    """Where each layer is used, in the model's order, and what is wrong with the others."""
    found: dict[str, list[MatrixUse]] = {name: [] for name in owners.values()}
    for use in matrix_uses(recording):
        found[owners[use.name]].append(use)
    layers: dict[str, MatrixUse] = {}
    problems: dict[str, str] = {}
    for name, uses in found.items():
        named = _by_part(name, uses)
        if len(named) != len(uses) or not uses:
            problems[name] = (
                f"was used {len(uses)} times in the forward pass, not once"
                if uses
                else "is not multiplied with the inputs as it is, or the outputs do not tell of it"
            )
        elif uses[0].groups != 1:
            problems[name] = f"has {uses[0].groups} groups, and so no single matrix"
        else:
            layers |= named
    return layers, problems


def _by_part(name: str, uses: Sequence[MatrixUse]) -> dict[str, MatrixUse]:
    """The uses by layer, those of different parts of a parameter numbered in their order."""
    starts = [0 if use.entries is None else int(use.entries.min()) for use in uses]
    order = sorted(set(starts))
    label = f"{name}[{{}}]" if len(order) > 1 else name
    return {label.format(order.index(a)): use for a, use in zip(starts, uses, strict=True)}


def reasons(problems: Mapping[str, str]) -> list[str]:
    """One text for each layer that cannot be measured."""
    return [f"layer {name!r} {problem}" for name, problem in sorted(problems.items())]
