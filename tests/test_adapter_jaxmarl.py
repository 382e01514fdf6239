"""JaxMARL's environments through the adapter, against JaxMARL's own, tick for tick."""

import json
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import quick_jit

from jaxmarl_envs import Box, Discrete, check_env, make
from jaxmarl_envs.adapters.jaxmarl import JaxMARL

UP, DOWN, RIGHT, LEFT, STAY, INTERACT = range(6)  # Overcooked
EAST, STOP, FIRST_TARGET = 1, 4, 5  # SMAX
NOTHING, SWITCH, TELL = range(3)  # switch riddle

# Options of the environments that are played at random beside JaxMARL's own, and the most ticks.
GAMES = {
    "MPE_simple_spread_v3": ({}, 26),
    "MPE_simple_speaker_listener_v4": ({}, 26),
    "MPE_simple_world_comm_v3": ({"max_steps": 5}, 6),
    "HeuristicEnemySMAX": ({"scenario": "3m", "attack_mode": "random"}, 101),
    "SMAX": ({"scenario": "5m_vs_6m", "max_steps": 20}, 21),
    "overcooked": ({"layout": "coord_ring", "max_steps": 30}, 30),
    "hanabi": ({"num_agents": 3, "shuffle_player_order": True}, 80),
    "switch_riddle": ({"num_agents": 4}, 10),
    "coin_game": ({"num_inner_steps": 4, "num_outer_steps": 3}, 12),
    "storm_2p": ({"num_inner_steps": 20}, 20),
}


def built_by_jaxmarl(env_id):
    """JaxMARL's own environment, without the adapter."""
    import jaxmarl
    from jaxmarl.environments.overcooked import overcooked_layouts
    from jaxmarl.environments.smax import map_name_to_scenario

    options = dict(GAMES[env_id][0])
    if "scenario" in options:
        options["scenario"] = map_name_to_scenario(options["scenario"])
    if "layout" in options:
        options["layout"] = overcooked_layouts[options["layout"]]
        with pytest.warns(DeprecationWarning, match="OvercookedV2"):
            return jaxmarl.make(env_id, **options)
    return jaxmarl.make(env_id, **options)


class Played:
    """An episode through the adapter; what it showed and gave, tick by tick."""

    def __init__(self, env, params, choose, max_ticks, seed=0):
        self.env, self.params = env, params
        self.reset, self.step = quick_jit(env.reset_env), quick_jit(env.step_env)
        self.replay(choose, max_ticks, seed)

    def replay(self, choose, max_ticks, seed=0):
        """Play another one with what is compiled already."""
        key, *self.keys = jax.random.split(jax.random.key(seed), 1 + max_ticks)
        self.reset_key = key
        obs, state = self.reset(key, self.params)
        self.observations, self.states, self.actions, results = [obs], [state], [], []
        rng = np.random.default_rng(seed)
        while obs.alive.any():
            time = len(self.actions)
            self.actions.append(choose(obs, time, rng))
            obs, state, *result, info = self.step(
                self.keys[time], state, self.actions[-1], self.params
            )
            self.observations.append(obs)
            self.states.append(state)
            results.append((*result, info["metrics"]))
        self.alive = np.stack([obs.alive for obs in self.observations])  # [T + 1, A]
        self.acts = np.stack([obs.agent_mask for obs in self.observations])  # [T + 1, A]
        self.masks = np.stack([obs.action_mask for obs in self.observations])  # [T + 1, A, N]
        *values, metrics = zip(*results, strict=True)
        self.reward, self.terminated, self.truncated = map(np.stack, values)  # [T, A]
        self.metrics = {name: np.stack([m[name] for m in metrics]) for name in metrics[0]}
        return self

    @property
    def length(self):
        return len(self.actions)


def at_random(env):
    """Uniform over what is legal, or within the bounds; anything for those who wait."""

    def choose(obs, time, rng):
        if env.is_continuous(env.default_params):
            return rng.uniform(0, 1, obs.action_mask.shape).astype(np.float32)
        noise = rng.random(obs.action_mask.shape)
        legal = np.where(obs.action_mask, noise, -1).argmax(-1)
        return np.where(obs.agent_mask, legal, noise.argmax(-1)).astype(np.int32)

    return choose


@pytest.fixture(scope="module")
def played():
    """`played(env_id)`: one episode at random of each of `GAMES`, played once."""
    episodes = {}

    def play(env_id):
        if env_id not in episodes:
            options, max_ticks = GAMES[env_id]
            env, params = make("jaxmarl", env_id=env_id, **options)
            episodes[env_id] = Played(env, params, at_random(env), max_ticks)
        return episodes[env_id]

    return play


def same_row(found, own):
    """A row of the adapter against what JaxMARL has of one agent: equal, and zeros beyond."""
    own = np.asarray(own, np.float32).ravel()
    np.testing.assert_allclose(found[: own.size], own, rtol=1e-5, atol=1e-6)
    assert not found[own.size :].any()


def seen_by(seen, agent, env_id):
    """What JaxMARL shows an agent, flat."""
    if env_id == "storm_2p":
        own = seen[agent]
        return np.concatenate([own["inventory"], np.ravel(own["observation"])])
    return seen[agent]


def idle_action(game, env_id):
    """What somebody who waits does."""
    return {"hanabi": lambda: game.num_moves - 1}.get(env_id, lambda: STOP)()


# ---- Each environment is JaxMARL's own -----------------------------------------------------------


@pytest.mark.parametrize("env_id", GAMES)
def test_an_episode_is_jaxmarl_s_own_tick_for_tick(played, env_id):
    episode, game = played(env_id), built_by_jaxmarl(env_id)
    reset, step = quick_jit(game.reset), quick_jit(game.step_env)
    masks_of = {"hanabi": "get_legal_moves"}.get(env_id, "get_avail_actions")
    legal = quick_jit(getattr(game, masks_of)) if "SMAX" in env_id or env_id == "hanabi" else None
    seen, state = reset(episode.reset_key)
    sizes = [space.size for space in map(game.action_space, game.agents) if hasattr(space, "size")]
    for t in range(episode.length + 1):
        obs = episode.observations[t]
        for slot, agent in enumerate(game.agents):
            same_row(np.asarray(obs.features)[slot], seen_by(seen, agent, env_id))
            if legal is not None:
                same_row(episode.masks[t, slot], legal(state)[agent])
        if t == episode.length:
            break
        action = np.where(
            episode.acts[t].reshape(-1, *[1] * (episode.actions[t].ndim - 1)),
            episode.actions[t],
            idle_action(game, env_id),
        )
        action = [action[i, : s.shape[0]] if s.shape else action[i] for i, s in enumerate(
            map(game.action_space, game.agents))]
        ours = tuple(action) if env_id == "storm_2p" else dict(zip(game.agents, action, strict=True))
        seen, state, reward, done, _ = step(episode.keys[t], state, ours)
        own = [reward[agent] for agent in game.agents]
        np.testing.assert_allclose(episode.reward[t], own, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(episode.alive[t + 1], [not done["__all__"]] * len(own))
        if "SMAX" in env_id:
            acts = [not (done[agent] or done["__all__"]) for agent in game.agents]
            np.testing.assert_array_equal(episode.acts[t + 1], acts)
    assert done["__all__"]
