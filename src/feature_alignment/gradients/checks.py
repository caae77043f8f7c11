"""Checks that a model's outputs are a function of its parameters and of each sample alone."""

import inspect
import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import torch
from torch import nn

from feature_alignment.errors import reason
from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.graph import Graph
from feature_alignment.gradients.model_function import ModelFunction, outputs_of
from feature_alignment.gradients.parameter_values import Parameters
from feature_alignment.gradients.random_state import drawing_module, generators_kept
from feature_alignment.gradients.samples import Samples, spread
from feature_alignment.training.errors import GradientsNotFiniteError

# Largest difference that counts as rounding, relative to the largest entry: of gradients, and, as a
# fraction of that, of outputs, which take fewer operations.
_ROUNDING = {torch.float64: 1e-8, torch.float32: 1e-3}
_COARSE = 1e-2
_OF_OUTPUTS = 0.1

_CALLS = 5  # calls whose outputs must agree, if they seem not to
_DEPENDENT = (
    "the model's outputs of sample {} depend on the other samples or on chance; the tangent kernel "
    "needs f(x_i) to depend on x_i only: call model.eval(), and look for statistics, sorting or "
    "recurrence along the batch axis (batch_first=False?)."
)

FEW_ALONE = 4  # samples that are run alone


def checked_outputs(
    function: ModelFunction, values: Parameters, samples: Samples
) -> tuple[ModelFunction, torch.Tensor, float]:
    """The function as it must be run on these values, its outputs (n, c) and their rounding errors.

    It is run on copies, to see which parameters it changes in place; these must be `spared`.

    Every sample is also run with others and must give the same outputs: in parts of the batch such
    that any two samples are separated at least once, and a few alone. A part whose outputs differ
    is run once more in the model's own state, which earlier calls may have changed.

    Raises:
        ValueError: if the results differ, the model draws random numbers, takes other arguments,
            or the outputs are not finite or of another precision than float32 or float64.
        RuntimeError: raised by the model itself.
        TypeError: raised by the model itself.
    """
    try:
        with told_of_inputs(function.model, values, samples):
            return _checked_outputs(function, values, samples)
    except RuntimeError as error:
        if "require grad" not in str(error):
            raise
    # Some models call autograd on their own parameters in the forward pass.
    return _checked_outputs(replace(function, requiring=True), values, samples)


def checked_few(function: ModelFunction, values: Parameters, samples: Samples) -> ModelFunction:
    """The function as it must be run, checked on a few of the samples.

    Raises:
        ValueError: as `checked_outputs`.
        RuntimeError: raised by the model itself.
        AssertionError: raised by the model itself.
        TypeError: raised by the model itself.
    """
    try:
        return checked_outputs(function, values, samples.few())[0]
    except (RuntimeError, AssertionError):
        checked_outputs(function, values, samples)  # says so if all are needed
        raise


@contextmanager
def told_of_inputs(model: nn.Module, values: Parameters, samples: Samples) -> Iterator[None]:
    """Context for running a model, whose errors about its inputs become one sentence.

    Raises:
        ValueError: if it takes other arguments, of another precision or on another device.
        RuntimeError: raised by the model itself.
        TypeError: raised by the model itself.
    """
    try:
        yield
    except TypeError:
        _refuse_other_arguments(model, samples)
        raise
    except RuntimeError as error:
        _refuse_other_precision(model, values, samples, error)
        _refuse_other_device(values, samples, error)
        raise


def _checked_outputs(
    function: ModelFunction, values: Parameters, samples: Samples
) -> tuple[ModelFunction, torch.Tensor, float]:
    requiring = function.requiring

    def copied() -> dict[str, torch.Tensor]:
        copies = {name: value.clone() for name, value in values.items()}
        return {n: v.requires_grad_(requiring and v.is_floating_point()) for n, v in copies.items()}

    with torch.inference_mode(False), torch.enable_grad():
        copies = copied()
        function = function.recomputing(copies, samples)
        with function.installed(copies, False) as f:
            batch = _repeatable_outputs(function.model, f, samples)
            relative = _OF_OUTPUTS * rounding(batch, *values.values())
            tolerance = relative * float(batch.abs().max())
            changed = [n for n, value in values.items() if not torch.equal(copies[n], value)]
            touched = [n for n, copy in copies.items() if copy._version > 0]
            companies = _companies(len(samples))
            suspects = [
                some for some in companies if _off(f, samples, some, batch).max() > tolerance
            ]
        if suspects and changed:
            raise ValueError(
                f"the forward pass changes parameter {changed[0]!r} in place, and so its own "
                "outputs from call to call; take the change out of forward(), and apply it after "
                "each step of the optimiser."
            )
        if suspects:
            tolerance = _widened(function, copied, samples, batch, tolerance)
        for some in suspects:  # in the state that the model was in before
            with function.installed(copied(), False) as f:
                wrong = _off(f, samples, some, batch) > tolerance
            if wrong.any():
                raise ValueError(_DEPENDENT.format(some[int(wrong.nonzero()[0])]))
    if not (touched or changed):
        _refuse_other_outputs(function, values, samples, batch, tolerance)
    seen = {"changed": function.changed.union(changed), "touched": function.touched.union(touched)}
    return replace(function, **seen), batch, tolerance


