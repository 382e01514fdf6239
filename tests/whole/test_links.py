"""A run writes into its own folder, whatever somebody has planted there."""

import ast
import os
import shutil
from pathlib import Path

import pytest
from command_line import status_of

import jaxmarl_envs
import jaxmarl_ppo
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig, EvaluationConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.runs.event_file import EventFile
from jaxmarl_ppo.runs.lock import check_free, locked
from jaxmarl_ppo.training.trainer import Trainer

STEPS = 4 * 8
# Who follows links, and why that may be: by module, the calls of Python's that write by a path.
PERMITTED = {
    "jaxmarl_ppo/machine/files.py": {"os.open", "fdopen"},
    # Into a folder that the user has named, and only what is new there.
    "jaxmarl_ppo/cli/new_env.py": {"open"},
    # Into a folder that Ray has just made.
    "jaxmarl_ppo/on_ray/trainable.py": {"savez"},
    # What was written is flushed to the disk, and nothing is changed.
    "jaxmarl_ppo/runs/log.py": {"open"},
    # A folder is held open for its name.
    "jaxmarl_ppo/runs/place.py": {"os.open"},
    # Into a temporary folder, to be read there.
    "jaxmarl_ppo/runs/checkpoint_parts.py": {"copytree"},
    # Memory of two processes.
    "jaxmarl_envs/adapters/incoming/host_rows.py": {"fdopen"},
    "jaxmarl_envs/adapters/incoming/host_worker.py": {"fdopen"},
}


def call(*args):
    assert status_of(*args) == 0


def train_on(run_dir, iterations):
    Trainer.resume(run_dir, total_env_steps=iterations * STEPS, progress=False).train()


def use(run_dir, out):
    """Write everything that can be written of a run."""
    call("evaluate", run_dir, "--episodes", "8", "--cross-play", "--record", out / "episodes.npz")
    call("watch", run_dir, "--episodes", "1", "--gif", run_dir / "a.gif", "--svg", out / "svg")
    call("report", run_dir)
    call("export", run_dir, "--agent", "x", "--policy", "main", "--out", out / "policy.jaxexport")


@pytest.fixture(scope="module", name="run_dir")
def make_run(tmp_path_factory):
    config = TrainConfig(
        total_env_steps=4 * STEPS,
        num_envs=4,
        num_steps=8,
        log_interval=1,
        mapping={"x": "main", "o": "past"},
        policies={
            "main": PolicySpec(network=MLP(hidden_sizes=(4,))),
            "past": Snapshots("main", size=None, on_device=2, add_every=4, exchange_every=1),
        },
        default_ppo=PPOConfig(num_epochs=1, num_minibatches=1),
        checkpoints=CheckpointConfig(every_minutes=None, every_env_steps=2 * STEPS, keep=2),
        evaluation=EvaluationConfig(every_env_steps=2 * STEPS, episodes=4),
    )
    folder = tmp_path_factory.mktemp("links")
    env, params = jaxmarl_envs.make("tic_tac_toe")
    Trainer(env, params, config, folder / "run", progress=False).train()
    use(folder / "run", folder)
    return folder / "run"


def files_of(run_dir):
    return {path.relative_to(run_dir) for path in run_dir.rglob("*") if path.is_file()}


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_no_file_that_a_run_folder_links_to_changes(run_dir, tmp_path, link):
    """Every file is a link to one of the user's of the same content, then all is written again."""
    own, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(run_dir, own)
    shutil.copytree(run_dir, outside)
    (own / ".lock").unlink()
    names = {name for name in files_of(own) if name != Path(".lock")}
    for name in names:
        (own / name).unlink()
        link(outside / name, own / name)
    victim = outside / "victim"
    victim.write_bytes(b"the user's")
    for name in names:
        (own / name).with_name(f".{name.name}.tmp").symlink_to(victim)
    before = {name: (outside / name).read_bytes() for name in files_of(outside)}
    train_on(own, 6)
    use(own, tmp_path)
    assert {name: (outside / name).read_bytes() for name in files_of(outside)} == before
    rewritten = {
        "config.json", "metrics.jsonl", "evaluations.jsonl", "curve.png", "report.html",
        "watch.html", "a.gif", "cross_play.png", "params/policies.msgpack",
    }  # fmt: skip
    assert rewritten < set(map(str, names))
    for name in rewritten:
        assert not (own / name).is_symlink(), name
        assert not (own / name).samefile(outside / name), name


