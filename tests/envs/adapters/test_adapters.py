import importlib
import subprocess
import sys

import pytest

from jaxmarl_envs.adapters import import_extra


def test_an_extra_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pettingzoo", None)
    monkeypatch.delitem(sys.modules, "pettingzoo.utils", raising=False)  # of an earlier test
    with pytest.raises(ImportError, match=r"pip install '\./envs\[pettingzoo\]'"):
        import_extra("pettingzoo.utils", "pettingzoo")


def test_an_extra_that_is_there_is_imported():
    assert import_extra("json.decoder", "none").JSONDecoder


def test_what_an_extra_itself_misses_keeps_its_own_message(tmp_path, monkeypatch):
    (tmp_path / "an_extra.py").write_text("import something_that_is_not_there\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="something_that_is_not_there"):
        import_extra("an_extra", "an-extra")


@pytest.mark.parametrize(
    ("module", "library", "extra"),
    [("pettingzoo", "pettingzoo", "pettingzoo"), ("rllib", "ray", "ray")],
)
def test_without_its_library_a_way_out_says_what_to_install(module, library, extra, monkeypatch):
    name = f"jaxmarl_envs.adapters.outgoing.{module}"
    monkeypatch.delitem(sys.modules, name, raising=False)
    for loaded in [m for m in sys.modules if m.split(".")[0] == library] or [library]:
        monkeypatch.setitem(sys.modules, loaded, None)
    with pytest.raises(ImportError, match=rf"pip install '\./envs\[{extra}\]'"):
        importlib.import_module(name)


@pytest.mark.parametrize(
    ("library", "env", "num_agents"),
    [
        pytest.param("gymnax", "Lifted('CartPole-v1', num_agents=2)", 2, marks=pytest.mark.rare),
        pytest.param("jaxmarl", "JaxMARL('overcooked')", 2, marks=pytest.mark.rare),
        pytest.param("jumanji", "jumanji('Cleaner-v0')", 3, marks=pytest.mark.rare),
        ("pgx", "Pgx('kuhn_poker')", 2),
    ],
)
def test_a_library_waits_until_it_is_needed_and_prints_and_warns_of_nothing(
    library, env, num_agents
):
    program = f"""
import sys
from jaxmarl_envs.adapters.incoming.{library} import *
assert "{library}" not in sys.modules and "matplotlib" not in sys.modules
print(len({env}.agents), "{library}" in sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, f"{num_agents} True\n"), done.stderr