def _refuse_other_arguments(model: nn.Module, samples: Samples) -> None:
    positions = [key for key in samples.entries if isinstance(key, int)]
    keywords = {key: key for key in samples.entries if isinstance(key, str)}
    try:
        inspect.signature(model.forward).bind(*positions, **keywords)
    except TypeError as error:
        raise ValueError(
            f"x: the model's forward() takes other arguments ({error}); give them by position in a "
            "tuple or by name in a dict, and a model that takes one dict within another, "
            "whose forward(self, **batch) calls it with the batch."
        ) from error


def _refuse_other_precision(
    model: nn.Module, values: Parameters, samples: Samples, error: RuntimeError
) -> None:
    entries = [samples.entries[key] for key in samples.sampled]
    tokens = any(isinstance(part, nn.Embedding) for part in model.modules())
    given = {entry.dtype for entry in entries if entry.is_floating_point() or not tokens}
    own = {value.dtype for value in values.values() if value.is_floating_point()}
    told = any(word in str(error) for word in ("dtype", "Input type", "scalar type"))
    if told and len(given) == len(own) == 1 and given != own:
        (x,), (parameters,) = given, own
        cure = f"give x.to({parameters})"
        if parameters not in (torch.float32, torch.float64):
            cure = "measure model.float(), in a Monitor by dtype=torch.float32"
        raise ValueError(
            f"x: {x}, where the model's parameters are {parameters}; {cure}."
        ) from error


def _refuse_other_device(values: Parameters, samples: Samples, error: RuntimeError) -> None:
    given = {samples.entries[key].device for key in samples.sampled}
    own = {value.device for value in values.values()}
    told = "device" in str(error) or "weight type" in str(error)  # the latter from convolutions
    if told and len(given) == len(own) == 1 and given != own:
        (x,), (model,) = given, own
        raise ValueError(
            f"x: on {x}, where the model's parameters are on {model}; give x.to('{model}')."
        ) from error


def _refuse_other_outputs(
    function: ModelFunction,
    values: Parameters,
    samples: Samples,
    batch: torch.Tensor,
    tolerance: float,
) -> None:
    # Refuse models that give other outputs when called as they are, if the values are their own.
    own = dict(function.model.named_parameters())
    for name, value in values.items():
        same = value.data_ptr() == own[name].data_ptr() != 0  # as tensors without memory have
        if not same and not torch.equal(own[name], value):
            return
    plain = replace(function, without={})  # with everything that modules keep
    some = [0, len(samples) - 1]
    try:
        with (
            generators_kept(samples),
            torch.inference_mode(False),
            torch.enable_grad(),
            plain.installed(own, False) as run,
        ):
            found = run(samples[some]).detach()
    except RuntimeError as error:
        if not any(words in str(error) for words in ("require grad", "Inference tensors")):
            raise
        return  # autograd on frozen or inference parameters: it cannot be called as it is
    expected = batch[torch.tensor(some)]
    if found.shape == expected.shape and float((found - expected).abs().max()) <= tolerance:
        return
    kept = ", ".join(map(repr, function.without))
    raise ValueError(
        "the model gives other outputs than a function of its parameters and of each sample does"
        + (f", since modules keep {kept} of earlier calls" if kept else "")
        + "; compute such values in forward(), or register what is to stay as buffers, and let "
        "forward() not ask of what type a parameter is."
    )


def _repeatable_outputs(
    model: nn.Module, f: Callable[..., torch.Tensor], samples: Samples
) -> torch.Tensor:
    # The outputs (n, c), detached.
    with generators_kept(samples) as have_drawn:
        batch = outputs_of(f, samples)[0].detach()
        drawn = have_drawn() and drawing_module(model, f, samples)
    if drawn:
        raise ValueError(
            f"{drawn} draws random numbers, so the outputs are not a function of the "
            "parameters; call model.eval() first, or take the randomness out."
        )
    if batch.dtype not in _ROUNDING:
        cure = "convert the model by model.float(); in a Monitor by dtype=torch.float32"
        if not batch.is_floating_point():
            other = "real parts (torch.view_as_real)" if batch.is_complex() else "logits"
            cure = f"choose others by `output`, such as their {other}"
        raise ValueError(
            f"the model's outputs are {batch.dtype}; they must be in float32 or float64: {cure}."
        )
    if not batch.isfinite().all():
        i = int((~batch.isfinite()).any(1).nonzero()[0])
        raise ValueError(f"the model's outputs of sample {i} are not finite.")
    return batch


