"""Freed memory stays with the process, so that a compiled program finds its pages there."""

import os
import platform
import subprocess
import sys

import pytest

# Temporary memory of 48 MB: rows of 4 MB, before and after they are summed up.
PROGRAM = """
import resource
import jax
import jax.numpy as jnp
from jaxmarl_ppo import use_cpu_cores
use_cpu_cores(1)

@jax.jit
def program(x):
    rows = jax.lax.optimization_barrier(jnp.full((6, 2**20), x))
    return jax.lax.optimization_barrier(jnp.cumsum(rows, 0))[3, :3]

def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    program(1.0).block_until_ready()
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

# A thread that has run none before makes pages of its own.
print(min(faults() for _ in range(12)))
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other C libraries do otherwise")
@pytest.mark.parametrize(
    ("variables", "keeps"),
    [({}, True), ({"MALLOC_MMAP_THRESHOLD_": "33554432"}, False)],
    ids=["default", "as the user says"],
)
def test_pages_of_temporary_memory_are_made_once(variables, keeps):
    env = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)} | variables
    found = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=env, capture_output=True, text=True, check=True
    )
    pages = 48 * 2**20 // os.sysconf("SC_PAGE_SIZE")
    assert (int(found.stdout) < pages // 10) == keeps
