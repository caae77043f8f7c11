"""Trace of the tangent kernel of a network with one hidden layer, for the price of a forward pass.

`kernels.tangent_trace` is for any network and costs several training steps.
"""

import torch
from torch import nn
from torch.nn import functional as F


def one_hidden_layer_trace(hidden: nn.Linear, readout: nn.Linear, x: torch.Tensor) -> float:
    """Trace Tr K = ‖Φ_w‖_F² of the tangent kernel of f(x) = V relu(Ux + b) + b', in closed form.

    With h = Ux + b and a = relu(h): ∂f_y/∂V_yj = a_j and ∂f_y/∂U_jk = V_yj 1[h_j > 0] x_k, so
    Tr K = Σ_i { c (‖a_i‖² + 1) + (‖x_i‖² + 1) Σ_j 1[h_ij > 0] ‖V_{·j}‖² }, where each 1 is a bias.

    Source: Baratin et al. 2021, footnote 11 (‖Φ_t‖_F² = Tr K_t); the closed form is ours.

    Args:
        hidden: U (k, d) and b (k,).
        readout: V (c, k) and b' (c,).
        x: inputs (n, …) with d entries each.

    Returns:
        Tr K, summed in float64, in units of f² per parameter².

    Example:
        >>> hidden, readout = nn.Linear(1, 1), nn.Linear(1, 1)
        >>> with torch.no_grad():
        ...     for layer in (hidden, readout):
        ...         _ = layer.weight.fill_(2), layer.bias.fill_(0)
        >>> one_hidden_layer_trace(hidden, readout, torch.tensor([[3.0]]))  # 6² + 1 + (3² + 1)·2²
        77.0
    """
    with torch.no_grad():
        x = x.flatten(1)  # (n, d)
        h = hidden(x)  # (n, k)
        a = F.relu(h)
        biases = int(readout.bias is not None), int(hidden.bias is not None)
        by_readout = len(readout.weight) * (_squares(a) + biases[0])  # (n,)
        columns = readout.weight.double().square().sum(0)  # (k,): ‖V_{·j}‖²
        by_hidden = (_squares(x) + biases[1]) * ((h > 0).double() @ columns)  # (n,)
        return float((by_readout + by_hidden).sum())


def _squares(rows: torch.Tensor) -> torch.Tensor:
    return rows.square().sum(1, dtype=torch.float64)
