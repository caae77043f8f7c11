"""Gram matrices of gradients that are sums over positions, if possible without forming them.

K[(i,y),(j,y')] = ⟨Σ_t δ_iyt a_itᵀ, Σ_s δ_jy's a_jsᵀ⟩ = Σ_{t,s} (δ_iyt·δ_jy's)(a_it·a_js) can be
summed in three orders, equal in exact arithmetic. Costs are in multiplications, for n samples, c
outputs, P positions and a weight (k, d), up to the factor 1/2 that symmetry saves:

pairs       all inner products, then their products: n²P²(d + c²k). Best for one position.
carrying    Σ_s (a_it·a_js) δ_jy's first, then its product with δ_iyt: n²P(Pd + Pck + c²k). The
            inner products of inputs serve all outputs. Best for few positions.
gradients   the gradients, for a few rows of the weight at a time: ncPkd + n²c²kd. Best for many.
"""

import functools
import itertools
import math
from collections.abc import Sequence

import torch

from feature_alignment.gradients.blocks import BLOCK, spans
from feature_alignment.gradients.layer_inputs import TokenInputs
from feature_alignment.gradients.parameter_gradients import Factors, MatrixGradients

FORMS = ("pairs", "carrying", "gradients")

# Multiplications that take as long as moving one number to memory and back, the slowdown of
# products with only c rows and columns, and multiplications that take as long as one round of a
# loop: measured on two kinds of CPU cores.
_MOVE = 40
_NARROW = 4
_ROUND = 3e6

# Numbers in one slice of gradients: memory of this size is soon reused. Products are fastest with
# about 4096 columns, but each slice has a fixed cost.
_SLICE, _LEAST_SLICE, _COLUMNS = 2**22, 2**19, 2**12

_FEW_PAIRS = 16  # up to this many pairs of positions are added one by one


def add_position_gram(
    out: torch.Tensor,
    first: MatrixGradients,
    second: MatrixGradients,
    *,
    bias: bool,
    symmetric: bool,
    workspace: int,
    form: str | None = None,
) -> None:
    """Add the Gram matrix of a weight's gradients to `out`, (n·c, n₂·c), sample-major, in place.

    `first` and `second` are gradients of one parameter for the rows' and the columns' samples. If
    symmetric, they are the same, and only the lower triangle is valid afterwards. With `bias`, the
    Gram matrix of the layer's bias, with gradient Σ_t δ_t, is added, too. Intermediate results may
    have `workspace` numbers. The form is one of FORMS; None for the lowest of `form_costs`.

    Source: Baratin et al. 2021, eq. 1; the forms are this module's.

    Raises:
        ValueError: if the form is unknown.
    """
    form = cheapest_form(first, second, symmetric) if form is None else form
    if form == "pairs":
        _add_by_pairs(out, first, second, bias, symmetric, workspace)
    elif form == "carrying":
        _add_by_carrying(out, first, second, bias, symmetric, workspace)
    elif form == "gradients":
        add_gradient_gram(out, [first], [second], symmetric=symmetric, workspace=workspace)
        if bias:
            found = first.deltas.sum(2)
            add_feature_gram(out, found, found if symmetric else second.deltas.sum(2), symmetric)
    else:
        raise ValueError(f"form: {form!r}; it must be one of {', '.join(FORMS)}.")


def cheapest_form(first: MatrixGradients, second: MatrixGradients, symmetric: bool) -> str:
    """The form with the lowest cost."""
    costs = form_costs(
        (first.deltas.shape[0], second.deltas.shape[0]),
        first.deltas.shape[1],
        (first.inputs.positions, second.inputs.positions),
        (first.rows, first.inputs.columns),
        symmetric=symmetric,
        groups=first.inputs.groups,
        tokens=isinstance(first.inputs, TokenInputs),
    )
    return min(FORMS, key=lambda form: costs[form])


