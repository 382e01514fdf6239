"""An environment of one's own on the command line: written, checked, trained, evaluated."""

import contextlib
import importlib
import io
import json
import shutil
import sys
from typing import Any

import pytest
from command_line import run, status_of

from jaxmarl_envs import make, registry
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig
from jaxmarl_ppo.cli import check_env, new_env
from jaxmarl_ppo.cli import main as cli
from jaxmarl_ppo.config.text import read_text
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.evaluation import evaluate_run
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training import trainer

TINY = ["--num-envs", "4", "--num-steps", "8", "--hidden-sizes", "4", "--ppo.num-minibatches", "2"]
TINY += ["--total-env-steps", "32", "--no-progress", "--no-plays"]
BROKEN = """
from heap import Heap

class Wrong(Heap):
    def step_env(self, key, state, action, params):
        if state.stones > 3:
            return None

class Late(Heap):
    def step_batch(self, keys, state, action, params):
        return state.no_such_field

class Cheat(Heap):
    def step_env(self, *args):
        obs, state, reward, terminated, truncated, info = super().step_env(*args)
        return obs, state, reward.astype(int), terminated, truncated, info
"""


@pytest.fixture(scope="module", autouse=True)
def _own_sys_path():
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(sys, "path", list(sys.path))
        yield
    sys.modules.pop("tag_game", None)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A folder with an environment as `new-env` writes it, and with broken ones."""
    folder = tmp_path_factory.mktemp("own")
    new_env.write_env("heap", folder)
    (folder / "broken.py").write_text(BROKEN)
    yield folder
    for name in ("heap", "test_heap", "broken"):
        sys.modules.pop(name, None)


@pytest.fixture(scope="module")
def run_dir(folder):
    """A run of it, by the command line."""
    target = folder / "run"
    args = ["train", f"{folder}/heap.py:Heap", "--env-kwargs", "max_take=2", *TINY]
    with contextlib.redirect_stdout(io.StringIO()) as output, pytest.raises(SystemExit) as caught:
        cli.main([*args, "--run-dir", str(target)])
    assert caught.value.code == 0
    last = output.getvalue().splitlines()[-1]
    assert last == f"next: jaxmarl-ppo evaluate {target} --env {folder}/heap.py:Heap"
    return target


# ---- new-env -------------------------------------------------------------------------------------


def test_a_new_environment_is_written_with_what_comes_next(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delitem(sys.modules, "tag_game", raising=False)  # another test may have made one
    status, output, errors = run(capsys, "new-env", "tag_game")
    assert status == 0, errors
    assert sorted(path.name for path in tmp_path.iterdir()) == ["tag_game.py", "test_tag_game.py"]
    assert output.splitlines() == [
        "wrote tag_game.py and test_tag_game.py; next:",
        "  jaxmarl-ppo check-env tag_game.py:TagGame",
        "  python -m pytest test_tag_game.py",
        "  jaxmarl-ppo train tag_game.py:TagGame --run-dir runs/tag_game",
        "  jaxmarl-ppo evaluate runs/tag_game --env tag_game.py:TagGame",
    ]
    texts = [path.read_text() for path in tmp_path.iterdir()]
    assert not any("my_env" in text or "MyEnv" in text for text in texts)
    assert make("tag_game.py:TagGame")[0].name == "tag_game"


def test_a_name_like_the_templates_own(tmp_path):
    path, test_path = new_env.write_env("notMyEnv", tmp_path)
    assert "class NotMyEnv(" in path.read_text()
    assert "from notMyEnv import NotMyEnv, " in test_path.read_text()


@pytest.mark.parametrize("existing", ["heap.py", "test_heap.py"])
def test_no_file_is_overwritten(tmp_path, existing):
    (tmp_path / existing).write_text("mine")
    with pytest.raises(ValueError, match=f"{existing}' exists; choose another name or remove it"):
        new_env.write_env("heap", tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == [existing]
    assert (tmp_path / existing).read_text() == "mine"


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("new-env", "new-env takes the name of the new module"),
        ("new-env tag-game", "name 'tag-game' must be that of a Python module"),
        ("new-env 2048", "name '2048' must be"),
        ("new-env ../up", "name '../up' must be"),
        ("new-env class", "name 'class' is a word of Python's; choose another, such as 'my_class'"),
        ("new-env random", "name 'random' is a module of Python's"),
        ("new-env jaxmarl_ppo", "name 'jaxmarl_ppo' is a package of this library"),
        ("new-env crypto", "name 'crypto' is a registered environment"),
        ("new-env test_game", "name 'test_game' is what pytest takes for a test"),
        ("new-env jax", "name 'jax': there is a module of that name already"),
        ("new-env heap --dir nowhere", "folder 'nowhere' does not exist"),
        ("check-env", "check-env takes an environment's name"),
        ("check-env cripto", "did you mean 'crypto'?"),
        ("check-env crypto --num-envs 0", "num_envs=0, num_steps=None: both must be at least 1"),
        ("check-env nowhere.py:Game", "/nowhere.py' does not exist"),
        ("train nowhere.py:Game", "/nowhere.py' does not exist"),
        ("train nowhere:Game", "there is no module 'nowhere'"),
        ("train nowhere.py:Game --preset league", "environment 'nowhere.py:Game' has no preset"),
        ("bench --env nowhere.py:Game", "/nowhere.py' does not exist"),
    ],
)
def test_a_users_error_is_one_line(capsys, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    status, _, errors = run(capsys, *args.split())
    assert (status, errors.count("\n")) == (2, 1)
    assert errors.startswith("error: ")
    assert message in errors
    assert not list(tmp_path.iterdir())


def test_modules_of_the_present_folder_are_found(capsys, tmp_path, monkeypatch):
    new_env.write_env("lonely", tmp_path)
    monkeypatch.chdir(tmp_path)
    for command in (["check-env"], ["train"], ["bench", "--env"]):
        monkeypatch.setattr(sys, "path", [entry for entry in sys.path if entry != str(tmp_path)])
        monkeypatch.delitem(sys.modules, "lonely", raising=False)
        status, _, errors = run(capsys, *command, "lonely:Missing")
        assert status == 2
        assert "lonely has no 'Missing'; environments in it: Lonely" in errors


def test_the_test_that_is_written_passes(folder, monkeypatch):
    monkeypatch.syspath_prepend(folder)
    written = importlib.import_module("test_heap")
    tests = [value for name, value in vars(written).items() if name.startswith("test_")]
    assert len(tests) == 4
    for test in tests:
        test()
    # And it looks at what it is about.
    monkeypatch.setattr(written.Heap, "observe", lambda self, state, params: None)
    for test in tests:
        with pytest.raises((AssertionError, AttributeError, ValueError)):
            test()


# ---- check-env -----------------------------------------------------------------------------------


def test_a_sound_environment_is_reported(capsys, folder):
    env = f"{folder}/heap.py:Heap"
    status, output, errors = run(capsys, "check-env", env, "--num-steps", "40")
    assert status == 0, errors
    lines = output.splitlines()
    assert lines[0] == "environment 'heap' keeps the contract"
    assert lines[1].startswith("  first: 12 features, 3 actions; ")
    assert "  160 steps over 4 seeds, " in lines[3]
    assert "checked" in lines
    assert lines[-1] == f"next: jaxmarl-ppo train {env}"
    assert "not seen" not in output


def test_the_next_command_makes_the_same_environment(capsys):
    given = "--env-kwargs num_wheels=2 num_options=3 joint=true"
    options = ["combination_lock", "--num-steps", "1", *given.split()]
    status, output, errors = run(capsys, "check-env", *options)
    assert status == 0, errors
    assert output.splitlines()[-1] == f"next: jaxmarl-ppo train combination_lock {given}"


@pytest.mark.parametrize(
    "value", ["3m", "3", "true", None, True, 1.5, [1, "a"], {"a": [True, "5"]}]
)
def test_values_are_written_as_they_are_read(value):
    assert read_text(check_env._typed(value), Any) == value


def test_what_was_not_seen_is_said(capsys):
    status, output, _ = run(capsys, "check-env", "relay", "--num-steps", "1", "--num-envs", "1")
    assert status == 0
    assert "not seen: b acting, an end of a's life, an end of b's life; play more by" in output


def test_a_broken_rule_is_one_sentence(capsys, folder):
    status, output, errors = run(capsys, "check-env", f"{folder}/broken.py:Cheat")
    assert (status, output, errors.count("\n")) == (2, "", 1)
    assert errors.startswith("error: environment 'heap', ")
    assert "reward" in errors


# ---- Errors while it is traced -------------------------------------------------------------------


def test_an_error_under_the_quick_check_has_its_line(capsys, folder):
    target = str(folder / "not_trained")
    status, _, errors = run(
        capsys, "train", f"{folder}/broken.py:Wrong", *TINY, "--run-dir", target
    )
    assert (status, errors.count("\n")) == (2, 1)
    assert "step_env raises TracerBoolConversionError when traced by JAX: " in errors
    assert f"({folder}/broken.py, line 6: if state.stones > 3:)" in errors


def test_an_error_under_compilation_has_its_line(capsys, folder, monkeypatch):
    target = folder / "not_trained"
    args = ["train", f"{folder}/broken.py:Late", *TINY, "--no-check-env", "--run-dir", str(target)]
    status, _, errors = run(capsys, *args)
    assert (status, errors.count("\n")) == (2, 1)
    assert "environment 'heap', step_batch raises AttributeError: " in errors
    assert f"({folder}/broken.py, line 11: return state.no_such_field)" in errors
    assert not target.exists()
    monkeypatch.setenv("JAXMARL_PPO_TRACEBACK", "1")
    with pytest.raises(AttributeError, match="no_such_field"):
        cli.main(args)


def test_an_error_that_is_not_the_users_keeps_its_traceback(folder, monkeypatch):
    monkeypatch.setattr(CompiledRuns, "compile", lambda *_: {}["ours"])
    args = ["train", f"{folder}/heap.py:Heap", *TINY, "--run-dir", str(folder / "not_trained")]
    with pytest.raises(KeyError, match="ours"):
        cli.main(args)


# ---- Runs ----------------------------------------------------------------------------------------


def test_a_run_says_how_its_environment_is_made(folder, run_dir):
    record = json.loads((run_dir / "config.json").read_text())
    assert record["env"]["make"] == {"name": f"{folder}/heap.py:Heap", "kwargs": {"max_take": 2}}


@pytest.mark.parametrize("command", ["evaluate", "export"])
def test_no_code_is_run_because_a_run_names_it(capsys, folder, run_dir, command):
    status, _, errors = run(capsys, command, str(run_dir))
    assert (status, errors.count("\n")) == (2, 1)
    assert f"the run names '{folder}/heap.py:Heap', and no code is run because a file" in errors
    assert f"--env {folder}/heap.py:Heap" in errors
    status, _, errors = run(capsys, command, str(run_dir), "--env", f"{folder}/broken.py:Late")
    assert status == 2
    assert f"you named '{folder}/broken.py:Late'; if you trust it, name it too: --env" in errors


def test_a_run_is_evaluated_when_its_environment_is_named_again(
    capsys, folder, run_dir, monkeypatch
):
    monkeypatch.chdir(folder)
    args = [str(run_dir), "--env", "heap.py:Heap"]
    status, output, errors = run(capsys, "evaluate", *args, "--episodes", "4")
    assert status == 0, errors
    assert "heap: 4 episodes" in output
    loaded = load_run(run_dir, env=f"{folder}/heap.py:Heap")
    assert loaded.env.max_take == 2
    assert load_run(run_dir, env=loaded.env).env is loaded.env


def test_a_run_is_exported_when_its_environment_is_named_again(capsys, folder, run_dir, tmp_path):
    out = tmp_path / "heap.jaxexport"
    args = ["--env", f"{folder}/heap.py:Heap", "--platforms", "cpu", "--out", str(out)]
    status, output, errors = run(capsys, "export", str(run_dir), *args)
    assert status == 0, errors
    assert "which plays first, second; checked: it acts as before" in output
    assert out.is_file()


@pytest.fixture(scope="module")
def made_in_python(folder):
    """A run of an environment that Python code made, and the name of a function that makes it."""
    (folder / "makers.py").write_text(
        "from heap import Heap\n"
        "def small():\n    return Heap(max_take=2)\n"
        "def other():\n    import jaxmarl_envs\n    return jaxmarl_envs.make('relay')[0]\n"
    )
    heap, params = make(f"{folder}/heap.py:Heap", max_take=2)
    env = type(heap)(max_take=2)
    config = TrainConfig(
        total_env_steps=32,
        num_envs=4,
        num_steps=8,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_minibatches=2),
    )
    trainer.Trainer(env, params, config, folder / "python", progress=False).train()
    return folder / "python", f"{folder}/makers.py:small"


@pytest.mark.parametrize(
    "command",
    ["evaluate --episodes 4", "report", "watch --episodes 1 --out {out}", "resume --total 64"],
)
def test_a_run_from_python_is_used_when_what_makes_its_environment_is_named(
    capsys, made_in_python, tmp_path, command
):
    made, name = made_in_python
    run_dir = shutil.copytree(made, tmp_path / "run")
    command, *options = command.format(out=tmp_path / "game.html").split()
    options = [option.replace("--total", "--total-env-steps") for option in options]
    status, _, errors = run(capsys, command, str(run_dir), *options)
    assert (status, errors.count("\n")) == (2, 1)
    assert "environment 'heap' was made in Python, or is not registered here; name what" in errors
    status, _, errors = run(capsys, command, str(run_dir), *options, "--env", name)
    assert status == 0, errors


def test_another_environment_than_a_run_from_python_had_is_refused(made_in_python):
    run_dir, name = made_in_python
    assert load_run(run_dir, env=name).env.max_take == 2
    with pytest.raises(ValueError, match=r"on environment 'heap', but '.*other' makes 'relay'"):
        load_run(run_dir, env=name.replace("small", "other"))
    with pytest.raises(ValueError, match=r"naming 'json.tool' has no effect"):
        load_run(run_dir, env=name, allow_imports=["json.tool"])


@pytest.fixture
def altered(run_dir, tmp_path):
    """A copy of the run whose record names another environment."""

    def alter(name, **kwargs):
        shutil.copytree(run_dir, tmp_path / "run")
        record = json.loads((run_dir / "config.json").read_text())
        record["env"]["make"] = {"name": name, "kwargs": kwargs}
        (tmp_path / "run" / "config.json").write_text(json.dumps(record))
        return tmp_path / "run"

    return alter


def test_a_file_that_is_gone_is_named(altered, tmp_path):
    name = f"{tmp_path}/gone.py:Heap"
    run_dir = altered(name, max_take=2)
    for env in (None, name):
        with pytest.raises(ValueError, match=r"gone.py' is gone; .*load_run\(run_dir, env="):
            load_run(run_dir, env=env)


def test_an_environment_whose_file_has_moved_is_named_anew(folder, altered, tmp_path):
    run_dir = altered(f"{tmp_path}/gone.py:Heap", max_take=2)
    assert load_run(run_dir, env=f"{folder}/heap.py:Heap").env.max_take == 2


def test_naming_a_registered_environment_again_has_no_effect(altered):
    with pytest.raises(ValueError, match="naming 'relay' has no effect: environment 'relay'"):
        evaluate_run(altered("relay"), env="relay")


def test_what_is_no_environment_is_refused(run_dir):
    with pytest.raises(ValueError, match="env must be an environment or the name of one, got <cl"):
        load_run(run_dir, env=type("Heap", (), {}))


def test_no_code_is_run_for_what_a_wrapper_wraps(altered, tmp_path):
    path = tmp_path / "evil.py"
    path.write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    run_dir = altered("grouped", env=f"{path}:Heap", groups={"all": ["first", "second"]})
    with pytest.raises(ValueError, match=r"the run names '.*evil.py:Heap', and no code"):
        load_run(run_dir)
    assert not (tmp_path / "executed").exists()


# ---- Installed packages --------------------------------------------------------------------------


def test_the_list_bears_packages_that_claim_a_name_of_ours(capsys, monkeypatch):
    monkeypatch.setattr(registry, "_installed", lambda: {"basic": [], "harvest": []})
    status, output, _ = run(capsys, "envs")
    assert status == 0
    assert "of installed packages: basic, harvest" in output
    assert not [line for line in output.splitlines() if line.split()[:1] == ["basic"]]
    assert "your own: package.module:Class or path/to/file.py:Class" in output


# ---- bench ---------------------------------------------------------------------------------------


@pytest.mark.rare
def test_an_environment_of_ones_own_is_measured(capsys, folder, monkeypatch):
    monkeypatch.chdir(folder)
    args = ["--num-envs", "4", "--num-steps", "8", "--hidden-sizes", "4", "--num-minibatches", "2"]
    args += ["--repeats", "1", "--no-startup", "--json", "--num-epochs", "1"]
    status, output, errors = run(capsys, "bench", "--env", "heap:Heap", *args)
    assert status == 0, errors
    assert json.loads(output.splitlines()[-1])["workload"]["env"] == "heap:Heap"


def test_a_recorded_run_is_repeated_once_its_code_is_named_again(
    capsys, folder, run_dir, tmp_path, monkeypatch
):
    """By any name of the same file."""
    monkeypatch.chdir(folder)
    config = str(run_dir / "config.json")
    status, _, errors = run(capsys, "train", "--config", config, "--run-dir", str(tmp_path / "a"))
    assert status == 2
    assert "no code is run because a file names it; if you trust it, name it too" in errors
    started = []
    monkeypatch.setattr(trainer.Trainer, "train", lambda self: started.append(self) or 1 / 0)
    with pytest.raises(ZeroDivisionError):
        cli.main(["train", "heap.py:Heap", "--config", config, "--run-dir", str(tmp_path / "b")])
    assert started[0].env.made_as == (f"{folder}/heap.py:Heap", {"max_take": 2})


def test_a_file_does_not_get_to_say_which_code_runs(tmp_path, capsys):
    """Not even within the arguments of a registered environment."""
    (tmp_path / "code.py").write_text("raise SystemError('was run')\n")
    config = tmp_path / "run.toml"
    kwargs = f'kwargs = {{groups = [["a"]], env = "{tmp_path}/code.py:Thing"}}'
    config.write_text(f'[env]\nname = "grouped"\n{kwargs}\n')
    assert status_of("train", "--config", str(config), "--run-dir", str(tmp_path / "run")) == 2
    assert "code.py:Thing" in capsys.readouterr().err
