"""How all tests run JAX: on two CPU devices, compiled once for all workers and without delay.

Nearly all the time of the tests is compilation of programs that run for milliseconds. So they are
compiled without optimisation, except where a test trains for minutes or is marked `optimised`, and
a program that several tests or workers need is compiled once. What a module has compiled is
forgotten at its end, since it would fill the memory.
"""

import ctypes
import gc
import os
import shutil
import sys
import tempfile

import jax
import pytest
import rare

jax.config.update("jax_num_cpu_devices", 2)
# A third of the compilation; the compiler of JAX 0.11 no longer takes it.
if jax.__version_info__ < (0, 11):
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.getenv('XLA_FLAGS', '')}"

MADE_HERE = pytest.StashKey[str]()


def pytest_configure(config):
    """A folder for what is compiled, which workers and other children learn of by their variables.

    The process that makes it removes it.
    """
    if os.getenv("JAX_COMPILATION_CACHE_DIR"):
        return
    folder = config.stash[MADE_HERE] = tempfile.mkdtemp(prefix="jaxmarl-tests-")
    os.environ["JAX_COMPILATION_CACHE_DIR"] = folder
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    jax.config.update("jax_compilation_cache_dir", folder)
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


def pytest_unconfigure(config):
    if MADE_HERE in config.stash:
        shutil.rmtree(config.stash[MADE_HERE], ignore_errors=True)
        del os.environ["JAX_COMPILATION_CACHE_DIR"]


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    rare.mark(items, whole_files=not any("::" in argument for argument in config.args))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    optimised = item.get_closest_marker("slow") or item.get_closest_marker("optimised")
    jax.config.update("jax_disable_most_optimizations", optimised is None)


@pytest.fixture(scope="module", autouse=True)
def _forget_what_is_compiled():
    yield
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":  # what the compiler has freed, the C library would keep
        ctypes.CDLL(None).malloc_trim(0)
