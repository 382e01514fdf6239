"""Arguments of the command line: any order, other libraries' names, help, completion, dry runs."""

import json
import subprocess
import sys

import pytest
import rllib_envs
from command_line import run

from jaxmarl_ppo.cli import completion
from jaxmarl_ppo.cli import main as cli
from jaxmarl_ppo.cli.arguments import parse_words
from jaxmarl_ppo.cli.foreign import COMMANDS, OPTIONS
from jaxmarl_ppo.cli.run_options import find_option, flag_of, run_options
from jaxmarl_ppo.cli.train import parse_train
from jaxmarl_ppo.config.annotations import arity_of
from jaxmarl_ppo.config.schema import places
from jaxmarl_ppo.devices.compiled_runs import CompiledRuns


@pytest.mark.parametrize(
    "words",
    [
        ["--until", "env_steps > 5", "crypto"],
        ["crypto", "--until", "env_steps > 5"],
        ["--hidden-sizes", "8", "8", "crypto", "--until", "env_steps > 5"],
        ["--until=env_steps > 5", "--evaluation.opponents", "random", "crypto"],
        ["--evaluation.opponents", "random", "--prev-action", "crypto", "--until", "env_steps > 5"],
        ["--env-kwargs", "continuous=false", "crypto", "--until", "env_steps > 5"],
        ["--prev_action", "crypto", "--until", "env_steps > 5"],
    ],
)
def test_arguments_stand_in_any_order(words):
    run = parse_train([*words, "--evaluation.every-env-steps", "10k"]).run
    assert (run.env, run.config.until) == ("crypto", ("env_steps > 5",))
    assert run.config.evaluation.opponents == (("random",) if "random" in words else ())
    sizes = (8, 8) if "--hidden-sizes" in words else (64, 64)
    assert run.config.default_policy.network.hidden_sizes == sizes


def test_a_list_of_numbers_ends_where_a_name_stands(tmp_path):
    (tmp_path / "run.toml").write_text("num_envs = 8")
    words = ["--hidden-sizes", "8", "8", "crypto", "--config", str(tmp_path / "run.toml")]
    run = parse_train(words).run
    assert (run.env, run.config.num_envs) == ("crypto", 8)
    words = ["--until", "env_steps > 5", *words[3:]]
    assert parse_train(words).run.config.until == ("env_steps > 5",)


def test_a_switch_may_have_a_value():
    for words, value in (("=none", None), ("=true", True), (" false", False), ("", True)):
        option = f"crypto --stagger-starts{words}".split()
        assert parse_train(option).run.config.stagger_starts is value
    with pytest.raises(ValueError, match="--no-progress takes no value"):
        parse_train(["crypto", "--no-progress=true"])


def test_conditions_and_names_add_up():
    words = ["crypto", "--until", "env_steps > 5", "--until", "env_steps > 9"]
    assert parse_train(words).run.config.until == ("env_steps > 5", "env_steps > 9")
    assert parse_train([*words, "--num-envs", "3", "--num-envs", "4"]).run.config.num_envs == 4
    assert parse_train(["crypto", "--log", "wandb", "--log", "mlflow"]).options.log == (
        "wandb",
        "mlflow",
    )


def test_single_policies_and_parameters_are_options():
    words = ["tic_tac_toe", "--preset", "league", "--policies.p3.add-every", "7"]
    words += ["--policies.p3.size", "9", "--env.kwargs.size", "4", "--env-kwargs", "k=2"]
    command = parse_train([*words, "--policies.a-b.kind", "scripted", "--policies.a-b.script", "x"])
    config = command.run.config
    assert (config.policies["p3"].add_every, config.policies["p3"].size) == (7, 9)
    assert config.policies["a-b"].script == "x"
    assert command.run.env_kwargs == {"size": 4, "k": 2}
    assert parse_train(["crypto", "--env.params.max_steps", "7"]).run.env_params == {"max_steps": 7}
    both = ["basic", "--env.kwargs.a_b", "1", "--env.kwargs.a-b", "2"]
    assert parse_train(both).run.env_kwargs == {"a_b": 1, "a-b": 2}


@pytest.mark.parametrize("form", ['{"x": true, "y": [1]}', "{x = true, y = [1]}"])
def test_arguments_of_an_environment_are_toml_or_json(form):
    found = parse_train(["basic", "--env-kwargs", f"env_config={form}", "n=2"]).run.env_kwargs
    assert found == {"env_config": {"x": True, "y": [1]}, "n": 2}


def test_every_place_has_an_option_of_its_own():
    options = run_options()
    find = find_option(options)
    assert len({option.flag for option in options}) == len(options)
    for place in places():
        if place.path not in (("preset",), ("env", "name")):
            word = "a=1" if arity_of(place.annotation) == "pairs" else "none"
            found = parse_words([f"{flag_of(place.path)}={word}"], options, "p", find=find).values
            assert list(found) == [place.path]


@pytest.mark.parametrize(
    ("option", "instead"),
    [
        ("--lr 3e-4", "--ppo.learning-rate"),
        ("--wandb", "--log wandb"),
        ("--batch-size 64", "--ppo.num-minibatches"),
        ("--timesteps 1e6", "--total-env-steps"),
        ("--total-timesteps=1e6", "--total-env-steps"),
        ("--resume runs/x", "jaxmarl-ppo resume RUN_DIR"),
        ("--gpu", "JAX uses a GPU if it has one"),
        ("--n_steps 3", "--num-steps"),
    ],
)
def test_names_of_other_libraries_are_answered_with_ours(capsys, option, instead):
    status, _, errors = run(capsys, f"train crypto {option}")
    assert status == 2
    name = option.split()[0].partition("=")[0]
    assert errors.startswith(f"error: unknown option {name}: ")
    assert instead in errors
    assert "did you mean" not in errors
    assert errors.count("\n") == 1


