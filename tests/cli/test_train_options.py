"""Options and files of `train`, and what `config` prints: all end in a run or in one sentence."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import jaxmarl_envs
from jaxmarl_ppo import Ensemble, PolicySpec, PPOConfig, Snapshots, TrainConfig, preset
from jaxmarl_ppo.cli import config as cli_config
from jaxmarl_ppo.cli import train as cli_train
from jaxmarl_ppo.config.as_json import dump_json, with_explicit_network
from jaxmarl_ppo.networks import LSTM, MLP
from jaxmarl_ppo.runs.run_folder import run_record
from jaxmarl_ppo.training import trainer


@pytest.fixture
def write(tmp_path):
    def to_file(text, name="run.toml"):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return to_file


def printed(capsys, *args):
    assert cli_config.main(args) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("env", "variant"),
    [("crypto", None), ("asymmetric_play", None), ("tic_tac_toe", "league"), ("basic", "rllib")],
)
@pytest.mark.parametrize("form", ["toml", "yaml"])
def test_training_takes_what_is_printed(write, capsys, env, variant, form):
    chosen = [] if variant is None else ["--preset", variant]
    path = write(printed(capsys, env, *chosen, "--format", form), f"run.{form}")
    options = cli_train.parse_train(["--config", path])
    made, params = jaxmarl_envs.make(env, **options.run.env_kwargs)
    assert (options.run.env, options.run.preset) == (env, variant)
    assert options.run.config == with_explicit_network(preset(env, variant).config)
    assert options.run.env_kwargs == preset(env, variant).env_kwargs
    assert options.to_env_params(params) == params
    assert made.name == env


FILE = """
env = { name = "tic_tac_toe", kwargs = { size = 4 } }
num_envs = 6
seed = 5
mapping = "per_agent"
default_policy = { load = "runs/old:x", prev_reward = true, network.kind = "lstm" }
default_ppo.gamma = 0.1234567890123
[policies.x]
kind = "network"
ppo.gae_lambda = 0.25
"""


def test_printed_arguments_of_an_environment_go_beside_the_presets(write, capsys):
    given = ["--env-kwargs", "num_shuttles=4", "half_turn=False"]
    path = write(printed(capsys, "shuttle_grid", *given))
    expected = {**preset("shuttle_grid").env_kwargs, "num_shuttles": 4, "half_turn": False}
    assert cli_train.parse_train([path]).run.env_kwargs == expected


def test_options_go_before_the_file_and_the_file_before_the_preset(write):
    path = write(FILE)
    config = cli_train.parse_train(["--config", path]).run.config
    assert (config.num_envs, config.seed, config.mapping) == (6, 5, "per_agent")
    assert config.total_env_steps == preset("tic_tac_toe").config.total_env_steps
    assert config.default_policy == PolicySpec(LSTM(), prev_reward=True, load="runs/old:x")
    assert config.default_ppo.gamma == 0.1234567890123
    assert config.policies == {"x": PolicySpec(MLP(), ppo=PPOConfig(gae_lambda=0.25))}
    args = ["tic_tac_toe", "--config", path, "--seed", "6", "--lstm-size", "9", "--no-prev-reward"]
    options = cli_train.parse_train([*args, "--env-kwargs", "size=3"])
    config = options.run.config
    assert (config.num_envs, config.seed) == (6, 6)
    assert config.default_policy == PolicySpec(LSTM(lstm_size=9), load="runs/old:x")
    assert options.run.env_kwargs == {"size": 3}
    assert cli_train.parse_train([path]).run.env_kwargs == {"size": 4}
    # Single policies go with the mapping that they were given for.
    assert cli_train.parse_train([path, "--mapping", "shared"]).run.config.policies == {}


def test_parameters_of_the_environment_are_those_of_the_file(write):
    path = write('env = { name = "crypto", params = { max_steps = 7 } }')
    params = jaxmarl_envs.make("crypto")[1]
    assert cli_train.parse_train([path]).to_env_params(params).max_steps == 7
    assert cli_train.parse_train(["crypto"]).to_env_params(params) is params


def test_the_run_has_what_the_file_says(write, monkeypatch):
    made = []

    def record(env, env_params, config, *_, **__):
        made.append((env, env_params, config))
        raise ValueError("enough")

    monkeypatch.setattr(trainer, "Trainer", record)
    env = 'env = { name = "asymmetric_play", kwargs.mode = "repeat", params.reward_scale = 0.5 }'
    with pytest.raises(ValueError, match="enough"):
        cli_train.main(["--config", write(f"{env}\nseed = 9"), "--num-envs", "2"])
    ((env, params, config),) = made
    assert env.made_as == ("asymmetric_play", {"mode": "repeat"})
    assert params == env.default_params.replace(reward_scale=0.5)
    assert (config.seed, config.num_envs) == (9, 2)


def test_a_recorded_run_is_repeated(write):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=4)
    config = TrainConfig(
        num_envs=3,
        mapping=Ensemble(2, weights=(1.0, 2.0)),
        policies={"x_0": Snapshots("x_1", add_every=9), "x_1": PolicySpec("lstm")},
        default_ppo=PPOConfig(gamma=0.1234567890123, max_grad_norm=None),
    )
    path = write(dump_json(run_record(env, params, config)), "config.json")
    for args in ([path], ["--config", path], ["tic_tac_toe", "--config", path]):
        options = cli_train.parse_train(args)
        assert options.run.env == "tic_tac_toe"
        assert options.run.config == with_explicit_network(config)
        assert options.run.env_kwargs == {"size": 4}
        assert options.to_env_params(params) == params
    assert cli_train.parse_train([path, "--seed", "7"]).run.config.seed == 7


def test_a_record_without_a_name_asks_for_the_environment(write):
    env, params = jaxmarl_envs.make("crypto")
    record = json.loads(dump_json(run_record(env, params, TrainConfig())))
    record["env"]["make"] = None
    path = write(json.dumps(record), "config.json")
    with pytest.raises(ValueError, match="takes an environment's name"):
        cli_train.parse_train([path])


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["none.toml"], "'none.toml' cannot be read: No such file or directory"),
        (["--config", "run.py"], r"'run.py' must end in one of .toml, .yaml, .yml, .json"),
        (["a.toml", "--config", "b.toml"], "a.toml and --config b.toml are two files; drop one"),
        (["crypto", "--start", "3"], "unknown option --start"),
    ],
)
def test_files_that_are_no_use(args, message):
    with pytest.raises(ValueError, match=message):
        cli_train.parse_train(args)


def test_a_file_names_registered_environments_alone(write):
    path = write('env = "crypt"')
    with pytest.raises(ValueError, match=r"names the environment 'crypt', .*; valid: asym"):
        cli_train.parse_train([path])
    assert cli_train.parse_train(["crypto", "--config", path]).run.env == "crypto"


def test_a_file_is_asked_for_help(write, capsys):
    with pytest.raises(SystemExit):
        cli_train.parse_train([write('env = "basic"\nnum_envs = 77'), "--help"])
    assert "[77]" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("args", "message"),
    [
        ([], "takes an environment's name"),
        (["cripto"], "did you mean 'crypto'"),
        (
            ["crypto", "--preset", "league"],
            "has no preset 'league'; valid: ensemble, rllib, slow_env",
        ),
        (["crypto", "--format", "ini"], "unknown choice 'ini'; valid: toml, yaml"),
        (["crypto", "--env-kwargs", "size"], "takes KEY=VALUE"),
    ],
)
def test_what_cannot_be_printed(args, message):
    with pytest.raises(ValueError, match=message):
        cli_config.main(args)


NUMBERS = ["8", "0", "-1", "1e3", "0.5", "nan", "inf", "", "None", "1j", "9" * 5000, "é\n"]
TABLES = ["x=a,o=b", "x=", '{"x": 1}', "{", '{"kind": "ensemble", "size": 2}', '{"x":' * 9000]
SCHEDULES = [
    "linear:1e-3:0",
    "linear:x",
    "[[0, 1], [5, 0]]",
    "[[0",
    "{[]: 1}",
    "(" * 300,
    "-" * 9000,
]
VALUES = {
    **dict.fromkeys(["--num-envs", "--seed", "--hidden-sizes", "--ppo.gamma"], NUMBERS),
    **dict.fromkeys(["--lstm-size", "--gru-size", "--ppo.target-kl", "--ppo.bptt-length"], NUMBERS),
    **dict.fromkeys(["--ppo.learning-rate", "--ppo.entropy-coef"], SCHEDULES + NUMBERS),
    "--mapping": [*TABLES, "ensemble:2", "ensemble:x", "per_agent", ""],
    "--network": ["mlp", "lstm", "gru", "min_gru", "cnn", "rnn"],
    "--env-kwargs": ["size=4", "k=2", "size", "k={[]: 1}", "k=1j", "=", "k=" + "-" * 9000 + "1"],
    "--preset": ["league", "rllib", "slow_env", ""],
    "--ppo.kl-control": ["penalty", "off", "of"],
    "--config": ["none.toml", "x", ""],
}
FLAGS = ["--no-prev-action", "--stagger-starts", "--separate-critic", "--sed", "--", "-", "crypt"]
KNOWN = st.sampled_from(sorted(VALUES)).flatmap(
    lambda flag: st.sampled_from(VALUES[flag]).map(lambda value: f"{flag}={value}")
)
ARGS = st.lists(KNOWN, min_size=1, max_size=3) | st.lists(
    KNOWN | st.sampled_from(FLAGS + sorted(VALUES) + NUMBERS) | st.text(max_size=5), max_size=4
).filter(lambda args: not {"-h", "--help"} & set(args))
FIXED = settings(
    deadline=None, derandomize=True, suppress_health_check=list(HealthCheck), database=None
)


def ends_in_a_sentence(args):
    try:
        run = cli_train.parse_train(args).run
    except ValueError as error:
        message = str(error)
    else:
        message = "fine"
        assert isinstance(run.config, TrainConfig)
        assert isinstance(run.env_kwargs, dict)
    assert message
    assert "\n" not in message


@settings(FIXED, max_examples=80)
@given(args=ARGS)
def test_any_command_line_is_a_configuration_or_refused_in_a_sentence(args):
    ends_in_a_sentence(["tic_tac_toe", *args])


@pytest.mark.slow
@settings(FIXED, max_examples=500)
@given(args=ARGS)
def test_many_command_lines_are_configurations_or_refused_in_a_sentence(args):
    ends_in_a_sentence(["tic_tac_toe", *args])
