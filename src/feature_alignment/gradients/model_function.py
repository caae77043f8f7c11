"""A model as a function of its parameters and samples, run without leaving a trace in it."""

import math
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, is_dataclass
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.backends import mha
from torch.nn.attention import SDPBackend, sdpa_kernel

from feature_alignment.errors import suggestion
from feature_alignment.gradients.samples import Samples

# The entry of what a model returns that is its output: a key, attribute or position, or a function.
OutputChoice = str | int | Callable[[Any], torch.Tensor]
Selection = str | Collection[str]

# Largest difference that passes for rounding, relative to the largest entry: of gradients, and of
# outputs, which are less deep.
_ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-3}
_COARSE = 1e-2
_OF_OUTPUTS = 0.1

_FEW = 4  # fewer samples than these are run one by one

_BatchNorm, _Dropout = nn.modules.batchnorm._BatchNorm, nn.modules.dropout._DropoutNd

# Attention by plain operations, whose gradients can be differentiated and batched.
differentiable_attention = partial(sdpa_kernel, SDPBackend.MATH)

# Models are changed while they run on other values, so one thread at a time.
_RUNNING = threading.RLock()


@dataclass(frozen=True)
class ModelFunction:
    """f(values, samples) of a model: (n, c), every axis of the output but the first flattened."""

    model: nn.Module
    output: OutputChoice | None = None  # see `OutputChoice`; None where the model returns a tensor
    emptied: frozenset[str] = frozenset()  # modules whose dictionaries of tensors are emptied

    def copies(self, samples: Samples) -> int:
        """How often to run each sample, so that its gradients are right.

        PyTorch's batch normalisation in evaluation mode may give wrong ones for a single image:
        2.15 does on CPUs, where the gradient comes back transposed.
        """
        normalised = any(isinstance(module, _BatchNorm) for module in self.model.modules())
        return 2 if len(samples) == 1 and normalised else 1

    @contextmanager
    def installed(
        self, values: Mapping[str, torch.Tensor], differentiable: bool = True
    ) -> Iterator[Callable[..., Any]]:
        """Give the model other values for all of its parameters in here; yields f of the samples.

        All that the model changes is undone. Backward passes belong in here, since checkpointed
        modules run again in them. `differentiable` is whether each use of a parameter must be seen
        in the autograd graph.
        """
        with _RUNNING, _put_back(self.model), ExitStack() as stack:
            by_identity = {id(p): values[name] for name, p in self.model.named_parameters()}
            for module in self.model.modules():
                for key, parameter in module._parameters.items():
                    if parameter is not None:
                        module._parameters[key] = by_identity[id(parameter)]  # pyright: ignore
                for key, buffer in module._buffers.items():
                    if buffer is not None:
                        module._buffers[key] = buffer.detach().clone()
                for key, value in list(module.__dict__.items()):
                    if isinstance(value, torch.Tensor):
                        module.__dict__[key] = value.detach().clone()
            for name in self.emptied:
                for table in tensor_tables(self.model.get_submodule(name)):
                    table.clear()
            if differentiable:
                stack.enter_context(_without_fused_recurrence(self.model))
            stack.callback(mha.set_fastpath_enabled, mha.get_fastpath_enabled())
            mha.set_fastpath_enabled(False)
            if "torch._dynamo" in sys.modules:  # compiled code hides how parameters are used
                stack.enter_context(torch.compiler.set_stance("force_eager"))
            yield self._run

    def _run(self, samples: Samples) -> torch.Tensor:
        positions, keywords = samples.copied()
        f = self._chosen(self.model(*positions, **keywords))
        if f.ndim == 0 or len(f) != len(samples):
            raise ValueError(
                f"the model's outputs have shape {tuple(f.shape)} for {len(samples)} samples; "
                "they must be (n,), (n, c) or (n, …)."
            )
        return f.reshape(len(f), -1)

    def _chosen(self, returned: Any) -> torch.Tensor:
        choice, found = self.output, None
        if choice is None:
            found = returned
        elif callable(choice):
            found = choice(returned)
        elif isinstance(choice, str) and not isinstance(returned, Mapping):
            found = getattr(returned, choice, None)
        else:
            with suppress(KeyError, IndexError, TypeError):
                found = returned[choice]
        if not isinstance(found, torch.Tensor):
            names = _entries(returned)
            raise ValueError(
                f"the model returns a {type(returned).__name__}"
                + (f" with {', '.join(map(repr, names))}" if names else "")
                + (f", where output={choice!r} is no tensor" if choice is not None else "")
                + "; choose the output by `output`: a key, attribute or position, or a function."
            )
        return found


