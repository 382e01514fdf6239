"""Runs logged to Weights & Biases and to MLflow, offline; `make loggers` installs both."""

import json
import math
import sys
import time
import warnings
from types import ModuleType, SimpleNamespace

import pytest

from jaxmarl_ppo.runs import loggers
from jaxmarl_ppo.runs.callbacks import RunInfo
from jaxmarl_ppo.runs.files import CONFIG_FILE, CURVE_FILE, LOGGERS_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.loggers import LOGGERS, MLflowLogger, WandbLogger, make_loggers

# What the packages and those beneath them say of each other.
pytestmark = pytest.mark.filterwarnings("ignore:::(?!jaxmarl)")

RECORD = {
    "format": 2,
    "env": {"name": "lamps", "agents": ["ann", "bob"]},
    "config": {"mapping": {"car_*": "car"}, "default_ppo": {"gamma": 0.9, "target_kl": None}},
    "many": {f"parameter {i}": i for i in range(120)},
}


def entry(env_steps, entropy=0.5):
    return {
        "env_steps": env_steps,
        "policies": {"past@1": {"entropy": entropy, "kl": math.nan}},
        "league": {"players": ["a", "b"]},
    }


def evaluation(env_steps):
    return {"env_steps": env_steps, "agents": {"ann": {"return_mean": 3.0}}}


@pytest.fixture
def run_dir(tmp_path):
    folder = tmp_path / "first"
    (folder / "params").mkdir(parents=True)
    for name in (CONFIG_FILE, CURVE_FILE, POLICIES_FILE):
        (folder / name).write_text(str(name))
    return folder


def start(logger, run_dir, resumed_at=0):
    logger.on_start(RunInfo(run_dir, None, RECORD, "lamps", resumed_at, (), ()))


def end(logger, run_dir, interrupted=False):
    logger.on_end(SimpleNamespace(run_dir=run_dir, interrupted=interrupted))


def play(logger, run_dir):
    """A run that is interrupted, and resumed from a checkpoint at 16 steps."""
    start(logger, run_dir)
    logger.on_log(entry(8))
    logger.on_evaluation(evaluation(8))
    logger.on_log(entry(16))
    logger.on_log(entry(24))
    end(logger, run_dir, interrupted=True)
    (known,) = json.loads((run_dir / LOGGERS_FILE).read_text()).values()
    start(logger, run_dir, resumed_at=16)
    return known


# --- MLflow


@pytest.fixture
def mlflow(tmp_path, monkeypatch):
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    return mlflow


def test_a_run_in_a_database_of_mlflow(mlflow, tmp_path, run_dir):
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    logger = MLflowLogger("games", tracking_uri=uri, save_files=True)
    run_id = play(logger, run_dir)
    client = mlflow.MlflowClient(uri)
    assert client.get_run(run_id).info.status == "RUNNING"
    logger.on_log(entry(24))  # again, the same
    logger.on_evaluation(evaluation(24))  # which was to come when the run was interrupted
    logger.on_log(entry(32, entropy=0.25))
    end(logger, run_dir)
    run = client.get_run(run_id)
    assert (run.info.run_name, run.info.status) == ("first", "FINISHED")
    assert [r.info.run_id for r in client.search_runs([run.info.experiment_id])] == [run_id]
    assert client.get_experiment(run.info.experiment_id).name == "games"
    entropy = client.get_metric_history(run_id, "policies/past_1/entropy")
    assert {m.step: m.value for m in entropy} == {8: 0.5, 16: 0.5, 24: 0.5, 32: 0.25}
    assert len(entropy) == 4
    evaluations = client.get_metric_history(run_id, "evaluation/agents/ann/return_mean")
    assert [(m.step, m.value) for m in evaluations] == [(8, 3.0), (24, 3.0)]
    assert not any("kl" in name or "players" in name for name in run.data.metrics)
    assert run.data.params["config/default_ppo/gamma"] == "0.9"
    assert run.data.params["config/default_ppo/target_kl"] == "None"
    assert run.data.params["config/mapping/car__"] == "car"
    assert run.data.params["env/agents"] == '["ann", "bob"]'
    assert len(run.data.params) == 126
    kept = {file.path for file in client.list_artifacts(run_id)}
    assert kept == {CONFIG_FILE, CURVE_FILE, "params"}
    assert [file.path for file in client.list_artifacts(run_id, "params")] == [str(POLICIES_FILE)]


def test_an_mlflow_that_fails_meanwhile_does_not_end_the_run(mlflow, tmp_path, run_dir):
    logger = MLflowLogger(tracking_uri=f"sqlite:///{tmp_path}/mlflow.db")
    start(logger, run_dir)

    def fail(*_):
        raise mlflow.MlflowException("the server\nis gone")

    logger._client.log_batch = fail
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        logger.on_log(entry(8))
    assert "MLflow took no numbers at 8 environment steps (the server is gone)" in str(
        caught[-1].message
    )


