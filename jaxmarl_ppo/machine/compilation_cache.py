"""Compiled programs kept on disk."""

import os
from pathlib import Path

import jax
from jax.experimental.compilation_cache import compilation_cache

_FOLDER = "jax_compilation_cache_dir"


def use_compilation_cache(folder: str | Path | None = None) -> None:
    """Keep compiled programs on disk, so that later starts with the same shapes skip compilation.

    Args:
        folder: where to keep them, created when it is needed; only you should be able to write
            there, since programs in it are run. None for JAX's configured folder, such as
            `JAX_COMPILATION_CACHE_DIR`, or else `jaxmarl_ppo/jax` in `$XDG_CACHE_HOME` or
            `~/.cache`.

    Raises:
        ValueError: If it is not a path, or the file exists.
    """
    if folder is None:
        if jax.config.values[_FOLDER] is not None:
            return
        caches = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        folder = Path(caches) / "jaxmarl_ppo" / "jax"
    if not isinstance(folder, str | Path) or not str(folder):
        raise ValueError(f"folder of the compilation cache must be a path, got {folder!r}")
    if Path(folder).is_file():
        raise ValueError(f"folder of the compilation cache {str(folder)!r} is a file")
    jax.config.update(_FOLDER, str(Path(folder).absolute()))
    # JAX looks at the setting only until it has used a folder.
    compilation_cache.reset_cache()
