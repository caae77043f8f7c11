"""Probes for the tangent kernel's spectrum, its alignment with the labels, and its change."""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from feature_alignment.errors import check_kind, check_whole
from feature_alignment.gradients.capture_plan import CapturePlan, is_plan_of, plan_capture
from feature_alignment.gradients.parameter_values import input_like
from feature_alignment.gradients.samples import ModelInput, as_samples
from feature_alignment.kernels.alignment import (
    LabelAlignmentForm,
    UndefinedAlignmentError,
    kernel_alignment,
    label_alignment,
    label_alignments,
)
from feature_alignment.kernels.average_features import adapted_kernel, copy_parameters
from feature_alignment.kernels.spectrum import effective_rank, trace_ratio
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.kernels.tangent_grams import TangentKernel
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row, refuse_reserved

log = logging.getLogger(__name__)

TRACE_RATIOS = (5, 10, 20, 40, 80, 160)
"""The k of the trace ratios T_k; the paper plots several and discusses T_40."""
FORMS = {form: f"label_alignment_{form}" for form in LabelAlignmentForm} | {
    LabelAlignmentForm.RELEASED: "label_alignment"
}
"""Metric name of each reading of the alignment."""
FORMS_OF_LAYERS = [LabelAlignmentForm.RELEASED, LabelAlignmentForm.UNCENTRED]


@dataclass(frozen=True)
class Batch:
    """Samples on which the kernel is measured: inputs (n, …) on the model's device, and labels y.

    These are (n, c), one-hot for classes, or class numbers (n,); None to leave out the alignment.

    Raises:
        ValueError: if a single input x has a different number of samples than there are labels.
    """

    x: ModelInput
    y: torch.Tensor | None = None

    def __post_init__(self) -> None:
        several = isinstance(self.x, Mapping | Sequence)  # `inputs` may name those with samples
        if self.y is not None and not several and len(self.y) != len(self.x):
            raise ValueError(f"y: {len(self.y)} labels for {len(self.x)} samples.")


