"""Published architectures of torchvision, timm and transformers, cut down to a few layers."""

from functools import partial

import timm
import torch
import torchvision
import transformers as hf
from timm.models import coat, ghostnet, metaformer, mlp_mixer, nfnet, resnet, resnetv2, sequencer
from timm.models import convnext as timm_convnext
from torch import nn
from torchvision.models import convnext, densenet, efficientnet, maxvit, regnet
from torchvision.models.googlenet import BasicConv2d, GoogLeNet, Inception, InceptionAux

from feature_alignment.determinism import torch_stream
from toys import Toy

VOCABULARY = 13


def images(size):
    """A function of n and a seed."""

    def draw(n, seed):
        generator = torch_stream(seed, "images")
        return torch.randn(n, 3, size, size, generator=generator, dtype=torch.float64)

    return draw


def tokens(n, seed):
    """Sentences of six tokens, without those that stand for padding or an end."""
    return torch.randint(3, VOCABULARY, (n, 6), generator=torch_stream(seed, "tokens"))


def picked(body, pick):
    """A model whose outputs are one tensor of what the body returns."""
    return Toy(lambda m, x: pick(m.body(x)), body=body)


def logits(model, config, **options):
    """A transformers model that returns logits."""
    return lambda: picked(model(config(**options)), lambda f: f.logits)


def pooled(model, config, **options):
    """A transformers model without a head: mean over tokens of four of its features."""
    return lambda: picked(model(config(**options)), lambda f: f.last_hidden_state.mean(1)[:, :3])


