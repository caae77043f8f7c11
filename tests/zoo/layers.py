"""Small modules that use parameters in every way that PyTorch's layers, and people, do."""

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import parametrizations, parametrize
from torch.utils.checkpoint import checkpoint

from feature_alignment.determinism import torch_stream

T, D = 4, 6  # tokens of a sample, and their width


def _draw(*shape):
    return lambda n, seed: torch.randn(
        n, *shape, generator=torch_stream(seed, "data"), dtype=torch.float64
    )


def words(n, seed):
    """Tokens (n, T)."""
    return torch.randint(0, 7, (n, T), generator=torch_stream(seed, "words"))


vectors, sequences, pictures, solids = _draw(D), _draw(T, D), _draw(3, 6, 6), _draw(2, 4, 4, 4)


def parameter(*shape):
    """Random, of the size of an initialised layer's."""
    return nn.Parameter(torch.randn(shape) / max(1, shape[-1] if shape else 1) ** 0.5)


class Own(nn.Module):
    """Parameters and modules by name, and how outputs follow: `function(model, x)`."""

    def __init__(self, function, **members):
        super().__init__()
        self.function = function
        for name, member in members.items():
            setattr(self, name, member)

    def forward(self, x):
        return self.function(self, x)


def tokens(function, outputs=3, **members):
    """A token layer between others: linear, tanh, the function, tanh, mean, linear."""

    def forward(m, x):
        h = torch.tanh(function(m, torch.tanh(m.first(x))))
        return m.head(h.flatten(2).mean(1) ** 2 + h[:, -1].flatten(1))

    return Own(forward, first=nn.Linear(D, D), head=nn.LazyLinear(outputs), **members)


def layer(module):
    """A layer of tokens."""
    return tokens(lambda m, h: m.layer(h), layer=module)


def spatial(module, inside, convolution):
    """A layer of pictures between convolutions."""

    def forward(m, x):
        h = torch.tanh(m.layer(torch.tanh(m.first(x))))
        return m.head(h.flatten(1))

    first = convolution(inside, 4, 3, padding=1)
    return Own(forward, first=first, layer=module, head=nn.LazyLinear(3))


def picture(module):
    """A layer of two dimensions."""
    return spatial(module, 3, nn.Conv2d)


def solid(module):
    """A layer of three dimensions."""
    return spatial(module, 2, nn.Conv3d)


def line(module):
    """A layer of one dimension, tokens along it."""
    return tokens(
        lambda m, h: m.layer(m.lift(h).transpose(1, 2)).transpose(1, 2),
        lift=nn.Linear(D, 4),
        layer=module,
    )


def recurrent(module):
    """The whole output and last state of a recurrent network."""
    return tokens(lambda m, h: m.layer(h)[0], layer=module)


def recurrent_across(module):
    """Samples along the second axis, as recurrent networks have them by default."""
    return tokens(lambda m, h: m.layer(h.transpose(0, 1))[0].transpose(0, 1), layer=module)


def cell(module):
    """A loop over time by hand."""

    def run(m, h):
        state = m.layer(h[:, 0])
        for t in range(1, T):
            state = m.layer(h[:, t], state)
        return (state[0] if isinstance(state, tuple) else state)[:, None]

    return tokens(run, layer=module)


def attention(function, **options):
    """PyTorch's attention."""
    return tokens(function, layer=nn.MultiheadAttention(D, 2, **options))


def class_token(join):
    """Attention with a class token, which alone is read."""

    def run(m, h):
        h = torch.cat([join(m.token, h), h], 1)
        return h + m.layer(h, h, h)[0]

    return tokens(
        run, token=parameter(1, 1, D), layer=nn.MultiheadAttention(D, 2, batch_first=True)
    )


def heads(spelling, *shape):
    """Values mixed head by head."""
    return tokens(
        lambda m, h: torch.einsum(spelling, h.view(len(h), T, 2, 3), m.w).flatten(2),
        w=parameter(*shape),
    )


def tied_readout():
    """Embedding that is the readout, too."""

    def forward(m, x):
        return m.readout(torch.tanh(m.layer(m.table(x))).mean(1))[:, :3]

    model = Own(
        forward,
        table=nn.Embedding(7, D),
        layer=nn.Linear(D, D),
        readout=nn.Linear(D, 7, bias=False),
    )
    model.readout.weight = model.table.weight
    return model


def tied_layers():
    """Two layers of one weight, each with its bias."""
    model = tokens(lambda m, h: m.b(torch.tanh(m.a(h))), a=nn.Linear(D, D), b=nn.Linear(D, D))
    model.b.weight = model.a.weight
    return model


def shared_bias(b, wide=300):
    """Two very different layers of one bias."""

    def forward(m, x):
        return m.head(torch.tanh(m.a(m.lift(x))) * torch.tanh(m.b(x[..., :2] @ m.c)))

    model = Own(
        forward,
        lift=nn.Linear(D, wide),
        a=nn.Linear(wide, 10),
        b=b,
        c=parameter(2, b.in_features if isinstance(b, nn.Linear) else 10),
        head=nn.Linear(10, 3),
    )
    model.b.bias = model.a.bias
    return model


