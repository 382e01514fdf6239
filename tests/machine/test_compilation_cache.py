"""Where compiled programs are kept."""

import jax
import jax.numpy as jnp
import pytest
from jax.experimental.compilation_cache import compilation_cache

from jaxmarl_ppo import use_compilation_cache

FOLDER = "jax_compilation_cache_dir"


@pytest.fixture(autouse=True)
def _keep_setting():
    before = jax.config.values[FOLDER]
    yield
    jax.config.update(FOLDER, before)
    compilation_cache.reset_cache()


def compile_something(number):
    jax.jit(lambda x: x * number + 1).lower(jnp.zeros(3)).compile()


def test_programs_are_kept_also_after_another_folder_was_used(tmp_path):
    use_compilation_cache(tmp_path / "a")
    compile_something(11.0)
    assert list((tmp_path / "a").iterdir())
    assert not (tmp_path / "b").exists()
    use_compilation_cache(str(tmp_path / "b"))
    compile_something(12.0)
    assert list((tmp_path / "b").iterdir())


def test_the_users_own_setting_stands(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    jax.config.update(FOLDER, "mine")
    use_compilation_cache()
    assert jax.config.values[FOLDER] == "mine"
    jax.config.update(FOLDER, None)
    use_compilation_cache()
    assert jax.config.values[FOLDER] == str(tmp_path / "jaxmarl_ppo" / "jax")


def test_what_is_no_folder_is_refused(tmp_path):
    (tmp_path / "file").touch()
    before = jax.config.values[FOLDER]
    with pytest.raises(ValueError, match=r"cache '.*file' is a file"):
        use_compilation_cache(tmp_path / "file")
    for wrong in (5, ""):
        with pytest.raises(ValueError, match="cache must be a path, got"):
            use_compilation_cache(wrong)
    assert jax.config.values[FOLDER] == before
