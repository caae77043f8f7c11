"""Random small models: each step uses parameters in one of the ways that people do."""

import math
from operator import attrgetter

import torch
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

from feature_alignment.determinism import torch_stream

FIRST = (3, 4)  # tokens and width of the inputs


class Graph(nn.Module):
    """Steps (model, h (n, t, d)) → h, and the parameters that they read."""

    def __init__(self):
        super().__init__()
        self.steps, self.text = [], []

    def __repr__(self):
        shapes = {name: tuple(p.shape) for name, p in self.named_parameters()}
        return f"{' → '.join(self.text)} with {shapes}"

    def new(self, *shape):
        """Name of a new parameter."""
        name = f"p{len(list(self.parameters()))}"
        values = torch.randn(shape, generator=torch_stream(0, name), dtype=torch.float64)
        self.register_parameter(name, nn.Parameter(values * 0.5))
        return name

    def forward(self, x):
        h = x
        for step in self.steps:
            h = step(self, h)
        return h


def source(draw, graph, *shape):
    """A function of the model that gives a tensor of a shape, and what it does."""
    numel = math.prod(shape)
    kinds = ["own", "view", "sliced", "exp", "tanh", "sum", "stacked"]
    kinds += ["permuted", "softmax"] * (len(shape) > 1)
    kinds += ["gram"] * (len(shape) == 2 and shape[0] == shape[1])
    fitting = [name for name, p in graph.named_parameters() if p.numel() >= numel]
    kinds += ["tied"] * 3 * bool(fitting)
    kind = draw(st.sampled_from(kinds))
    if kind == "tied":
        name = draw(st.sampled_from(fitting))
        read = attrgetter(name)
        if graph.get_parameter(name).shape == shape:
            return read, name
        return lambda m: read(m).flatten()[:numel].view(shape), f"part of {name}"
    first = {
        "view": (numel,),
        "sliced": (shape[0] + 2, *shape[1:]) if shape else (3,),
        "permuted": shape[::-1],
        "gram": (shape[0] if shape else 1, 2),
        "stacked": shape[1:],
    }.get(kind, shape)
    name = graph.new(*first)
    axes = tuple(reversed(range(len(shape))))
    functions = {
        "own": lambda p: p,
        "view": lambda p: p.view(shape),
        "sliced": lambda p: p[1:-1] if shape else p[1],
        "exp": torch.exp,
        "tanh": lambda p: torch.tanh(p) + p,
        "sum": lambda p: p + 2 * p.flip(0) if shape else 3 * p,
        "stacked": lambda p: torch.stack([p] * shape[0]) if shape else p,
        "permuted": lambda p: p.permute(axes),
        "softmax": lambda p: p.softmax(-1),
        "gram": lambda p: p @ p.T,
    }
    return lambda m: functions[kind](getattr(m, name)), f"{kind} {name}"


def linear(draw, g, t, d):
    k = draw(st.integers(1, 4))
    same = [name for name, m in g.named_children() if m.in_features == d]
    if same and draw(st.booleans()):
        name = draw(st.sampled_from(same))
        k = g.get_submodule(name).out_features
    else:
        name = f"f{len(list(g.named_children()))}"
        torch.manual_seed(len(name) + d)
        g.add_module(name, nn.Linear(d, k, bias=draw(st.booleans())).double())
    return lambda m, h: m.get_submodule(name)(h), name, (t, k)


def product(draw, g, t, d):
    k = draw(st.integers(1, 4))
    w, text = source(draw, g, d, k)
    return lambda m, h: h @ w(m), f"h @ {text}", (t, k)


def left(draw, g, t, d):
    s = draw(st.integers(1, 4))
    w, text = source(draw, g, s, t)
    return lambda m, h: w(m) @ h, f"{text} @ h", (s, d)


SPELLINGS = {
    "ntd,dk->ntk": "dk",
    "kd,ntd->ntk": "kd",
    "ntd,ts->nsd": "ts",
    "ntd,tdk->ntk": "tdk",
    "ntd,tdsk->nsk": "tdsk",
    "ntd,td->ntd": "td",
    "ntd,tk->ntk": "tk",
    "ntd,dk,nsd->ntk": "dk",
}


def einsum(draw, g, t, d):
    spelling = draw(st.sampled_from(sorted(SPELLINGS)))
    sizes = {"t": t, "d": d, "s": draw(st.integers(1, 3)), "k": draw(st.integers(1, 3))}
    w, text = source(draw, g, *(sizes[letter] for letter in SPELLINGS[spelling]))
    shape = tuple(sizes[letter] for letter in spelling[-2:])

    def step(m, h):
        if spelling.count(",") == 2:
            return torch.einsum(spelling, h, w(m), h)
        pair = (w(m), h) if spelling.startswith("kd") else (h, w(m))
        return torch.einsum(spelling, *pair)

    return step, f"einsum {spelling} {text}", shape


ARITHMETIC = {
    "h + p": lambda h, p: h + p,
    "h * p": lambda h, p: h * p,
    "h - p": lambda h, p: h - p,
    "p - h": lambda h, p: p - h,
    "h / p": lambda h, p: h / (2 + torch.tanh(p)),
    "h * (1 + p)": lambda h, p: h * (1 + p),
    "max": lambda h, p: torch.maximum(h, p),
    "where": lambda h, p: torch.where(h > 0, h, p),
}


