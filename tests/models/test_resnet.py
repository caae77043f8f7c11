import pytest
import torch
from torch import nn

from feature_alignment.models.resnet import ResNet18


def resnet(base_width=2, output_dim=3, seed=0, **options):
    return ResNet18(base_width, output_dim, torch.Generator().manual_seed(seed), **options)


def images(n=2):
    return torch.rand(n, 3, 32, 32, generator=torch.Generator().manual_seed(9))


def test_it_is_torchvisions_resnet18_but_for_the_stem():
    from torchvision.models import resnet18

    with torch.device("meta"):
        reference = resnet18(num_classes=10)
    stem = 64 * 3 * (7 * 7 - 3 * 3)
    # Known for this layout on CIFAR-10.
    assert sum(p.numel() for p in reference.parameters()) - stem == 11_173_962
    ours = sorted(tuple(p.shape) for p in resnet(64, 10).parameters())
    theirs = sorted(tuple(p.shape) for p in reference.parameters() if p.shape != (64, 3, 7, 7))
    assert ours == sorted([*theirs, (64, 3, 3, 3)])


@pytest.mark.parametrize("batch_norm", [True, False])
def test_outputs_have_one_row_per_image_and_depend_on_it_alone(batch_norm):
    model, x = resnet(batch_norm=batch_norm).eval(), images(3)
    f = model(x)
    assert f.shape == (3, 3)
    torch.testing.assert_close(model(x[1:2]), f[1:2])


def test_outputs_are_torchvisions_but_for_the_stem():
    from torchvision.models import resnet18

    ours = resnet(64, init="kaiming", dtype=torch.float64).eval()
    with torch.device("meta"):
        theirs = resnet18(num_classes=3).eval()
    theirs.conv1, theirs.maxpool = ours.stem, nn.Identity()
    generator = torch.Generator().manual_seed(0)
    for name, buffer in ours.named_buffers():
        if name.endswith(("mean", "var")):
            shift = -0.5 if name.endswith("mean") else 0.5
            buffer.copy_(torch.rand(buffer.shape, generator=generator) + shift)
    # Both name their layers differently and list them in the same order.
    state = dict(zip(theirs.state_dict(), ours.state_dict().values(), strict=True))
    theirs.load_state_dict(state, assign=True)
    assert (ours(images().double()) - ours.head.bias).abs().min() > 1e-3  # not a dead network
    torch.testing.assert_close(ours(images().double()), theirs(images().double()))


def test_stages_halve_the_image_and_double_the_channels():
    model = resnet(4).eval()
    h, shapes = torch.relu(model.stem_norm(model.stem(images(1)))), []
    for stage in model.stages:
        h = stage(h)
        shapes.append(tuple(h.shape[1:]))
    assert shapes == [(4, 32, 32), (8, 16, 16), (16, 8, 8), (32, 4, 4)]


def test_a_block_without_its_convolutions_is_its_shortcut():
    model = resnet()
    block, x = model.stages[0][0].eval(), images().mean(1, keepdim=True).repeat(1, 2, 1, 1)
    with torch.no_grad():
        block.conv2.weight.zero_()
    torch.testing.assert_close(block(x), x)


def test_biases_as_asked_for():
    def convolution_biases(model):
        return [m.bias is not None for m in model.modules() if isinstance(m, nn.Conv2d)]

    assert not any(convolution_biases(resnet()))
    assert all(convolution_biases(resnet(batch_norm=False)))
    free = resnet(batch_norm=False, bias=False, dtype=torch.float64)
    x = images().double()
    torch.testing.assert_close(free(3 * x), 3 * free(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [({"output_dim": 0}, "output_dim: 0"), ({"init": "torch"}, "'torch' is unknown")],
)
def test_what_is_no_resnet_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        resnet(**options)
