"""Files of TensorBoard events: framed records with checksums."""

import io
import os
import struct
from pathlib import Path

from jaxmarl_ppo.machine.files import open_to_append


class EventFile:
    """Writes records to a file of TensorBoard events, like tensorboardX, but follows no link.

    Args:
        path: the file, which begins empty.

    Raises:
        OSError: If it cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self._file = io.BufferedWriter(open_to_append(path, 0))

    def write(self, record: bytes) -> None:
        """Append a record."""
        length = struct.pack("<Q", len(record))
        self._file.write(length + _checksum(length) + record + _checksum(record))

    def flush(self) -> None:
        """Flush written records to the disk."""
        self._file.flush()
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Write buffered records, and close the file."""
        self._file.close()


def _checksum(data: bytes) -> bytes:
    from tensorboardX.record_writer import masked_crc32c

    return struct.pack("<I", masked_crc32c(data))