class Standardised(nn.Conv2d):
    """Convolution with a standardised weight."""

    def forward(self, x):
        mean, std = self.weight.mean((1, 2, 3), True), self.weight.std((1, 2, 3), keepdim=True)
        return F.conv2d(x, (self.weight - mean) / (std + 1e-5), self.bias, padding=1)


class LowRank(nn.Module):
    """W + BA as the weight of a layer."""

    def __init__(self):
        super().__init__()
        self.b, self.a = parameter(D, 2), parameter(2, D)

    def forward(self, weight):
        return weight + self.b @ self.a


def low_rank():
    """A layer whose weight is W + BA by parametrisation."""
    inner = nn.Linear(D, D)
    parametrize.register_parametrization(inner, "weight", LowRank())
    return layer(inner)


def table_bias():
    """Attention with a table of relative positions."""
    index = torch.arange(T)[:, None] - torch.arange(T) + T - 1

    def run(m, h):
        scores = h @ h.transpose(1, 2) / D + m.table[index]
        return scores.softmax(-1) @ h

    return tokens(run, table=parameter(2 * T - 1))


def hooked():
    """A layer whose output a hook of the user's scales."""
    inner = nn.Linear(D, D)
    inner.register_forward_hook(lambda module, arguments, output: 2 * output)
    inner.register_forward_pre_hook(lambda module, arguments: (torch.sin(arguments[0]),))
    return layer(inner)


def frozen(model):
    """Most parameters frozen, which count nevertheless."""
    for p in (*model.first.parameters(), model.layer.weight):
        p.requires_grad_(False)
    return model


def overwrites(m, x):
    """A model that changes its input in place."""
    f = m.layer(torch.tanh(x))
    x.mul_(0.5)
    return f + m.other(torch.tanh(x))


class SinglePrecision(nn.Module):
    """A body in single and a head in double precision."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(D, D), nn.Linear(D, 3)

    def double(self):
        self.head.double()
        return self

    def forward(self, x):
        return self.head(torch.tanh(self.body(x.float())).double())


def windows(m, h):
    """Columns of a picture as samples of their own, as Swin has windows."""
    n = len(h)
    h = h.view(n, 2, 2, D).transpose(1, 2).reshape(2 * n, 2, D)
    return m.layer(h, h, h)[0].view(n, 2, 2, D).transpose(1, 2).reshape(n, T, D)


def moving(m, h):
    """In-place operations after and before layers."""
    a = m.a(h)
    a += h
    a.relu_()
    b = m.b(a)
    b[:, 0] *= 2
    b.sub_(m.shift)
    return b


def without_gradient(m, h):
    """Parameters that the outputs depend on, but no gradient passes."""
    with torch.no_grad():
        shift = m.a * 2
    return m.c(h * m.b.detach() + shift) + F.linear(h, m.c.weight.detach())


def experts(m, h):
    """Each token goes to one of two layers."""
    chosen = h[..., 0] > 0
    out = torch.zeros_like(h)
    out[chosen] = m.a(h[chosen])
    out[~chosen] = m.b(h[~chosen])
    return out


def twice():
    """A module that two others hold."""
    inner = nn.Linear(D, D)
    return tokens(
        lambda m, h: m.b(torch.tanh(m.a(h))),
        a=nn.Sequential(inner),
        b=nn.Sequential(inner, nn.Tanh()),
    )


def hooked_tensor(m, h):
    """A gradient that is doubled on its way back."""
    out = m.f(h)
    if out.requires_grad:
        out.register_hook(lambda gradient: 2 * gradient)
    return out


def put_back(m, h):
    """Two groups of samples, by different layers."""
    first = h[:, 0].sum(-1) > 0
    out = torch.empty_like(h)
    out[first], out[~first] = m.a(h[first]), m.b(h[~first])
    return out


def force(m, x):
    """The gradient of an energy by the inputs, as in models of forces."""
    place = x.detach().requires_grad_()
    energy = torch.tanh(place @ m.w).square().sum()
    return torch.autograd.grad(energy, place, create_graph=True)[0][:, :3]


def functional_force(m, x):
    """The same by PyTorch's functional transforms."""

    def energy(sample):
        return torch.tanh(sample @ m.w).square().sum()

    return torch.func.vmap(torch.func.grad(energy))(x)[:, :3]


class Reversed(torch.autograd.Function):
    """The identity, whose gradient is turned round."""

    @staticmethod
    def forward(ctx, x):
        return x.clone()

    @staticmethod
    def backward(ctx, gradient):
        return -2 * gradient


class HandMade(torch.autograd.Function):
    """h @ W with a backward pass by hand."""

    @staticmethod
    def forward(ctx, h, w):
        ctx.save_for_backward(h, w)
        return h @ w

    @staticmethod
    def backward(ctx, gradient):
        h, w = ctx.saved_tensors
        return gradient @ w.T, h.flatten(0, 1).T @ gradient.flatten(0, 1)


def written(m, h):
    """Results written to parts of a tensor, and a parameter to others."""
    out = h.new_zeros(len(h), T + 1, D)
    out[:, :2] = m.f(h[:, :2])
    out[:, 2] = m.p
    out[:, 3:] += h[:, 2:] * m.p
    return out


