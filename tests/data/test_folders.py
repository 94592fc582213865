import io
import zipfile

import numpy as np
import pytest
from PIL import Image

from thalweg.data import celeba, decode_image, read_celeba, read_celeba_attributes, read_image_folder


def picture(height, width, seed=0):
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)


def write(file, pixels):
    file.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(file)
    return pixels


def decode(pixels, **options):
    stream = io.BytesIO()
    Image.fromarray(pixels).save(stream, "PNG")
    return decode_image(stream, "p.png", **options)


def test_pixels_come_back_exactly():
    pixels = picture(5, 7)
    np.testing.assert_array_equal(decode(pixels), pixels)
    np.testing.assert_array_equal(decode(pixels[:, :, 0], grey=True)[..., 0], pixels[:, :, 0])
    np.testing.assert_array_equal(decode(pixels[:, :, 0]), np.repeat(pixels[:, :, :1], 3, axis=2))
    # an alpha channel is dropped
    np.testing.assert_array_equal(decode(np.dstack([pixels, pixels[:, :, :1]])), pixels)


def test_crop_is_about_the_centre():
    pixels = picture(10, 6)
    np.testing.assert_array_equal(decode(pixels, crop="square"), pixels[2:8])
    np.testing.assert_array_equal(decode(pixels, crop=4), pixels[3:7, 1:5])
    for crop in (7, 0, -1):
        with pytest.raises(ValueError, match=f"p.png: expected a crop of 1 to 6 pixels, got {crop}"):
            decode(pixels, crop=crop)


def test_grey_and_resize():
    colour = np.zeros((8, 8, 3), np.uint8) + np.array([200, 100, 50], np.uint8)
    grey = decode(colour, grey=True, size=4)
    assert grey.shape == (4, 4, 1)
    np.testing.assert_allclose(grey, 0.299 * 200 + 0.587 * 100 + 0.114 * 50, atol=1)
    # left half black, right half white: size comes after crop, and antialiasing keeps the mean
    halves = np.zeros((8, 16, 3), np.uint8)
    halves[:, 8:] = 255
    small = decode(halves, crop=8, size=2)
    assert small.shape == (2, 2, 3)
    np.testing.assert_allclose(small[:, 0] + 1.0 * small[:, 1], 255, atol=1)
    assert (small[:, 0] < 40).all()
    stripes = np.tile(np.array([0, 255], np.uint8), (32, 16))
    np.testing.assert_allclose(decode(stripes, grey=True, size=4), 127.5, atol=15)


def test_orientation_of_photographs(tmp_path):
    pixels = picture(4, 6)
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by a quarter to be upright
    Image.fromarray(pixels).save(tmp_path / "p.png", exif=exif)
    with (tmp_path / "p.png").open("rb") as stream:
        np.testing.assert_array_equal(decode_image(stream, "p"), np.rot90(pixels, -1))


def test_folder_without_classes(tmp_path):
    first, second = write(tmp_path / "a.png", picture(4, 4, 1)), write(tmp_path / "b.png", picture(4, 4, 2))
    (tmp_path / "notes.txt").write_text("not an image")
    data = read_image_folder(tmp_path)
    np.testing.assert_array_equal(data.x_train, [first, second])
    assert data.x_train.dtype == np.uint8 and data.y_train is None and data.x_test is None
    write(tmp_path / "c.png", picture(4, 5))
    with pytest.raises(ValueError, match=r"c.png: expected \(4, 4, 3\) like the images before it, got \(4, 5, 3\)"):
        read_image_folder(tmp_path)
    assert read_image_folder(tmp_path, size=3, crop="square", grey=True, progress=True).x_train.shape == (3, 3, 3, 1)


def test_subfolders_are_classes(tmp_path):
    for i, name in enumerate(["dog/1.png", "cat/1.png", "cat/deep/2.png"]):
        write(tmp_path / name, picture(4, 4, i))
    data = read_image_folder(tmp_path)
    np.testing.assert_array_equal(data.y_train, [0, 0, 1])
    np.testing.assert_array_equal(data.x_train, [picture(4, 4, 1), picture(4, 4, 2), picture(4, 4, 0)])
    write(tmp_path / "loose.png", picture(4, 4, 5))
    assert read_image_folder(tmp_path).y_train is None


def test_train_and_test_subfolders_are_the_parts(tmp_path):
    for i, name in enumerate(["train/cat/1.png", "train/dog/1.png", "train/eel/1.png", "test/dog/1.png"]):
        write(tmp_path / name, picture(4, 4, i))
    data = read_image_folder(tmp_path)
    np.testing.assert_array_equal(data.y_train, [0, 1, 2])
    np.testing.assert_array_equal(data.x_test, [picture(4, 4, 3)])
    np.testing.assert_array_equal(data.y_test, [1])
    write(tmp_path / "test/fox/1.png", picture(4, 4))
    with pytest.raises(ValueError, match=r"expected the classes of train in test, got also \['fox'\]"):
        read_image_folder(tmp_path)


def test_folder_says_what_is_wrong(tmp_path):
    with pytest.raises(ValueError, match=r"expected a folder with images \(.bmp .*\), got none"):
        read_image_folder(tmp_path)
    with pytest.raises(ValueError, match=r"missing: expected a folder of images, got nothing"):
        read_image_folder(tmp_path / "missing")
    photo = io.BytesIO()
    Image.fromarray(picture(32, 32)).save(photo, "JPEG")
    for content in (photo.getvalue()[:-300], b"not a picture", b""):
        (tmp_path / "a.jpg").write_bytes(content)
        with pytest.raises(
            ValueError, match=r"a.jpg: expected a complete image, got a damaged file .*; remove or replace"
        ):
            read_image_folder(tmp_path)
    (tmp_path / "a.jpg").unlink()
    Image.fromarray(np.full((4, 4), 40_000, np.uint16)).save(tmp_path / "deep.png")
    with pytest.raises(ValueError, match=r"deep.png: expected an image of 8 bits a channel, got mode I;16"):
        read_image_folder(tmp_path)


