"""A stranger's run folder, configuration or search: no command runs the code that it names."""

import json
import sys

import pytest
from command_line import run, status_of

from jaxmarl_ppo import Policy, Trainer, evaluate_run, load_run
from jaxmarl_ppo.pages.watch import watch_run
from jaxmarl_ppo.runs.checkpoints import checkpoints_of
from jaxmarl_ppo.runs.files import CONFIG_FILE, MANIFEST_FILE
from jaxmarl_ppo.runs.manifest import read_own_position, write_manifest
from jaxmarl_ppo.sweeps.sweep import Sweep

# It leaves a trace, and goes no further.
TRACER = """
import pathlib
pathlib.Path({mark!r}).touch()
raise RuntimeError("the code was run")
"""
GROUPS = {"all": ["a", "b"]}
TINY = "--num-envs 4 --num-steps 8 --hidden-sizes 4 --ppo.num-minibatches 2 --total-env-steps 32"


def forms(folder):
    """What a record can say its environment was made as, and the code that it names so."""
    file = f"{folder}/tracer.py:Game"
    yield "file", (file, {}), file
    yield "module", ("tracer:Game", {}), "tracer:Game"
    yield "rllib", ("rllib", {"env_id": file}), file
    yield "pettingzoo", ("pettingzoo", {"env_id": "tracer"}), "tracer"
    yield "gymnasium", ("gymnasium", {"env_id": "tracer:Game-v0"}), "tracer:Game-v0"
    inner = {"env": "rllib", "groups": GROUPS, "env_kwargs": {"env_id": "tracer:Game"}}
    outer = {"env": "joined", "groups": GROUPS, "env_kwargs": inner}
    yield "wrapper in wrapper", ("grouped", outer), "tracer:Game"


FORMS = [name for name, *_ in forms("")]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder in which there is a run with a checkpoint."""
    folder = tmp_path_factory.mktemp("stranger")
    train = f"train relay {TINY} --no-progress --no-plays --no-check-env --run-dir {folder}/run"
    assert status_of(train) == 0
    return folder


@pytest.fixture(params=FORMS)
def strangers(request, trained, monkeypatch):
    """Runs and files whose environment is made by a module, its name, and what importing leaves."""
    mark = trained / "imported"
    mark.unlink(missing_ok=True)
    (trained / "tracer.py").write_text(TRACER.format(mark=str(mark)))
    monkeypatch.chdir(trained)
    monkeypatch.syspath_prepend(trained)
    made, named = next((made, code) for name, made, code in forms(trained) if name == request.param)
    for folder in (trained / "run", *checkpoints_of(trained / "run")):
        name_environment(folder, *made)
    name, kwargs = made
    described = {"env": {"name": name, "kwargs": kwargs}, "total_env_steps": 32}
    (trained / "run.json").write_text(json.dumps(described))
    search = {
        **described,
        "objective": {"measure": "all/return_mean"},
        "space": {"default_ppo.gamma": {"low": 0.5, "high": 0.9}},
        "search": {"num_trials": 2},
    }
    (trained / "space.json").write_text(json.dumps(search))
    (trained / "run" / "search.json").write_text(
        json.dumps({"space": search["space"], "search": search["search"]})
    )
    yield named, mark
    (trained / "run" / "search.json").unlink()
    sys.modules.pop("tracer", None)


def name_environment(folder, name, kwargs):
    """Let a record say how its environment was made, with checksums that are right."""
    manifest = folder / MANIFEST_FILE
    position = read_own_position(folder) if manifest.exists() else None
    record = json.loads((folder / CONFIG_FILE).read_text())
    record["env"]["make"] = {"name": name, "kwargs": kwargs}
    (folder / CONFIG_FILE).write_text(json.dumps(record))
    if position is not None:
        manifest.unlink()
        write_manifest(folder, record, position, {})


COMMANDS = {
    "evaluate": "evaluate run",
    "evaluate checkpoint": "evaluate run --checkpoint newest",
    "export": "export run",
    "watch": "watch run",
    "play": "play run --export play.html",
    "report": "report run",
    "resume": "resume run --total-env-steps 64",
    "train a record": "train --config run/config.json --run-dir new",
    "train a file": "train run.json --run-dir new",
    "sweep a file": "sweep space.json --run-dir new",
    "sweep a folder": "sweep run",
}


@pytest.mark.parametrize("command", COMMANDS)
def test_no_command_runs_code_that_only_a_file_names(capsys, strangers, command, trained):
    named, mark = strangers
    words = COMMANDS[command]
    for further in ((), ("--allow-import", "tracer:Other")):
        status, out, errors = run(capsys, *words.split(), *further)
        assert status == 2, out
        assert errors.count("\n") == 1, errors
        assert "no code is run because a file names it" in errors
        assert named in errors
        assert not mark.exists()
    assert not (trained / "new").exists()
    # Once it is named it is run, so there was something to prevent.
    status, _, errors = run(capsys, *words.split(), "--allow-import", named)
    assert status == 2
    assert "the code was run" in errors
    assert mark.exists()


def test_the_error_prints_an_option_that_works(capsys, strangers):
    named, mark = strangers
    _, _, errors = run(capsys, "evaluate", "run")
    assert f"if you trust it, name it too: --env {named}, or from Python env='{named}'" in errors
    _, _, errors = run(capsys, "evaluate", "run", "--env", named)
    assert "the code was run" in errors
    assert mark.exists()


def test_a_file_that_names_nothing_refuses_the_permission(capsys, trained, monkeypatch):
    monkeypatch.chdir(trained)
    for folder in (trained / "run", *checkpoints_of(trained / "run")):
        name_environment(folder, "relay", {})
    for words in ("evaluate run", "resume run", "train relay --run-dir new", "play run"):
        status, _, errors = run(capsys, *words.split(), "--allow-import", "tracer:Game")
        assert status == 2
        assert "naming 'tracer:Game' has no effect: environment 'relay' imports nothing" in errors


def test_what_the_command_line_itself_names_is_permitted(capsys, strangers, trained):
    """A file may then say the rest."""
    _, mark = strangers
    settings = json.loads((trained / "run.json").read_text())
    settings["env"] = {"name": "rllib", "kwargs": {"env_id": "other:Game"}}
    (trained / "other.json").write_text(json.dumps(settings))
    words = ["train", "--config", "other.json", "--env-kwargs", "env_id=tracer:Game"]
    status, _, errors = run(capsys, *words, "--run-dir", "new")
    assert status == 2
    assert "the code was run" in errors
    assert mark.exists()


def test_from_python_it_is_the_same(strangers):
    named, mark = strangers
    loads = (load_run, evaluate_run, watch_run, Policy.load, Trainer.resume, Sweep.resume)
    for load in loads:
        with pytest.raises(ValueError, match="no code is run because a file names it"):
            load("run")
    with pytest.raises(ValueError, match="allow_imports must be names such as"):
        load_run("run", allow_imports=named)
    assert not mark.exists()
    for load in loads:
        for given in ({"env": named}, {"allow_imports": [named]}):
            with pytest.raises(ValueError, match="the code was run"):
                load("run", **given)
            assert mark.exists()
            mark.unlink()
