"""The command line, as a person uses it."""

import json
import os
import shlex
import signal
import subprocess
import sys
import time

import jax
import pytest
from command_line import run

from jaxmarl_ppo.cli import main as cli
from jaxmarl_ppo.cli import train as cli_train
from jaxmarl_ppo.config.as_json import config_from_dict, config_to_dict
from jaxmarl_ppo.config.mapping import Ensemble, Matchups
from jaxmarl_ppo.config.presets import preset
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.deploy.exported import load_exported
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns
from jaxmarl_ppo.evaluation import load_trajectories
from jaxmarl_ppo.networks.actor_critic import CNN, GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.runs import loggers
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.training import trainer

TINY = ["--num-envs", "4", "--num-steps", "8", "--hidden-sizes", "4", "--ppo.num-minibatches", "2"]


@pytest.fixture(scope="module", autouse=True)
def cache_dir(tmp_path_factory):
    names = {
        "jax_compilation_cache_dir": str(tmp_path_factory.mktemp("cache")),
        "jax_persistent_cache_min_compile_time_secs": 0.0,
    }
    before = {name: jax.config.values[name] for name in names}
    for name, value in names.items():
        jax.config.update(name, value)
    yield names["jax_compilation_cache_dir"]
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.fixture(scope="module")
def interrupted(tmp_path_factory, cache_dir):
    """A run in a process of its own that Ctrl-C stops: `(process, output, errors, run_dir)`."""
    run_dir = tmp_path_factory.mktemp("cli") / "run"
    command = [sys.executable, "-m", "jaxmarl_ppo", "train", "tic_tac_toe", *TINY]
    command += ["--mapping", "ensemble:2"]
    command += ["--total-env-steps", "1e9", "--log-interval", "20", "--run-dir", str(run_dir)]
    # A test run in the background ignores SIGINT, and its children would inherit that.
    before = signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        process = subprocess.Popen(
            command,
            env={**os.environ, "JAX_COMPILATION_CACHE_DIR": cache_dir},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    metrics = run_dir / "metrics.jsonl"
    deadline = time.monotonic() + 300
    while not (metrics.exists() and metrics.stat().st_size) and process.poll() is None:
        assert time.monotonic() < deadline, "no entry within five minutes"
        time.sleep(0.1)
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=120)
    return process, output, errors, run_dir


@pytest.mark.rare
def test_interrupted_run_is_whole_and_says_where_it_is(interrupted):
    process, output, errors, run_dir = interrupted
    assert process.returncode == 130, errors
    entries = [json.loads(line) for line in (run_dir / "metrics.jsonl").read_text().splitlines()]
    done = entries[-1]["env_steps"]
    assert f"stopped after {done:,} of 1,000,000,000 environment steps: SIGINT" in output
    assert f"saved in {run_dir}" in output
    assert (run_dir / "curve.png").exists()
    loaded = load_run(run_dir)
    assert loaded.env.name == "tic_tac_toe"
    assert loaded.config.default_policy.network == MLP(hidden_sizes=(4,))
    # Two policies for each agent, all of which have played.
    assert loaded.config.mapping == "ensemble:2"
    assert loaded.learner.players.policies == ("x_0", "x_1", "o_0", "o_1")
    assert list(entries[-1]["policies"]) == ["x_0", "x_1", "o_0", "o_1"]
    assert all(policy["decisions"] > 0 for policy in entries[-1]["policies"].values())


def test_plain_lines_in_a_pipe(interrupted):
    lines = interrupted[1].splitlines()
    assert lines[0].startswith("tic_tac_toe | mlp | 4 envs x 8 steps | seed 0 | 1 cpu device")
    assert "compiling ..." in lines
    assert any("env-steps" in line and "return x" in line for line in lines)
    assert "\x1b" not in interrupted[1]


def test_evaluate_prints_one_json_object_last(interrupted, capsys):
    status, output, _ = run(capsys, "evaluate", str(interrupted[3]), "--episodes", "4", "--json")
    assert status == 0
    report = json.loads(output.splitlines()[-1])
    assert set(report["agents"]) == {"x", "o"}
    status, output, _ = run(capsys, "evaluate", str(interrupted[3]), "--episodes", "4")
    assert status == 0
    assert "tic_tac_toe: 4 episodes" in output


