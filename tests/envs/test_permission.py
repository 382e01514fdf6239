"""What may be imported because a file names it."""

import contextlib
import inspect
import pathlib
import pickle
import sys
import warnings

import gymnasium
import pytest

from jaxmarl_envs import make, registry
from jaxmarl_envs.permission import (
    NotPermitted,
    ask_permission,
    importing_only,
    noting_imports,
    unused,
)

TRACER = """
import pathlib
pathlib.Path({mark!r}).touch()

import gymnasium
import jaxmarl_envs

gymnasium.register("Traced-v0", entry_point="gymnasium.envs.classic_control:CartPoleEnv")

def parallel_env(**options):
    from mpe2 import simple_spread_v3
    return simple_spread_v3.parallel_env(**options)

def Relay(config=None):
    return jaxmarl_envs.make("relay")
"""


class Mark:
    """Leaves a trace when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return pathlib.Path.touch, (self.path,)


@pytest.fixture
def tracer(tmp_path, monkeypatch):
    """A module that can be imported by its name, and the file that exists once it was."""
    mark = tmp_path / "imported"
    (tmp_path / "tracer.py").write_text(TRACER.format(mark=str(mark)))
    (tmp_path / "map_buffer_0").write_bytes(pickle.dumps(Mark(mark)))
    monkeypatch.syspath_prepend(tmp_path)
    yield mark
    sys.modules.pop("tracer", None)
    gymnasium.registry.pop("Traced-v0", None)


def words(folder):
    """All ways to say in an argument which module is meant, and what JaxNav unpickles."""
    yield from ("tracer", "tracer:Relay", "tracer:Traced-v0", "tracer.Relay", "tracer/Relay")
    yield from (f"{folder}/tracer.py:Relay", f"{folder}/tracer.py", str(folder))


def arguments(factory, word):
    """Keyword arguments of a factory, each of which is a word or has it within."""
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    parameters = [p for p in inspect.signature(factory).parameters.values() if p.kind in kinds]
    needed = {p.name: word for p in parameters if p.default is p.empty}
    for name in [p.name for p in parameters] or ["option"]:
        for value in (word, [word], {"a": word}):
            yield {**needed, name: value}


@pytest.mark.parametrize("name", sorted({*registry._ENTRY_POINTS, *registry._COMPOSED}))
def test_no_argument_of_a_registered_environment_imports_what_it_names(name, tracer):
    """Alone, and within a wrapper within a wrapper."""
    factory = registry._factory(name)
    for word in words(tracer.parent):
        for kwargs in arguments(factory, word):
            inner = {"env": name, "groups": {"all": ["a"]}, "env_kwargs": kwargs}
            outer = {"env": "grouped", "groups": {"all": ["a"]}, "env_kwargs": inner}
            for made, options in ((name, kwargs), ("joined", outer)):
                with importing_only(), warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    with contextlib.suppress(Exception):
                        make(made, **options)
                assert not tracer.exists(), f"{made}, {options}"
    assert "tracer" not in sys.modules


IMPORTS = {
    "own": ("tracer:Relay", {}, "tracer:Relay"),
    "rllib": ("rllib", {"env_id": "tracer:Game"}, "tracer:Game"),
    "pettingzoo": ("pettingzoo", {"env_id": "tracer", "num_workers": 0}, "tracer"),
    "gymnasium": (
        "gymnasium",
        {"env_id": "tracer:Traced-v0", "num_workers": 0},
        "tracer:Traced-v0",
    ),
    "grouped": (
        "grouped",
        {"env": "tracer:Relay", "groups": {"all": ["a", "b"]}},
        "tracer:Relay",
    ),
    "wrapper in wrapper": (
        "joined",
        {
            "env": "grouped",
            "groups": {"all": ["a", "b"]},
            "env_kwargs": {"env": "tracer:Relay", "groups": {"all": ["a", "b"]}},
        },
        "tracer:Relay",
    ),
}


@pytest.mark.parametrize(("name", "kwargs", "permitted"), IMPORTS.values(), ids=IMPORTS)
@pytest.mark.filterwarnings("ignore:.*is stepped in Python")
def test_a_name_permits_exactly_what_it_names(name, kwargs, permitted, tracer):
    for other in ((), ("tracer:Other",), ("trace",), ("tracer.Relay", "tracer:"), ("relay",)):
        with importing_only(*other), pytest.raises(NotPermitted) as caught:
            make(name, **kwargs)
        assert caught.value.name == permitted
        assert not tracer.exists()
    if name == "rllib":
        return  # what it names is no environment of RLlib's
    with importing_only("tracer:Other", permitted) as used:
        env, _ = make(name, **kwargs)
    assert tracer.exists()
    assert used == [permitted]
    assert env.imports == (permitted,)
    assert unused(["tracer:Other", permitted], used) == ["tracer:Other"]


def test_a_relative_path_names_the_same_file(tracer, monkeypatch):
    path = tracer.parent / "tracer.py"
    monkeypatch.chdir(tracer.parent)
    with importing_only(f"../{path.parent.name}/tracer.py:Relay") as used:
        make("grouped", env=f"{path}:Relay", groups={"all": ["a", "b"]})
    assert used == [f"{path}:Relay"]


def test_what_is_not_read_from_a_file_needs_no_permission(tracer):
    with noting_imports() as used:
        env, _ = make("tracer:Relay")
    assert tracer.exists()
    assert (used, env.imports) == (["tracer:Relay"], ("tracer:Relay",))


def test_a_scope_within_another_permits_no_more_than_both(tracer):
    with (
        importing_only("tracer:Relay"),
        importing_only("tracer:Relay", "other:Env"),
        pytest.raises(NotPermitted),
    ):
        ask_permission("other:Env")
    with importing_only(), noting_imports(), pytest.raises(NotPermitted):
        make("tracer:Relay")
    assert not tracer.exists()


@pytest.mark.filterwarnings("ignore:.*is stepped in Python", "ignore:.*latest versioned")
@pytest.mark.parametrize(
    ("name", "kwargs"),
    [
        ("gymnasium", {"env_id": "CartPole-v1", "num_workers": 0}),
        ("gymnasium", {"env_id": "CartPole", "num_workers": 0}),
        ("pettingzoo", {"env_id": "mpe2.simple_spread_v3", "num_workers": 0}),
        ("gymnasium", {"env_id": "rware:rware-tiny-2ag-v2", "num_workers": 0}),
        ("openspiel", {"env_id": "tic_tac_toe", "num_workers": 0}),
        ("pgx", {"env_id": "tic_tac_toe"}),
        ("gymnax", {"env_id": "CartPole-v1"}),
        ("jaxmarl", {"env_id": "MPE_simple_spread_v3"}),
        ("crypto", {}),
    ],
)
def test_published_environments_need_no_permission(name, kwargs):
    with importing_only():
        env, _ = make(name, **kwargs)
    assert env.imports == ()


def test_packages_are_known_by_their_whole_name():
    known = ("mpe2", "pettingzoo.classic")
    with importing_only():
        for module in ("mpe2", "mpe2.simple_spread_v3", "pettingzoo.classic.chess_v6"):
            ask_permission(module, module, known)
        for module in ("mpe2x", "mpe", "pettingzoo", "pettingzoo.utils", "pettingzoo.classical"):
            with pytest.raises(NotPermitted, match=f"'{module}' is not imported because a file"):
                ask_permission(module, module, known)


@pytest.mark.filterwarnings("ignore:.*latest versioned")
def test_what_gymnasium_has_registered_of_other_packages_is_asked_for(tracer):
    gymnasium.register("Traced-v0", entry_point="tracer:Relay")
    for env_id in ("Traced-v0", "Traced", "gymnasium.envs:Traced-v0"):
        with importing_only(), pytest.raises(NotPermitted):
            make("gymnasium", env_id=env_id)
    gymnasium.registry.pop("Traced-v0")
    gymnasium.register("Traced-v0", entry_point=lambda: tracer.touch())
    with importing_only(), pytest.raises(NotPermitted):
        make("gymnasium", env_id="Traced-v0")
    assert not tracer.exists()


@pytest.mark.filterwarnings("ignore:max_dist_to_goal")
def test_maps_that_are_unpickled_are_asked_for(tracer):
    """JaxNav's own guard is none: its buffers of maps are pickles."""
    folder = str(tracer.parent)
    params = {"map_size": [9, 9], "dir_path": folder}
    options = {"env_id": "jaxnav", "map_id": "Grid-Buffer", "map_params": params}
    with importing_only(), pytest.raises(NotPermitted) as caught:
        make("jaxmarl", **options)
    assert caught.value.name == folder
    assert not tracer.exists()
    with importing_only(folder), pytest.raises((ValueError, TypeError, AttributeError)):
        make("jaxmarl", **options)
    assert tracer.exists()  # so it is what would have been run


def test_every_adapter_is_walked():
    """An adapter that is added has to be looked at here."""
    libraries = {
        *("gymnasium", "gymnax", "jaxmarl", "jumanji", "openspiel", "pettingzoo", "pgx", "vmas")
    }
    assert set(registry._COMPOSED) == libraries | {"grouped", "joined", "rllib"}
