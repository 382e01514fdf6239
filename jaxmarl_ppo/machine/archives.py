"""Reading arrays from files: declared sizes are checked against the file before any allocation."""

import math
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from flax import serialization

# Tables and lists of msgpack take up to 64 bytes of memory for each of their own.
MAX_VALUES, MAX_DEPTH = 200_000, 100
# By the first byte of a value: how many bytes follow it, or how many tell how many follow.
_FIXED = {0xC0: 0, 0xC2: 0, 0xC3: 0, 0xCA: 4, 0xCB: 8}
_FIXED |= {first + k: 2**k for first in (0xCC, 0xD0) for k in range(4)}
_TEXTS = {0xC4: 1, 0xC5: 2, 0xC6: 4, 0xD9: 1, 0xDA: 2, 0xDB: 4}
_EXTENSIONS = {0xC7: 1, 0xC8: 2, 0xC9: 4}
_FIXED_EXTENSIONS = {0xD4 + k: 2**k for k in range(5)}
_LISTS, _TABLES = {0xDC: 2, 0xDD: 4}, {0xDE: 2, 0xDF: 4}
_HEADERS = {
    (1, 0): np.lib.format.read_array_header_1_0,
    (2, 0): np.lib.format.read_array_header_2_0,
}


class Declared(NamedTuple):
    """Required type and shape of an array in a file."""

    shape: tuple[int, ...]
    dtype: np.dtype


def restore_msgpack(data: bytes) -> Any:
    """Decode what flax's `msgpack_serialize` has written.

    Raises:
        ValueError: If it declares more than it holds, or is nested deeply; the decoder has others.
    """
    _Counts().check(memoryview(data), 0)
    return serialization.msgpack_restore(data)


class Npz(zipfile.ZipFile):
    """NumPy's archive of arrays, read lazily.

    Args:
        path: the file.

    Attributes:
        declared: type and shape of the arrays, by name, checked against the bytes present.

    Raises:
        Exception: Of any kind for a damaged archive, here and in its methods.
    """

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.declared: dict[str, Declared] = {}
        for info in self.infolist():
            name = info.filename.removesuffix(".npy")
            if name in self.declared:
                raise ValueError(f"{name} is there twice")
            self.declared[name] = _declared(self, info)

    def array(self, name: str) -> np.ndarray:
        """Read an array."""
        with self.open(f"{name}.npy") as entry:
            return np.lib.format.read_array(entry, allow_pickle=False)


def _declared(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Declared:
    """Read the head of an array, which must need the bytes that are there."""
    with archive.open(info) as entry:
        version = np.lib.format.read_magic(entry)
        if version not in _HEADERS:
            raise ValueError(f"{info.filename} has the unknown version {version}")
        shape, _, dtype = _HEADERS[version](entry)
        head = entry.tell()
    plain = not dtype.hasobject and dtype.itemsize and all(size >= 0 for size in shape)
    if not plain or head + math.prod(shape) * dtype.itemsize != info.file_size:
        raise ValueError(
            f"{info.filename} is no {dtype}{list(shape)}: it has {info.file_size - head:,} bytes"
        )
    return Declared(shape, dtype)


class _Counts:
    """Walks over msgpack without making anything of it.

    A list is made with room for as many values as it declares, so that a few bytes, nested, would
    take any memory. Each value takes a byte at least: more can never come.
    """

    def __init__(self) -> None:
        self._num_values = 0

    def check(self, data: memoryview, depth: int) -> None:
        """Reject what declares more than it holds.

        Raises:
            ValueError: If it does, it is nested too deeply, or has too many values.
        """
        position, to_come = 0, [1]  # values, on each level
        while to_come:
            if sum(to_come) > len(data) - position:
                raise ValueError(f"it ends after {len(data):,} bytes, before it is whole")
            if not to_come[-1]:
                to_come.pop()
                continue
            to_come[-1] -= 1
            self._num_values += 1
            position, inner = self._step(data, position, depth + len(to_come))
            to_come.append(inner)
            if depth + len(to_come) > MAX_DEPTH:
                raise ValueError("it is nested too deeply")
            if self._num_values > MAX_VALUES:
                raise ValueError(f"it has more than {MAX_VALUES:,} values")

    def _step(self, data: memoryview, position: int, depth: int) -> tuple[int, int]:
        """Go over the head of a value; return where its own values begin and how many they are."""
        first = data[position]
        position += 1

        def number(size: int) -> int:
            return int.from_bytes(data[position : position + size])

        if first < 0x80 or first >= 0xE0:
            return position, 0
        if first < 0x90:
            return position, 2 * (first & 0x0F)
        if first < 0xA0:
            return position, first & 0x0F
        if first < 0xC0:
            return position + (first & 0x1F), 0
        if first in _FIXED:
            return position + _FIXED[first], 0
        if first in _TEXTS:
            return position + _TEXTS[first] + number(_TEXTS[first]), 0
        if first in _LISTS:
            return position + _LISTS[first], number(_LISTS[first])
        if first in _TABLES:
            return position + _TABLES[first], 2 * number(_TABLES[first])
        if first not in _EXTENSIONS and first not in _FIXED_EXTENSIONS:
            raise ValueError(f"no value begins with the byte {first:#x}")
        size = _FIXED_EXTENSIONS.get(first)
        if size is None:
            size, width = number(_EXTENSIONS[first]), _EXTENSIONS[first]
            position += width
        position += 1  # which kind it is
        # Flax's arrays: their shape, type and bytes, as msgpack again.
        self.check(data[position : position + size], depth)
        return position + size, 0
