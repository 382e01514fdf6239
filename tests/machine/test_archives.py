"""Files of arrays are measured before anything is made of them."""

import io
import tracemalloc
import zipfile

import numpy as np
import pytest
from flax import serialization

from jaxmarl_ppo.machine.archives import Npz, restore_msgpack

CONTENT = {
    "array": np.arange(12, dtype=np.float32).reshape(3, 4),
    "inner": {"scalar": np.float32(3), "list": [1, 2.5, "s", None, True, -5, 10**12, 1j]},
    "empty": np.zeros((0, 3)),
    "bytes": b"x" * 70_000,
    "names": ["n" * 40] * 40,
}
PACKED = serialization.msgpack_serialize(CONTENT)


def test_what_flax_writes_is_restored():
    found = restore_msgpack(PACKED)
    np.testing.assert_equal(found, CONTENT)


@pytest.mark.parametrize("seed", range(4))
def test_damaged_msgpack_is_refused_or_restored_in_little_memory(seed):
    rng = np.random.default_rng(seed)
    content = serialization.msgpack_serialize({k: v for k, v in CONTENT.items() if k != "bytes"})
    tracemalloc.start()
    for _ in range(100):
        damaged = bytearray(content)
        for place in rng.integers(len(damaged), size=3):
            damaged[place] = rng.choice([0xDD, 0xDF, 0xC9, 0xFF, 0x91, rng.integers(256)])
        try:
            restore_msgpack(bytes(damaged[: rng.integers(1, len(damaged) + 1)]))
        except Exception as error:  # the decoder's own kinds too
            assert not isinstance(error, MemoryError | RecursionError)  # noqa: PT017
    assert tracemalloc.get_traced_memory()[1] < 5e6
    tracemalloc.stop()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"\xdd\x00\x1e\x84\x80" * 90 + b"\xc0" * 2_000_000, "before it is whole"),
        (b"\x91" * 5_000 + b"\xc0", "nested too deeply"),
        (b"\xdc\xff\xff" * 4 + b"\x80" * 300_000, "more than 200,000 values"),
        (b"\xc1", "no value begins with the byte 0xc1"),
        (b"", "before it is whole"),
    ],
)
def test_what_declares_more_than_it_holds_is_refused_at_once(content, message):
    tracemalloc.start()
    with pytest.raises(ValueError, match=message):
        restore_msgpack(content)
    assert tracemalloc.get_traced_memory()[1] < 1e6
    tracemalloc.stop()


def test_an_array_that_is_not_there_is_not_made(tmp_path):
    """A file of some hundred bytes that declares eight terabytes."""
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(
        head, {"descr": "<f8", "fortran_order": False, "shape": (10**12,)}
    )
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as file:
        file.writestr("x.npy", head.getvalue() + b"12345678")
    with pytest.raises(ValueError, match=r"x.npy is no float64\[1000000000000\]: it has 8 bytes"):
        Npz(tmp_path / "a.npz")
