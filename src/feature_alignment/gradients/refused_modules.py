"""Modules that make samples depend on each other or on chance, or cannot be run."""

import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.parameter import UninitializedTensorMixin  # pyright: ignore[reportAttributeAccessIssue]

from feature_alignment.errors import check_kind


def refuse_absent_values(model: nn.Module) -> None:
    """Refuse what is no module, and parameters whose values are not here.

    Raises:
        ValueError: if there is one; the message names it and says what to do.
    """
    check_kind("model", model, nn.Module, "a torch.nn.Module")
    for name, parameter in model.named_parameters():
        if isinstance(parameter, UninitializedTensorMixin):
            raise ValueError(
                f"parameter {name!r} has no shape yet; run the model once on an input before."
            )
        if parameter.is_meta:
            raise ValueError(
                f"parameter {name!r} is on the device 'meta', without values; load the weights, or "
                "take offloading (accelerate) away."
            )
        if hasattr(parameter, "device_mesh"):
            raise ValueError(
                f"parameter {name!r} is spread over devices ({type(parameter.data).__name__}); "
                "give the model as it is before it is distributed."
            )


def refuse_dependent_samples(model: nn.Module) -> None:
    """Refuse modules that make samples depend on each other or on chance, or cannot be run.

    Raises:
        ValueError: if there is one; the message names it and says what to do.
    """
    refuse_absent_values(model)
    for name, module in model.named_modules():
        label = label_of(name, module)
        drops = isinstance(module, _DropoutNd) and module.p > 0
        if module.training and (drops or isinstance(module, _BatchNorm)):
            raise ValueError(
                f"{label} is in training mode, where samples "
                "are not independent or not repeatable; call model.eval() first."
            )
        if isinstance(module, _BatchNorm) and module.running_mean is None:
            raise ValueError(
                f"{label} has no running statistics and normalises over the batch, where samples "
                "are not independent; give it track_running_stats=True."
            )
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.scale_grad_by_freq:
            raise ValueError(
                f"{label} divides its gradients by the tokens' numbers in the batch, where samples "
                "are not independent; set scale_grad_by_freq=False."
            )
        if isinstance(module, torch.jit.ScriptModule):
            raise ValueError(
                f"{label} is compiled by TorchScript, which hides its parameters; give the module "
                "that it was made from."
            )
        if isinstance(module, nn.DataParallel) and module.device_ids:
            raise ValueError(f"{label} copies its module; give {name or 'model'}.module itself.")
        if isinstance(module, nn.parallel.DistributedDataParallel):
            raise ValueError(
                f"{label} prepares each call's backward pass, and a call between would spoil it; "
                f"give {name or 'model'}.module itself."
            )
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise ValueError(
            "autocast is on, which rounds in the middle of the network; leave its context, or "
            "disable it around this call by torch.autocast(device_type, enabled=False)."
        )
    if (device := torch.get_default_device()).type != "cpu":
        raise ValueError(
            f"the default device is {device}, and random numbers for checks are drawn on the CPU; "
            "measure within `with torch.device('cpu'):`, which moves neither model nor inputs."
        )


def label_of(name: str, module: nn.Module) -> str:
    """How messages name a module."""
    return f"module {name or 'the model itself'!r} ({type(module).__name__})"
