"""A GPU emulated on the CPU, which refuses what CUDA would.

Those are operations on tensors of both devices, CPU generators for its tensors, NumPy arrays of
them and, where deterministic algorithms are asked for, operations that have none there. Its
kernels' speed and their rounding are beyond it, and so are gradients of complex numbers, sparse
ones, and a model's own use of forward mode.
"""

import contextlib
import functools

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._mode_utils import no_dispatch
from torch.utils._python_dispatch import TorchDispatchMode

GPU = torch.device("cuda", 0)
ATEN = torch.ops.aten
BETWEEN_DEVICES = {ATEN._to_copy.default, ATEN.copy_.default}
INDEXED_FROM_THE_CPU = {ATEN.index.Tensor, ATEN.index_put.default, ATEN.index_put_.default}
NOT_DETERMINISTIC = {
    *("_adaptive_avg_pool2d_backward", "_adaptive_avg_pool3d_backward", "avg_pool3d_backward"),
    *("adaptive_max_pool2d_backward", "adaptive_max_pool3d_backward"),
    *("fractional_max_pool2d_backward", "fractional_max_pool3d_backward"),
    *("max_unpool2d", "max_unpool3d"),
    *("reflection_pad1d_backward", "reflection_pad2d_backward", "reflection_pad3d_backward"),
    *("upsample_linear1d_backward", "upsample_bilinear2d_backward"),
    *("upsample_bicubic2d_backward", "upsample_trilinear3d_backward"),
    *("_upsample_bilinear2d_aa_backward", "_upsample_bicubic2d_aa_backward"),
    *("grid_sampler_2d_backward", "grid_sampler_3d_backward"),
    *("nll_loss2d_forward", "_ctc_loss_backward", "put", "put_", "histc"),
    *("median.dim", "nanmedian.dim"),
}
"""What CUDA has no deterministic form of: the list of `torch.use_deterministic_algorithms`."""