def packed(m, h):
    """Sequences of different lengths, packed."""
    lengths = 2 + (h[:, 0, 0] > 0).long()
    sequence = nn.utils.rnn.pack_padded_sequence(h, lengths, batch_first=True, enforce_sorted=False)
    out = nn.utils.rnn.pad_packed_sequence(m.layer(sequence)[0], batch_first=True, total_length=T)
    return out[0]


def fixed_point(m, h):
    """Twelve steps towards z = tanh(Wz + h)."""
    z = torch.zeros_like(h)
    for _ in range(12):
        z = torch.tanh(z @ (0.3 * m.w) + h)
    return z


def best(m, h):
    """Each token to the better one of three experts."""
    weight, index = m.gate(h).softmax(-1).max(-1)
    return torch.einsum("ntd,ntdk->ntk", h, m.w[index]) * weight[..., None]


def fourier_layer(m, h):
    """Multiplication by complex numbers of a picture's lowest frequencies, held as real ones."""
    f = torch.fft.rfft(h, dim=1)
    mixed = torch.einsum("nfd,fdk->nfk", f[:, :2], torch.view_as_complex(m.w))
    return torch.fft.irfft(F.pad(mixed, (0, 0, 0, 1)), n=T, dim=1)


LAYERS = {
    "linear": (lambda: nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, 3)), vectors),
    "linear on tokens, no bias": (lambda: layer(nn.Linear(D, 5, bias=False)), sequences),
    "bilinear": (
        lambda: tokens(lambda m, h: m.layer(h, h.flip(1)), layer=nn.Bilinear(D, D, 4)),
        sequences,
    ),
    "conv 1d": (lambda: line(nn.Conv1d(4, 5, 3, padding=1)), sequences),
    "conv 1d, circular, depthwise": (
        lambda: line(nn.Conv1d(4, 8, 2, groups=4, padding=1, padding_mode="circular")),
        sequences,
    ),
    "conv 2d": (lambda: picture(nn.Conv2d(4, 5, 3)), pictures),
    "conv 2d, strided, dilated": (
        lambda: picture(nn.Conv2d(4, 5, (3, 2), (2, 1), (1, 2), (1, 2))),
        pictures,
    ),
    "conv 2d, groups": (lambda: picture(nn.Conv2d(4, 6, 3, groups=2, padding=1)), pictures),
    "conv 2d, depthwise": (lambda: picture(nn.Conv2d(4, 8, 3, groups=4)), pictures),
    "conv 2d, reflect": (
        lambda: picture(nn.Conv2d(4, 5, 3, padding=(1, 2), padding_mode="reflect")),
        pictures,
    ),
    "conv 2d, same": (
        lambda: picture(nn.Conv2d(4, 5, 3, padding="same", dilation=2)),
        pictures,
    ),
    "conv 3d": (lambda: solid(nn.Conv3d(4, 3, (2, 3, 1), padding=(0, 1, 0))), solids),
    "transposed conv 1d": (
        lambda: line(nn.ConvTranspose1d(4, 5, 3, stride=2, output_padding=1)),
        sequences,
    ),
    "transposed conv 2d": (
        lambda: picture(nn.ConvTranspose2d(4, 6, 3, 2, 1, groups=2)),
        pictures,
    ),
    "transposed conv, padded by a stride": (
        lambda: line(nn.ConvTranspose1d(4, 5, 3, dilation=2, output_padding=1, bias=False)),
        sequences,
    ),
    "transposed conv 3d": (lambda: solid(nn.ConvTranspose3d(4, 2, 2, 2)), solids),
    "embedding with a padding token": (
        lambda: Own(
            lambda m, x: m.head(torch.tanh(m.table(x)).mean(1)),
            table=nn.Embedding(7, D, padding_idx=2),
            head=nn.Linear(D, 3),
        ),
        words,
    ),
    "embedding bag": (
        lambda: Own(
            lambda m, x: m.head(torch.tanh(m.table(x))),
            table=nn.EmbeddingBag(7, D, mode="mean", padding_idx=1),
            head=nn.Linear(D, 3),
        ),
        words,
    ),
    "embedding bag with a flat list": (
        lambda: Own(
            lambda m, x: m.head(torch.tanh(m.table(x.flatten(), torch.arange(len(x)) * T))),
            table=nn.EmbeddingBag(7, D, mode="sum", sparse=True),
            head=nn.Linear(D, 3),
        ),
        words,
    ),
    "layer norm": (lambda: layer(nn.LayerNorm(D)), sequences),
    "layer norm over two axes": (lambda: layer(nn.LayerNorm((T, D))), sequences),
    "layer norm without affine": (
        lambda: layer(nn.LayerNorm(D, elementwise_affine=False)),
        sequences,
    ),
    "group norm": (lambda: picture(nn.GroupNorm(2, 4)), pictures),
    "batch norm": (lambda: picture(nn.BatchNorm2d(4)), pictures),
    "batch norm on vectors": (
        lambda: nn.Sequential(nn.Linear(D, 4), nn.BatchNorm1d(4), nn.Tanh(), nn.Linear(4, 3)),
        vectors,
    ),
    "batch norm before a transposition": (
        lambda: Own(
            lambda m, x: (
                m.head(m.scale(m.norm(m.conv(x)).flatten(2).transpose(1, 2))).tanh().mean(1)
            ),
            conv=nn.Conv2d(3, 4, 3),
            norm=nn.BatchNorm2d(4),
            scale=nn.LayerNorm(4),
            head=nn.Linear(4, 3),
        ),
        pictures,
    ),
    "instance norm": (lambda: picture(nn.InstanceNorm2d(4, affine=True)), pictures),
    "instance norm with running statistics": (
        lambda: picture(nn.InstanceNorm2d(4, affine=True, track_running_stats=True)),
        pictures,
    ),
    "root mean square norm": (lambda: layer(nn.RMSNorm(D)), sequences),
    "one slope": (lambda: layer(nn.PReLU()), sequences),
    "slopes by channel": (lambda: picture(nn.PReLU(4)), pictures),
    "RNN": (lambda: recurrent(nn.RNN(D, 5, batch_first=True)), sequences),
    "GRU, two ways": (
        lambda: recurrent(nn.GRU(D, 3, batch_first=True, bidirectional=True)),
        sequences,
    ),
    "LSTM, two layers": (lambda: recurrent(nn.LSTM(D, 4, 2, batch_first=True)), sequences),
    "LSTM, projected, two ways": (
        lambda: recurrent(nn.LSTM(D, 4, batch_first=True, proj_size=2, bidirectional=True)),
        sequences,
    ),
    "LSTM across": (lambda: recurrent_across(nn.LSTM(D, 4)), sequences),
    "LSTM cell": (lambda: cell(nn.LSTMCell(D, 4)), sequences),
    "GRU cell": (lambda: cell(nn.GRUCell(D, 4)), sequences),
    "self-attention": (
        lambda: attention(lambda m, h: m.layer(h, h, h)[0], batch_first=True),
        sequences,
    ),
    "self-attention across": (
        lambda: attention(
            lambda m, h: m.layer(*[h.transpose(0, 1)] * 3, need_weights=False)[0].transpose(0, 1)
        ),
        sequences,
    ),
    "cross-attention of other widths": (
        lambda: attention(
            lambda m, h: m.layer(h, h[..., :4], h[..., :3])[0],
            kdim=4,
            vdim=3,
            batch_first=True,
            add_bias_kv=True,
        ),
        sequences,
    ),
    "encoder": (
        lambda: layer(
            nn.TransformerEncoder(
                nn.TransformerEncoderLayer(D, 2, 8, 0.0, batch_first=True, norm_first=True),
                2,
                enable_nested_tensor=False,
            )
        ),
        sequences,
    ),
    "decoder": (
        lambda: tokens(
            lambda m, h: m.layer(h, h.flip(1)),
            layer=nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 2, 8, batch_first=True), 2),
        ),
        sequences,
    ),
}

