"""Reading pictures: upright 8-bit RGB, whatever the file holds.

Colour profiles are left alone, as in the pipelines that networks were trained with.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image, ImageOps, UnidentifiedImageError

from moreaugrad.data.decoders import silence_decoders
from moreaugrad.data.frames import open_picture
from moreaugrad.data.sources import STDIN, Frame, ImageSource, as_path, find_fault
from moreaugrad.files import first_line

MOST_PIXELS = 100_000_000  # a file of a few kilobytes can claim to hold gigabytes
ROWS = 256  # that are converted at once


class UnreadableImageError(ValueError):
    """What is wrong with a picture, in our words rather than a decoder's."""


def read_image(source: Any) -> Image.Image:
    """An image file, a frame of one, PIL image or array (H, W), (H, W, 1 | 3 | 4) as an upright RGB picture.

    The path "-" is standard input. Of a file with several frames the first is taken, with a warning.
    """
    if isinstance(source, str | Path | Frame):
        return _read_file(source if isinstance(source, Frame) else as_path(source))
    if isinstance(source, np.ndarray):
        return _upright_rgb(_from_array(source))
    if not isinstance(source, Image.Image):
        raise TypeError(
            f"an image must be a path, a PIL image or a numpy array, got {type(source).__name__}; "
            "a tensor must be preprocessed already: pass it to a method's explain()"
        )
    if not source.width * source.height:
        raise ValueError(f"a PIL image must have pixels, got {source.width} x {source.height}; leave it out")
    try:
        with silence_decoders():
            source.load()  # opened, but not read before; or closed
            return _upright_rgb(source)
    except UnreadableImageError:
        raise
    except Exception as error:
        raise UnreadableImageError(
            "a PIL image must be readable, got a closed, truncated or damaged one "
            f"({first_line(error)}); convert it to RGB"
        ) from error


def _read_file(source: ImageSource) -> Image.Image:
    if (fault := find_fault(source)) is not None:
        raise ValueError(fault)
    path, index = (source.path, source.index) if isinstance(source, Frame) else (source, None)
    must = f"{'standard input' if path == STDIN else repr(str(path))} must be an image file"
    limit = f"{must} of at most {MOST_PIXELS // 10**6} megapixels, got"
    try:
        with silence_decoders(), open_picture(path, index) as image:
            if image.width * image.height > MOST_PIXELS:
                raise UnreadableImageError(f"{limit} {image.width} x {image.height}; make it smaller")
            image.load()
            return _upright_rgb(image, path)
    except UnidentifiedImageError:
        raise UnreadableImageError(f"{must}, got a file of another kind; convert it to PNG or JPEG") from None
    except Image.DecompressionBombError:
        raise UnreadableImageError(f"{limit} more; make it smaller") from None
    except UnreadableImageError:
        raise
    except Exception as error:  # decoders raise OSError, ValueError, SyntaxError, struct.error, zlib.error, ...
        if isinstance(error, OSError) and error.errno is not None:  # the system's word, not a decoder's
            raise UnreadableImageError(
                f"{must} that can be opened, got one that cannot ({error.strerror}); check its permissions"
            ) from error
        raise UnreadableImageError(
            f"{must}, got one that is truncated or damaged ({first_line(error)}); fetch it again, or convert it to PNG"
        ) from error


def _upright_rgb(image: Image.Image, name: object = None) -> Image.Image:
    """Rotated as its EXIF data say, alpha over white, grey and deep values scaled, in mode RGB."""
    given = image
    with suppress(Exception):  # of whatever kind, as decoders raise
        image = ImageOps.exif_transpose(image)  # where the EXIF data are damaged, the picture stays as it lies
    if image.mode.startswith(("I", "F")):
        return Image.fromarray(_eight_bits(np.asarray(image), name)).convert("RGB")
    if image.has_transparency_data:
        image = image.convert("RGBA")
        return Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    return image if image.mode == "RGB" and image is not given else image.convert("RGB")


def _from_array(array: NDArray[Any]) -> Image.Image:
    if array.ndim == 3 and array.shape[2] == 1:
        array = array[:, :, 0]
    if array.size == 0 or not (array.ndim == 2 or (array.ndim == 3 and array.shape[2] in (3, 4))):
        raise ValueError(
            f"an image array must have shape (H, W), (H, W, 3) or (H, W, 4), got {array.shape}; "
            "put the channels last with array.transpose(1, 2, 0)"
        )
    if array.dtype.kind == "f" and not (array.min() >= 0 and array.max() <= 1):
        raise ValueError(
            f"an image array of {array.dtype} must lie in [0, 1], got values from {array.min():.4g} to "
            f"{array.max():.4g}; scale it, or convert 0..255 with array.astype('uint8')"
        )
    if array.dtype.kind not in "buif":
        raise TypeError(f"an image array must hold numbers, got {array.dtype}")
    return Image.fromarray(np.ascontiguousarray(_eight_bits(array, "array")))


def _eight_bits(values: NDArray[Any], name: object) -> NDArray[np.uint8]:
    """Scaled by what the numbers can mean: 8 bits, 16 bits, [0, 1]; anything else by its own range."""
    if values.dtype == np.uint8:
        return values
    low, high = float(values.min()), float(values.max())
    if not np.isfinite([low, high]).all():
        raise UnreadableImageError(f"the pixels of {str(name)!r} must be finite, got NaN or infinity; clean the image")
    start = 0.0
    if values.dtype.kind == "b" or (values.dtype.kind == "f" and low >= 0 and high <= 1):
        scale = 255.0
    elif values.dtype in ("<u2", ">u2") or (values.dtype.kind != "f" and low >= 0 and 255 < high <= 65535):
        scale = 1 / 257
    elif low >= 0 and high <= 255:
        scale = 1.0
    else:
        start, scale = low, 255 / max(high - low, 1e-300)
    found = np.empty(values.shape, np.uint8)
    for row in range(0, len(values), ROWS):  # a large image as float64 takes gigabytes
        wide = values[row : row + ROWS].astype(np.float64)
        found[row : row + ROWS] = np.clip(np.rint((wide - start) * scale), 0, 255)
    return found
