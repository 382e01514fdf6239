"""Commands on environments of libraries that are not installed."""

import sys
from pathlib import Path

import pytest
import rllib_envs
from command_line import status_of

OWN = f"{Path(rllib_envs.__file__)}:Duel"


@pytest.mark.parametrize("command", ["train", "check-env"])
@pytest.mark.parametrize(
    ("library", "extra", "env"),
    [
        ("pgx", "pgx", "pgx --env-kwargs env_id=tic_tac_toe"),
        ("gymnax", "gymnax", "gymnax --env-kwargs env_id=CartPole-v1"),
        ("jaxmarl", "jaxmarl", "jaxmarl --env-kwargs env_id=MPE_simple_spread_v3"),
        ("jumanji", "jumanji", "jumanji --env-kwargs env_id=Snake-v1"),
        ("pettingzoo", "pettingzoo", "pettingzoo --env-kwargs env_id=mpe2.simple_spread_v3"),
        ("gymnasium", "gymnasium", "gymnasium --env-kwargs env_id=CartPole-v1"),
        ("cloudpickle", "gymnasium", OWN),
    ],
)
def test_the_extra_is_told_in_one_sentence(library, extra, env, command, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, library, None)
    assert status_of(command, *env.split()) == 2
    (line,) = [x for x in capsys.readouterr().err.splitlines() if not x.startswith("warning")]
    assert line == (
        f"error: {library!r} is not installed: pip install './envs[{extra}]' in a clone of the "
        "repository"
    )
