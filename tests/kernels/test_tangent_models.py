import pytest
import torch
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream
from feature_alignment.gradients.capture_plan import plan_capture
from feature_alignment.kernels.tangent import tangent_features, tangent_kernel
from toys import Toy


class Block(nn.Module):
    """Residual block with in-place activations and a strided shortcut."""

    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.norm1 = nn.BatchNorm2d(outside)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.norm2 = nn.BatchNorm2d(outside)
        self.shortcut = nn.Conv2d(inside, outside, 1, stride, bias=False)

    def forward(self, x):
        h = F.relu(self.norm1(self.conv1(x)), inplace=True)
        h = self.norm2(self.conv2(h))
        h += self.shortcut(x)
        return F.relu(h, inplace=True)


class Attention(nn.Module):
    def __init__(self, width, heads, fused):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(width, width) for _ in range(4))
        self.norm = nn.LayerNorm(width)
        self.heads, self.fused = heads, fused

    def forward(self, x):
        n, t, d = x.shape
        h = self.norm(x)
        q, k, v = (
            layer(h).view(n, t, self.heads, -1).transpose(1, 2)
            for layer in (self.q, self.k, self.v)
        )
        if self.fused:
            mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        else:
            mask = torch.ones(t, t, dtype=torch.bool, device=x.device).tril()
            scores = (q @ k.transpose(-1, -2) / q.shape[-1] ** 0.5).masked_fill(~mask, -torch.inf)
            mixed = scores.softmax(-1) @ v
        return x + self.out(mixed.transpose(1, 2).reshape(n, t, d))


class GPT(nn.Module):
    """Two attention blocks; the embedding may serve as the head, positions may be looked up."""

    def __init__(self, vocabulary=7, width=8, tied=False, fused=False, positions="looked up"):
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        if positions == "own":
            self.places = nn.Parameter(torch.randn(1, 5, width))
        else:
            self.places = nn.Embedding(5, width)
        self.positions = positions
        self.blocks = nn.Sequential(*(Attention(width, 2, fused) for _ in range(2)))
        self.norm = nn.LayerNorm(width)
        self.head = nn.Linear(width, vocabulary, bias=False)
        if tied:
            self.head.weight = self.tokens.weight

    def forward(self, tokens):
        places = self.places
        if self.positions == "looked up":
            places = self.places(torch.arange(tokens.shape[1]))
        elif self.positions == "looked up as one row":
            places = self.places(torch.arange(tokens.shape[1])[None])
        elif self.positions == "indexed afterwards":  # one copy per sample would break this
            places = self.places(torch.arange(5))[torch.arange(tokens.shape[1])]
        return self.head(self.norm(self.blocks(self.tokens(tokens) + places))[:, -1])


class Branches(nn.Module):
    """Weights that are used twice, in calls of one module and in two modules."""

    def __init__(self, vocabulary=None):
        super().__init__()
        self.conv = nn.Conv2d(3, 3, 3, padding=1)
        self.twin = nn.Conv2d(3, 3, 3, stride=2)
        self.twin.weight = self.conv.weight
        self.norm = nn.GroupNorm(1, 3)
        self.head = nn.LazyLinear(2)

    def forward(self, x):
        h = torch.tanh(self.norm(self.conv(torch.tanh(self.conv(x)))))
        return self.head(torch.tanh(self.norm(self.twin(h))).flatten(1))


def last():
    """Outputs at the last step of a recurrent network."""
    cell, head = nn.LSTM(3, 4, batch_first=True), nn.Linear(4, 2)
    return Toy(lambda m, x: m.head(m.cell(x)[0][:, -1]), cell=cell, head=head)


def self_attention():
    """PyTorch's own attention module, which uses its parameters outside their modules."""

    def forward(m, x):
        return m.head(m.attention(x, x, x, need_weights=False)[0].mean(1))

    attention = nn.MultiheadAttention(4, 2, batch_first=True)
    return Toy(forward, attention=attention, head=nn.Linear(4, 2))