NAMES = ("Male", "Smiling", "Young")
VALUES = np.array([[0, 1, 0], [1, 1, 0], [0, 0, 1], [1, 0, 1]])
FILES = tuple(f"{i:06d}.jpg" for i in range(1, 5))


def write_celeba(folder, partition=True):
    folder.mkdir(parents=True, exist_ok=True)
    lines = [f"{file} " + " ".join("1" if v else "-1" for v in row) for file, row in zip(FILES, VALUES, strict=True)]
    (folder / "list_attr_celeba.txt").write_text("\n".join(["4", " ".join(NAMES) + " ", *lines]) + "\n")
    if partition:
        parts = zip(FILES, (0, 2, 1, 0), strict=True)
        (folder / "list_eval_partition.txt").write_text("".join(f"{file} {part}\n" for file, part in parts))
    for i, file in enumerate(FILES):  # one colour each, so that JPEG and resizing keep it
        write(folder / "img_align_celeba" / file, np.full((218, 178, 3), 40 * (i + 1), np.uint8))


def test_celeba_parts_and_attributes(tmp_path):
    write_celeba(tmp_path)
    data = read_celeba(tmp_path, size=8)
    assert data.x_train.shape == (2, 8, 8, 3) and data.x_test is not None and data.x_test.shape == (1, 8, 8, 3)
    np.testing.assert_allclose(data.x_train[:, 0, 0, 0], [40, 160], atol=1)
    np.testing.assert_allclose(data.x_test, 80, atol=1)
    np.testing.assert_array_equal(data.y_train, VALUES[[0, 3]])
    np.testing.assert_array_equal(data.y_test, VALUES[[1]])
    chosen = read_celeba(tmp_path, size=8, attributes=["Young", "Male"], limit=1, grey=True, crop="square")
    assert chosen.x_train.shape == (1, 8, 8, 1)
    np.testing.assert_array_equal(chosen.y_train, [[0, 0]])
    np.testing.assert_array_equal(chosen.y_test, [[0, 1]])
    scaled = celeba(tmp_path, size=8)
    np.testing.assert_allclose(scaled.x_train, 2 * (data.x_train + 0.5) / 256 - 1, rtol=1e-6)
    np.testing.assert_array_equal(celeba(tmp_path, size=8, raw=True).x_test, data.x_test)


def test_celeba_zip_reads_as_the_folder_does(tmp_path):
    write_celeba(tmp_path / "a", partition=False)
    write_celeba(tmp_path / "b", partition=False)
    images = tmp_path / "b" / "img_align_celeba"
    with zipfile.ZipFile(tmp_path / "b" / "img_align_celeba.zip", "w") as archive:
        for file in FILES:
            archive.write(images / file, f"img_align_celeba/{file}")
    images.rename(tmp_path / "elsewhere")
    folder, archive = read_celeba(tmp_path / "a", size=8), read_celeba(tmp_path / "b", size=8)
    assert len(folder.x_train) == 4 and folder.x_test is None
    np.testing.assert_array_equal(folder.x_train, archive.x_train)
    with zipfile.ZipFile(tmp_path / "b" / "img_align_celeba.zip", "w") as opened:
        opened.write(tmp_path / "elsewhere" / FILES[0], f"img_align_celeba/{FILES[0]}")
    with pytest.raises(ValueError, match=r"img_align_celeba.zip: expected the image 000002.jpg, got"):
        read_celeba(tmp_path / "b")
    (tmp_path / "b" / "img_align_celeba.zip").write_bytes(b"PK\x03\x04 cut off")
    with pytest.raises(ValueError, match=r"expected a complete zip archive, got a damaged one"):
        read_celeba(tmp_path / "b")


def test_celeba_says_what_is_wrong(tmp_path):
    write_celeba(tmp_path)
    with pytest.raises(ValueError, match=r"expected names among Male, Smiling, Young, got \['Bald'\]"):
        read_celeba(tmp_path, attributes=["Bald"])
    (tmp_path / "img_align_celeba" / FILES[3]).unlink()
    with pytest.raises(ValueError, match=r"000004.jpg: expected a CelebA image, got nothing"):
        read_celeba(tmp_path)
    (tmp_path / "list_eval_partition.txt").write_text("000001.jpg 0\n000002.jpg 0\n")
    with pytest.raises(
        ValueError, match=r"expected a part 0, 1 or 2 for every image, got none for 000003.jpg and 1 more"
    ):
        read_celeba(tmp_path)
    table = tmp_path / "list_attr_celeba.txt"
    whole = table.read_text()
    for content, message in [
        (whole[:-20], "line 6: expected a file name and 3 times 1 or -1, got|expected 4 rows, got 3"),
        (whole.rsplit("\n", 2)[0], "expected 4 rows, got 3; the file is truncated"),
        (whole.replace("-1", "0"), "line 3: expected a file name and 3 times 1 or -1, got '000001.jpg 0 1 0'"),
        ("", "expected a count, a line of attribute names and rows"),
    ]:
        table.write_text(content)
        with pytest.raises(ValueError, match=message):
            read_celeba_attributes(table)
