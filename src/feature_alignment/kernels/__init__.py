"""What a network's gradients say: tangent kernels, pre-activation kernels, feature matrices."""