def normal(*shape, seed=0):
    return torch.randn(*shape, dtype=torch.float64, generator=torch_stream(seed, "data"))


def prepare(model, x):
    torch.manual_seed(0)
    model = model.double()
    with torch.no_grad():
        model(x)
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter) / max(1, parameter[0].numel()) ** 0.5)
    return model.eval()


def vgg():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(4, 6, 3, padding=1),
        nn.BatchNorm2d(6),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Dropout(),
        nn.Linear(6, 3),
    )


def resnet():
    return nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1, bias=False),
        Block(4, 4, 1),
        Block(4, 6, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(6, 3),
    )


def images(seed=0):
    return normal(3, 3, 6, 6, seed=seed)[:, :, :5, :5]


def tokens(seed=0):
    return torch.randint(7, (3, 5), generator=torch_stream(seed, "tokens"))


def sequence(seed=0):
    return normal(3, 5, 3, seed=seed)


MODELS = {
    "VGG": (vgg, images),
    "ResNet": (resnet, images),
    "GPT": (GPT, tokens),
    "GPT with fused attention": (lambda: GPT(fused=True), tokens),
    "tied GPT": (lambda: GPT(tied=True), tokens),
    "GPT, row of positions": (lambda: GPT(positions="looked up as one row"), tokens),
    "GPT, own positions": (lambda: GPT(positions="own"), tokens),
    "GPT, fused, own positions": (lambda: GPT(positions="own", fused=True), tokens),
    "GPT, odd positions": (lambda: GPT(positions="indexed afterwards"), tokens),
    "shared weights": (Branches, images),
    "LSTM": (last, sequence),
    "attention module": (self_attention, lambda seed=0: normal(3, 5, 4, seed=seed)),
    "activation with a parameter": (
        lambda: nn.Sequential(nn.Linear(3, 4), nn.PReLU(), nn.Flatten(), nn.Linear(20, 2)),
        sequence,
    ),
    "weight normalisation": (
        lambda: nn.utils.parametrizations.weight_norm(nn.Linear(15, 2)),
        lambda seed=0: sequence(seed).flatten(1),
    ),
}


@pytest.mark.parametrize("name", MODELS)
def test_models_agree_with_the_explicit_jacobian(name, explicit_kernel, assert_same_kernel):
    build, data = MODELS[name]
    x, x2 = data(), data(seed=1)[:2]
    model = prepare(build(), x)
    assert plan_capture(model, x).generic == ()  # rules for every parameter
    assert_same_kernel(tangent_kernel(model, x), explicit_kernel(model, x), 1e-10)
    assert_same_kernel(tangent_kernel(model, x, x2), explicit_kernel(model, x, x2), 1e-10)


@pytest.mark.parametrize("name", ["VGG", "ResNet", "GPT", "tied GPT"])
def test_float32_agrees_to_its_precision(name, explicit_kernel, assert_same_kernel):
    build, data = MODELS[name]
    x = data()
    model = prepare(build(), x)
    expected = explicit_kernel(model, x)
    single = x.float() if x.is_floating_point() else x
    found = tangent_kernel(model.float(), single)
    assert found.total.dtype == torch.float32
    assert_same_kernel(found, expected, 1e-4)


@pytest.mark.parametrize("name", ["ResNet", "tied GPT", "shared weights", "LSTM"])
def test_features_have_the_kernel_as_their_gram_matrix(name, explicit_kernel):
    build, data = MODELS[name]
    x = data()
    model = prepare(build(), x)
    features = tangent_features(model, x).flatten(0, 1)
    assert features.shape[1] == sum(parameter.numel() for parameter in model.parameters())
    torch.testing.assert_close(features @ features.T, sum(explicit_kernel(model, x).values()))


def test_a_shared_weight_belongs_to_its_first_layer():
    x = images()
    layers = tangent_kernel(prepare(Branches(), x), x).layers
    assert list(layers) == ["conv", "twin", "norm", "head"]
    x = tokens()
    assert "head" not in tangent_kernel(prepare(GPT(tied=True), x), x).layers
