"""Environments named by file or module, or registered by installed packages, and their errors."""

import importlib
import importlib.metadata
import json
import sys
import types

import jax
import jax.numpy as jnp
import pytest

import jaxmarl_envs
from jaxmarl_envs import make, quick_check, registry
from jaxmarl_envs.check import EnvContractError
from jaxmarl_envs.crypto import Crypto
from jaxmarl_envs.permission import importing_only
from jaxmarl_envs.user_code import UserCodeError, describe_traced

CODE = """
from flax import struct
from jaxmarl_envs.toy import EarlyDone, Relay
from jaxmarl_envs.toy.small import RelayParams

class Mine(Relay):
    name = "mine"

    def __init__(self, size: int = 2):
        if size > 5:
            raise ValueError(f"size {size} is too much")
        self.size = size

class Needs(Relay):
    def __init__(self, *, size):
        pass

@struct.dataclass
class Frozen(Relay):
    pass

class NoParams(Relay):
    @property
    def default_params(self):
        return 1 // 0

class Wrong(Relay):
    def step_env(self, key, state, action, params):
        step = state.time.no_such_field
        return super().step_env(key, state, action, params)

class NoEnv:
    pass

def longer(leg=5):
    return Mine(), RelayParams(leg=leg)

def nothing():
    return 3

mine = Mine()
"""


@pytest.fixture(autouse=True)
def _forget_modules(monkeypatch):
    monkeypatch.setattr(sys, "path", list(sys.path))
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if hasattr(sys.modules[name], "Mine"):
            del sys.modules[name]


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "own_games.py"
    path.write_text(CODE)
    return path


def line_of(text):
    """Number of the line of `CODE` that begins with a text."""
    return 1 + [line.strip().startswith(text) for line in CODE.splitlines()].index(True)


# ---- By file or module ---------------------------------------------------------------------------


def test_a_file_makes_an_environment_that_tells_how_it_was_made(path):
    env, params = make("own_games.py:Mine", size=3)
    assert (env.name, env.size, params.leg) == ("mine", 3, 3)
    assert env.made_as == (f"{path}:Mine", {"size": 3})
    name, kwargs = json.loads(json.dumps(env.made_as))
    again, _ = make(name, **kwargs)
    assert type(again) is type(env)  # one module, however it is written


def test_a_module_makes_an_environment(path, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    env, _ = make("own_games:Mine")
    assert env.made_as == ("own_games:Mine", {})
    assert isinstance(make("jaxmarl_envs.crypto:Crypto")[0], Crypto)


def test_a_function_may_bring_parameters(path):
    env, params = make("own_games.py:longer", leg=7)
    assert params.leg == 7
    assert env.made_as == (f"{path}:longer", {"leg": 7})


def test_a_frozen_environment_is_noted_too(path):
    assert make("own_games.py:Frozen")[0].made_as == (f"{path}:Frozen", {})


def test_what_cannot_be_written_down_is_not_noted(path):
    assert make("own_games.py:Mine", size=jnp.int32(1))[0].made_as is None


def test_a_file_imports_what_lies_beside_it_after_all_that_is_installed(tmp_path):
    (tmp_path / "own_helper.py").write_text("from jaxmarl_envs.toy import Relay as Mine")
    (tmp_path / "json.py").write_text("raise RuntimeError")
    path = tmp_path / "with_helper.py"
    path.write_text("import json\nfrom own_helper import Mine")
    assert make(f"{path}:Mine")[0].name == "relay"
    assert sys.path[-1] == str(tmp_path)


def test_a_file_is_the_module_that_others_import(path):
    env, _ = make("own_games.py:Mine")
    assert type(env) is importlib.import_module("own_games").Mine


def test_two_files_of_one_name_are_two_modules(tmp_path):
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "same.py").write_text(
            f"from jaxmarl_envs.toy import Relay\nclass Mine(Relay):\n    name = {folder!r}"
        )
    names = [make(f"{tmp_path}/{folder}/same.py:Mine")[0].name for folder in "ab"]
    assert names == ["a", "b"]


def test_a_wrapper_notes_the_file_of_what_it_wraps(path):
    env, _ = make("grouped", env="own_games.py:Mine", groups={"all": ("a", "b")})
    name, kwargs = env.made_as
    assert (name, kwargs["env"]) == ("grouped", f"{path}:Mine")


# ---- Errors --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("own_games.py", "of your own package.module:Class or path/to/file.py:Class"),
        ("nowhere.py:Mine", "environment file '.*/nowhere.py' does not exist"),
        ("own_games.py:Mien", "own_games.py has no 'Mien'; environments in it: Frozen, Mine, "),
        ("own_games.py:NoEnv", "'NoEnv' is a class, but no jaxmarl_envs.MultiAgentEnv"),
        ("own_games.py:mine", "'mine' has type Mine, expected a MultiAgentEnv's class"),
        ("own_games.py:nothing", r"nothing\(\) returns a int, expected a MultiAgentEnv or"),
        ("own_games.py:Needs", "needs the option size; its options: size"),
        ("no_such_package.games:Mine", "no module 'no_such_package'; name an environment as"),
        ("jaxmarl_envs.no_such:Mine", "there is no module 'jaxmarl_envs.no_such'"),
        (
            "own_games.py:NoParams",
            rf"default_params raises ZeroDivisionError: .* \(.*own_games.py, line "
            rf"{line_of('return 1 // 0')}: return 1 // 0\)",
        ),
    ],
)
@pytest.mark.usefixtures("path")
def test_what_is_wrong_is_named(name, message):
    with pytest.raises(ValueError, match=message) as error:
        make(name)
    assert "\n" not in str(error.value)