def test_exact_measures_are_asked_for_only_where_they_are_left_out(interrupted, capsys):
    status, _, errors = run(capsys, "evaluate", str(interrupted[3]), "--exact")
    assert status == 2
    assert "exact=True has no effect on tic_tac_toe" in errors
    assert "left out without it: phantom_tic_tac_toe" in errors


def test_evaluated_episodes_are_recorded(interrupted, capsys, tmp_path):
    args = ("evaluate", str(interrupted[3]), "--episodes", "4", "--record", str(tmp_path / "x.npz"))
    status, output, _ = run(capsys, *args)
    assert status == 0
    assert f"recorded in {tmp_path / 'x.npz'}" in output
    assert load_trajectories(tmp_path / "x.npz").agents == ("x", "o")
    status, _, errors = run(capsys, *args)
    assert (status, errors.count("\n")) == (2, 1)
    assert "x.npz' exists; choose another name or remove it" in errors


def test_a_policy_is_exported(interrupted, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, errors = run(capsys, "export", str(interrupted[3]), "--policy", "x_1")
    assert status == 0, errors
    assert "policy x_1, which plays x; checked: it acts as before" in output
    assert "saved in x_1.jaxexport" in output
    assert "next, in Python: jaxmarl_ppo.load_exported('x_1.jaxexport')" in output
    assert load_exported("x_1.jaxexport").act([0.0] * 27, ())[0].shape == ()
    before = (tmp_path / "x_1.jaxexport").read_bytes()
    status, _, errors = run(capsys, "export", str(interrupted[3]), "--policy", "x_1")
    assert (status, errors.count("\n")) == (2, 1)
    assert "'x_1.jaxexport' exists; choose another name or remove it" in errors
    assert (tmp_path / "x_1.jaxexport").read_bytes() == before


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("--policy x", "unknown policy 'x'; valid: x_0, x_1, o_0, o_1"),
        ("", "name the policy, since there is not just one; valid: x_0, x_1, o_0, o_1"),
        ("--agent o", "name the policy that plays agent 'o', since there is not just one; valid:"),
    ],
)
def test_a_policy_to_export_is_named(interrupted, capsys, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    status, _, errors = run(capsys, "export", str(interrupted[3]), *args.split())
    assert (status, errors.count("\n")) == (2, 1)
    assert message in errors
    assert not list(tmp_path.iterdir())


def test_run_folder_in_use(interrupted, capsys):
    status, _, errors = run(capsys, "train", "tic_tac_toe", "--run-dir", str(interrupted[3]))
    assert status == 2
    assert f"run folder '{interrupted[3]}' exists and is not empty" in errors


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ("trian crypto", "unknown command 'trian'; did you mean 'train'? valid: train, resume,"),
        ("train cripto", "environment 'cripto'; did you mean 'crypto'? valid names: asymmetric_"),
        ("train --seed 1 cripto", "did you mean 'crypto'?"),
        ("train tic_tac_toe --env-kwargs sise=4", "takes no option 'sise'; valid options: size"),
        ("train tic_tac_toe --env-kwargs size", "--env-kwargs takes KEY=VALUE, got 'size'"),
        ("train tic_tac_toe --env-kwargs k=2 k=3", "--env-kwargs gives 'k' twice"),
        ("train tic_tac_toe --env-kwargs k=9", "k must be an integer from 1 to 3"),
        (
            "train tic_tac_toe --lstm-size 8",
            "(network 'mlp') has no 'lstm_size', which is of lstm; valid: hidden_sizes,",
        ),
        ("train tic_tac_toe --unimix 1", "unimix must be a number of at least 0 and below 1,"),
        (
            "train tic_tac_toe --channels 8",
            "(network 'mlp') has no 'channels', which is of cnn; valid: hidden_sizes",
        ),
        ("train shuttle_grid --network mlp --lstm-size 8", "has no 'lstm_size', which is of lstm;"),
        ("train crypto --gru-size 8", "has no 'gru_size', which is of gru, min_gru; valid"),
        (
            "train crypto --network gru --lstm-size 8",
            "(network 'gru') has no 'lstm_size', which is of",
        ),
        ("train tic_tac_toe --ppo.bptt-length 8", "bptt_length=8 has no effect"),
        ("train tic_tac_toe --ppo.target-kl 0.1", "target_kl=0.1 has no effect"),
        ("train tic_tac_toe --network cnn", "network CNN needs planes"),
        (
            "train tic_tac_toe --hidden-sizes 8 0",
            "hidden_sizes must be a whole number of at least 1, got 0",
        ),
        ("train tic_tac_toe --ppo.gamma 2", "gamma must be finite and lie in [0.0, 1.0], got 2"),
        (
            "train tic_tac_toe --ppo.learning-rate fast",
            "learning_rate must be a number, linear:START",
        ),
        ("train tic_tac_toe --ppo.learning-rate linear:1", "[[step, value], ...], got 'linear:1'"),
        (
            "train tic_tac_toe --ppo.learning-rate True",
            "learning_rate must be a number, linear:START",
        ),
        ("train tic_tac_toe --num-envs 0", "num_envs must be a whole number of at least 1, got 0"),
        ("train tic_tac_toe --mapping both", "unknown policy mapping 'both'; valid: 'shared'"),
        ("train tic_tac_toe --mapping x=a", "gives no policy to o"),
        ("train tic_tac_toe --mapping x=a,z*=b", "unknown agent 'z*'; the agents are x, o"),
        (
            "train tic_tac_toe --mapping ensemble:0",
            "size of an ensemble must be a whole number",
        ),
        (
            "train tic_tac_toe --mapping ensemble:two",
            "unknown policy mapping 'ensemble:two'; valid",
        ),
        (
            'train tic_tac_toe --mapping {"x":3,"o":"a"}',
            "list of policies or weights by policy, got 3",
        ),
        (
            "train tic_tac_toe --central-critic",
            "central_critic needs a network with separate_critic",
        ),
        ("train", "jaxmarl-ppo train takes an environment's name; jaxmarl-ppo envs lists them"),
        ("train tic_tac_toe --sed 1", "unknown option --sed; did you mean --seed? see jaxmarl-ppo"),
        ("train --sed 1 tic_tac_toe", "unknown option --sed; did you mean --seed?"),
        ("train tic_tac_toe --ppo.gama=1", "unknown option --ppo.gama; did you mean --ppo.gamma?"),
        ("train tic_tac_toe crypto", "unexpected argument 'crypto'; see jaxmarl-ppo train --help"),
        ("train tic_tac_toe --seed", "--seed needs a value; see jaxmarl-ppo train --help"),
        ("train tic_tac_toe --seed --prev-action", "--seed needs a value"),
        ("train tic_tac_toe --seed -x", "error: --seed needs a value"),
        ("train tic_tac_toe --ppo.gamma=0.9 --seed", "error: --seed needs a value"),
        ("train tic_tac_toe --prev_action --seed --num-envs 4", "error: --seed needs a value"),
        ("train tic_tac_toe --env-kwargs --hidden-sizes 8", "error: --env-kwargs needs a value"),
        ("train --seed", "error: --seed needs a value"),
        (
            "train tic_tac_toe --ppo.no-normalise-advantage",
            "did you mean --ppo.no-normalise-advantages?",
        ),
        ("train tic_tac_toe --seed 1x", "seed must be a whole number of at least 0, got '1x'"),
        ("train tic_tac_toe --seed 1.5", "seed must be a whole number of at least 0, got 1.5"),
        ("train tic_tac_toe --seed inf", "seed must be a whole number of at least 0, got inf"),
        (
            "train tic_tac_toe --seed 4294967296",
            "seed must be a whole number of at most 4294967",
        ),
        ("train tic_tac_toe --seed 9223372036854775808", "seed must be a whole number of at most"),
        ("train tic_tac_toe --num-envs 99999999999999999999", "num_envs must be a whole number of"),
        ("train tic_tac_toe --num-devices 8888", "num_devices=8888 exceeds the"),
        ("train tic_tac_toe --ppo.gamma x", "gamma must be a number, linear:START:END or"),
        (
            "train tic_tac_toe --ppo.adam-eps x",
            "adam_eps must be positive and finite, got 'x'",
        ),
        ("train tic_tac_toe --ppo.adam-eps None", "adam_eps must be positive and finite, got None"),
        (
            "train crypto --ppo.optimiser adma",
            "unknown default_ppo.optimiser 'adma'; valid: adam,",
        ),
        ("train tic_tac_toe --hidden-sizes 8 x", "unexpected argument 'x'"),
        (
            "train tic_tac_toe --network rnn",
            "unknown network kind 'rnn'; valid: mlp, lstm, gru, min_gru",
        ),
        ("train tic_tac_toe --env-kwargs name=5", "'tic_tac_toe' takes no option 'name'; valid"),
        ("train relay --env-kwargs x=5", "'relay' takes no option 'x'; valid options: none"),
        ("train tic_tac_toe --env-kwargs k=2 --env-kwargs k=3", "--env-kwargs gives 'k' twice"),
        ("train tic_tac_toe --mapping x=a,x=b,o=c", "mapping: 'x' is there twice in one table"),
        (
            'train tic_tac_toe --mapping {"x":"a","x":"b"}',
            "mapping: 'x' is there twice in one table",
        ),
        ('train tic_tac_toe --mapping {"x":', "--mapping: '{\"x\":' is neither TOML nor JSON"),
        (
            'train tic_tac_toe --mapping {"kind":"ensemble","sise":2}',
            "has no 'sise'; did you mean 'size'?",
        ),
        (
            'train tic_tac_toe --mapping {"kind":"matchups","tables":[{"x":["a"]}]}',
            "mapping.tables[0]['x'] must be a word, got ('a',)",
        ),
        ("train tic_tac_toe --log tensorbord", "unknown logger 'tensorbord'; valid: wandb, mlflow"),
        ("train tic_tac_toe --log", "--log needs a value"),
        ("evaluate . --record x.npy", "record must be the path of a new .npz file, got 'x.npy'"),
        ("train tic_tac_toe --run-dir /proc/x", "run folder '/proc/x' cannot hold a run: No such"),
        ("evaluate", "jaxmarl-ppo evaluate takes the folder of a run; see jaxmarl-ppo evaluate"),
        ("evaluate . --seed x", "--seed: 'x' is not a whole number"),
        ("export", "jaxmarl-ppo export takes the folder of a run"),
        (
            "export . --platforms gpu",
            "--platforms: unknown choice 'gpu'; valid: cpu, cuda,",
        ),
        ("envs basic now", "unexpected argument 'now'; see jaxmarl-ppo envs --help"),
        ("bench --num-envs", "--num-envs needs a value; see jaxmarl-ppo bench --help"),
        ("train tic_tac_toe --log-interval 0", "log_interval must be a whole number of at least"),
        ("evaluate nowhere", "run folder 'nowhere' does not exist"),
        ("evaluate .", "config.json does not exist"),
        ("export nowhere", "run folder 'nowhere' does not exist"),
        ("export .", "config.json does not exist"),
    ],
)
def test_a_users_error_is_one_line(capsys, tmp_path, monkeypatch, args, message):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CompiledRuns, "compile", lambda *_: pytest.fail("it trains"))
    status, _, errors = run(capsys, *args.split())
    assert status == 2
    assert message in errors
    assert errors.startswith("error: ")
    assert errors.count("\n") == 1
    assert "Traceback" not in errors
    assert not (tmp_path / "runs").exists()