def form_costs(
    samples: tuple[int, int],
    outputs: int,
    positions: tuple[int, int],
    weight: tuple[int, int],
    *,
    symmetric: bool,
    groups: int = 1,
    tokens: bool = False,
) -> dict[str, float]:
    """Cost of each form in multiplications, including that of moving numbers.

    `samples` are n and n₂, `positions` P and P₂, `weight` the rows and columns of one group. With
    `tokens` it is an embedding, whose inputs are compared, not multiplied.
    """
    (n, n2), c, (t, s), (k, d) = samples, outputs, positions, weight
    share = 0.5 if symmetric else 1.0
    sides = n if symmetric else n + n2
    width, compared = (d, 1) if tokens else (k, d)
    similarity = t * s * (compared + _MOVE)
    # Many pairs of positions are summed across memory, which is slower.
    pairs = similarity + c**2 * t * s * (width + _MOVE * (2 if t * s <= _FEW_PAIRS else 4))
    carrying = similarity + c * t * width * (s + _MOVE + _NARROW * c)
    forming = sides * c * k * d * (t + _MOVE)
    return {
        "pairs": groups * (share * n * n2 * pairs + _ROUND * min(t * s, _FEW_PAIRS)),
        "carrying": groups * (share * n * n2 * carrying + _ROUND * n2),
        "gradients": groups * (forming + share * n * n2 * c**2 * k * d),
    }


