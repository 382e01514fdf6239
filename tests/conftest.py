"""How all tests run JAX: on two CPU devices, compiled once for all workers and without delay.

Nearly all the time of the tests is compilation of programs that run for milliseconds. So they are
compiled without optimisation, except where a test trains for minutes or is marked `optimised`, and
a program that several tests or workers need is compiled once, and kept in `.cache/` for the next
time. What a module has compiled is forgotten at its end, since it would fill the memory.
"""

import contextlib
import ctypes
import gc
import os
import sys
import time
from pathlib import Path

import jax
import pytest
import rare
from compiled_once import CompiledOnce

jax.config.update("jax_num_cpu_devices", 2)
# A third of the compilation; the compiler of JAX 0.11 no longer takes it.
if jax.__version_info__ < (0, 11):
    os.environ["XLA_FLAGS"] = f"--xla_cpu_use_fusion_emitters=false {os.getenv('XLA_FLAGS', '')}"

COMPILED = Path(__file__).resolve().parents[1] / ".cache" / "jax"
COMPILED_DAYS = 14  # for which a program is kept


def pytest_configure(config):
    """Keep what is compiled for the next time, and let workers and other children find it."""
    if os.getenv("JAX_COMPILATION_CACHE_DIR"):
        return
    COMPILED.mkdir(parents=True, exist_ok=True)
    for path in COMPILED.iterdir():
        with contextlib.suppress(OSError):  # another session may remove it meanwhile
            if time.time() - path.stat().st_mtime > COMPILED_DAYS * 86_400:
                path.unlink()
    os.environ["JAX_COMPILATION_CACHE_DIR"] = str(COMPILED)
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    jax.config.update("jax_compilation_cache_dir", str(COMPILED))
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    rare.mark_cases(items, all_cases=not any("::" in argument for argument in config.args))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item):
    optimised = item.get_closest_marker("slow") or item.get_closest_marker("optimised")
    jax.config.update("jax_disable_most_optimizations", optimised is None)


@pytest.fixture(scope="module", autouse=True)
def _compiled_once():
    with pytest.MonkeyPatch.context() as patch:
        yield CompiledOnce(patch)
    jax.clear_caches()
    gc.collect()
    if sys.platform == "linux":  # what the compiler has freed, the C library would keep
        ctypes.CDLL(None).malloc_trim(0)


@pytest.fixture(autouse=True)
def _compiled_anew_where_code_is_replaced(request, _compiled_once):
    _compiled_once.shares = "monkeypatch" not in request.fixturenames
    yield
    _compiled_once.shares = True
