"""Maps as the page reads them: a header in JSON, then plain numbers, little-endian.

"MGM1", uint32 length of the header, the header padded with spaces to a multiple of four bytes in all, then
sparse: int32 index[entries], float32 value[entries];  dense: float32 value[channels * height * width];
where the header has a dense_scale: int16 dense[channels * height * width], each times dense_scale / 32767.
"""

from __future__ import annotations

import json

import numpy as np
from torch import Tensor

MAGIC = b"MGM1"
FEW = 0.3  # share of non-zero entries below which a map is sent as a sparse one
LARGEST = 32767


def pack_map(map_: Tensor, dense: Tensor | None = None) -> bytes:
    """A map (C, H, W), and optionally what it was before the threshold of its prior."""
    values = map_.detach().cpu().float().numpy()
    index = np.flatnonzero(values)
    sparse = len(index) < FEW * values.size
    scale = None if dense is None else float(dense.abs().max()) or 1.0
    shape = dict(zip(("channels", "height", "width"), values.shape, strict=True))
    header = {**shape, "sparse": sparse, "entries": len(index) if sparse else values.size, "dense_scale": scale}
    text = json.dumps(header).encode()
    text += b" " * (-(len(MAGIC) + 4 + len(text)) % 4)
    pieces = [MAGIC, len(text).to_bytes(4, "little"), text]
    if sparse:
        pieces += [index.astype("<i4").tobytes(), values.ravel()[index].astype("<f4").tobytes()]
    else:
        pieces.append(values.astype("<f4").tobytes())
    if dense is not None and scale is not None:
        pieces.append(np.rint(dense.detach().cpu().float().numpy() * (LARGEST / scale)).astype("<i2").tobytes())
    return b"".join(pieces)
