"""Writes the seed pictures of image_decode_fuzz to image_decode_seeds/.

Run with Pillow installed (tests/requirements.txt); the files are committed and
change only when this script does.
"""

import io
import pathlib
import random

from PIL import Image

FOLDER = pathlib.Path(__file__).parent / "image_decode_seeds"


def picture(mode, width=19, height=13):
    bands = [
        Image.frombytes(
            "L",
            (width, height),
            bytes(
                (x * (7 + band) + y * (11 - band)) % 256
                for y in range(height)
                for x in range(width)
            ),
        )
        for band in range(len(mode))
    ]
    return bands[0] if len(mode) == 1 else Image.merge(mode, bands)


def encode(image, kind, **options):
    out = io.BytesIO()
    image.save(out, kind, **options)
    return out.getvalue()


def exif(orientation):
    data = Image.Exif()
    data[0x0112] = orientation
    return data


def seeds():
    rgb = picture("RGB")
    yield "baseline.jpg", encode(rgb, "JPEG", quality=80, subsampling=0)
    yield "subsampled.jpg", encode(rgb, "JPEG", quality=50, subsampling=2)
    yield "progressive.jpg", encode(rgb, "JPEG", quality=70, progressive=True)
    yield "restart.jpg", encode(rgb, "JPEG", restart_marker_blocks=1)
    yield "grey.jpg", encode(picture("L"), "JPEG")
    yield "cmyk.jpg", encode(picture("CMYK"), "JPEG")
    for orientation in range(2, 9):
        yield f"orientation{orientation}.jpg", encode(
            rgb, "JPEG", quality=60, exif=exif(orientation)
        )
    yield "rgb.png", encode(rgb, "PNG")
    yield "rgba.png", encode(picture("RGBA"), "PNG")
    yield "grey.png", encode(picture("L"), "PNG")
    yield "grey_alpha.png", encode(picture("LA"), "PNG")
    yield "palette.png", encode(rgb.quantize(16), "PNG")
    yield "bits.png", encode(picture("L").convert("1"), "PNG")
    yield "deep.png", encode(picture("L").convert("I;16"), "PNG")
    yield "orientation6.png", encode(rgb, "PNG", exif=exif(6))
    jpeg = encode(rgb, "JPEG", quality=80)
    png = encode(rgb, "PNG")
    yield "truncated.jpg", jpeg[: len(jpeg) // 2]
    yield "truncated.png", png[: len(png) // 2]
    noise = random.Random(1)
    yield "garbage", bytes(noise.randrange(256) for _ in range(64))


def main():
    FOLDER.mkdir(exist_ok=True)
    for name, data in seeds():
        (FOLDER / name).write_bytes(data)


if __name__ == "__main__":
    main()
