import struct
import zlib

import numpy as np
import pytest
from PIL import Image

from feature_alignment.data.images import (
    canonical_image,
    conversion_notes,
    from_arrays,
    natural_order,
    read_image,
)
from feature_alignment.data.registry import DATASETS
from feature_alignment.errors import UserError

MNIST, CIFAR10 = DATASETS["mnist"], DATASETS["cifar10"]


def converted(x, info, y=None):
    """The images and labels of one split."""
    y = np.zeros(len(x), int) if y is None else y
    arrays, _ = from_arrays(info, {"train": (x, y)}, "f.npz")
    return arrays["x_train"], arrays["y_train"]


def test_canonical_images_are_passed_through_unchanged():
    x = np.random.default_rng(0).integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
    np.testing.assert_array_equal(converted(x, CIFAR10)[0], x)
    grey = x[:, :28, :28, 0]
    np.testing.assert_array_equal(converted(grey, MNIST)[0][..., 0], grey)


def test_shrinking_averages_over_the_source_pixels():
    # A chequerboard of single pixels is grey when shrunk; without antialiasing it is not.
    board = np.indices((96, 96)).sum(axis=0) % 2 * 255
    small = canonical_image(Image.fromarray(board.astype(np.uint8)), (32, 32, 1))
    assert np.abs(small[1:-1, 1:-1].astype(int) - 127).max() <= 16


def test_grey_becomes_three_equal_channels_and_colour_becomes_grey():
    grey = np.full((1, 32, 32), 100, dtype=np.uint8)
    assert (converted(grey, CIFAR10)[0] == 100).all()
    red = np.zeros((1, 28, 28, 3), dtype=np.uint8)
    red[..., 0] = 255
    assert set(converted(red, MNIST)[0].ravel()) == {76}  # ITU-R 601: 0.299 · 255
    assert from_arrays(MNIST, {"train": (red, np.zeros(1, int))}, "f")[1] == {(28, 28, 3)}


@pytest.mark.parametrize(
    ("x", "message"),
    [
        (
            np.full((2, 28, 28), np.nan),
            r"f\.npz, x_train: pixels are float64, wanted uint8; scale them",
        ),
        (np.zeros((2, 28, 28), np.int32), r"pixels are int32, wanted uint8; cast them"),
        (np.full((2, 28, 28), 256, np.uint16), r"pixels are uint16.*; scale them to 0\.\.255"),
        (np.zeros((2, 28, 28), bool), r"pixels are bool.*; scale them to 0\.\.255"),
        (np.zeros((2, 28, 28), "U1"), r"wanted uint8"),
        (np.zeros((28, 28), np.uint8), r"shape \(28, 28\), wanted \(n, height, width\)"),
        (np.zeros((2, 28, 28, 4), np.uint8), r"with 1 or 3 channels; reshape it"),
        (np.zeros((2, 3, 32, 32), np.uint8), r"with 1 or 3 channels; move axis 1 to the end"),
        (np.zeros((0, 28, 28), np.uint8), r"holds no image"),
        (np.zeros((2, 0, 28), np.uint8), r"holds no image"),
    ],
)
def test_wrong_images(x, message):
    with pytest.raises(UserError, match=message):
        converted(x, MNIST)


@pytest.mark.parametrize(
    ("y", "message"),
    [
        (np.array([0.0, np.nan]), r"labels are float64, wanted integers"),
        (np.array([0, 1, 2]), r"shape \(3,\), wanted \(2,\), one for each image; correct"),
        (np.eye(10)[:2], r"labels of shape \(2, 10\), .*; take their argmax over axis 1"),
        (np.array(["cat", "dog"]), r"labels are <U3, wanted integers; number them 0 to 9"),
        (np.array([[0], [1]]), r"shape \(2, 1\)"),
        (np.array([1, 10]), r"labels from 1 to 10, wanted 0 to 9 for MNIST; renumber"),
        (np.array([-1, 3]), r"labels from -1 to 3"),
    ],
)
def test_wrong_labels(y, message):
    with pytest.raises(UserError, match=message):
        converted(np.zeros((2, 28, 28), np.uint8), MNIST, y)


def test_labels_become_int64():
    _, y = converted(np.zeros((2, 28, 28), np.uint8), MNIST, np.array([0, 9], np.uint8))
    assert y.dtype == np.int64
    assert y.tolist() == [0, 9]


def test_read_image_tells_the_form(tmp_path):
    Image.new("RGBA", (50, 40), (10, 20, 30, 255)).save(tmp_path / "a.png")
    pixels, form = read_image(tmp_path / "a.png", (32, 32, 3))
    assert form == (40, 50, 3)
    assert (pixels == [10, 20, 30]).all()
    Image.new("LA", (50, 40), (0, 255)).save(tmp_path / "a.png")
    assert read_image(tmp_path / "a.png", (32, 32, 3))[1] == (40, 50, 1)