class OnGPU(torch.Tensor):
    """A tensor that says it is on the GPU; `inner` holds its values."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    @staticmethod
    def __new__(cls, inner):
        # To C++ it is on "meta", the one device without values that differentiates.
        found = torch.Tensor._make_wrapper_subclass(
            cls,
            inner.size(),
            strides=inner.stride(),
            storage_offset=inner.storage_offset(),
            dtype=inner.dtype,
            device="meta",
        )
        found.inner = inner
        return found

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {}, meta_is_gpu=True)

    device = property(lambda self: GPU)
    is_meta = property(lambda self: False)

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, value):
        self.inner = value.inner

    def __array__(self, *args, **kwargs):
        raise TypeError("no NumPy array of a tensor on the GPU; copy it to the CPU first.")

    numpy = __array__

    def __reduce_ex__(self, protocol):
        return self.inner.detach().__reduce_ex__(protocol)  # as read with map_location="cpu"

    def untyped_storage(self):
        return self.inner.untyped_storage()

    def tolist(self):
        return self.inner.tolist()

    def item(self):
        return self.inner.item()

    def __float__(self):
        return float(self.inner)

    def __int__(self):
        return int(self.inner)

    def __index__(self):
        return self.inner.__index__()

    def __bool__(self):
        return bool(self.inner)


def compute(function, args, kwargs, meta_is_gpu):
    """What an operation gives, on the device that it belongs to.

    Raises:
        RuntimeError: if CUDA would refuse it.
    """
    leaves = []
    inner_args, inner_kwargs = inner(args, leaves), inner(kwargs, leaves)
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    here = any(isinstance(tensor, OnGPU) for tensor in tensors)
    if here and function not in BETWEEN_DEVICES:
        for tensor in tensors:
            if isinstance(tensor, OnGPU) or not tensor.ndim:
                continue
            index = tensor.dtype in (torch.int64, torch.bool) and function in INDEXED_FROM_THE_CPU
            if not index:
                raise RuntimeError(f"{function} on tensors of two devices")
    device = kwargs.get("device")
    on_gpu = here if device is None else is_gpu(device, meta_is_gpu)
    if function is ATEN.copy_.default:
        on_gpu = isinstance(args[0], OnGPU)
    if on_gpu and torch.are_deterministic_algorithms_enabled():
        refuse_what_is_not_deterministic(function, args, kwargs)
    if on_gpu and any(isinstance(leaf, torch.Generator) for leaf in leaves):
        raise RuntimeError(f"{function} on the GPU with a generator of the CPU")
    if device is not None and on_gpu:
        inner_kwargs = inner_kwargs | {"device": torch.device("cpu")}
    found = function(*inner_args, **inner_kwargs)
    if function is ATEN._to_copy.default and here != on_gpu:
        found = found.clone()  # the CPU's copy to the CPU may be no copy
    if not on_gpu:
        return found
    return results(function, args, kwargs, outer(found))


def inner(value, leaves):
    """An argument for the CPU; what it is made of goes to `leaves`. (PyTorch's trees are slow.)"""
    if isinstance(value, tuple | list):
        return [inner(part, leaves) for part in value]
    if isinstance(value, dict):
        return {name: inner(part, leaves) for name, part in value.items()}
    leaves.append(value)
    return value.inner if isinstance(value, OnGPU) else value


def outer(found):
    """A result on the GPU."""
    if isinstance(found, tuple | list):
        return type(found)(map(outer, found))
    return OnGPU(found) if isinstance(found, torch.Tensor) else found


def refuse_what_is_not_deterministic(function, args, kwargs):
    name = name_of(function)
    refused = name in NOT_DETERMINISTIC
    if name.startswith("scatter_reduce"):
        refused = kwargs.get("reduce", args[-1]) not in ("sum", "mean")
    elif name == "bincount":
        refused = kwargs.get("weights", args[1] if len(args) > 1 else None) is not None
    if refused:
        raise RuntimeError(f"{function} does not have a deterministic form on the GPU")


@functools.cache
def name_of(function):
    return str(function).removeprefix("aten.").removesuffix(".default")


def results(function, args, kwargs, found):
    """The result, with the very arguments that an operation writes to and returns."""
    if torch.Tag.inplace_view in function.tags:
        with no_dispatch():
            function(*args, **kwargs)  # of shape and strides only
    written = written_arguments(function)
    if not any(written):
        return found
    several = isinstance(found, tuple | list)
    values = list(found if several else [found])
    for i, argument in enumerate(written):
        if argument:
            place, name = argument
            values[i] = args[place] if place < len(args) else kwargs.get(name)
    return tuple(values) if several else values[0]


@functools.cache
def written_arguments(function):
    """For each result, the place and name of the argument that it is; None for a new one."""
    declared = {
        frozenset(argument.alias_info.before_set): (place, argument.name)
        for place, argument in enumerate(function._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    }
    return [
        declared[frozenset(result.alias_info.before_set)]
        if result.alias_info is not None and result.alias_info.is_write
        else None
        for result in function._schema.returns
    ]


def is_gpu(device, meta_is_gpu):
    kind = torch.device(device).type
    return kind == "cuda" or (kind == "meta" and meta_is_gpu)


class Operations(TorchDispatchMode):
    """Operations without tensors of the GPU, which can make some."""

    meta_is_gpu = True  # not where the meta device itself is asked for

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return compute(function, args, kwargs or {}, self.meta_is_gpu)


class Functions(TorchFunctionMode):
    """Functions that no dispatch mode sees, and the meta device asked for in Python."""

    def __init__(self, operations):
        super().__init__()
        self.operations = operations

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        device = kwargs.get("device")
        if function is torch.Tensor.new_tensor and isinstance(args[0], OnGPU):
            return OnGPU(args[0].inner.new_tensor(*args[1:], **kwargs))
        if device is None:
            return function(*args, **kwargs)
        if function in (torch.tensor, torch.as_tensor) and is_gpu(device, False):
            return OnGPU(function(*args, **kwargs | {"device": "cpu"}))
        before = self.operations.meta_is_gpu
        self.operations.meta_is_gpu = torch.device(device).type != "meta"
        try:
            return function(*args, **kwargs)
        finally:
            self.operations.meta_is_gpu = before


def with_ties(apply):
    """`Module._apply` that keeps tied parameters tied, as where it changes them in place."""

    def tied(module, *args, **kwargs):
        places = {}
        for part in module.modules():
            for name, parameter in part._parameters.items():
                if parameter is not None:
                    places.setdefault(parameter, []).append((part, name))
        found = apply(module, *args, **kwargs)
        for (first, name), *others in places.values():
            for part, other in others:
                part._parameters[other] = first._parameters[name]
        return found

    return tied


def emulation(monkeypatch):
    """A context in which tensors can be on the GPU."""
    monkeypatch.setattr(torch.nn.Module, "_apply", with_ties(torch.nn.Module._apply))
    monkeypatch.setattr(torch.cuda, "_lazy_init", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device: None)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)

    @contextlib.contextmanager
    def context():
        torch.__future__.set_overwrite_module_params_on_conversion(True)
        operations = Operations()
        try:
            with Functions(operations), operations:
                yield
        finally:
            torch.__future__.set_overwrite_module_params_on_conversion(False)

    return context