def arithmetic(draw, g, t, d):
    name = draw(st.sampled_from(sorted(ARITHMETIC)))
    shape = draw(
        st.sampled_from(
            [(), (1,), (d,), (t, 1), (1, d), (t, d), (1, t, d), (1, 1, 1), (1, t, 1), (1, 1, d)]
        )
    )
    p, text = source(draw, g, *shape)
    return lambda m, h: ARITHMETIC[name](h, p(m)), f"{name} {text} {shape}", (t, d)


def layer_norm(draw, g, t, d):
    (w, one), (b, two) = source(draw, g, d), source(draw, g, d)
    return lambda m, h: F.layer_norm(h, (d,), w(m), b(m), 0.1), f"layer norm {one}, {two}", (t, d)


def convolution(draw, g, t, d):
    k, size = draw(st.integers(1, 3)), draw(st.integers(1, min(t, 2)))
    w, text = source(draw, g, k, d, size)

    def step(m, h):
        return F.conv1d(h.transpose(1, 2), w(m), padding=size - 1).transpose(1, 2)

    return step, f"conv {text}", (t + size - 1, k)


def attention(draw, g, t, d):
    parts = [source(draw, g, d, 2) for _ in range(2)]
    v, last = source(draw, g, d, d)

    def step(m, h):
        q, k = (h @ w(m) for w, _ in parts)
        return (q @ k.transpose(1, 2)).softmax(-1) @ (h @ v(m)) + h

    return step, f"attention {[text for _, text in parts]}, {last}", (t, d)


def token(draw, g, t, d):
    p, text = source(draw, g, 1, 1, d)
    front, repeated = draw(st.booleans()), draw(st.booleans())

    def step(m, h):
        own = p(m).repeat(len(h), 1, 1) if repeated else p(m).expand(len(h), -1, -1)
        return torch.cat([own, h] if front else [h, own], 1)

    return step, f"token {text}", (t + 1, d)


def lookup(draw, g, t, d):
    rows = draw(st.integers(1, 5))
    p, text = source(draw, g, rows, d)
    way = draw(st.sampled_from(["index", "embedding", "embedding of each", "by data", "gather"]))

    def step(m, h):
        places = torch.arange(t) % rows
        if way == "index":
            return h + p(m)[places]
        if way == "embedding":
            return h + F.embedding(places, p(m))
        if way == "embedding of each":
            return h + F.embedding(places.expand(len(h), t), p(m))
        if way == "by data":
            return h * p(m)[(h[..., 0] > 0).long() * (rows - 1)]
        return h + p(m).gather(0, places[:, None].expand(t, d))

    return step, f"lookup {way} {text}", (t, d)


def past(draw, g, t, d):
    p, text = source(draw, g, d)
    return lambda m, h: (h * p(m)).cumsum(1), f"cumsum {text}", (t, d)


def merged(draw, g, t, d):
    k, across = draw(st.integers(1, 3)), draw(st.booleans())
    (w, one), (b, two) = source(draw, g, d, k), source(draw, g, k)

    def step(m, h):
        n = len(h)
        if across:
            rows = h.transpose(0, 1).reshape(t * n, d)
            return torch.addmm(b(m), rows, w(m)).view(t, n, k).transpose(0, 1)
        return torch.addmm(b(m), h.reshape(n * t, d), w(m)).view(n, t, k)

    return step, f"merged{' across' * across} {one}, {two}", (t, k)


def second_axis(draw, g, t, d):
    p, text = source(draw, g, t, 1, d)
    return lambda m, h: (h.transpose(0, 1) * p(m)).transpose(0, 1), f"across {text}", (t, d)


PLAIN = {
    "tanh": torch.tanh,
    "gelu": F.gelu,
    "sin": torch.sin,
    "softplus": F.softplus,
    "softmax": lambda h: h.softmax(-1),
    "normalise": lambda h: h / (1 + h.square().sum(-1, keepdim=True)).sqrt(),
    "flip": lambda h: h.flip(1),
    "roll": lambda h: h.roll(1, 1) + h,
    "in place": lambda h: (h * 2).add_(1).sigmoid_(),
}


def plain(draw, g, t, d):
    name = draw(st.sampled_from(sorted(PLAIN)))
    return lambda m, h: PLAIN[name](h), name, (t, d)


def mean(draw, g, t, d):
    return lambda m, h: h.mean(1, keepdim=True), "mean", (1, d)


def transposed(draw, g, t, d):
    return lambda m, h: h.transpose(1, 2), "transpose", (d, t)


def regrouped(draw, g, t, d):
    return lambda m, h: h.reshape(len(h), d, t), "reshape", (d, t)


STEPS = [
    linear,
    product,
    left,
    einsum,
    arithmetic,
    arithmetic,
    layer_norm,
    convolution,
    attention,
    token,
    lookup,
    past,
    merged,
    second_axis,
    plain,
    plain,
    mean,
    transposed,
    regrouped,
]


@st.composite
def graphs(draw):
    """A random model with outputs (n, 2)."""
    graph, (t, d) = Graph(), FIRST
    chosen = draw(st.lists(st.sampled_from(STEPS), min_size=1, max_size=6))
    for make in [*chosen, product]:
        step, text, (t, d) = make(draw, graph, t, d)
        graph.steps.append(step)
        graph.text.append(text)
    weight, text = source(draw, graph, d, 2)
    graph.steps.append(lambda m, h: torch.tanh(h).sum(1) @ weight(m))
    graph.text.append(f"readout {text}")
    return graph.eval()
