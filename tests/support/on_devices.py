"""Calls a function in a process with more devices than those of the tests."""

import subprocess
import sys
from pathlib import Path


def call_on_devices(count, function, *args):
    """Call a function of a test module, with paths as arguments, where JAX sees `count` devices."""
    module = Path(function.__code__.co_filename)
    code = f"""
import sys
from pathlib import Path, PosixPath
sys.path[:] = {[str(module.parent), *sys.path]!r}
import jax
jax.config.update("jax_num_cpu_devices", {count})
jax.config.update("jax_disable_most_optimizations", True)
from {module.stem} import {function.__name__}
{function.__name__}(*{args!r})
"""
    subprocess.run([sys.executable, "-c", code], check=True)