# --- Weights & Biases

BLOCK, WHOLE, LAST = 2**15, 1, 4


def offline_files(run_dir):
    return sorted(run_dir.glob("wandb/offline-run-*/*.wandb"))


def records(data):
    """The records of a file of wandb's: in blocks of 32 KiB parts of them, each behind 7 bytes."""
    parts, position = b"", 7  # behind what marks the file
    while position < len(data):
        if BLOCK - position % BLOCK < 7:
            position += BLOCK - position % BLOCK
            continue
        size, part = int.from_bytes(data[position + 4 : position + 6], "little"), data[position + 6]
        parts += data[position + 7 : position + 7 + size]
        position += 7 + size
        if part in (WHOLE, LAST):
            yield parts
            parts = b""


def read_offline(path):
    """The history of a run by step, its configuration, its artifacts and how it ended.

    wandb's own process writes the end of the file after `finish` has returned, when the machine is
    busy: it is waited for.
    """
    for _ in range(200):
        found = read_records(path)
        if found.exit_code is not None:
            break
        time.sleep(0.1)
    return found


def read_records(path):
    """What `read_offline` gives, of what is in the file by now."""
    from wandb.proto import wandb_internal_pb2

    history, config, artifacts, exit_code = {}, {}, [], None
    for data in records(path.read_bytes()):
        record = wandb_internal_pb2.Record()
        record.ParseFromString(data)
        kind = record.WhichOneof("record_type")
        if kind == "history":
            items = {"/".join([i.key] if i.key else i.nested_key): i for i in record.history.item}
            row = {name: json.loads(item.value_json) for name, item in items.items()}
            history.setdefault(record.history.step.num, {}).update(row)
        elif kind == "run":
            config |= {u.key: json.loads(u.value_json) for u in record.run.config.update}
        elif kind == "config":
            config |= {u.key: json.loads(u.value_json) for u in record.config.update}
        elif kind == "request" and record.request.HasField("log_artifact"):
            artifacts.append(record.request.log_artifact.artifact)
        elif kind == "artifact":
            artifacts.append(record.artifact)
        elif kind == "exit":
            exit_code = record.exit.exit_code
    return SimpleNamespace(history=history, config=config, artifacts=artifacts, exit_code=exit_code)


def test_an_offline_run_of_wandb(run_dir, monkeypatch):
    pytest.importorskip("wandb")
    monkeypatch.setenv("WANDB_SILENT", "true")
    logger = WandbLogger("games", mode="offline", save_files=True)
    run_id = play(logger, run_dir)
    logger.on_log(entry(32, entropy=0.25))
    end(logger, run_dir)
    first, second = map(read_offline, offline_files(run_dir))
    assert all(path.name == f"run-{run_id}.wandb" for path in offline_files(run_dir))
    assert [first.exit_code, second.exit_code] == [1, 0]
    steps = {step: row for step, row in first.history.items() if "env_steps" in row}
    assert list(steps) == [8, 16, 24]
    assert steps[8]["policies/past@1/entropy"] == 0.5
    assert steps[8]["evaluation/agents/ann/return_mean"] == 3.0
    assert "policies/past@1/kl" not in steps[8]
    assert second.history[32]["policies/past@1/entropy"] == 0.25
    assert first.config["config/default_ppo/gamma"] == 0.9
    assert first.config["env/agents"] == '["ann", "bob"]'
    (artifact,) = second.artifacts
    assert artifact.name == f"run-{run_id}"


def test_arguments_of_wandb_that_the_run_folder_says():
    with pytest.raises(ValueError, match="mode of wandb 'on'; valid: online, offline, disabled"):
        WandbLogger(mode="on")
    with pytest.raises(ValueError, match="id='x' has no effect"):
        WandbLogger(id="x")


def test_what_never_began_does_not_end(run_dir, monkeypatch):
    for name in LOGGERS:
        monkeypatch.setitem(sys.modules, name, ModuleType(name))
    for logger in make_loggers(["wandb", "mlflow"]):
        end(logger, run_dir)


# --- By name


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["tensorbord"], "unknown logger 'tensorbord'; valid: wandb, mlflow"),
        (["wandb", "wandb"], "log names 'wandb' twice"),
    ],
)
def test_unknown_loggers_are_refused(names, message):
    with pytest.raises(ValueError, match=message):
        make_loggers(names)


@pytest.mark.parametrize("name", LOGGERS)
def test_a_package_that_is_missing_is_named(name, monkeypatch):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        ValueError, match=rf"'{name}' is not installed: pip install \./envs '\.\[{name}\]'"
    ):
        make_loggers([name])


@pytest.mark.parametrize(
    ("name", "taken"),
    [("agents/../x", "agents/__/x"), ("a//b", "a/_/b"), ("/a.b", "_/a.b"), ("car[0]", "car_0_")],
)
def test_mlflow_gets_names_that_it_takes(name, taken):
    assert loggers._mlflow_name(name) == taken