class TangentKernelProbe:
    """Spectrum and label alignment of the tangent kernel, computed once for each fixed batch.

    For each batch (column `split`) and the whole network: `largest_eigenvalue`,
    `mean_eigenvalue`, `median_eigenvalue`, `effective_rank`, `trace_ratio_<k>`, all for the kernel
    of features centred over the samples for each output. For the whole network and, with `layers`,
    each layer: `label_alignment` (centred) and `label_alignment_uncentred`; for the whole network
    also `label_alignment_equation_7` and `label_alignment_equation_7_raw`, the paper's formula
    on centred and on raw features, and `label_alignment_uncentred_kernel`, with centred labels.
    With `change` also `kernel_change`, the cosine similarity Tr[KK₀] / (‖K‖_F ‖K₀‖_F) of the raw
    kernel and the first one measured: 1 while features stay as they are (lazy training).

    Source: Baratin et al. 2021, Section 3.2, eq. 5–7 and Section 3.3.

    Args:
        batches: batches to measure on, by split.
        spectrum: whether to compute eigenvalues, at a cost of (n·c)³.
        layers: whether to compute alignments of layers.
        uncentred: whether to add `effective_rank_uncentred`, of the raw kernel, to the spectrum.
        change: whether to compare the kernel with the first one, which is then kept.
        partial: whether to omit undefined quantities instead of raising an error: for a layer, such
            as an unused one, this is logged; for the whole network it is reported as a problem.
        checked_once: whether to check a network only at its first measurement, as long as it is
            the same one; checks take about half of a small one's time; see `tangent_trace`.
        options: further arguments of `tangent_kernel`, such as `output`.

    Raises:
        UserError: if `batches` is no mapping of batches.
        TypeError: if `tangent_kernel` has no such option.

    Example:
        >>> batch = Batch(torch.eye(2), torch.tensor([[1.0], [-1.0]]))
        >>> probe = TangentKernelProbe({"train": batch}, spectrum=False)
        >>> row = probe(0, nn.Linear(2, 1)).rows[0]
        >>> row.metric, round(row.value, 4)
        ('label_alignment', 1.0)
    """

    def __init__(
        self,
        batches: Mapping[str, Batch],
        *,
        spectrum: bool = True,
        layers: bool = False,
        uncentred: bool = False,
        change: bool = False,
        partial: bool = False,
        checked_once: bool = False,
        **options: Any,
    ) -> None:
        check_kind("batches", batches, Mapping, "a Batch for each split, by its name")
        for split, batch in batches.items():
            check_kind(f"batches: {split!r}", batch, Batch, "a Batch of inputs and labels")
        inspect.signature(tangent_kernel).bind(None, None, **options)  # refuses unknown ones
        self._batches, self._options = dict(batches), options
        self._spectrum, self._layers, self._uncentred = spectrum, layers, uncentred
        self._change, self._partial, self._checked_once = change, partial, checked_once
        self._initial: dict[str, torch.Tensor] = {}  # by split
        self._plans: dict[str, CapturePlan] = {}

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """Measure every batch, one after the other.

        Raises:
            TrainingDivergedError: if an alignment or the spectrum is undefined, for example because
                all units are dead, unless `partial`.
            ValueError: if the labels do not fit the kernel, or a layer is called `WHOLE_NETWORK`.
        """
        rows: list[Row] = []
        problems: list[str] = []
        for split, batch in self._batches.items():
            kernel = self._kernel(model, split, batch.x)
            refuse_reserved(kernel.layers if self._layers else ())
            grams = {WHOLE_NETWORK: kernel.total} | (kernel.layers if self._layers else {})
            first = self._initial.get(split, grams[WHOLE_NETWORK])
            if self._change and first.shape != grams[WHOLE_NETWORK].shape:
                problems.append(f"at step {step}: the kernel has another size than the first one")
            elif self._change:
                with self._told(problems, step, WHOLE_NETWORK, split, UndefinedAlignmentError):
                    value = kernel_alignment(grams[WHOLE_NETWORK], first)
                    self._initial[split] = first  # only if it is not 0
                    rows.append(Row(WHOLE_NETWORK, split, "kernel_change", value))
            for layer, gram in grams.items():
                if batch.y is None:
                    break
                forms = list(FORMS) if layer == WHOLE_NETWORK else FORMS_OF_LAYERS
                try:
                    found = label_alignments(gram, batch.y, forms)
                except UndefinedAlignmentError:  # not all are, so one by one
                    found = {}
                    for form in forms:
                        with self._told(problems, step, layer, split, UndefinedAlignmentError):
                            found |= label_alignments(gram, batch.y, [form])
                rows += [Row(layer, split, FORMS[form], found[form]) for form in found]
            with self._told(problems, step, WHOLE_NETWORK, split, ValueError):
                rows += _spectrum(split, kernel) if self._spectrum else []
                if self._spectrum and self._uncentred:
                    rank = kernel.effective_rank(centred=False)
                    rows.append(Row(WHOLE_NETWORK, split, "effective_rank_uncentred", rank))
        return Measurement(rows=rows, problems=problems)

    def state_dict(self) -> dict[str, Any]:
        """The first kernels by split, for a checkpoint; empty without `change`."""
        return {"initial": dict(self._initial)} if self._change else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` returned by `state_dict`; one without kernels has no change."""
        self._change = self._change and "initial" in state
        self._initial = dict(state.get("initial", {}))

    def _kernel(self, model: nn.Module, split: str, x: ModelInput) -> TangentKernel:
        if not self._checked_once:
            return tangent_kernel(model, x, **self._options)
        others = dict(self._options)
        planned = {name: others.pop(name, None) for name in ("output", "only")}
        plan = self._plans.get(split)
        if plan is None or not is_plan_of(plan, model):
            samples = as_samples(x, others.get("inputs"), input_like(model))
            plan = self._plans[split] = plan_capture(model, samples, **planned)
        return tangent_kernel(model, x, plan=plan, **others)

    @contextmanager
    def _told(
        self, problems: list[str], step: int, layer: str, split: str, kind: type[ValueError]
    ) -> Iterator[None]:
        try:
            yield
        except kind as error:
            dead = " If its units have died, use a smaller learning rate or a wider network."
            hint = "" if str(error).startswith(("the labels", "a single sample")) else dead
            told = f"at step {step}, layer {layer!r} on {split!r}: {error}{hint}"
            if not self._partial:
                raise TrainingDivergedError(told) from error
            if layer == WHOLE_NETWORK and told not in problems:
                problems.append(told)
            log.info("%s", told)


class AdaptedKernelProbe:
    """Label alignment of the adapted kernel K̄ from θ₀ to θ_step, and its cosine with K₀.

    For the whole network: `adapted_kernel_alignment`, centred like `label_alignment`, and
    `adapted_kernel_change`, the cosine similarity Tr[K̄K₀] / (‖K̄‖_F ‖K₀‖_F), which starts at 1.
    θ₀ are the parameters of `model` when the probe is created; K₀, like K̄, has the buffers, such as
    running statistics, of the model as it is now. Features are averaged over `points`
    points of the straight path; each measurement holds n·c·p numbers in memory. `split` is the
    value of that column; with `partial` what is not defined becomes a problem, not an error;
    `options` are `inputs`, `output` and `only` of `tangent_kernel`.

    Source: LeJeune & Alemohammad 2024, Sections 2.1 and 3 (K̄); Baratin et al. 2021, eq. 7.

    Raises:
        ValueError: if there are fewer than two points, or the model is not supported.

    Example:
        >>> layer = nn.Linear(2, 1)
        >>> probe = AdaptedKernelProbe(layer, Batch(torch.eye(2)))
        >>> [(row.metric, round(row.value, 4)) for row in probe(0, layer).rows]
        [('adapted_kernel_change', 1.0)]
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        points: int = 10,
        split: str = "train",
        partial: bool = False,
        **options: Any,
    ) -> None:
        check_kind("batch", batch, Batch, "a Batch of inputs and labels")
        self._batch, self._points, self._split, self._options = batch, points, split, options
        self._partial = partial
        check_whole("points", points, 2)
        self._start = copy_parameters(model)
        tangent_kernel(model, batch.x, **options)  # refuses models that are not supported

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """Measure the kernel of the path so far.

        Raises:
            TrainingDivergedError: if an alignment is undefined, e.g. because all units are dead,
                unless `partial`.
        """
        end = copy_parameters(model)
        kernel = adapted_kernel(
            model, self._start, end, self._batch.x, self._points, **self._options
        ).total
        # At θ₀, with buffers as they are now, as in K̄.
        initial = tangent_kernel(model, self._batch.x, parameters=self._start, **self._options)
        ways: dict[str, Callable[[], float]] = {}
        if (y := self._batch.y) is not None:
            ways["adapted_kernel_alignment"] = lambda: label_alignment(kernel, y)
        ways["adapted_kernel_change"] = lambda: kernel_alignment(kernel, initial.total)
        measurement = Measurement()
        for metric, way in ways.items():
            try:
                measurement.rows.append(Row(WHOLE_NETWORK, self._split, metric, way()))
            except UndefinedAlignmentError as error:
                told = f"at step {step}, adapted kernel: {error}"
                if not self._partial:
                    raise TrainingDivergedError(told) from error
                if told not in measurement.problems:
                    measurement.problems.append(told)
        return measurement


def _spectrum(split: str, kernel: TangentKernel) -> list[Row]:
    eigenvalues = kernel.spectrum()
    ks = [k for k in TRACE_RATIOS if k <= len(eigenvalues)]
    values = {
        "largest_eigenvalue": np.max(eigenvalues),
        "mean_eigenvalue": np.mean(eigenvalues),
        "median_eigenvalue": np.median(eigenvalues),
        "effective_rank": effective_rank(eigenvalues),
        **{f"trace_ratio_{k}": trace_ratio(eigenvalues, k) for k in ks},
    }
    return [Row(WHOLE_NETWORK, split, name, float(value)) for name, value in values.items()]