def test_a_constructor_that_raises_is_told_with_its_line(path):
    with pytest.raises(UserCodeError) as error:
        make("own_games.py:Mine", size=9)
    line = line_of("raise ValueError")
    assert str(error.value) == (
        f"environment '{path}:Mine', Mine(size=9) raises ValueError: size 9 is too much "
        f'({path}, line {line}: raise ValueError(f"size {{size}} is too much"))'
    )
    assert isinstance(error.value.__cause__, ValueError)
    with pytest.raises(ValueError, match="takes no option 'sise'; valid options: size"):
        make("own_games.py:Mine", sise=9)


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("x = 1\ny = x.z", r"AttributeError: 'int' object has no .*line 2: y = x.z\)"),
        ("import no_such_thing", "ModuleNotFoundError: No module named 'no_such_thing' .*line 1"),
        ("x = 1\ndef f(:\n", r"SyntaxError: invalid syntax \(.*\.py, line 2: def f\(:\)"),
        ("import sys\nsys.exit('usage')", "SystemExit: usage .*line 2"),
    ],
)
@pytest.mark.parametrize("file", ["broken.py", "json.py"])  # the other is no module by its name
def test_a_file_that_cannot_be_imported_is_told_with_its_line(tmp_path, file, code, message):
    path = tmp_path / file
    path.write_text(code)
    for _ in range(2):  # nothing is left of the first attempt
        with pytest.raises(UserCodeError, match=f"importing {path} raises {message}"):
            make(f"{path}:Mine")


def test_a_method_that_raises_while_it_is_traced_is_told_with_its_line(path):
    env, params = make("own_games.py:Wrong")
    with pytest.raises(EnvContractError) as error:
        quick_check(env, params)
    place = f"({path}, line {line_of('step =')}: step = state.time.no_such_field)"
    assert "environment 'relay', step_env raises AttributeError when traced by JAX" in str(
        error.value
    )
    assert str(error.value).endswith(place)
    key = jax.random.key(0)
    _, state = env.reset(key, params)
    with pytest.raises(AttributeError) as raw:
        jax.jit(jax.vmap(env.step, (0, None, None, None)))(key[None], state, jnp.zeros(2), params)
    told = describe_traced(raw.value)
    assert told is not None
    assert told.startswith("environment 'relay', step_env raises AttributeError: ")
    assert told.endswith(place)


def test_errors_outside_of_environments_are_not_theirs():
    with pytest.raises(ValueError) as error:
        make("no such name")
    assert describe_traced(error.value) is None


# ---- Installed packages --------------------------------------------------------------------------


@pytest.fixture
def install(monkeypatch):
    """Pretend that packages are installed which register `(name, place)`."""

    def pretend(*registered):
        entries = [
            importlib.metadata.EntryPoint(name, place, "jaxmarl_envs")._for(
                types.SimpleNamespace(name="acme-envs")
            )
            for name, place in registered
        ]
        monkeypatch.setattr(registry, "entry_points", lambda group: entries)
        registry._installed.cache_clear()

    yield pretend
    monkeypatch.undo()
    registry._installed.cache_clear()


def test_installed_packages_register_names(path, install, monkeypatch):
    monkeypatch.syspath_prepend(path.parent)
    install(("harvest", "own_games:Mine"))
    assert jaxmarl_envs.installed_names() == ("harvest",)
    assert "harvest" in jaxmarl_envs.all_names()
    with importing_only():  # it was installed to be found
        env, _ = make("harvest", size=4)
    assert env.made_as == ("harvest", {"size": 4})
    with pytest.raises(ValueError, match="'harvest' is registered already"):
        jaxmarl_envs.register("harvest", Crypto)


@pytest.mark.parametrize("name", ["crypto", "pgx"])
def test_a_package_that_takes_a_name_of_ours_is_refused(install, name):
    install((name, "acme.envs:Other"))
    with pytest.raises(
        ValueError,
        match=f"have the name '{name}': the one of jaxmarl_envs and acme.envs:Other of the "
        "installed package 'acme-envs'",
    ):
        make(name)
    make("relay")


def test_two_packages_that_take_one_name_are_refused(install):
    install(("harvest", "acme.envs:One"), ("harvest", "acme.envs:Two"))
    with pytest.raises(ValueError, match=r"name 'harvest': acme.envs:One of .* and acme.envs:Two"):
        make("harvest")


def test_an_installed_package_that_is_broken_is_named(install):
    install(("harvest", "no_such_package:Harvest"))
    with pytest.raises(
        ValueError,
        match="environment 'harvest', no_such_package:Harvest of the installed package "
        "'acme-envs': there is no module 'no_such_package'",
    ):
        make("harvest")
