import pytest
import torch

from feature_alignment.models.vgg import PLANS, VGG, SeededDropout


def vgg(depth=11, base_width=2, output_dim=3, seed=0, **options):
    return VGG(depth, base_width, output_dim, torch.Generator().manual_seed(seed), **options)


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def images(n=2, side=32):
    return torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(9))


@pytest.mark.parametrize(
    ("depth", "batch_norm", "parameters"),
    # With batch norm: the counts known for this layout on CIFAR-10. Without: less 2 per channel.
    [
        (19, True, 20_040_522),
        (19, False, 20_040_522 - 2 * 5504),
        (11, True, 9_231_114),
        (11, False, 9_231_114 - 2 * 2752),
    ],
)
def test_full_size_parameter_counts_with_the_linear_head(depth, batch_norm, parameters):
    assert size(vgg(depth, 64, 10, batch_norm=batch_norm)) == parameters


def test_the_two_hidden_head_is_torchvisions_on_pooled_features():
    from torchvision.models import vgg11

    with torch.device("meta"):
        reference = vgg11(num_classes=10)
    narrower = 4096 * 512 * (7 * 7 - 1)  # torchvision's first linear layer sees 7×7 positions
    assert size(vgg(11, 64, 10, head="two_hidden")) == size(reference) - narrower


@pytest.mark.parametrize("batch_norm", [False, True])
@pytest.mark.parametrize("depth", [11, 19])
def test_features_are_torchvisions(depth, batch_norm):
    from torchvision.models.vgg import make_layers

    ours = vgg(depth, 2, batch_norm=batch_norm, init="kaiming").eval()
    with torch.device("meta"):
        plan = [2 * multiple if multiple else "M" for multiple in PLANS[depth]]
        theirs = make_layers(plan, batch_norm=batch_norm).eval()
    theirs.load_state_dict(ours.features.state_dict(), assign=True)
    pooled = theirs(images(2, 64)).mean(dim=(2, 3))
    torch.testing.assert_close(ours(images(2, 64)), ours.head(pooled))


@pytest.mark.parametrize("options", [{}, {"batch_norm": True}, {"head": "two_hidden"}])
def test_outputs_have_one_row_per_image_and_depend_on_it_alone(options):
    model, x = vgg(**options).eval(), images(3)
    f = model(x)
    assert f.shape == (3, 3)
    torch.testing.assert_close(model(x[1:2]), f[1:2])
    assert model(images(1, 64)).shape == (1, 3)


def test_without_biases_the_network_is_positively_homogeneous():
    model, x = vgg(bias=False, dtype=torch.float64), images().double()
    assert all(parameter.ndim > 1 for parameter in model.parameters())
    torch.testing.assert_close(model(3 * x), 3 * model(x))


def test_dropout_of_the_two_hidden_head_acts_in_training_only():
    model, x = vgg(head="two_hidden", init="kaiming"), images()
    assert not torch.equal(model(x), model(x))
    assert [m.p for m in model.head if isinstance(m, SeededDropout)] == [0.5, 0.5]
    model.eval()
    assert torch.equal(model(x), model(x))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"depth": 16}, r"depth: '16' is unknown; allowed: 11, 19"),
        ({"head": "liner"}, "did you mean 'linear'"),
        ({"base_width": 0}, "base_width: 0"),
        ({"init": "kaimin"}, "did you mean 'kaiming'"),
        ({"head": "two_hidden", "dropout": 1.5}, "p: 1.5"),
    ],
)
def test_what_is_no_vgg_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        vgg(**options)


def test_images_that_vanish_in_the_pools_are_refused():
    with pytest.raises(ValueError, match=r"28×28 pixels vanish .* at least 32"):
        vgg()(images(1, 28))