def refuse_non_finite(gradients: torch.Tensor, by: str) -> None:
    """Refuse gradients, or sums of gradients, that are not finite although the outputs are.

    Raises:
        GradientsNotFiniteError: naming what they belong to, such as "layer 'fc'".
    """
    if gradients.sum().isfinite() or gradients.isfinite().all():  # a sum keeps NaN and infinity
        return
    raise GradientsNotFiniteError(
        f"the gradients of some samples by {by} are not finite, though the outputs are; look in "
        "the model for a root, norm or logarithm at 0, or for numbers beyond its precision."
    )


def _off(
    f: Callable[..., torch.Tensor], samples: Samples, some: list[int], batch: torch.Tensor
) -> torch.Tensor:
    """How far the outputs of some samples alone are from those in the batch, for each."""  # noqa: DOC501
    try:
        found = outputs_of(f, samples[some])[0].detach()
    except (RuntimeError, AssertionError) as error:  # the latter from an exported program
        raise ValueError(
            f"the model runs on {len(batch)} samples, but not on {len(some)} ({reason(error)}); "
            "forward() must take any number of them, an export a dynamic batch axis."
        ) from error
    if found.shape[1] != batch.shape[1]:
        return torch.full((1,), math.inf)
    return (found - batch[torch.tensor(some)]).abs().amax(1).nan_to_num(math.inf)


def _widened(
    function: ModelFunction,
    copied: Callable[[], dict[str, torch.Tensor]],
    samples: Samples,
    batch: torch.Tensor,
    tolerance: float,
) -> float:
    # The tolerance for outputs that may be differences of large numbers.
    for _ in range(_CALLS):
        with function.installed(copied(), False) as f:
            again = outputs_of(f, samples)[0].detach()
        if again.shape != batch.shape or float((again - batch).abs().max()) > tolerance:
            raise ValueError(
                "the model's outputs differ between calls on the same samples, by chance or by a "
                "state that calls change; call model.eval(), or take that out of forward()."
            )
    copies = {n: v.requires_grad_(v.is_floating_point()) for n, v in copied().items()}
    with function.installed(copies, False) as f:  # parts of which may be less precise
        within = Graph(f(samples[[0, 0]]), copies).dtypes()
    relative = _OF_OUTPUTS * rounding(batch, *copies.values(), within=within)
    tolerance = max(tolerance, relative * float(batch.abs().max()))
    changes = (_change(function, copied(), samples, batch, relative, seed) for seed in range(2))
    return max(tolerance, min(changes))


def rounding(*tensors: torch.Tensor, within: Iterable[torch.dtype] = ()) -> float:
    """Largest relative difference that counts as rounding in computations with these tensors.

    `within` are the precisions of intermediate results.
    """
    dtypes = {tensor.dtype for tensor in tensors}.union(within)
    return max(_ROUNDING.get(dtype, _COARSE) for dtype in dtypes if dtype.is_floating_point)


def _change(
    function: ModelFunction,
    values: Parameters,
    samples: Samples,
    f: torch.Tensor,
    relative: float,
    seed: int = 0,
) -> float:
    """How much outputs change if parameters change by a hundredth of what counts as rounding.

    Each entry has its own sign: with one factor for a whole matrix, outputs that are small
    differences would stay small.
    """
    generator, moved = torch.Generator().manual_seed(seed), dict(values)
    for name, value in values.items():
        if value.is_floating_point():
            signs = 2 * torch.rand(value.shape, generator=generator).round() - 1
            moved[name] = value * (1 + relative / 100 * signs.to(value))
    with function.installed(moved, False) as run:
        return float((outputs_of(run, samples)[0].detach() - f).abs().max())


def _companies(n: int) -> Iterator[list[int]]:
    """Parts of n samples: a few alone, and the rows and columns of a square of all samples.

    Any two samples are in different rows or columns. A row or column of one sample has it twice,
    since some models squeeze the outputs of one.
    """
    few = spread(n, FEW_ALONE)
    yield from ([i] for i in few)
    if n < FEW_ALONE:
        yield from ([i, i] for i in few)
        return
    side = math.isqrt(n - 1) + 1
    rows = [range(n)[row] for row in spans(n, side)]
    for part in (*rows, *(range(start, n, side) for start in range(side))):
        yield list(part) * (1 + (len(part) == 1))