@pytest.mark.parametrize("suffix", ["gif", "tif", "png", "webp"])
def test_only_the_first_frame_is_read_and_a_note_says_so(tmp_path, suffix):
    frames = [Image.new("RGB", (32, 32), (0, green, 0)) for green in (200, 100)]
    for number, notes in ((1, []), (2, ["only the first frame read of files with several"])):
        path = tmp_path / f"{number}.{suffix}"
        frames[0].save(path, save_all=True, append_images=frames[1:number], lossless=True)
        pixels, form = read_image(path, (32, 32, 3))
        assert (pixels == [0, 200, 0]).all()
        assert conversion_notes({form}, CIFAR10) == notes


@pytest.mark.parametrize(("mode", "colour"), [("RGBA", (0, 0, 0, 0)), ("LA", (0, 0))])
def test_transparent_pixels_are_refused(tmp_path, mode, colour):
    image = Image.new(mode, (28, 28), colour)
    for file, picture in (("a.png", image), ("b.png", image.convert("RGBA").quantize())):
        picture.save(tmp_path / file)
        with pytest.raises(UserError, match=f"{file}: has transparent pixels; put it on a ground"):
            read_image(tmp_path / file, (28, 28, 1))


def test_an_image_is_read_as_it_is_to_be_held(tmp_path):
    image = Image.new("L", (40, 20))
    image.paste(255, (0, 0, 20, 20))
    exif = Image.Exif()
    exif[0x0112] = 6  # to be turned by a quarter, clockwise
    image.save(tmp_path / "a.jpg", exif=exif)
    pixels, form = read_image(tmp_path / "a.jpg", (40, 20, 1))
    assert form == (40, 20, 1)
    assert pixels[5].min() > 200
    assert pixels[35].max() < 50


def test_an_image_that_must_not_be_read_is_not_called_damaged(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise PermissionError(13, "Permission denied", "a.png")

    monkeypatch.setattr(Image, "open", refuse)
    with pytest.raises(PermissionError):
        read_image(tmp_path / "a.png", (32, 32, 3))


def test_read_image_refuses_what_it_cannot_read(tmp_path):
    (tmp_path / "text.png").write_text("no image")
    (tmp_path / "empty.png").touch()
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    for cut in (tmp_path / "cut.png", tmp_path / "cut.jpg"):
        Image.fromarray(noise).save(cut)
        cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    for name in ("text.png", "empty.png", "cut.png", "cut.jpg"):
        with pytest.raises(UserError, match=rf"{name}: not a whole image file .*replace or remove"):
            read_image(tmp_path / name, (32, 32, 3))


def test_read_image_refuses_sixteen_bits(tmp_path):
    Image.fromarray(np.full((8, 8), 40000, dtype=np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(UserError, match=r"mode 'I(;16)?', wanted 8 bits a channel"):
        read_image(tmp_path / "deep.png", (32, 32, 1))


def png_of_16_bits(pixels):
    """A colour PNG of values up to 65535 (h, w, 3), which Pillow cannot write."""

    def chunk(kind, content):
        check = zlib.crc32(kind + content)
        return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", check)

    height, width, _ = pixels.shape
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    header = struct.pack(">IIBBBBB", width, height, 16, 2, 0, 0, 0)
    parts = chunk(b"IHDR", header), chunk(b"IDAT", zlib.compress(rows)), chunk(b"IEND", b"")
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


@pytest.mark.parametrize("mode", ["I", "F"])
def test_pixels_of_32_bits_are_refused(tmp_path, mode):
    Image.new(mode, (8, 8), 1).save(tmp_path / "deep.tif")
    with pytest.raises(UserError, match=f"pixels of mode '{mode}', wanted 8 bits a channel"):
        read_image(tmp_path / "deep.tif", (8, 8, 1))


def test_colours_of_sixteen_bits_are_not_cut_to_eight(tmp_path):
    pixels = np.full((8, 8, 3), 1023)
    (tmp_path / "deep.png").write_bytes(png_of_16_bits(pixels))
    (tmp_path / "deep.ppm").write_bytes(b"P6 8 8 1023\n" + pixels.astype(">u2").tobytes())
    for name in ("deep.png", "deep.ppm"):
        with pytest.raises(UserError, match="mode 'RGB', of 16 bits, wanted 8 bits a channel"):
            read_image(tmp_path / name, (8, 8, 3))
    (tmp_path / "few.ppm").write_bytes(b"P6 8 8 100\n" + bytes([100] * 192))
    assert (read_image(tmp_path / "few.ppm", (8, 8, 3))[0] == 255).all()


def test_natural_order_of_class_folders():
    assert natural_order([str(i) for i in range(100)][::-1]) == [str(i) for i in range(100)]
    mixed = ["x", "x1", "x1y", "x01z", "x9", "x10", "xa"]
    assert natural_order(mixed[::-1]) == mixed
    assert natural_order(["truck", "cat", "00010", "00009"]) == ["00009", "00010", "cat", "truck"]


def test_images_that_become_too_large_are_refused(monkeypatch):
    monkeypatch.setattr("feature_alignment.data.archives.LIMIT", 1000)
    x, y = np.zeros((2, 1, 1), np.uint8), np.zeros(2, np.int64)
    with pytest.raises(UserError, match=r"mine, x_train: it unpacks to more than .* fewer images"):
        from_arrays(DATASETS["mnist"], {"train": (x, y), "test": (x, y)}, "mine")
