"""Freed memory of this process, kept on a CPU for the next call of a compiled program."""

import ctypes
import os
import sys

# Parameters of mallopt in glibc's malloc.h, and what users set instead of them.
_TRIM_THRESHOLD, _TOP_PAD, _MMAP_THRESHOLD = -1, -2, -3
_VARIABLES = ("MALLOC_TRIM_THRESHOLD_", "MALLOC_TOP_PAD_", "MALLOC_MMAP_THRESHOLD_")
# The most that the heaps of threads hold, which run compiled programs.
_HEAP_BYTES = 2**26


def keep_freed_memory() -> None:
    """Let this process keep what it frees, for its next allocations.

    XLA allocates the temporary memory of a program at every call on a CPU. The C library of most
    Linux systems, glibc, returns more than 32 MB to the system when it is freed, so that all pages
    are made and zeroed again at the next call. That took a fifth of the training time of recurrent
    policies. From here on this begins at 64 MB. Elsewhere, and where the user has chosen otherwise
    by glibc's `MALLOC_*` variables, nothing changes.
    """
    if not sys.platform.startswith("linux") or any(name in os.environ for name in _VARIABLES):
        return
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)  # absent from other C libraries
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _HEAP_BYTES)
        mallopt(_TRIM_THRESHOLD, 2**31 - 1)
        # Otherwise a heap without anything in it is returned, too.
        mallopt(_TOP_PAD, _HEAP_BYTES)
