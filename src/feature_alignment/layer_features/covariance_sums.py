"""Sums over samples of products of the gradients at layers, accumulated in chunks of samples."""

import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from weakref import WeakKeyDictionary

import torch
from torch import nn

from feature_alignment.gradients.blocks import spans
from feature_alignment.gradients.capture import Recording, backpropagate, recorded
from feature_alignment.gradients.capture_plan import summed_in
from feature_alignment.gradients.checks import refuse_non_finite
from feature_alignment.gradients.graph import ODD, sample_place
from feature_alignment.gradients.model_function import ModelFunction
from feature_alignment.gradients.parameter_values import Parameters
from feature_alignment.gradients.samples import Samples
from feature_alignment.layer_features.feature_matrices import beyond_single_precision
from feature_alignment.layer_features.layers import (
    MatrixUse,
    chosen_layers,
    layers_of,
    owners_of_matrices,
    reasons,
)

log = logging.getLogger(__name__)

NOTHING = "no layer to measure, no product with a matrix of parameters."
_WARNED: WeakKeyDictionary[nn.Module, set[str]] = WeakKeyDictionary()  # once for each model


@dataclass
class CovarianceSums:
    """Sums over samples, positions and outputs of δᵀδ by layer, upper triangles in float64.

    δ are the gradients at the first point, minus those at the second if there are two.
    """

    function: ModelFunction
    points: Sequence[Parameters]
    layers: Sequence[str] | None
    cotangents: Callable[[torch.Tensor], Iterator[torch.Tensor]]  # of outputs (n, c)
    uses: dict[str, MatrixUse] = field(default_factory=dict)  # where each layer is used
    sums: dict[str, torch.Tensor] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)  # positions of a sample
    unlike: set[str] = field(default_factory=set)  # layers used otherwise for some samples

    def means(self, samples: Samples, chunk_size: int) -> dict[str, torch.Tensor]:
        """Full means over samples and positions by layer, computed in chunks of samples.

        Raises:
            ValueError: if a layer cannot be measured or is not used in the same way for all
                samples, or outputs or gradients are not finite.
        """
        owners = owners_of_matrices(self.function.model, self.layers)
        problems = self._hidden_problems(samples, owners)
        for span in spans(len(samples), chunk_size):
            recordings = [self._recorded(point, samples[span], owners) for point in self.points]
            uses = self._measured(recordings[0], owners, problems, tell=span.start == 0)
            before = self.uses if span.start else uses
            same = {name for name in uses.keys() & before.keys() if uses[name].like(before[name])}
            self._leave_out((uses.keys() | before.keys()) - same)
            self.uses = {name: use for name, use in uses.items() if name not in self.unlike}
            if not all(recording.f.isfinite().all() for recording in recordings):
                raise ValueError("the model's outputs of some samples are not finite.")
            if not recordings[0].graph.same_path(recordings[-1].graph):
                raise ValueError(
                    "centre_tangents: at the initial parameters some samples take another path "
                    "through the model, so tangents have no change; do without it."
                )
            self._add(recordings)
            recordings.clear()  # frees the graphs
        means = {name: self.sums[name] / (len(samples) * self.counts[name]) for name in self.uses}
        return {name: mean.triu() + mean.triu(1).T for name, mean in means.items()}

    def _hidden_problems(self, samples: Samples, owners: Mapping[str, str]) -> dict[str, str]:
        """Why layers cannot be measured that a graph by itself shows to be used once.

        Their results do not grow with the number of samples; or they are linear layers that the
        model calls, of which the graph only has the product in a gradient that the model takes.
        """
        shapes: list[dict[str, torch.Size]] = []
        backwards: dict[str, nn.Linear] = {}
        for n in (2, 3):
            some = samples[[i % len(samples) for i in range(n)]]
            with recorded(self.function, self.points[0], some, owners) as recording:
                uses, _ = layers_of(recording, owners)
                shape = recording.graph.shape
                shapes.append({name: shape((use.number, 0)) for name, use in uses.items()})
                for name, use in uses.items():
                    owner = self.function.model.get_submodule(use.name.rpartition(".")[0])
                    own = type(owner).forward is nn.Linear.forward  # else it may transpose
                    if isinstance(owner, nn.Linear) and own and use.transposes(owner.weight):
                        backwards[name] = owner
        told = "is used on inputs that the samples share, or not on all of them"
        found = {
            name: told
            for name, few in shapes[0].items()
            if name not in shapes[1] or sample_place(few, shapes[1][name], (2, 3)) in (None, ODD)
        }
        for name, owner in backwards.items():
            calls: list[str] = []
            with owner.register_forward_hook(lambda *_, calls=calls: calls.append("called")):
                self._recorded(self.points[0], samples[[0, len(samples) - 1]], owners)
            if calls:
                found[name] = "was used in the forward pass and in a gradient there, not once"
        return found

    def _add(self, recordings: Sequence[Recording]) -> None:
        f, n = recordings[0].f, len(recordings[0].f) * recordings[0].copies
        products: dict[str, torch.Tensor] = {}
        numbers = [use.number for use in self.uses.values()]
        only = recordings[0].values if len(recordings) == 1 else None
        with nullcontext() if only is None else self.function.installed(only):  # for all passes
            for cotangent in self.cotangents(f):
                found: list[dict[int, torch.Tensor]] = []
                for recording in recordings:  # activation checkpoints recompute with its values
                    with self.function.installed(recording.values):
                        found += backpropagate(recording, numbers, iter([cotangent]))
                self._add_products(products, found, n)
        for name, product in products.items():
            refuse_non_finite(product, f"layer {name!r}")
            self.sums[name] = self.sums.get(name, 0) + product.double()

    def _add_products(
        self, products: dict[str, torch.Tensor], found: Sequence[dict[int, torch.Tensor]], n: int
    ) -> None:
        for name, use in list(self.uses.items()):
            rows = [use.rows(gradients[use.number]) for gradients in found]
            rows = [delta.to(summed_in(delta)) for delta in rows]
            delta = rows[0] if len(rows) == 1 else rows[0] - rows[1]  # (n·P, k)
            if name not in products:
                count = len(delta) / n
                if count != self.counts.setdefault(name, max(1, int(count))):
                    self._leave_out({name})
                    continue
                products[name] = delta.new_zeros(delta.shape[1], delta.shape[1])
            if beyond_single_precision(delta):
                products[name] = products[name].double()
            _add_upper_triangle(products[name], delta.to(products[name].dtype))

    def _leave_out(self, names: Collection[str]) -> None:
        """Omit layers that some samples use otherwise, as experts; refuse those that were named."""  # noqa: DOC501
        for name in names:
            problem = f"layer {name!r} is used otherwise for some samples than for others"
            if self.layers is not None:
                raise ValueError(f"{problem}; leave it out of `layers`.")
            self._warn([problem])
            self.unlike.add(name)
            self.uses.pop(name, None)
            if not self.uses:
                raise ValueError(f"no layer to measure: {problem}.")

    def _warn(self, problems: Collection[str]) -> None:
        warned = _WARNED.setdefault(self.function.model, set())
        for problem in problems:
            if problem not in warned:
                log.warning("%s; no NFM or AGOP is computed for it.", problem)
                warned.add(problem)

    def _recorded(
        self, point: Parameters, samples: Samples, owners: Mapping[str, str]
    ) -> Recording:
        # On its own, so that no name is left that keeps the last graph in memory.
        with recorded(self.function, point, samples, owners) as recording:
            return recording

    def _measured(
        self, recording: Recording, owners: Mapping[str, str], hidden: dict[str, str], tell: bool
    ) -> dict[str, MatrixUse]:
        layers, problems = layers_of(recording, owners)  # may differ for n = 1
        for name in hidden.keys() & layers.keys():
            del layers[name]
            problems[name] = hidden[name]
        for name in [name for name, use in layers.items() if 0 in use.shape]:
            del layers[name]
            problems[name] = "has a matrix without entries"
        told = reasons(problems)
        if told and self.layers is not None:
            raise ValueError(f"{told[0]}; leave it out of `layers`.")
        if not layers:
            raise ValueError(f"no layer to measure: {'; '.join(told)}." if told else NOTHING)
        self._warn(told if tell else ())
        return chosen_layers(layers, self.layers)


def _add_upper_triangle(total: torch.Tensor, delta: torch.Tensor) -> None:
    """Add the upper triangle of δᵀδ to `total` in strips, for about half the cost of δᵀδ."""
    k = delta.shape[1]
    width = max(64, k // 8)  # narrower strips waste the processor, wider ones the symmetry
    for start in range(0, k, width):
        strip = delta[:, start : start + width]
        total[start : start + width, start:].addmm_(strip.T, delta[:, start:])