TEXT = {
    "vocab_size": VOCABULARY,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "max_position_embeddings": 16,
    "num_labels": 3,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
IMAGE = {
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 12,
    "image_size": 16,
    "patch_size": 8,
    "num_labels": 3,
}


def timm_model(name, size=32, **options):
    """A model of timm's for images of a size, and those."""
    return lambda: timm.create_model(name, num_classes=3, **options), images(size)


def short_resnet():
    """ResNet of its first two stages, a block each; the others differ in width, of 5 million."""
    model = torchvision.models.ResNet(torchvision.models.resnet.BasicBlock, [1, 1, 1, 1], 3)
    model.layer3, model.layer4 = nn.Identity(), nn.Identity()
    model.fc = nn.Linear(128, 3)
    return model


def short_squeezenet():
    """SqueezeNet of its first three modules, the last of them behind the second pooling."""
    model = torchvision.models.SqueezeNet("1_1", num_classes=3)
    model.features = model.features[:7]
    model.classifier[1] = nn.Conv2d(256, 3, 1)
    return model


def short_mnasnet():
    """MNASNet without one of its six stacks, two others cut."""
    model = torchvision.models.MNASNet(0.1, num_classes=3)
    stem, (first, second, _, fourth, fifth, last), head = (
        model.layers[part] for part in (slice(8), slice(8, 14), slice(14, None))
    )
    model.layers = nn.Sequential(*stem, first, second, fourth[:1], fifth[:2], last, *head)
    return model


def thin_googlenet():
    """GoogLeNet with an eighth of its channels."""

    def convolution(inside, outside, **options):
        return BasicConv2d(inside if inside == 3 else inside // 8, outside // 8, **options)

    def inception(*channels):
        return Inception(*(size // 8 for size in channels))

    blocks = [convolution, inception, InceptionAux]
    model = GoogLeNet(3, False, blocks=blocks, init_weights=False)
    model.fc = nn.Linear(128, 3)
    return model


def thin_efficientnet():
    """EfficientNet of two stages."""
    stages = [
        efficientnet.MBConvConfig(1, 3, 1, 8, 8, 1),
        efficientnet.MBConvConfig(4, 3, 2, 8, 16, 1),
    ]
    return efficientnet.EfficientNet(stages, 0.2, num_classes=3, last_channel=16)


def thin_convnext():
    """ConvNeXt of two stages."""
    stages = [convnext.CNBlockConfig(8, 12, 1), convnext.CNBlockConfig(12, None, 1)]
    return convnext.ConvNeXt(stages, num_classes=3)


def thin_regnet():
    """RegNetY of two blocks a stage."""
    parameters = regnet.BlockParams([1, 1, 1, 1], [8, 8, 16, 16], [4] * 4, [1.0] * 4, [2] * 4, 0.25)
    return regnet.RegNet(parameters, num_classes=3, stem_width=8)


def thin_timm_convnext(**options):
    """timm's ConvNeXt of four blocks."""
    options = {"ls_init_value": 0.1} | options
    return timm_convnext.ConvNeXt(num_classes=3, depths=(1,) * 4, dims=(8,) * 4, **options)


def mixer(**options):
    """timm's mixer of two blocks."""
    return mlp_mixer.MlpMixer(3, 32, num_blocks=2, embed_dim=12, **options)


VISION = torchvision.models
SWIN = {
    "patch_size": [4, 4],
    "embed_dim": 8,
    "depths": [2, 2],
    "num_heads": [2, 2],
    "window_size": [4, 4],
    "num_classes": 3,
}

# Model, and inputs by their number and seed; the tolerance of models that compute in single
# precision inside.
MODELS = {
    "torchvision ResNet": (short_resnet, images(32)),
    "torchvision MobileNetV2": (
        lambda: VISION.MobileNetV2(
            3, 0.25, [[1, 8, 1, 1], [4, 16, 2, 2], [4, 16, 1, 2]], round_nearest=4
        ),
        images(32),
    ),
    "torchvision MobileNetV3": (
        lambda: VISION.mobilenet_v3_small(
            num_classes=3, width_mult=0.25, reduced_tail=True, weights=None
        ),
        images(32),
    ),
    "torchvision EfficientNet": (thin_efficientnet, images(32)),
    "torchvision RegNet": (thin_regnet, images(32)),
    "torchvision DenseNet": (
        lambda: densenet.DenseNet(4, (2, 2), 8, num_classes=3),
        images(32),
    ),
    "torchvision DenseNet with checkpoints": (
        lambda: densenet.DenseNet(4, (2, 2), 8, num_classes=3, memory_efficient=True),
        images(32),
    ),
    "torchvision SqueezeNet": (short_squeezenet, images(32)),
    "torchvision GoogLeNet": (thin_googlenet, images(32)),
    "torchvision ShuffleNetV2": (
        lambda: VISION.ShuffleNetV2([1, 2, 1], [8, 8, 16, 16, 32], num_classes=3),
        images(32),
    ),
    "torchvision MNASNet": (short_mnasnet, images(32)),
    "torchvision ConvNeXt": (thin_convnext, images(32)),
    "torchvision ViT": (
        lambda: VISION.VisionTransformer(16, 8, 2, 2, 8, 12, num_classes=3),
        images(16),
    ),
    "torchvision Swin": (lambda: VISION.SwinTransformer(**SWIN), images(32)),
    "torchvision Swin V2": (
        lambda: VISION.SwinTransformer(
            **SWIN,
            block=VISION.swin_transformer.SwinTransformerBlockV2,
            downsample_layer=VISION.swin_transformer.PatchMergingV2,
        ),
        images(32),
    ),
    "torchvision MaxViT": (
        lambda: maxvit.MaxVit((32, 32), 8, 4, [8, 8], [1, 1], 4, 0.0, num_classes=3),
        images(32),
    ),
    "timm ResNet": (
        lambda: resnet.ResNet(
            resnet.BasicBlock, (1,) * 4, 3, channels=(4, 8, 8, 8), stem_width=4, stem_type="deep"
        ),
        images(32),
    ),
    "timm SE-ResNet": (
        lambda: resnet.ResNet(
            resnet.Bottleneck, (1,) * 4, 3, channels=(4,) * 4, block_args={"attn_layer": "se"}
        ),
        images(32),
    ),
    "timm BiT": (
        lambda: resnetv2.ResNetV2(
            (1, 1),
            (16, 32),
            3,
            stem_chs=8,
            conv_layer=resnetv2.StdConv2d,
            norm_layer=partial(resnetv2.GroupNormAct, num_groups=4),
        ),
        images(32),
    ),
    "timm NFNet": (
        lambda: nfnet.NormFreeNet(
            nfnet.NfCfg(
                (1, 1),
                (16, 32),
                stem_type="3x3",
                stem_chs=8,
                group_size=8,
                attn_layer="se",
                attn_kwargs={"rd_ratio": 0.5},
                num_features=32,
            ),
            num_classes=3,
        ),
        images(32),
    ),
    "timm ViT": timm_model("vit_tiny_patch16_224", img_size=32, embed_dim=12, depth=2),
    "timm ViT with registers and mean": timm_model(
        "vit_small_patch14_reg4_dinov2", 28, img_size=28, embed_dim=12, num_heads=2, depth=2
    ),
    "timm DeiT": timm_model("deit_tiny_distilled_patch16_224", img_size=32, embed_dim=12, depth=2),
    "timm DeiT III": timm_model("deit3_small_patch16_224", img_size=32, embed_dim=12, depth=2),
    "timm BEiT": timm_model(
        "beit_base_patch16_224", img_size=32, embed_dim=12, depth=2, num_heads=2
    ),
    "timm EVA": timm_model("eva02_tiny_patch14_224", 28, img_size=28, embed_dim=12, depth=2),
    "timm LeViT": timm_model(
        "levit_128s", 64, img_size=64, embed_dim=(8, 12), key_dim=4, num_heads=(2, 2), depth=(1, 1)
    ),
    "timm Swin": timm_model(
        "swin_tiny_patch4_window7_224",
        img_size=32,
        window_size=4,
        embed_dim=6,
        depths=(2, 2),
        num_heads=(1, 2),
    ),
    "timm Swin V2": timm_model(
        "swinv2_tiny_window8_256",
        img_size=32,
        window_size=4,
        embed_dim=6,
        depths=(2, 2),
        num_heads=(1, 2),
    ),
    "timm ConvNeXt": (lambda: thin_timm_convnext(), images(32)),
    "timm ConvNeXt V2": (lambda: thin_timm_convnext(use_grn=True, ls_init_value=None), images(32)),
    "timm Mixer": (mixer, images(32)),
    "timm ResMLP": (
        lambda: mixer(mlp_ratio=2, block_layer=mlp_mixer.ResBlock, norm_layer=mlp_mixer.Affine),
        images(32),
    ),
    "timm gMLP": (
        lambda: mixer(
            mlp_ratio=2, block_layer=mlp_mixer.SpatialGatingBlock, mlp_layer=mlp_mixer.GatedMlp
        ),
        images(32),
    ),
    "timm CaiT": timm_model("cait_xxs24_224", img_size=32, embed_dim=8, depth=2, num_heads=2),
    "timm XCiT": timm_model(
        "xcit_nano_12_p16_224", img_size=32, embed_dim=16, depth=1, num_heads=2
    ),
    "timm CoaT": (
        lambda: coat.CoaT(
            32,
            4,
            num_classes=3,
            embed_dims=(8,) * 4,
            serial_depths=(1,) * 4,
            parallel_depth=1,
            num_heads=4,
            mlp_ratios=(2,) * 4,
            crpe_window={3: 2, 5: 2},
        ),
        images(32),
    ),
    "timm PVT V2": timm_model(
        "pvt_v2_b0",
        64,
        embed_dims=(8, 8, 8, 8),
        depths=(1, 1, 1, 1),
        num_heads=(1, 1, 2, 2),
        mlp_ratios=(2, 2, 2, 2),
    ),
    "timm PoolFormer": (
        lambda: metaformer.MetaFormer(
            num_classes=3,
            depths=(1, 1),
            dims=(8, 12),
            token_mixers=metaformer.Pooling,
            norm_layers=metaformer.GroupNorm1,
            layer_scale_init_values=0.1,
            use_mlp_head=False,
        ),
        images(32),
    ),
    "timm Twins": timm_model(
        "twins_svt_small",
        64,
        img_size=64,
        embed_dims=(4, 8, 8, 8),
        depths=(1, 1, 1, 1),
        num_heads=(1, 2, 2, 2),
        mlp_ratios=(2, 2, 2, 2),
        wss=(2, 2, 2, 2),
    ),
    "timm TNT": timm_model(
        "tnt_s_legacy_patch16_224",
        img_size=32,
        embed_dim=12,
        inner_dim=4,
        depth=1,
        num_heads_outer=2,
        num_heads_inner=2,
    ),
    "timm ConViT": timm_model(
        "convit_tiny", img_size=32, embed_dim=3, depth=2, local_up_to_layer=1
    ),
    "timm PiT": timm_model(
        "pit_ti_224",
        32,
        img_size=32,
        patch_size=8,
        stride=4,
        base_dims=(4, 4),
        depth=(1, 1),
        heads=(2, 2),
    ),
    "timm GhostNet": (
        lambda: ghostnet.GhostNet(
            [[[3, 16, 16, 0, 1]], [[3, 48, 24, 0.25, 2]]], num_classes=3, width=0.5
        ),
        images(32),
    ),
    "timm Sequencer": (
        lambda: sequencer.Sequencer2d(
            3,
            28,
            layers=(1, 1),
            patch_sizes=(7, 2),
            embed_dims=(4, 8),
            hidden_sizes=(2, 2),
            mlp_ratios=(2.0, 2.0),
        ),
        images(28),
    ),
    "timm Hiera": timm_model(
        "hiera_tiny_224",
        64,
        img_size=(64, 64),
        embed_dim=4,
        num_heads=1,
        stages=(1, 1, 1),
        q_pool=2,
    ),
    "GPT-2": (
        logits(
            hf.GPT2ForSequenceClassification,
            hf.GPT2Config,
            vocab_size=VOCABULARY,
            n_embd=8,
            n_layer=2,
            n_head=2,
            n_positions=16,
            num_labels=3,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        tokens,
    ),
    "GPT-2, tied": (
        lambda: picked(
            hf.GPT2LMHeadModel(
                hf.GPT2Config(
                    vocab_size=VOCABULARY,
                    n_embd=8,
                    n_layer=2,
                    n_head=2,
                    n_positions=16,
                    bos_token_id=1,
                    eos_token_id=2,
                )
            ),
            lambda f: f.logits[:, -1, :4],
        ),
        tokens,
    ),
    "LLaMA": (
        logits(hf.LlamaForSequenceClassification, hf.LlamaConfig, **TEXT, num_key_value_heads=1),
        tokens,
        1e-5,
    ),
    "Mixtral": (
        logits(
            hf.MixtralForSequenceClassification,
            hf.MixtralConfig,
            **TEXT,
            num_key_value_heads=1,
            num_local_experts=3,
            experts_implementation="eager",
        ),
        tokens,
        1e-5,
    ),
    "BERT": (logits(hf.BertForSequenceClassification, hf.BertConfig, **TEXT), tokens),
    "ALBERT": (
        logits(hf.AlbertForSequenceClassification, hf.AlbertConfig, **TEXT, embedding_size=4),
        tokens,
    ),
    "RoBERTa": (
        logits(hf.RobertaForSequenceClassification, hf.RobertaConfig, **TEXT),
        tokens,
    ),
    "DeBERTa": (
        logits(
            hf.DebertaV2ForSequenceClassification,
            hf.DebertaV2Config,
            **TEXT,
            relative_attention=True,
            pos_att_type="c2p|p2c",
            position_buckets=4,
        ),
        tokens,
    ),
    "FNet": (logits(hf.FNetForSequenceClassification, hf.FNetConfig, **TEXT), tokens),
    "T5 encoder": (
        pooled(
            hf.T5EncoderModel,
            hf.T5Config,
            vocab_size=VOCABULARY,
            d_model=8,
            d_kv=4,
            d_ff=12,
            num_layers=2,
            num_heads=2,
            relative_attention_num_buckets=4,
            pad_token_id=0,
        ),
        tokens,
        1e-5,
    ),
    "DistilBERT": (
        logits(
            hf.DistilBertForSequenceClassification,
            hf.DistilBertConfig,
            vocab_size=VOCABULARY,
            dim=8,
            n_layers=2,
            n_heads=2,
            hidden_dim=12,
            max_position_embeddings=16,
            num_labels=3,
        ),
        tokens,
    ),
    "OPT": (
        logits(
            hf.OPTForSequenceClassification,
            hf.OPTConfig,
            **{name: value for name, value in TEXT.items() if name != "intermediate_size"},
            ffn_dim=12,
            word_embed_proj_dim=4,
        ),
        tokens,
    ),
    "GPT-NeoX": (
        logits(hf.GPTNeoXForSequenceClassification, hf.GPTNeoXConfig, **TEXT, rotary_pct=0.5),
        tokens,
        1e-5,
    ),
    "BLOOM": (
        logits(
            hf.BloomForSequenceClassification,
            hf.BloomConfig,
            vocab_size=VOCABULARY,
            hidden_size=8,
            n_layer=2,
            n_head=2,
            num_labels=3,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        tokens,
        1e-5,
    ),
    "Mamba": (
        pooled(
            hf.MambaModel,
            hf.MambaConfig,
            vocab_size=VOCABULARY,
            hidden_size=8,
            state_size=3,
            num_hidden_layers=2,
            conv_kernel=3,
            time_step_rank=2,
            pad_token_id=0,
            bos_token_id=1,
            eos_token_id=2,
        ),
        tokens,
        1e-5,
    ),
    "transformers ViT": (logits(hf.ViTForImageClassification, hf.ViTConfig, **IMAGE), images(16)),
    "CLIP": (
        lambda: picked(
            hf.CLIPVisionModelWithProjection(hf.CLIPVisionConfig(**IMAGE, projection_dim=3)),
            lambda f: f.image_embeds,
        ),
        images(16),
    ),
    "SegFormer": (
        lambda: picked(
            hf.SegformerForSemanticSegmentation(
                hf.SegformerConfig(
                    num_encoder_blocks=2,
                    depths=[1, 1],
                    sr_ratios=[2, 1],
                    hidden_sizes=[4, 8],
                    patch_sizes=[7, 3],
                    strides=[4, 2],
                    num_attention_heads=[1, 2],
                    mlp_ratios=[2, 2],
                    decoder_hidden_size=4,
                    num_labels=2,
                )
            ),
            lambda f: f.logits[..., 1:3, 1],
        ),
        images(16),
    ),
    "Wav2Vec 2.0": (
        lambda: Toy(
            lambda m, x: m.body(x.flatten(1)).logits,
            body=hf.Wav2Vec2ForSequenceClassification(
                hf.Wav2Vec2Config(
                    hidden_size=8,
                    num_hidden_layers=1,
                    num_attention_heads=2,
                    intermediate_size=12,
                    conv_dim=(4, 4),
                    conv_stride=(5, 2),
                    conv_kernel=(10, 3),
                    num_conv_pos_embeddings=4,
                    num_conv_pos_embedding_groups=2,
                    num_labels=3,
                    classifier_proj_size=4,
                    feat_extract_norm="layer",
                )
            ),
        ),
        images(12),
    ),
}