@pytest.mark.parametrize("name", ["checkpoints", "snapshots", "snapshots/past", "params", "wandb"])
def test_folders_of_a_run_that_are_links_are_refused(run_dir, tmp_path, name):
    own, outside = tmp_path / "run", tmp_path / "outside"
    shutil.copytree(run_dir, own)
    (own / ".lock").unlink()
    (own / "wandb").mkdir()
    shutil.move(own / name, outside)
    (own / name).symlink_to(outside)
    before = files_of(outside)
    with pytest.raises(ValueError, match=f"{own / name} is a link to '{outside}'; nothing is"):
        train_on(own, 6)
    assert files_of(outside) == before


def test_folders_of_members_that_are_links_are_refused(tmp_path):
    (tmp_path / "members" / "seed-0").mkdir(parents=True)
    check_free(tmp_path)
    (tmp_path / "members" / "seed-0" / "checkpoints").symlink_to(tmp_path)
    with pytest.raises(ValueError, match="seed-0/checkpoints is a link"):
        check_free(tmp_path)
    (tmp_path / "members" / "seed-1").symlink_to(tmp_path)
    (tmp_path / "members" / "seed-0" / "checkpoints").unlink()
    with pytest.raises(ValueError, match="members/seed-1 is a link"):
        check_free(tmp_path)


@pytest.mark.parametrize("link", [os.symlink, os.link])
def test_a_lock_that_is_a_link_is_refused(tmp_path, link):
    victim = tmp_path / "victim"
    victim.write_text("the user's")
    (tmp_path / "run").mkdir()
    link(victim, tmp_path / "run" / ".lock")
    with pytest.raises(ValueError, match=r"run/\.lock is a "), locked(tmp_path / "run"):
        pass
    assert victim.read_text() == "the user's"


def test_a_run_folder_may_be_a_link_itself(run_dir, tmp_path):
    shutil.copytree(run_dir, tmp_path / "disk")
    (tmp_path / "run").symlink_to(tmp_path / "disk")
    train_on(tmp_path / "run", 5)
    assert (tmp_path / "disk" / "metrics.jsonl").read_text().count("\n") == 5


def test_events_go_into_a_file_of_their_own(tmp_path):
    victim = tmp_path / "victim"
    victim.write_bytes(b"the user's")
    (tmp_path / "events").symlink_to(victim)
    events = EventFile(tmp_path / "events")
    events.write(b"one")
    events.close()
    assert victim.read_bytes() == b"the user's"
    assert len((tmp_path / "events").read_bytes()) == 8 + 4 + 3 + 4


def writing_calls(tree):
    """Name the calls in a module that write to what a path names, links or not."""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = node.func
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        texts = [ast.unparse(arg) for arg in node.args]
        owner = ast.unparse(function.value) if isinstance(function, ast.Attribute) else ""
        modes = [
            arg.value
            for arg in [*node.args, *(k.value for k in node.keywords)]
            if isinstance(arg, ast.Constant) and isinstance(arg.value, str)
        ]
        if name == "open" and owner == "os":
            yield "os.open"
        elif name in ("open", "fdopen") and owner not in ("archive", "Image"):
            if any(set(mode) <= set("rwxab+t") and set(mode) & set("wxa+") for mode in modes):
                yield name
        elif (
            name in ("write_text", "write_bytes", "savez", "save_file", "tofile", "symlink_to")
            or (name in ("savefig", "imsave") and texts and not texts[0].startswith("file"))
            or (owner == "shutil" and name in ("copy", "copyfile", "copytree", "move", "copy2"))
        ):
            yield name


def test_nothing_writes_by_a_path_but_what_refuses_links():
    found = {}
    for package in (jaxmarl_ppo, jaxmarl_envs):
        folder = Path(package.__file__).parent
        for path in folder.rglob("*.py"):
            if "new_env_templates" in path.parts:
                continue
            calls = set(writing_calls(ast.parse(path.read_text("utf-8"))))
            if calls:
                found[path.relative_to(folder.parent).as_posix()] = calls
    assert found == PERMITTED