def test_the_options_that_stand_for_others_exist():
    known = {option.flag for option in run_options()} | {"--log", "--run-dir", "--quiet"}
    known |= {"--no-progress", "--version", "--load"}
    for name, text in OPTIONS.items():
        assert name not in known - {"--version"}
        named = [word.strip(",;`") for word in text.split() if word.startswith("--")]
        assert set(named) <= known, name
    assert set(COMMANDS.values()) <= set(cli.COMMANDS)


@pytest.mark.parametrize(
    ("word", "meant"),
    [("trian", "train"), ("eval", "evaluate"), ("list", "envs"), ("tune", "sweep")],
)
def test_a_misspelt_command_is_answered_with_the_closest_one(capsys, word, meant):
    status, _, errors = run(capsys, f"{word} crypto")
    assert status == 2
    assert f"unknown command {word!r}; did you mean {meant!r}?" in errors


def test_help_and_version_are_commands_too(capsys):
    assert run(capsys, "help") == run(capsys, "--help")
    assert run(capsys, "help envs") == run(capsys, "envs --help")
    cli.main(["version"])
    version = capsys.readouterr().out
    cli.main(["--version"])
    assert capsys.readouterr().out == version


@pytest.mark.parametrize("command", ["", *cli.COMMANDS, "train crypto", "train kuhn_poker"])
def test_short_help_fits_a_screen(capsys, command):
    status, output, _ = run(capsys, f"{command} --help")
    lines = output.splitlines()
    assert status == 0
    assert len(lines) <= 48
    assert max(map(len, lines)) <= 80
    assert "..." not in output.replace(" ...", "")


def test_long_help_has_every_option(capsys):
    _, output, _ = run(capsys, "train crypto --help-all")
    for option in run_options():
        assert option.flag in output or option.off.replace("no-", "[no-]", 1) in output
    assert max(map(len, output.splitlines())) <= 100


def test_a_dry_run_checks_and_trains_nothing(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(CompiledRuns, "compile", lambda *_: pytest.fail("it compiles"))
    status, output, _ = run(capsys, "train crypto --dry-run --num-envs 64 --total-env-steps 1M")
    assert status == 0
    assert output.startswith("would train crypto | mlp | 64 envs x 50 steps | seed 0 | ")
    assert "313 iterations of 3,200 environment steps; policies eve, good" in output
    status, _, errors = run(capsys, "train crypto --dry-run --num-devices 9999")
    assert status == 2
    assert "num_devices=9999" in errors
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "is_told"),
    [
        ("", True),
        ("--seed 3", True),
        ("--preset slow_env", False),
        ("--num-envs 4", False),
        ("--num-steps 8", False),
        ("--quiet", False),
    ],
)
@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
def test_who_trains_on_python_is_told_of_the_preset_for_it(capsys, tmp_path, options, is_told):
    own = f"{rllib_envs.__file__}:Duel"
    words = f"train {own} --dry-run --no-check-env --run-dir {tmp_path / 'run'} {options}"
    status, output, _ = run(capsys, words)
    assert status == 0
    assert output.startswith("Duel is stepped in Python: --preset slow_env") == is_told
    assert ("slow_env" in output) == is_told


def test_a_compiled_environment_needs_no_preset_for_python(capsys):
    assert "slow_env" not in run(capsys, "train crypto --dry-run --no-check-env")[1]


def test_a_quiet_run_prints_nothing(capsys, tmp_path):
    words = "train relay --num-envs 4 --num-steps 8 --hidden-sizes 4 --ppo.num-minibatches 1"
    words += f" --total-env-steps 32 --quiet --no-check-env --run-dir {tmp_path / 'run'}"
    assert run(capsys, words) == (0, "", "")
    assert (tmp_path / "run" / "config.json").exists()
    assert run(capsys, f"resume {tmp_path / 'run'} --quiet --total-env-steps 64") == (0, "", "")


def test_one_environment_is_described(capsys):
    status, output, _ = run(capsys, "envs tic_tac_toe")
    assert status == 0
    assert "agents: x, o" in output
    assert "presets: its own, league, rllib, slow_env" in output
    assert "crypto" not in output
    _, output, _ = run(capsys, "envs --json")
    described = {each["name"]: each for each in json.loads(output)}
    assert described["crypto"]["agents"] == ["eve_0", "bob_0", "alice_0"]
    assert [each["name"] for each in json.loads(run(capsys, "envs basic --json")[1])] == ["basic"]
    assert "did you mean 'crypto'?" in run(capsys, "envs cripto")[2]


def test_completion_knows_commands_and_options(capsys):
    words = completion.words_of_commands()
    assert {"--num-envs", "--ppo.gamma", "--no-prev-action", "crypto"} <= set(words["train"])
    for shell in ("bash", "zsh", "fish"):
        status, script, _ = run(capsys, f"completion {shell}")
        assert status == 0
        assert "--ppo.learning-rate" in script
    assert "unknown choice 'tcsh'; valid: bash, zsh, fish" in run(capsys, "completion tcsh")[2]
    assert "takes a shell" in run(capsys, "completion")[2]


def test_completion_works_in_bash():
    script = subprocess.run(
        [sys.executable, "-m", "jaxmarl_ppo", "completion", "bash"],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    for words in ("tr", "train --num-e"):
        typed = f"jaxmarl-ppo {words}".split()
        script += f"COMP_WORDS=({' '.join(typed)}); COMP_CWORD={len(typed) - 1}; _jaxmarl_ppo\n"
        script += 'echo "${COMPREPLY[@]}"\n'
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["train", "--num-envs"]
