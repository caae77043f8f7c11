import math

import pytest
import torch
from torch import nn

from feature_alignment.models.gpt import GPT


def gpt(vocabulary=7, n_layer=2, n_head=2, n_embd=8, block_size=6, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return GPT(vocabulary, n_layer, n_head, n_embd, block_size, generator, **options)


def tokens(n=3, length=6, vocabulary=7):
    generator = torch.Generator().manual_seed(5)
    return torch.randint(vocabulary, (n, length), generator=generator)


def size(model):
    return sum(parameter.numel() for parameter in model.parameters())


def test_parameter_count_is_nanogpts_for_its_character_model():
    # nanoGPT prints 10.65M for its Shakespeare characters, without position embeddings.
    model = gpt(65, 6, 6, 384, 256)
    assert size(model) - model.position_embedding.weight.numel() == 10_646_784


def test_parameter_count_with_biases_and_an_untied_readout():
    d, tied = 8, gpt()
    assert size(gpt(tie_weights=False)) == size(tied) + 7 * d
    biases = 2 * (d + 4 * d + d + 4 * d + d) + d  # norms, q k v and out, 4d and d; last norm
    assert size(gpt(bias=True)) == size(tied) + biases


def test_shapes_of_the_logits():
    assert gpt()(tokens()).shape == (3, 6, 7)
    assert gpt()(tokens(2, 4)).shape == (2, 4, 7)
    every, last = gpt(), gpt(outputs="last_position")
    torch.testing.assert_close(last(tokens()), every(tokens())[:, -1])


def test_positions_see_no_later_characters():
    model, x = gpt(init="pytorch", dtype=torch.float64), tokens()
    changed = x.clone()
    changed[:, 3] = (changed[:, 3] + 1) % 7
    before, after = model(x), model(changed)
    torch.testing.assert_close(before[:, :3], after[:, :3])
    assert (before[:, 3:] - after[:, 3:]).abs().amax(dim=(0, 2)).min() > 1e-6


def test_a_block_is_pytorchs_pre_norm_layer():
    block = gpt(bias=True, init="pytorch", dtype=torch.float64).blocks[1]
    theirs = nn.TransformerEncoderLayer(
        8, 2, 32, dropout=0, activation="gelu", batch_first=True, norm_first=True,
        dtype=torch.float64,
    )  # fmt: skip
    ours, attention = block, block.attention
    parts = (attention.query, attention.key, attention.value)
    with torch.no_grad():
        for parameter in block.parameters():
            if parameter.ndim == 1:
                parameter += torch.linspace(-0.5, 0.5, len(parameter), dtype=torch.float64)
        theirs.self_attn.in_proj_weight.copy_(torch.cat([part.weight for part in parts]))
        theirs.self_attn.in_proj_bias.copy_(torch.cat([part.bias for part in parts]))
    theirs.self_attn.out_proj = attention.projection
    theirs.norm1, theirs.norm2 = ours.norm1, ours.norm2
    theirs.linear1, theirs.linear2 = ours.expand, ours.contract
    x = torch.randn(3, 6, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    mask = nn.Transformer.generate_square_subsequent_mask(6, dtype=torch.float64)
    torch.testing.assert_close(block(x), theirs(x, src_mask=mask, is_causal=True))


def test_logits_are_read_from_the_normalised_stream_of_both_embeddings():
    model, x = gpt(tie_weights=False, init="pytorch", dtype=torch.float64), tokens()
    stream = model.token_embedding.weight[x] + model.position_embedding.weight[None, :6]
    for block in model.blocks:
        stream = block(stream)
    centred = stream - stream.mean(2, keepdim=True)
    normed = centred / (centred.square().mean(2, keepdim=True) + 1e-5).sqrt()
    torch.testing.assert_close(model(x), normed @ model.readout.weight.T)


def test_nanogpt_initialisation():
    model = gpt(50, 4, 2, 64, 32, bias=True)
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            assert not parameter.any()
        elif parameter.ndim == 1:
            assert (parameter == 1).all()
        else:
            residual = name.endswith(("projection.weight", "contract.weight"))
            std = 0.02 / math.sqrt(8) if residual else 0.02
            assert parameter.std().item() == pytest.approx(std, rel=0.06)


def test_under_other_schemes_embeddings_are_drawn_as_pytorch_draws_them():
    model = gpt(50, 1, 2, 64, 32, init="pytorch")
    for embedding in (model.token_embedding, model.position_embedding):
        assert embedding.weight.std().item() == pytest.approx(1, rel=0.06)


def test_tied_weights_stay_one_parameter():
    model = gpt()
    assert model.readout.weight is model.token_embedding.weight
    assert gpt(tie_weights=False).readout.weight.std().item() == pytest.approx(0.02, rel=0.3)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        *(
            ({size: 0}, f"{size}: 0; it must be a whole number of at least 1")
            for size in ("vocabulary", "n_layer", "n_head", "n_embd", "block_size")
        ),
        ({"n_head": 3}, "3 heads do not divide n_embd = 8"),
        ({"init": "nanogtp"}, "did you mean 'nanogpt'"),
        ({"outputs": "last"}, "'last' is unknown"),
    ],
)
def test_what_is_no_gpt_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        gpt(**options)


def test_sequences_longer_than_the_block_are_refused():
    with pytest.raises(ValueError, match="sequences of 7 characters; block_size allows 6"):
        gpt()(tokens(1, 7))
