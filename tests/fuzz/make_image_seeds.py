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


# A segment of Adobe's: of its last byte, 0 says CMYK and 2 YCCK.
ADOBE = 0xEE
ADOBE_CMYK = b"Adobe\0\x64\0\0\0\0\0"
ADOBE_YCCK = b"Adobe\0\x64\0\0\0\0\2"


def segments(jpeg):
    """Yields (marker, where it begins, where it ends) up to the first scan."""
    at = 2
    while jpeg[at + 1] != 0xDA:
        end = at + 2 + int.from_bytes(jpeg[at + 2:at + 4], "big")
        yield jpeg[at + 1], at, end
        at = end
    yield jpeg[at + 1], at, at


def without(jpeg, wanted):
    for marker, begin, end in segments(jpeg):
        if marker == wanted:
            return jpeg[:begin] + jpeg[end:]
    raise ValueError(f"no segment {wanted:x}")


def scan_at(jpeg):
    *_, (_, at, _) = segments(jpeg)
    return at


def with_scans(jpeg, count):
    """The first scan so many times and no other."""
    begin = scan_at(jpeg)
    end = begin + 2
    while jpeg[end] != 0xFF or jpeg[end + 1] in (0x00, *range(0xD0, 0xD8)):
        end += 1
    return jpeg[:begin] + jpeg[begin:end] * count + b"\xff\xd9"


def frame_of(image):
    """The segment that says how large a picture is, of another."""
    jpeg = encode(image, "JPEG")
    for marker, begin, end in segments(jpeg):
        if marker == 0xC0:
            return jpeg[begin:end]
    raise ValueError("no frame")


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
    progressive = encode(rgb, "JPEG", quality=70, progressive=True)
    several = encode(rgb, "JPEG", quality=80, restart_marker_blocks=1)
    cmyk = encode(picture("CMYK"), "JPEG")
    yield "cmyk_not_inverted.jpg", without(cmyk, ADOBE)
    yield "ycck.jpg", cmyk.replace(ADOBE_CMYK, ADOBE_YCCK)
    yield "many_scans.jpg", with_scans(progressive, 120)
    yield "many_of_a_scan.jpg", with_scans(progressive, 60)
    yield "a_scan_too_few.jpg", with_scans(progressive, 1)
    yield "no_scan.jpg", with_scans(progressive, 0)
    yield "junk_between_segments.jpg", jpeg[:2] + b"\x01\x02" + jpeg[2:]
    yield "two_sizes.jpg", jpeg[:2] + frame_of(picture("L", 8, 8)) + jpeg[2:]
    yield "no_end.jpg", jpeg[:-2]
    yield "restart_out_of_order.jpg", several.replace(
        b"\xff\xd1", b"\xff\xd5")
    middle = scan_at(jpeg) + 100
    yield "marker_in_scan.jpg", jpeg[:middle] + b"\xff\xd9" + jpeg[middle:]
    yield "zeros_in_scan.jpg", jpeg[:middle] + bytes(64) + jpeg[middle + 64:]
    yield "after_the_end.jpg", jpeg + jpeg
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
