"""A probe of the kernel of average tangent features, from the start of training to each step."""

from typing import Any

from torch import nn

from feature_alignment.gradients.model_function import OutputChoice, Selection
from feature_alignment.kernels.alignment import kernel_alignment, label_alignment
from feature_alignment.kernels.average_features import adapted_kernel, copy_parameters
from feature_alignment.kernels.tangent import tangent_kernel
from feature_alignment.probes.kernel_probe import Batch
from feature_alignment.training.errors import TrainingDivergedError
from feature_alignment.training.probes import WHOLE_NETWORK, Measurement, Row


class AdaptedKernelProbe:
    """Label alignment of the adapted kernel K̄ from θ₀ to θ_step, and its change from K₀.

    For the whole network: `adapted_kernel_alignment`, centred as `label_alignment`, and
    `adapted_kernel_change`, the cosine similarity Tr[K̄K₀] / (‖K̄‖_F ‖K₀‖_F), which is 1 at first.
    n·c·p numbers are held at each measurement.

    Source: LeJeune & Alemohammad 2024, Sections 2.1 and 3 (K̄); Baratin et al. 2021, eq. 7.

    Args:
        model: the network before training; its parameters are θ₀.
        batch: samples and labels.
        points: points of the straight path from θ₀ to θ whose features are averaged, at least 2.
        output: as for `tangent_kernel`.
        only: as for `tangent_kernel`.
    """

    def __init__(
        self,
        model: nn.Module,
        batch: Batch,
        *,
        points: int = 10,
        output: OutputChoice | None = None,
        only: Selection | None = None,
    ) -> None:
        self._batch, self._points = batch, points
        self._choice: Any = {"output": output, "only": only}
        self._start = copy_parameters(model)
        self._initial = tangent_kernel(model, batch.x, **self._choice).total

    def __call__(self, step: int, model: nn.Module) -> Measurement:
        """Measure the kernel of the path so far.

        Raises:
            TrainingDivergedError: if an alignment is not defined, as where all units died.
        """
        end = copy_parameters(model)
        kernel = adapted_kernel(
            model, self._start, end, self._batch.x, self._points, **self._choice
        ).total
        try:
            values = {}
            if self._batch.y is not None:
                values["adapted_kernel_alignment"] = label_alignment(kernel, self._batch.y)
            values["adapted_kernel_change"] = kernel_alignment(kernel, self._initial)
        except ValueError as error:
            raise TrainingDivergedError(f"at step {step}, adapted kernel: {error}") from error
        return Measurement([Row(WHOLE_NETWORK, "train", *pair) for pair in values.items()])