def add_gradient_gram(
    out: torch.Tensor,
    first: Sequence[MatrixGradients],
    second: Sequence[MatrixGradients],
    *,
    symmetric: bool,
    workspace: int,
) -> None:
    """Add the Gram matrix of a weight's gradients, summed over uses of the weight, to `out`.

    It takes a few groups or rows of the weight at a time, for all samples. `first` and `second` are
    the same uses for the rows' and the columns' samples; the rest is as for `add_position_gram`.
    """
    columns, rows, groups = first[0].inputs.columns, first[0].rows, first[0].inputs.groups
    held = out.shape[0] if symmetric else sum(out.shape)
    sides = [first] if symmetric else [first, second]
    room = min(workspace // 2, _SLICE, max(_LEAST_SLICE, _COLUMNS * held))
    if groups > 1 and 2 * rows * held * columns <= room:
        for span in spans(groups, room // (rows * held * columns)):
            found = [
                functools.reduce(torch.add, (use.of_groups(span, workspace // 4) for use in uses))
                for uses in sides
            ]
            add_feature_gram(out, found[0], found[-1], symmetric)
        return
    step = math.ceil(rows / math.ceil(rows * held * columns / max(1, room)))
    step = min(step, rows)  # slices of equal size
    spaces = [
        use[0].deltas.new_empty(use[0].deltas[:, :, 0, 0].numel() * step * columns) for use in sides
    ]
    for group in range(groups):
        for span in spans(rows, step):
            found = []
            for uses, space in zip(sides, spaces, strict=True):
                shape = (*uses[0].deltas.shape[:2], span.stop - span.start, columns)
                gradients = space[: math.prod(shape)].view(shape)
                for number, use in enumerate(uses):
                    use.add_gradient_rows(gradients, group, span, min(number, 1), workspace // 4)
                found.append(gradients)
            add_feature_gram(out, found[0], found[-1], symmetric)


def add_feature_gram(
    out: torch.Tensor, first: torch.Tensor, second: torch.Tensor, symmetric: bool
) -> None:
    """Add ΦΦ₂ᵀ for (n, c, p) and (n₂, c, p) to `out`; if symmetric, at least its lower triangle."""
    phi, phi2 = first.reshape(out.shape[0], -1), second.reshape(out.shape[1], -1)
    blocks = 16 if symmetric else 1
    for rows in spans(out.shape[0], max(64, math.ceil(out.shape[0] / blocks))):
        stop = rows.stop if symmetric else out.shape[1]
        out[rows, :stop].addmm_(phi[rows], phi2[:stop].T)


def mirror_lower_triangle(matrix: torch.Tensor) -> None:
    """Copy the lower triangle of a square matrix to its upper one, in place and in blocks."""
    for rows in spans(matrix.shape[0], 128):
        matrix[: rows.start, rows] = matrix[rows, : rows.start].T
        block = matrix[rows, rows]
        block.copy_(block.tril() + block.tril(-1).T)


def _add_by_pairs(
    out: torch.Tensor,
    first: MatrixGradients,
    second: MatrixGradients,
    bias: bool,
    symmetric: bool,
    workspace: int,
) -> None:
    n, c, t, _ = first.deltas.shape
    n2, _, s, _ = second.deltas.shape
    pairs = t * s if t * s > _FEW_PAIRS else 1  # at a time
    side = max(1, min(workspace // 2, BLOCK // 2) // (n2 * c * c * pairs))
    side = min(side, math.ceil(n / 4)) if symmetric else side  # to omit what is mirrored
    for group in range(first.inputs.groups):
        for rows in spans(n, side):
            own = first.factors(group, rows)
            other = second.factors(group, slice(0, rows.stop if symmetric else n2))
            block = out[rows.start * c : rows.stop * c, : len(other.inputs) * c]
            block = block.unflatten(0, (-1, c)).unflatten(2, (-1, c))
            if pairs == 1:
                for place in itertools.product(range(len(own.counts)), range(len(other.counts))):
                    mine, theirs = own.at(place[0]), other.at(place[1])
                    products = mine.deltas.flatten(0, 2) @ theirs.deltas.flatten(0, 2).T
                    alike = _similarity(first, mine, theirs, bias).flatten(1)
                    block.addcmul_(products.view(block.shape), alike[:, None, :, None])
                continue
            products = own.deltas.flatten(0, 2) @ other.deltas.flatten(0, 2).T
            shape = own.deltas.shape[:3] + other.deltas.shape[:3]
            similarity = _similarity(first, own, other, bias)
            products = products.view(shape).mul_(similarity[:, None, :, :, None])
            block += products.sum((2, 5))


def _add_by_carrying(
    out: torch.Tensor,
    first: MatrixGradients,
    second: MatrixGradients,
    bias: bool,
    symmetric: bool,
    workspace: int,
) -> None:
    n, c, t, _ = first.deltas.shape
    n2, _, s, _ = second.deltas.shape
    blocks = out.unflatten(0, (n, c)).unflatten(2, (n2, c))
    k, d = first.width, first.inputs.columns
    side = max(1, workspace // (4 * t * d))
    side2 = max(1, min(workspace // (4 * s * d), workspace // (4 * min(side, n) * t * s)))
    # Narrower blocks compute less above the diagonal; below 256 columns products get slow.
    side2 = min(side2, max(math.ceil(256 / s), n2 // 16))
    carried_samples = max(1, min(BLOCK, workspace // 4) // (c * t * k))
    for group in range(first.inputs.groups):
        for rows in spans(n, side):
            own = first.factors(group, rows)
            delta = own.deltas.flatten(2)
            for columns in spans(n2, side2):
                if symmetric and columns.start >= rows.stop:
                    break
                below = max(0, columns.start - rows.start) if symmetric else 0
                other = second.factors(group, columns)
                here = Factors(own.inputs[below:], own.deltas[below:], own.counts)
                similarity = _similarity(first, here, other, bias)
                for j, column in enumerate(range(columns.start, columns.stop)):
                    # In the symmetric case, sample j is paired with samples i ≥ j only.
                    begin = max(0, column - rows.start) if symmetric else 0
                    for part in spans(delta.shape[0] - begin, carried_samples):
                        mine = slice(begin + part.start, begin + part.stop)
                        weights = similarity[mine.start - below : mine.stop - below, :, j]
                        found = _carry(weights, other.deltas[j], delta[mine])  # (b, c, c)
                        blocks[rows.start + mine.start : rows.start + mine.stop, :, column] += found


def _carry(weights: torch.Tensor, delta2: torch.Tensor, delta: torch.Tensor) -> torch.Tensor:
    """Σ_t δ_iyt · Σ_s w_its δ_y's: w (b, P, P₂), δ of one sample (c, P₂, k), of b (b, c, P·k)."""
    b, t, s = weights.shape
    c = len(delta2)
    carried = torch.bmm(weights.reshape(b * t, s).expand(c, b * t, s), delta2)  # (c, b·P, k)
    return torch.bmm(delta, carried.view(c, b, -1).permute(1, 2, 0))


def _similarity(use: MatrixGradients, own: Factors, other: Factors, bias: bool) -> torch.Tensor:
    """a_it·a_js, (b, P, b₂, P₂), with the products of the bias's inputs, which are 1."""
    found = use.inputs.similarity(own.inputs, other.inputs).to(own.counts.dtype)
    found = found.view(*own.inputs.shape[:2], *other.inputs.shape[:2])
    return found + own.counts[:, None, None] * other.counts if bias else found
