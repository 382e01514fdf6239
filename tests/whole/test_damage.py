"""A run's folder in which something is damaged is read, or refused in a sentence."""

import random
import shutil
import warnings

import pytest

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.run import CheckpointConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.runs.checkpoint_parts import read_arrays
from jaxmarl_ppo.runs.files import METRICS_FILE
from jaxmarl_ppo.runs.log import read_lines
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training import resume
from jaxmarl_ppo.training.trainer import Trainer

STEPS = 4 * 8


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A small run with two checkpoints."""
    config = TrainConfig(
        total_env_steps=4 * STEPS,
        num_envs=4,
        num_steps=8,
        log_interval=1,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
        default_ppo=PPOConfig(num_epochs=1, num_minibatches=1),
        checkpoints=CheckpointConfig(every_minutes=None, every_env_steps=2 * STEPS),
    )
    run_dir = tmp_path_factory.mktemp("whole") / "run"
    env, params = jaxmarl_envs.make("tic_tac_toe")
    return Trainer(env, params, config, run_dir, progress=False).train().run_dir


def damage(run_dir, rng):
    """Do something to one file of a folder, and say what."""
    files = sorted(path for path in run_dir.rglob("*") if path.is_file())
    path = rng.choice(files)
    content = path.read_bytes()
    what = rng.choice(["flip", "cut", "remove", "nonsense", "swap", "folder", "digit", "double"])
    if what == "flip" and content:
        place = rng.randrange(len(content))
        flipped = bytearray(content)
        flipped[place] ^= 1 << rng.randrange(8)
        path.write_bytes(flipped)
    elif what == "cut":
        path.write_bytes(content[: rng.randrange(len(content) + 1)])
    elif what == "remove":
        path.unlink()
    elif what == "nonsense":
        path.write_bytes(rng.choice([b"", b"{}", b"[]", b"null", b"\xff\xfe", rng.randbytes(64)]))
    elif what == "swap":
        path.write_bytes(rng.choice(files).read_bytes())
    elif what == "folder":
        path.unlink()
        path.mkdir()
    elif what == "digit":  # as an editor might
        path.write_bytes(content.replace(b"1", rng.choice([b"x", b"-1", b"1e30", b"null"]), 1))
    else:
        path.write_bytes(content + content)
    return f"{what} {path.relative_to(run_dir)}"


def read_all(run_dir):
    """Read a run as evaluation and resuming do; return what was refused."""
    refused = []
    for read in (load_run, go_on):
        try:
            read(run_dir)
        except ValueError as error:
            refused.append(str(error))
    assert not any("\n" in message for message in refused)
    return refused


def go_on(run_dir):
    found = resume.find(run_dir, {}, None, None, None).resumption
    assert read_arrays(found.checkpoint)
    read_lines(run_dir / METRICS_FILE, found.position.num_entries)


def check(whole, tmp_path, seeds):
    reached = set()
    for seed in seeds:
        rng = random.Random(seed)
        copy = shutil.copytree(whole, tmp_path / str(seed))
        done = [damage(copy, rng) for _ in range(rng.choice([1, 1, 3]))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # of damage that is passed over
            try:
                reached.add(len(read_all(copy)))
            except Exception as error:
                raise AssertionError(f"seed {seed}: {done}") from error
        shutil.rmtree(copy)
    assert reached >= {0, 1}  # some were read in spite of it, and some were not


def test_damaged_folders_are_read_or_refused(whole, tmp_path):
    check(whole, tmp_path, range(40))


@pytest.mark.slow
def test_many_damaged_folders_are_read_or_refused(whole, tmp_path):
    check(whole, tmp_path, range(1000, 1300))