def tensor_tables(module: nn.Module) -> list[dict[Any, torch.Tensor]]:
    """The module's attributes that are dictionaries of tensors, such as caches."""
    own = [value for key, value in vars(module).items() if key not in ("_parameters", "_buffers")]
    tables = [value for value in own if isinstance(value, dict) and value]
    return [t for t in tables if all(isinstance(entry, torch.Tensor) for entry in t.values())]


def select_parameters(model: nn.Module, only: Selection | None) -> list[str]:
    """First names of the parameters to differentiate by, in the model's order.

    `only` is "trainable" for those that require a gradient, names of parameters and modules, or
    None for all. Integers and empty ones, which have no gradient, are left out.

    Raises:
        ValueError: if a name is unknown, nothing is selected, or a parameter is complex.
    """
    with _RUNNING:
        own = dict(model.named_parameters())
        known = dict(model.named_parameters(remove_duplicate=False))
    if not own:
        raise ValueError("the model has no parameters, so it has no tangent features.")
    if only is None:
        names = list(own)
    elif only == "trainable":
        names = [name for name, value in own.items() if value.requires_grad]
    else:
        modules = {name for name, _ in model.named_modules(remove_duplicate=False)}
        chosen = set()
        for want in [only] if isinstance(only, str) else only:
            if want not in known and want not in modules:
                names = ["trainable", *known, *modules]
                raise ValueError(f"only: no {want!r}; {suggestion(want, names)}.")
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


def evaluation_point(
    model: nn.Module, parameters: Mapping[str, torch.Tensor] | None = None
) -> dict[str, torch.Tensor]:
    """Detached values of all parameters by name: the given ones, or the model's own.

    Raises:
        ValueError: if the given names are not those of the model's parameters.
    """
    with _RUNNING:
        own = dict(model.named_parameters())
    values = own if parameters is None else parameters
    unmatched = sorted(set(values) ^ set(own))
    if unmatched:
        raise ValueError(
            f"parameters: {unmatched[0]!r} is in only one of the given values and the model; "
            "give a value for each of the model's parameters."
        )
    changed = {  # by the forward pass, in place
        f"{name}.weight" if name else "weight"
        for name, module in model.named_modules()
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None
    }
    return {  # autograd cannot work with tensors that were made in inference mode
        name: value.detach().clone() if name in changed or value.is_inference() else value.detach()
        for name, value in values.items()
    }


def refuse_dependent_samples(model: nn.Module) -> None:
    """Refuse modules that make samples depend on each other or on chance, or cannot be run.

    Raises:
        ValueError: if there is one; the message names it and says what to do.
    """
    for name, module in model.named_modules():
        label = _label(name, module)
        if module.training and isinstance(module, _BatchNorm | _Dropout):
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
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        raise ValueError(
            "autocast is on, which rounds in the middle of the network; leave its context, or "
            "disable it around this call by torch.autocast(device_type, enabled=False)."
        )


def checked_outputs(
    function: ModelFunction, values: Mapping[str, torch.Tensor], samples: Samples
) -> tuple[torch.Tensor, float]:
    """The outputs (n, c) and their rounding errors.

    Every sample is run in other company, too, and must give the same there: in parts of the batch
    such that each two samples are in different parts once.

    Raises:
        ValueError: if the results differ, the model draws random numbers, or the outputs are not
            finite or of another precision than float32 or float64.
    """
    # Some models differentiate in their forward pass.
    with torch.inference_mode(False), torch.enable_grad(), function.installed(values, False) as f:
        before = _random_state(samples)
        batch = f(samples).detach()
        if _have_drawn(before, samples):
            module = _drawing_module(function.model, f, samples)
            raise ValueError(
                f"{module} draws random numbers, so the outputs are not a function of the "
                "parameters; call model.eval() first, or take the randomness out."
            )
        if batch.dtype not in _ROUNDING:
            raise ValueError(
                f"the model's outputs are {batch.dtype}; they must be in float32 or float64: "
                "convert the model by model.float()."
            )
        if not batch.isfinite().all():
            i = int((~batch.isfinite()).any(1).nonzero()[0])
            raise ValueError(f"the model's outputs of sample {i} are not finite.")
        relative = _OF_OUTPUTS * rounding(batch, *values.values())
        tolerance = relative * float(batch.abs().max())
        for some in _companies(len(samples)):
            found = f(samples[some]).detach()
            off = torch.full((1,), math.inf)
            if found.shape[1] == batch.shape[1]:
                off = (found - batch[torch.tensor(some)]).abs().amax(1)
            if tolerance < off.max() < math.inf:
                # Outputs that are differences of large numbers have larger rounding errors.
                tolerance = max(tolerance, _change(function, values, samples, batch, relative))
            wrong = off > tolerance
            if wrong.any():
                raise ValueError(
                    f"the model's outputs of sample {some[int(wrong.nonzero()[0])]} depend on the "
                    "other samples or on chance; the tangent kernel needs f(x_i) to depend on x_i "
                    "only: call model.eval(), and look for statistics, sorting or recurrence along "
                    "the batch axis (batch_first=False?)."
                )
    return batch, tolerance