USAGES = {
    "class token by expand": (
        lambda: class_token(lambda token, h: token.expand(len(h), -1, -1)),
        sequences,
    ),
    "class token by repeat": (
        lambda: class_token(lambda token, h: token.repeat(len(h), 1, 1)),
        sequences,
    ),
    "positions added": (lambda: tokens(lambda m, h: h + m.p, p=parameter(1, T, D)), sequences),
    "positions sliced": (
        lambda: tokens(lambda m, h: h + m.p[:, 1 : h.shape[1] + 1], p=parameter(1, 9, D)),
        sequences,
    ),
    "positions looked up": (
        lambda: tokens(lambda m, h: h + m.p(torch.arange(h.shape[1])), p=nn.Embedding(T + 1, D)),
        sequences,
    ),
    "positions looked up for each sample": (
        lambda: tokens(
            lambda m, h: h + m.p(torch.arange(T).expand(len(h), T)), p=nn.Embedding(T, D)
        ),
        sequences,
    ),
    "temperature": (
        lambda: tokens(
            lambda m, h: F.normalize(h, dim=-1) * m.t.exp(), t=nn.Parameter(torch.tensor(0.3))
        ),
        sequences,
    ),
    "ReZero": (
        lambda: tokens(lambda m, h: h + m.a * m.f(h), a=parameter(1), f=nn.Linear(D, D)),
        sequences,
    ),
    "LayerScale": (
        lambda: tokens(lambda m, h: h + m.a * m.f(h), a=parameter(D), f=nn.Linear(D, D)),
        sequences,
    ),
    "scale by sum of two parameters": (
        lambda: tokens(
            lambda m, h: h * (1 + m.a) / (2 + m.b**2), a=parameter(D), b=parameter(T, 1)
        ),
        sequences,
    ),
    "einsum ntd,kd->ntk": (
        lambda: tokens(lambda m, h: torch.einsum("ntd,kd->ntk", h, m.w), w=parameter(5, D)),
        sequences,
    ),
    "einsum dk,ntd->ntk": (
        lambda: tokens(lambda m, h: torch.einsum("dk,ntd->ntk", m.w, h), w=parameter(D, 5)),
        sequences,
    ),
    "einsum over tokens": (
        lambda: tokens(lambda m, h: torch.einsum("ntd,ts->nsd", h, m.w), w=parameter(T, T)),
        sequences,
    ),
    "einsum over tokens and features": (
        lambda: tokens(lambda m, h: torch.einsum("ntd,tdsk->nsk", h, m.w), w=parameter(T, D, 2, 3)),
        sequences,
    ),
    "einsum by head, own widths": (lambda: heads("bthd,hdk->bthk", 2, 3, 4), sequences),
    "einsum by head, one matrix": (lambda: heads("bthd,dk->bthk", 3, 4), sequences),
    "einsum by head, mixing heads": (lambda: heads("bthd,hgd->btgd", 2, 2, 3), sequences),
    "einsum of three": (
        lambda: tokens(
            lambda m, h: torch.einsum("ntd,dr,kr->ntk", h, m.a, m.b),
            a=parameter(D, 2),
            b=parameter(5, 2),
        ),
        sequences,
    ),
    "bilinear form of a sample": (
        lambda: tokens(lambda m, h: torch.einsum("ntd,de,nse->nts", h, m.w, h), w=parameter(D, D)),
        sequences,
    ),
    "parameter on the left": (lambda: tokens(lambda m, h: m.w @ h, w=parameter(5, T)), sequences),
    "x @ W": (lambda: tokens(lambda m, h: h @ m.w, w=parameter(D, 5)), sequences),
    "x @ W of vectors": (
        lambda: Own(lambda m, x: torch.tanh(x @ m.w) @ m.v, w=parameter(D, 5), v=parameter(5, 3)),
        vectors,
    ),
    "addmm and baddbmm": (
        lambda: tokens(
            lambda m, h: torch.baddbmm(m.b, h, m.w.expand(len(h), -1, -1)),
            b=parameter(1, 1, 5),
            w=parameter(D, 5),
        ),
        sequences,
    ),
    "tied embedding and readout": (tied_readout, words),
    "tied layers": (tied_layers, sequences),
    "tied transposed": (
        lambda: tokens(lambda m, h: torch.tanh(h @ m.w) @ m.w.T, w=parameter(D, 5)),
        sequences,
    ),
    "one layer called thrice": (
        lambda: tokens(lambda m, h: m.f(torch.tanh(m.f(torch.tanh(m.f(h))))), f=nn.Linear(D, D)),
        sequences,
    ),
    "weight norm": (lambda: layer(parametrizations.weight_norm(nn.Linear(D, D))), sequences),
    "old weight norm": (lambda: layer(nn.utils.weight_norm(nn.Linear(D, D))), sequences),
    "spectral norm": (lambda: layer(parametrizations.spectral_norm(nn.Linear(D, D))), sequences),
    "old spectral norm": (lambda: layer(nn.utils.spectral_norm(nn.Linear(D, D))), sequences),
    "orthogonal": (lambda: layer(parametrizations.orthogonal(nn.Linear(D, D))), sequences),
    "weight standardisation": (lambda: picture(Standardised(4, 5, 3)), pictures),
    "LoRA in weights": (low_rank, sequences),
    "LoRA beside": (
        lambda: tokens(
            lambda m, h: m.f(h) + h @ m.a @ m.b,
            f=nn.Linear(D, D),
            a=parameter(D, 2),
            b=parameter(2, D),
        ),
        sequences,
    ),
    "sliced weights": (
        lambda: tokens(
            lambda m, h: torch.cat([F.linear(h, m.f.weight[:2]), h @ m.f.weight[2:, :].T], -1),
            f=nn.Linear(D, D),
        ),
        sequences,
    ),
    "vector reshaped to a matrix": (
        lambda: tokens(lambda m, h: h @ m.w.view(D, 5), w=parameter(5 * D)),
        sequences,
    ),
    "weights of W Wᵀ": (
        lambda: tokens(lambda m, h: h @ (m.w @ m.w.T), w=parameter(D, 3)),
        sequences,
    ),
    "convolution with a computed kernel": (
        lambda: Own(
            lambda m, x: F.conv2d(x, torch.tanh(m.w).view(4, 3, 2, 2), m.b.exp()).mean((2, 3)),
            w=parameter(48),
            b=parameter(4),
        ),
        pictures,
    ),
    "convolution with a kernel for each sample": (
        lambda: Own(
            lambda m, x: (
                F.conv2d(
                    x.flatten(0, 1)[None],
                    m.kernels(x.mean((2, 3))).view(-1, 1, 3, 3),
                    groups=3 * len(x),
                )
                .view(len(x), 3, -1)
                .mean(2)
            ),
            kernels=nn.Linear(3, 27),
        ),
        pictures,
    ),
    "outputs (n,)": (lambda: Own(lambda m, x: m.f(x).squeeze(-1), f=nn.Linear(D, 1)), vectors),
    "outputs (n, c, h, w)": (
        lambda: Own(lambda m, x: m.f(x)[:, :, :1, :2], f=nn.Conv2d(3, 2, 5)),
        pictures,
    ),
    "added after masking": (
        lambda: tokens(
            lambda m, h: torch.where((h > 0).any(-1, keepdim=True), h, m.mask) + m.b,
            mask=parameter(D),
            b=parameter(D),
        ),
        sequences,
    ),
    "gates": (
        lambda: tokens(
            lambda m, h: torch.where(h > 0, m.a(h), m.b * h), a=nn.Linear(D, D), b=parameter(D)
        ),
        sequences,
    ),
    "detached and without gradient": (
        lambda: tokens(without_gradient, a=parameter(D), b=parameter(D), c=nn.Linear(D, D)),
        sequences,
    ),
    "unused head": (
        lambda: tokens(lambda m, h: m.f(h), f=nn.Linear(D, D), spare=nn.Linear(D, 4)),
        sequences,
    ),
    "sum over past tokens": (
        lambda: tokens(lambda m, h: (h * m.a).cumsum(1), a=parameter(D)),
        sequences,
    ),
    "gather": (
        lambda: Own(
            lambda m, x: torch.stack(
                [m.w[x].sum(1), m.w.gather(0, x[:, 0]) ** 2, m.w.take(x[:, 1])], 1
            ),
            w=parameter(7),
        ),
        words,
    ),
    "outer products": (
        lambda: tokens(
            lambda m, h: h @ torch.outer(m.a, m.b) + torch.einsum("ntd,k->ntdk", h, m.b).mean(2),
            a=parameter(D),
            b=parameter(5),
        ),
        sequences,
    ),
    "table of relative positions": (table_bias, sequences),
    "complex arithmetic": (
        lambda: tokens(
            lambda m, h: (
                torch.fft.ifft(
                    torch.fft.fft(h, dim=1) * torch.complex(m.a, m.b)[:, None], dim=1
                ).real
            ),
            a=parameter(T),
            b=parameter(T),
        ),
        sequences,
    ),
    "view as complex": (
        lambda: tokens(
            lambda m, h: torch.view_as_real(
                torch.view_as_complex(h.view(len(h), T, 3, 2)) * torch.view_as_complex(m.w)
            ).flatten(2),
            w=parameter(T, 3, 2),
        ),
        sequences,
    ),
    "dropout in evaluation": (
        lambda: layer(nn.Sequential(nn.Dropout(), nn.Linear(D, D), nn.Dropout1d())),
        sequences,
    ),
    "frozen": (lambda: frozen(layer(nn.Linear(D, D))), sequences),
    "checkpoint": (
        lambda: tokens(
            lambda m, h: checkpoint(m.f, h, use_reentrant=False) + m.b,
            f=nn.Sequential(nn.Linear(D, D), nn.Tanh(), nn.Linear(D, D)),
            b=parameter(D),
        ),
        sequences,
    ),
    "shared bias": (lambda: shared_bias(nn.Linear(2, 10)), vectors),
    "bias shared with a layer norm": (lambda: shared_bias(nn.LayerNorm(10)), vectors),
    "hooks that scale": (hooked, sequences),
    "in place": (
        lambda: tokens(moving, a=nn.Linear(D, D), b=nn.Linear(D, D), shift=parameter(D)),
        sequences,
    ),
    "changes its input": (
        lambda: Own(overwrites, layer=nn.Linear(D, 3), other=nn.Linear(D, 3)),
        vectors,
    ),
    "body in single precision": (SinglePrecision, vectors, 1e-5),
    "samples along the second axis": (
        lambda: tokens(
            lambda m, h: m.f(h.transpose(0, 1) + m.p).transpose(0, 1),
            f=nn.Linear(D, D),
            p=parameter(T, 1, D),
        ),
        sequences,
    ),
    "samples along the last axis": (
        lambda: tokens(
            lambda m, h: (m.w @ h.movedim(0, -1).flatten(1)).view(D, D, -1).movedim(-1, 0),
            w=parameter(D, T),
        ),
        sequences,
    ),
    "samples and tokens merged": (
        lambda: tokens(lambda m, h: m.f(h.flatten(0, 1)).view(len(h), T, D), f=nn.Linear(D, D)),
        sequences,
    ),
    "tokens and samples merged": (
        lambda: tokens(
            lambda m, h: (
                m.f(h.transpose(0, 1).flatten(0, 1)).view(T, len(h), D).transpose(0, 1)
                * m.g(h.transpose(0, 1).flatten(0, 1)).view(T, len(h), D).transpose(0, 1)
            ),
            f=nn.Linear(D, D),
            g=nn.LayerNorm(D),
        ),
        sequences,
    ),
    "windows": (
        lambda: tokens(windows, layer=nn.MultiheadAttention(D, 2, batch_first=True)),
        sequences,
    ),
    "pixel shuffle": (
        lambda: picture(nn.Sequential(nn.Conv2d(4, 8, 3), nn.PixelShuffle(2), nn.Conv2d(2, 3, 2))),
        pictures,
    ),
    "one-hot tokens": (
        lambda: Own(
            lambda m, x: m.f(F.one_hot(x, 7).to(m.f.weight.dtype).flatten(1)), f=nn.Linear(7 * T, 3)
        ),
        words,
    ),
    "list of parameters": (
        lambda: tokens(
            lambda m, h: h @ m.ws[0] + h**2 @ m.ws[1] * m.s["a"],
            ws=nn.ParameterList([parameter(D, D), parameter(D, D)]),
            s=nn.ParameterDict({"a": parameter(D)}),
        ),
        sequences,
    ),
    "experts by index": (
        lambda: tokens(
            lambda m, h: torch.einsum("ntd,ntdk->ntk", h, m.w[(h[..., 0] > 0).long()]),
            w=parameter(2, D, 5),
        ),
        sequences,
    ),
    "distances to prototypes": (
        lambda: tokens(lambda m, h: torch.cdist(h, m.w) ** 2, w=parameter(5, D)),
        sequences,
    ),
    "one module under two names": (twice, sequences),
    "gradient turned round": (
        lambda: tokens(
            lambda m, h: m.f(Reversed.apply(h * m.p)), f=nn.Linear(D, D), p=parameter(D)
        ),
        sequences,
    ),
    "function with its own backward pass": (
        lambda: tokens(lambda m, h: HandMade.apply(h, m.w), w=parameter(D, 5)),
        sequences,
    ),
    "gradient changed by a hook on a tensor": (
        lambda: tokens(hooked_tensor, f=nn.Linear(D, D)),
        sequences,
    ),
    "written to parts of a tensor": (
        lambda: tokens(written, f=nn.Linear(D, D), p=parameter(D)),
        sequences,
    ),
    "packed sequences": (lambda: tokens(packed, layer=nn.GRU(D, 4, batch_first=True)), sequences),
    "fixed point": (lambda: tokens(fixed_point, w=parameter(D, D)), sequences),
    "experts of the best": (
        lambda: tokens(best, gate=nn.Linear(D, 3), w=parameter(3, D, 4)),
        sequences,
    ),
    "complex weights held as real ones": (
        lambda: tokens(fourier_layer, w=parameter(2, D, 3, 2)),
        sequences,
    ),
    "one sample at a time": (
        lambda: tokens(
            lambda m, h: torch.stack([m.f(s) * m.p for s in h]), f=nn.Linear(D, D), p=parameter(D)
        ),
        sequences,
    ),
    "one sample at a time, without a batching rule": (
        lambda: tokens(lambda m, h: torch.stack([F.mish(s * m.p) for s in h]), p=parameter(D)),
        sequences,
    ),
    "two samples at a time": (
        lambda: tokens(
            lambda m, h: torch.cat([m.f(s) * m.p for s in h.split(2)]),
            f=nn.Linear(D, D),
            p=parameter(D),
        ),
        sequences,
    ),
    "samples twice": (
        lambda: tokens(
            lambda m, h: torch.stack(m.f(torch.cat([h, h.flip(1)])).chunk(2)).prod(0),
            f=nn.Linear(D, D),
        ),
        sequences,
    ),
    "samples twice in a row": (
        lambda: tokens(
            lambda m, h: m.f(h.repeat_interleave(2, 0) * m.p.repeat(len(h), 1, 1)).view(
                -1, 2 * T, D
            ),
            f=nn.Linear(D, D),
            p=parameter(2, T, D),
        ),
        sequences,
    ),
    "ensemble by vmap": (
        lambda: tokens(
            lambda m, h: torch.func.vmap(lambda w, b: torch.tanh(h @ w + b))(m.w, m.b).sum(0),
            w=parameter(3, D, 4),
            b=parameter(3, 4),
        ),
        sequences,
    ),
    "ensemble by a batched product": (
        lambda: tokens(
            lambda m, h: (
                torch.baddbmm(m.b, h.flatten(0, 1).expand(3, -1, -1), m.w).view(3, -1, T, 4).prod(0)
            ),
            w=parameter(3, D, 4),
            b=parameter(3, 1, 4),
        ),
        sequences,
    ),
    "product for each token": (
        lambda: tokens(
            lambda m, h: torch.bmm(h.transpose(0, 1), m.w).transpose(0, 1), w=parameter(T, D, 4)
        ),
        sequences,
    ),
    "positions resampled": (
        lambda: tokens(
            lambda m, h: h + F.interpolate(m.p, size=T, mode="linear").transpose(1, 2),
            p=parameter(1, D, 7),
        ),
        sequences,
    ),
    "fused attention with a bias": (
        lambda: tokens(
            lambda m, h: F.scaled_dot_product_attention(h, h @ m.w, h, attn_mask=m.bias),
            w=parameter(D, D),
            bias=parameter(T, T),
        ),
        sequences,
    ),
    "attention with padding": (
        lambda: attention(
            lambda m, h: m.layer(h, h, h, key_padding_mask=h[..., 0] > 0.5, need_weights=False)[
                0
            ].nan_to_num(),
            batch_first=True,
        ),
        sequences,
    ),
    "encoder and decoder": (
        lambda: tokens(
            lambda m, h: m.layer(h, h.flip(1)),
            layer=nn.Transformer(D, 2, 1, 1, 8, 0.0, batch_first=True),
        ),
        sequences,
    ),
    "patches by unfold": (
        lambda: Own(
            lambda m, x: torch.tanh(m.f(F.unfold(x, 3, stride=3).transpose(1, 2))).mean(1),
            f=nn.Linear(27, 3),
        ),
        pictures,
    ),
    "sampled by a learned grid": (
        lambda: Own(
            lambda m, x: (
                F.grid_sample(
                    x,
                    F.affine_grid(m.a.expand(len(x), 2, 3), x.shape, align_corners=False),
                    align_corners=False,
                )
                .square()
                .mean((2, 3))
            ),
            a=parameter(2, 3),
        ),
        pictures,
    ),
    "weighted bag": (
        lambda: Own(
            lambda m, x: F.embedding_bag(
                x, m.table, per_sample_weights=m.w.expand(len(x), T), mode="sum"
            ),
            table=parameter(7, 3),
            w=parameter(T),
        ),
        words,
    ),
    "scattered": (
        lambda: Own(
            lambda m, x: torch.zeros(len(x), 7, dtype=m.w.dtype).scatter_add(
                1, x, m.w.expand(len(x), T) ** 2
            )[:, :3],
            w=parameter(T),
        ),
        words,
    ),
    "tensordot and Kronecker product": (
        lambda: tokens(
            lambda m, h: torch.tensordot(h, m.a, 1) @ torch.kron(m.b, m.b),
            a=parameter(D, 4),
            b=parameter(2, 2),
        ),
        sequences,
    ),
    "solution of equations": (
        lambda: tokens(
            lambda m, h: torch.linalg.solve(
                2 * torch.eye(D).to(h) + 0.1 * m.w, h.transpose(1, 2)
            ).transpose(1, 2),
            w=parameter(D, D),
        ),
        sequences,
    ),
    "exponential of a matrix": (
        lambda: tokens(lambda m, h: h @ torch.matrix_exp(m.w - m.w.T), w=parameter(D, D)),
        sequences,
    ),
    "sorted parameter": (
        lambda: tokens(
            lambda m, h: h * m.p.sort().values + m.p.cumsum(0) * m.p.prod(), p=parameter(D)
        ),
        sequences,
    ),
    "splines": (
        lambda: tokens(
            lambda m, h: torch.einsum(
                "ntdb,dbk->ntk", torch.exp(-((h[..., None] - m.centres) ** 2)), m.w
            ),
            w=parameter(D, 3, 4),
            centres=parameter(3),
        ),
        sequences,
    ),
    "normalised by a learned power": (
        lambda: tokens(
            lambda m, h: (h.abs() + 0.1) ** m.p / (h.abs() + 0.1).pow(m.q).sum(-1, keepdim=True),
            p=parameter(D),
            q=parameter(1),
        ),
        sequences,
    ),
    "weight dropped by its size": (
        lambda: tokens(
            lambda m, h: F.linear(h, m.f.weight * (m.f.weight.abs() > 0.2), m.f.bias),
            f=nn.Linear(D, D),
        ),
        sequences,
    ),
    "straight through": (
        lambda: tokens(lambda m, h: h @ (m.w + (m.w.sign() - m.w).detach()), w=parameter(D, 4)),
        sequences,
    ),
    "batch norm, then its own weight": (
        lambda: tokens(
            lambda m, h: m.n(h.transpose(1, 2)).transpose(1, 2) @ torch.diag(m.n.weight),
            n=nn.BatchNorm1d(D),
        ),
        sequences,
    ),
    "group norm on tokens": (
        lambda: tokens(lambda m, h: m.n(h.flatten(0, 1)).view(-1, T, D), n=nn.GroupNorm(2, D)),
        sequences,
    ),
    "last token by its place": (
        lambda: Own(
            lambda m, x: m.f(m.table(x))[torch.arange(len(x)), x.argmax(1)],
            table=nn.Embedding(7, D),
            f=nn.Linear(D, 3),
        ),
        words,
    ),
    "samples chosen by a mask and put back": (
        lambda: tokens(put_back, a=nn.Linear(D, D), b=nn.Linear(D, D)),
        sequences,
    ),
    "output is a parameter of itself": (
        lambda: Own(lambda m, x: m.p.expand(len(x), 3) + 0 * x[:, :3], p=parameter(3)),
        vectors,
    ),
    "a matrix of parameters as output": (
        lambda: Own(lambda m, x: torch.outer(x[:, 0], m.p), p=parameter(3)),
        vectors,
    ),
    "influence of very different sizes": (
        lambda: tokens(lambda m, h: m.a(h) + 1e-7 * m.b(h), a=nn.Linear(D, D), b=nn.Linear(D, D)),
        sequences,
    ),
    "inputs of very different sizes": (
        lambda: Own(
            lambda m, x: m.f(torch.tanh(m.g(x * 10.0 ** (4 * x[:, :1])))),
            f=nn.Linear(D, 3),
            g=nn.Linear(D, D),
        ),
        vectors,
    ),
    "gradient of an energy": (lambda: Own(force, w=parameter(D, D)), vectors),
    "gradient of an energy by transforms": (
        lambda: Own(functional_force, w=parameter(D, D)),
        vectors,
    ),
    "tangent of a network": (
        lambda: Own(
            lambda m, x: torch.func.jvp(lambda z: torch.tanh(z @ m.w), (x,), (x.cos(),))[1],
            w=parameter(D, 3),
        ),
        vectors,
    ),
    "table with a largest norm": (
        lambda: Own(
            lambda m, x: m.f(torch.tanh(m.table(x)).sum(1)),
            table=nn.Embedding(7, D, max_norm=0.5),
            f=nn.Linear(D, 3),
        ),
        words,
    ),
    "table of sparse gradients": (
        lambda: Own(
            lambda m, x: m.f(torch.tanh(m.table(x)).sum(1)),
            table=nn.Embedding(7, D, sparse=True),
            f=nn.Linear(D, 3),
        ),
        words,
    ),
    "a layer on a table that all samples share": (
        lambda: tokens(
            lambda m, h: h * torch.tanh(m.f(m.grid))[:T],
            f=nn.Linear(2, D),
            grid=torch.linspace(-2, 2, 12, dtype=torch.float64).view(6, 2),
        ),
        sequences,
    ),
}