def test_help(capsys):
    status, output, _ = run(capsys, "--help")
    assert status == 0
    assert all(command in output for command in cli.COMMANDS)
    config = preset("shuttle_grid").config
    for args in (["shuttle_grid", "--help"], ["-h", "shuttle_grid"]):
        status, output, _ = run(capsys, "train", *args)
        assert status == 0
        assert "steps summed over environments [16M]" in output
        assert f"[{config.default_policy.network.lstm_size}]" in output
    status, output, _ = run(capsys, "train", "kuhn_poker", "--help-all")
    assert status == 0
    assert f"(default: {preset('kuhn_poker').config.default_ppo.magnet_coef})" in output
    status, output, _ = run(capsys, "train", "--help")
    assert status == 0
    assert "[1M]" in output


@pytest.mark.parametrize(
    ("args", "wanted"),
    [([], False), (["--keep-cores-awake"], True), (["--no-keep-cores-awake"], False)],
)
def test_cores_are_kept_awake_as_the_user_says(capsys, monkeypatch, args, wanted):
    def record(*_, keep_cores_awake, **__):
        raise ValueError(f"wanted: {keep_cores_awake}")

    monkeypatch.setattr(trainer, "Trainer", record)
    assert f"wanted: {wanted}" in run(capsys, "train", "tic_tac_toe", *args)[2]


