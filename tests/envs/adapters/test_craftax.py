"""Craftax's environments, which have gymnax's interface, by their names."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_envs import Discrete, make
from jaxmarl_envs.resets import COSTLY_ELSEWHERE, work_of
from jaxmarl_ppo import make_learner, preset
from jaxmarl_ppo.config.env_as_json import params_from_json, params_to_json
from jaxmarl_ppo.config.printing import print_settings
from jaxmarl_ppo.config.run_file import settings

pytest.importorskip("craftax")
CLASSIC = "Craftax-Classic-Symbolic-v1"


@pytest.fixture(scope="module")
def classic():
    return make("gymnax", env_id=CLASSIC)


def test_spaces_and_metrics_are_craftaxs(classic):
    env, params = classic
    assert env.horizon(params) == 10_000
    assert env.observation_space("agent_0", params).shape == (7 * 9 * 21 + 22,)
    assert env.action_space("agent_0", params) == Discrete(17)
    key = jax.random.key(0)
    obs, state = jax.eval_shape(env.reset_env, key, params)
    assert obs.features.shape == (1, 1345)
    action = jnp.zeros(1, jnp.int32)
    metrics = jax.eval_shape(env.step_env, key, state, action, params)[5]["metrics"]
    assert len(metrics) == 22
    assert {name.partition("/")[0] for name in metrics} == {"Achievements"}
    assert {value.shape for value in metrics.values()} == {(1,)}


def test_a_generated_world_is_costly_on_every_device(classic):
    env, params = classic
    program = jax.make_jaxpr(env.reset_env)(jax.random.key(0), params)
    assert work_of(program.jaxpr) > COSTLY_ELSEWHERE


def test_the_preset_fits_and_is_printed_to_the_letter(classic, tmp_path):
    chosen = preset("gymnax", "craftax_classic")
    assert chosen.env_kwargs == {"env_id": CLASSIC}
    make_learner(*classic, chosen.config)
    start, params = settings("gymnax", "craftax_classic", None), params_to_json(classic[1])
    path = tmp_path / "craftax.toml"
    path.write_text(print_settings(start, params, "toml"))
    again = settings(None, None, path)
    assert dataclasses.replace(again, env_params=None) == start
    read = params_from_json(again.env_params or {}, classic[1], partial=True)
    assert params_to_json(read) == params


def test_bad_names_and_options_are_told():
    with pytest.raises(ValueError, match=r"'Craftax-Clasic-Symbolic-v1'; did you mean 'Craftax-C"):
        make("gymnax", env_id="Craftax-Clasic-Symbolic-v1")
    with pytest.raises(ValueError, match=r"Symbolic-v1' has no options; got \{'map_size': 3\}"):
        make("gymnax", env_id=CLASSIC, map_size=3)


def test_a_death_is_terminated_and_the_time_limit_truncates(classic):
    env, params = classic
    key, action = jax.random.key(0), jnp.zeros(1, jnp.int32)
    params = params.replace(max_timesteps=3)
    step = quick_jit(env.step_env)
    _, state = quick_jit(env.reset_env)(key, params)
    achieved = state.games.achievements.at[:, 0].set(True)  # wood
    state = state.replace(games=state.games.replace(achievements=achieved))
    dying = state.replace(games=state.games.replace(player_health=jnp.zeros(1, jnp.int32)))
    _, _, _, terminated, truncated, info = step(key, dying, action, params)
    assert (bool(terminated[0]), bool(truncated[0])) == (True, False)
    np.testing.assert_allclose(info["metrics"]["Achievements/collect_wood"], [100.0])
    ends = []
    for _ in range(3):
        obs, state, _, terminated, truncated, _ = step(key, state, action, params)
        ends.append((bool(terminated[0]), bool(truncated[0]), bool(obs.alive[0])))
    assert ends == [(False, False, True)] * 2 + [(False, True, False)]
