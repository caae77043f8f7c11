"""Centring of kernels and labels over samples, separately for each output."""

import torch


def centre_kernel(kernel: torch.Tensor, outputs: int = 1) -> torch.Tensor:
    """Gram matrix of the centred features Φ − mean over x of Φ, from that of the raw ones.

    Both are (n·c, n·c), sample-major. The features of each of the c outputs are centred with their
    own mean: K_c = CKC with C = (I_n − 11ᵀ/n) ⊗ I_c.

    Source: Baratin et al. 2021, Section 3.1.

    Raises:
        ValueError: if the kernel is not square or its size is not a multiple of c.

    Example:
        >>> centre_kernel(torch.tensor([[1.0, 0.0], [0.0, 1.0]]))
        tensor([[ 0.5000, -0.5000],
                [-0.5000,  0.5000]])
    """
    size = kernel.shape[0]
    if kernel.shape != (size, size) or size % outputs:
        raise ValueError(
            f"kernel of shape {tuple(kernel.shape)} with {outputs} outputs; "
            "it must be (n·c, n·c) with c outputs."
        )
    blocks = kernel.reshape(size // outputs, outputs, size // outputs, outputs)
    blocks = blocks - blocks.mean(dim=0, keepdim=True)
    blocks -= blocks.mean(dim=2, keepdim=True)  # in place, now that it is a copy
    return blocks.reshape(size, size)


def centre_labels(y: torch.Tensor) -> torch.Tensor:
    """Labels minus their mean over samples, for each output: (n, c) → (n, c).

    Example:
        >>> centre_labels(torch.tensor([[1.0, 0.0], [3.0, 0.0]]))
        tensor([[-1.,  0.],
                [ 1.,  0.]])
    """
    return y - y.mean(dim=0, keepdim=True)
