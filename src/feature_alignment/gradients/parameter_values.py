"""A model's parameters: those to differentiate with respect to, and the values to do it at."""

from collections.abc import Collection, Iterable, Mapping

import torch
from torch import nn

from feature_alignment.errors import check_kind, shortened, suggestion
from feature_alignment.training.evaluation import RUNNING

Selection = str | Collection[str]
Parameters = Mapping[str, torch.Tensor]  # values by the parameter's name


def select_parameters(model: nn.Module, only: Selection | None) -> list[str]:
    """First names of the parameters to differentiate with respect to, in the model's order.

    `only` is "trainable" for those that require a gradient, names of parameters and modules, or
    None for all. Integer and empty ones have no gradient and are omitted; shared ones count once.

    Raises:
        ValueError: if a name is unknown, nothing is selected, or a parameter is complex.
    """
    with RUNNING:
        own = dict(model.named_parameters())
        known = dict(model.named_parameters(remove_duplicate=False))
    if not own:
        raise ValueError("the model has no parameters, so it has no tangent features.")
    if only is None:
        names = list(own)
    else:
        modules = {name for name, _ in model.named_modules(remove_duplicate=False)}
        several = [only] if isinstance(only, str | nn.Module) else only
        check_kind("only", several, Iterable, "'trainable', or names of parameters and modules")
        chosen = set()
        for want in several:
            if want == "trainable":
                chosen |= {id(value) for value in own.values() if value.requires_grad}
                continue
            if want not in known and want not in modules:
                names = ["trainable", *known, *filter(None, modules)]
                raise ValueError(f"only: no {shortened(want)}; {suggestion(want, names)}.")
            below = f"{want}." if want else ""
            chosen |= {id(v) for key, v in known.items() if key == want or key.startswith(below)}
        names = [name for name, value in own.items() if id(value) in chosen]
    for name in names:
        if own[name].is_complex():
            raise ValueError(
                f"parameter {name!r} is {own[name].dtype}, and the tangent kernel is one of real "
                "parameters; hold its real and imaginary parts (torch.view_as_complex)."
            )
    names = [name for name in names if own[name].is_floating_point() and own[name].numel()]
    if not names:
        raise ValueError(
            f"only: {only!r} selects no parameter that has a gradient; allowed: 'trainable', and "
            "names of parameters and modules."
        )
    return names


def input_like(model: nn.Module) -> torch.Tensor | None:
    """The first floating-point parameter, which sets the precision and device of input arrays.

    Tensors keep their own; NumPy arrays are float64 by default, and never on a GPU.

    Raises:
        ValueError: if the model is not a module.
    """
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    return next((p for p in model.parameters() if p.is_floating_point()), None)


def evaluation_point(
    model: nn.Module, parameters: Parameters | None = None
) -> dict[str, torch.Tensor]:
    """Detached values of all parameters by name, on their devices: given ones, or the model's own.

    Raises:
        ValueError: if the values do not fit the parameters, or these are sparse.
    """
    with RUNNING:
        own = dict(model.named_parameters())
    for name, value in own.items():
        if value.layout != torch.strided:
            raise ValueError(f"parameter {name!r} is sparse; hold a dense one (to_dense).")
    values = own if parameters is None else parameters
    named = "values by the parameters' names, as from copy_parameters(model)"
    check_kind("parameters", values, Mapping, named)
    unmatched = sorted(set(values) ^ set(own))
    if unmatched and not set(own) - set(values) and set(values) <= set(model.state_dict()):
        raise ValueError(
            f"parameters: {unmatched[0]!r} is a buffer, or a second name of a parameter, as "
            "state_dict() has them; give the parameters alone, as from copy_parameters(model)."
        )
    if unmatched:
        raise ValueError(
            f"parameters: {unmatched[0]!r} is in only one of the given values and the model; "
            "give a value for each of the model's parameters."
        )
    for name, value in values.items():
        check_kind(f"parameters: {name!r}", value, torch.Tensor, "a tensor")
        if value.shape != own[name].shape:
            raise ValueError(
                f"parameters: {name!r} has shape {tuple(value.shape)}; "
                f"the model's is {tuple(own[name].shape)}."
            )
        if value.dtype != own[name].dtype:
            raise ValueError(
                f"parameters: {name!r} is {value.dtype}; the model's is {own[name].dtype}."
            )
    with torch.inference_mode(False):  # autograd rejects tensors that were created in it
        return {name: _detached(value, own[name].device) for name, value in values.items()}


def _detached(value: torch.Tensor, device: torch.device) -> torch.Tensor:
    """A value in its own memory, so that plans follow training, if autograd can work with it."""
    if value.device != device:
        return value.detach().to(device)
    return value.detach().clone() if value.is_inference() else value.detach()


def moved(values: Parameters) -> dict[str, torch.Tensor]:
    """Perturbed values, which change everything that is computed from parameters."""
    generator, others = torch.Generator().manual_seed(0), dict(values)
    for name, value in values.items():
        if value.is_floating_point():
            noise = torch.randn(value.shape, generator=generator).to(value)
            others[name] = value + noise * (value.square().mean().sqrt() / 4 or 1)
    return others