def test_loggers_are_named_one_by_one(capsys, monkeypatch):
    def record(*_, callbacks, **__):
        raise ValueError(f"told: {callbacks}")

    monkeypatch.setattr(trainer, "Trainer", record)
    monkeypatch.setattr(loggers, "LOGGERS", {"wandb": lambda: "W", "mlflow": lambda: "M"})
    for args, told in (([], []), (["--log", "mlflow", "--log", "wandb"], ["M", "W"])):
        assert f"told: {told}" in run(capsys, "train", "tic_tac_toe", *args)[2]


def test_list_of_environments(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    status, output, _ = run(capsys, "envs")
    assert status == 0
    (line,) = [line for line in output.splitlines() if line.split()[:1] == ["crypto"]]
    assert "eve_0, bob_0, alice_0" in line
    assert "4, 8, 8" in line
    assert "25" in line
    assert "tic_tac_toe --preset league" in output
    for name in (
        "gymnax",
        "grouped",
        "jaxmarl",
        "jumanji",
        "openspiel",
        "pettingzoo",
        "pgx",
        "vmas",
    ):
        assert name in output


def config_of(*args):
    return cli_train.parse_train(args).run.config


@pytest.mark.parametrize("name", ["tic_tac_toe", "crypto", "shuttle_grid"])
def test_without_options_the_preset_holds(name):
    assert config_of(name) == preset(name).config


def test_options_reach_the_configuration():
    options = """
        tic_tac_toe --seed 3 --total-env-steps 5e6 --num-envs 7 --num-steps 9
        --network lstm --hidden-sizes 8 9 --lstm-size 5 --activation relu
        --separate-critic --dtype bfloat16 --mapping x=red,o=blue --prev-action --prev-reward
        --append-agent-id --normalise-observations --normalise-rewards --central-critic
        --ppo.learning-rate linear:1e-3:0 --ppo.entropy-coef '[[0, 1e-3], [1e6, 0]]'
        --ppo.gamma 0.5 --ppo.max-grad-norm None --no-stagger-starts
        --micro-batch-rows 64 --log-interval 2 --matmul-precision bfloat16
    """
    config = config_of(*shlex.split(options))
    assert config.default_policy.network == LSTM(
        hidden_sizes=(8, 9),
        lstm_size=5,
        activation="relu",
        separate_critic=True,
        dtype="bfloat16",
    )
    assert (config.seed, config.total_env_steps) == (3, 5_000_000)
    assert (config.num_envs, config.num_steps) == (7, 9)
    assert config.mapping == {"x": "red", "o": "blue"}
    spec = config.default_policy
    assert spec.prev_action
    assert spec.prev_reward
    assert spec.append_agent_id
    assert spec.normalise_observations
    assert spec.normalise_rewards
    assert spec.central_critic
    assert config.default_ppo.learning_rate == Linear(1e-3, 0.0)
    assert config.default_ppo.entropy_coef == ((0.0, 1e-3), (1e6, 0.0))
    assert (config.default_ppo.gamma, config.default_ppo.max_grad_norm) == (0.5, None)
    assert not config.stagger_starts
    assert (config.micro_batch_rows, config.log_interval) == (64, 2)
    assert config.matmul_precision == "bfloat16"


@pytest.mark.parametrize(
    ("text", "policies"),
    [
        ("ensemble:2", "ensemble:2"),
        ("per_agent", "per_agent"),
        ("x = red, * = blue", {"x": "red", "*": "blue"}),
        ('{"x": {"red": 1, "blue": 3}, "o": "red"}', {"x": {"red": 1, "blue": 3}, "o": "red"}),
        (
            '{"kind": "ensemble", "size": 2, "weights": [1, 3], "joint": true}',
            Ensemble(2, (1.0, 3.0), joint=True),
        ),
        (
            '{"kind": "matchups", "tables": [{"x": "red", "o": "blue"}, {"*": "red"}]}',
            Matchups(({"x": "red", "o": "blue"}, {"*": "red"})),
        ),
    ],
)
def test_policies_as_a_word_a_table_or_json(text, policies):
    assert config_of("tic_tac_toe", "--mapping", text).mapping == policies


def test_another_network_than_the_presets_brings_its_own_sizes():
    assert config_of("shuttle_grid", "--network", "mlp").default_policy.network == MLP()
    assert config_of("shuttle_grid", "--network=mlp").default_ppo.bptt_length is None
    cnn = config_of("tic_tac_toe", "--network", "cnn", "--channels", "4", "5")
    assert cnn.default_policy.network == CNN(channels=(4, 5))


def test_an_environments_name_as_another_options_value():
    config = config_of("--run-dir", "crypto", "tic_tac_toe")
    assert config == preset("tic_tac_toe").config


@pytest.mark.parametrize(("kind", "network"), [("gru", GRU), ("min_gru", MinGRU)])
def test_networks_of_either_gru_have_a_width(kind, network):
    args = ["shuttle_grid", "--network", kind, "--hidden-sizes", "9"]
    assert config_of(*args).default_policy.network == network(hidden_sizes=(9,))
    args += ["--gru-size", "5", "--ppo.bptt-length", "7"]
    config = config_of(*args)
    assert config.default_policy.network == network(hidden_sizes=(9,), gru_size=5)
    assert config_from_dict(config_to_dict(config)) == config


def test_options_reach_the_presets_single_policies_too():
    args = ["asymmetric_play", "--network", "lstm", "--ppo.learning-rate", "1e-9"]
    config = cli_train.parse_train(args).run.config
    alice, chosen = config.policies["alice"], preset("asymmetric_play").config.policies["alice"]
    assert isinstance(alice.network, LSTM)
    assert alice.ppo.learning_rate == config.default_ppo.learning_rate == 1e-9
    assert alice.ppo.entropy_coef == chosen.ppo.entropy_coef != config.default_ppo.entropy_coef
    shared = cli_train.parse_train(["asymmetric_play", "--mapping", "shared"]).run.config
    assert shared.policies == {}


def test_arguments_of_an_environment_add_up():
    given = ["--env-kwargs", "size=4", "k=3", "--env-kwargs", "planes=True"]
    options = cli_train.parse_train(["tic_tac_toe", *given])
    assert options.run.env_kwargs == {"size": 4, "k": 3, "planes": True}
    assert cli_train.parse_train(["gymnax"]).run.env_kwargs == preset("gymnax").env_kwargs


def test_arguments_of_an_environment_go_beside_those_of_its_preset():
    known = preset("shuttle_grid").env_kwargs
    given = ["--env-kwargs", "num_shuttles=4", "half_turn=False"]
    options = cli_train.parse_train(["shuttle_grid", *given])
    assert options.run.env_kwargs == {**known, "num_shuttles": 4, "half_turn": False}
    assert known["half_turn"]


def test_all_switches_are_set_and_unset_alike():
    for name in ("stagger-starts", "keep-cores-awake", "prev-action", "progress"):
        field = name.replace("-", "_")
        for flag, value in ((f"--{name}", True), (f"--no-{name}", False)):
            command = cli_train.parse_train(["tic_tac_toe", flag])
            places = (command.options, command.run.config, command.run.config.default_policy)
            (place,) = (each for each in places if hasattr(each, field))
            assert getattr(place, field) is value
    assert config_of("tic_tac_toe").stagger_starts is None


def test_snapshots_of_a_shorter_run_lie_closer():
    league = ["tic_tac_toe", "--preset", "league"]
    whole = cli_train.parse_train(league).run.config
    assert whole == preset("tic_tac_toe", "league").config
    tenth = cli_train.parse_train([*league, "--total-env-steps", "2.4e6"]).run.config
    assert [tenth.policies[name].add_every for name in ("p3", "p4")] == [15, 15]
    tiny = cli_train.parse_train([*league, "--total-env-steps", "1"]).run.config
    assert tiny.policies["p3"].add_every == 1


def test_help_and_wrong_usage_import_neither_training_nor_jax():
    code = """
import sys
from jaxmarl_ppo.cli import main
for args in (["--help"], ["tarin"], ["evaluate", "--help"], ["evaluate", "nowhere"], ["export"]):
    try:
        main.main(args)
    except SystemExit:
        pass
print([name for name in ("jax", "flax", "jaxmarl_ppo.training") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"
