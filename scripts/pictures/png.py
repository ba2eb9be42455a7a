"""Smaller pictures: PNG with a palette of 256 colours, which is all that pages of flat colours need."""

from __future__ import annotations

import struct
import zlib
from typing import Final

import numpy as np
from numpy.typing import NDArray

_HEAD: Final = b"\x89PNG\r\n\x1a\n"
#: colours that are taken as they are, the most frequent ones; the rest of the palette is for mixtures
_EXACT: Final = 160
_COLOURS: Final = 256


def reduced(data: bytes) -> bytes:
    """The picture with at most 256 colours. `data`: a PNG of 8 bits a channel without interlacing, as browsers write it."""
    pixels = _pixels(data)
    height, width, _ = pixels.shape
    packed = pixels.astype(np.uint32)
    keys = (packed[..., 0] << 16) | (packed[..., 1] << 8) | packed[..., 2]
    colours, inverse, counts = np.unique(keys, return_inverse=True, return_counts=True)
    palette, index = _palette(colours, counts)
    rows = index[inverse.reshape(height, width)].astype(np.uint8)
    raw = b"".join(b"\0" + row.tobytes() for row in rows)
    return b"".join(
        (
            _HEAD,
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", palette.astype(np.uint8).tobytes()),
            _chunk(b"IDAT", zlib.compress(raw, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _palette(colours: NDArray[np.uint32], counts: NDArray[np.intp]) -> tuple[NDArray[np.uint8], NDArray[np.intp]]:
    """A palette, and for each colour its place in it."""
    values = np.stack([colours >> 16 & 255, colours >> 8 & 255, colours & 255], axis=1).astype(np.float64)
    if len(colours) <= _COLOURS:
        return values.astype(np.uint8), np.arange(len(colours))
    order = np.argsort(-counts, kind="stable")
    chosen = [values[order[:_EXACT]]]
    boxes = [order[_EXACT:]]
    while len(boxes) < _COLOURS - _EXACT:  # halve the box that is farthest from flat, at its middle
        spread = [_spread(values[box], counts[box]) for box in boxes]
        box = boxes.pop(int(np.argmax(spread)))
        if len(box) < 2:
            boxes.append(box)
            break
        axis = int(np.argmax(np.ptp(values[box], axis=0)))
        box = box[np.argsort(values[box, axis], kind="stable")]
        middle = min(len(box) - 1, max(1, int(np.searchsorted(np.cumsum(counts[box]), counts[box].sum() / 2))))
        boxes += [box[:middle], box[middle:]]
    chosen.append(np.stack([np.average(values[box], axis=0, weights=counts[box]) for box in boxes]))
    palette = np.rint(np.concatenate(chosen))
    index = np.concatenate(
        [
            np.argmin(((part[:, None, :] - palette[None, :, :]) ** 2).sum(axis=2), axis=1)
            for part in np.array_split(values, max(1, len(values) // 4096))
        ]
    )
    return palette.astype(np.uint8), index


def _spread(values: NDArray[np.float64], counts: NDArray[np.intp]) -> float:
    if len(values) < 2:
        return 0.0
    mean = np.average(values, axis=0, weights=counts)
    return float((((values - mean) ** 2).sum(axis=1) * np.sqrt(counts)).sum())


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))


def _pixels(data: bytes) -> NDArray[np.uint8]:
    """Height × width × 3."""
    if data[:8] != _HEAD:
        raise ValueError("no PNG")
    at, body, head = 8, b"", b""
    while at < len(data):
        (length,) = struct.unpack(">I", data[at : at + 4])
        kind, content = data[at + 4 : at + 8], data[at + 8 : at + 8 + length]
        if kind == b"IHDR":
            head = content
        elif kind == b"IDAT":
            body += content
        at += 12 + length
    width, height, depth, colour, _, _, interlaced = struct.unpack(">IIBBBBB", head)
    channels = {2: 3, 6: 4}.get(colour, 0)
    if depth != 8 or interlaced or not channels:
        raise ValueError("not a PNG of 8 bits a channel without interlacing")
    raw = np.frombuffer(zlib.decompress(body), np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height, width * channels), np.uint8)
    before = np.zeros(width * channels, np.uint8)
    for number in range(height):
        before = rows[number] = _unfiltered(int(raw[number, 0]), raw[number, 1:], before, channels)
    return rows.reshape(height, width, channels)[..., :3]


def _unfiltered(how: int, row: NDArray[np.uint8], above: NDArray[np.uint8], channels: int) -> NDArray[np.uint8]:
    if how == 0:
        return row
    if how == 2:
        return row + above
    found = bytearray(row.tobytes())
    up = above.tobytes()
    for i in range(len(found)):
        left = found[i - channels] if i >= channels else 0
        if how == 1:
            guess = left
        elif how == 3:
            guess = (left + up[i]) // 2
        else:
            corner = up[i - channels] if i >= channels else 0
            near = left + up[i] - corner
            far = abs(near - left), abs(near - up[i]), abs(near - corner)
            guess = left if far[0] <= far[1] and far[0] <= far[2] else up[i] if far[1] <= far[2] else corner
        found[i] = (found[i] + guess) & 255
    return np.frombuffer(bytes(found), np.uint8)