def rounding(*tensors: torch.Tensor) -> float:
    """Largest relative difference that passes for rounding where these are computed with."""
    floating = [tensor.dtype for tensor in tensors if tensor.is_floating_point()]
    return max(_ROUNDING.get(dtype, _COARSE) for dtype in floating)


def _change(
    function: ModelFunction,
    values: Mapping[str, torch.Tensor],
    samples: Samples,
    outputs: torch.Tensor,
    relative: float,
) -> float:
    """How much outputs change if parameters do by a hundredth of what passes for rounding."""
    moved = {
        name: value * (1 + relative / 100 * (-1) ** number) if value.is_floating_point() else value
        for number, (name, value) in enumerate(values.items())
    }
    with function.installed(moved, False) as f:
        return float((f(samples).detach() - outputs).abs().max())


def _companies(n: int) -> Iterator[list[int]]:
    """Parts of n samples: the rows and the columns of a square that holds them.

    Two samples are in different rows or columns. A part of one sample has it twice, since some
    models squeeze the outputs of one; of few samples each is by itself.
    """
    if n < _FEW:
        yield from ([i] for i in range(n))
        return
    side = math.isqrt(n - 1) + 1
    square = [range(start, min(start + side, n)) for start in range(0, n, side)]
    for part in (*square, *(range(start, n, side) for start in range(side))):
        yield list(part) * (1 + (len(part) == 1))


def _entries(returned: Any) -> Sequence[Any]:
    if isinstance(returned, Mapping):
        return list(returned)
    if isinstance(returned, list | tuple):
        return range(len(returned))
    return list(vars(returned)) if is_dataclass(returned) else []


def _random_state(samples: Samples) -> list[torch.Tensor]:
    tensors = [value for value in samples.entries.values() if isinstance(value, torch.Tensor)]
    devices = {tensor.device for tensor in tensors if tensor.is_cuda}
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(device) for device in devices)]


def _have_drawn(before: Sequence[torch.Tensor], samples: Samples) -> bool:
    """Whether the generators are in another state than before."""
    return any((a != b).any() for a, b in zip(before, _random_state(samples), strict=True))


def _drawing_module(model: nn.Module, f: Callable[..., Any], samples: Samples) -> str:
    """The first module to end its call with another state of the generators than it began with."""
    labels = {module: _label(name, module) for name, module in model.named_modules()}
    begun: dict[nn.Module, list[torch.Tensor]] = {}
    found: list[str] = []

    def begin(module: nn.Module, arguments: Any) -> None:
        begun[module] = _random_state(samples)

    def end(module: nn.Module, arguments: Any, output: Any) -> None:
        if _have_drawn(begun[module], samples):
            found.append(labels[module])

    with ExitStack() as stack:
        for module in labels:
            stack.callback(module.register_forward_pre_hook(begin).remove)
            stack.callback(module.register_forward_hook(end).remove)
        f(samples)
    return found[0] if found else "the model"


def _label(name: str, module: nn.Module) -> str:
    return f"module {name or 'the model itself'!r} ({type(module).__name__})"


@contextmanager
def _put_back(model: nn.Module) -> Iterator[None]:
    """Undo what happens to the modules' attributes in here, lists and dictionaries included."""
    kept = []
    for module in model.modules():
        attributes = dict(module.__dict__)
        contents = [(v, v.copy()) for v in attributes.values() if isinstance(v, dict | list)]
        kept.append((module, attributes, contents))
    try:
        yield
    finally:
        for module, attributes, contents in kept:
            module.__dict__.clear()
            module.__dict__.update(attributes)
            for value, before in contents:
                value.clear()
                value.update(before) if isinstance(value, dict) else value.extend(before)


@contextmanager
def _without_fused_recurrence(model: nn.Module) -> Iterator[None]:
    """Recurrent layers step by step, since the fused ones hide how their parameters are used."""
    recurrent = [module for module in model.modules() if isinstance(module, nn.RNNBase)]
    if not recurrent:
        yield
        return
    enabled = bool(torch.backends.mkldnn.enabled), bool(torch.backends.cudnn.enabled)

    def switch(mkldnn: bool, cudnn: bool) -> None:
        torch._C._set_mkldnn_enabled(mkldnn)
        torch.backends.cudnn.enabled = cudnn

    with ExitStack() as stack:
        stack.callback(switch, *enabled)
        for module in recurrent:
            off = module.register_forward_pre_hook(lambda *_: switch(False, False))
            on = module.register_forward_hook(lambda *_: switch(*enabled))
            stack.callback(off.remove)
            stack.callback(on.remove)
        yield
