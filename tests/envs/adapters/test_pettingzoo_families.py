"""MAgent2, SISL and butterfly through the adapter, number by number beside the originals."""

import collections
import functools
import warnings

import numpy as np
import pytest

pytest.importorskip("magent2")
pytest.importorskip("pymunk")
pytest.importorskip("Box2D")

from jaxmarl_envs.adapters.incoming.pettingzoo import _make_by_id
from jaxmarl_envs.adapters.incoming.pettingzoo_games import AECGame, ParallelGame

# Options of each, and how its episodes end: at a time limit for all, or with deaths before others'.
SMALL = {
    "sisl/pursuit_v5": ({"max_cycles": 15, "n_pursuers": 3, "n_evaders": 4}, "limit"),
    "sisl/multiwalker_v9": ({"n_walkers": 2, "terminate_on_fall": False}, "deaths"),
    "butterfly/knights_archers_zombies_v11": ({"spawn_delay": 3}, "deaths"),
    "butterfly/pistonball_v6": ({"n_pistons": 3, "max_cycles": 8}, "limit"),
    "butterfly/cooperative_pong_v6": ({"max_cycles": 4}, "limit"),
    "magent2.environments.battle_v4": ({"map_size": 12, "max_cycles": 8}, "limit"),
    "magent2.environments.battlefield_v5": ({"map_size": 46, "max_cycles": 8}, "limit"),
    "magent2.environments.adversarial_pursuit_v4": ({"map_size": 12, "max_cycles": 8}, "limit"),
    "magent2.environments.gather_v5": ({"max_cycles": 3}, "limit"),
    "magent2.environments.combined_arms_v6": ({"map_size": 16, "max_cycles": 60}, "deaths"),
    "magent2.environments.tiger_deer_v4": ({"map_size": 12, "max_cycles": 8}, "limit"),
}
SEED = 7


@pytest.fixture(autouse=True)
def without_a_screen(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def random_action(game, frame, rng):
    noise = rng.random(frame.action_mask.shape)
    return game.layout.pack(game.layout.pick(noise, frame.action_mask))


def expect_seen(game, agent, observation):
    """A row has the original's observation: as a vector, and bytes of an image from 0 to 1."""
    own = np.asarray(observation, np.float32).ravel()
    if observation.dtype == np.uint8 and observation.ndim > 1:
        own = own / np.float32(255)
    row = game._features[game.names.index(agent)]
    np.testing.assert_array_equal(row[: own.size], own)


@pytest.mark.parametrize("env_id", SMALL)
def test_a_parallel_episode_is_the_original_s(env_id):
    options, ends = SMALL[env_id]
    make = functools.partial(_make_by_id, env_id, "parallel", options)
    game, original = ParallelGame(make(), None, flatten=True), make()
    frame, (seen, _) = game.reset(SEED), original.reset(seed=SEED)
    rng, lives = np.random.default_rng(0), []
    for _ in range(400):
        for agent, observation in seen.items():
            expect_seen(game, agent, observation)
        before = list(original.agents)
        if not before:
            break
        action = random_action(game, frame, rng)
        own = {agent: game._own(action, game.names.index(agent)) for agent in before}
        _, outcome, frame = game.step(action)
        seen, rewards, terminated, truncated, _ = original.step(own)
        for slot, agent in enumerate(game.names):
            alive = agent in before
            assert outcome.reward[slot] == (np.float32(rewards[agent]) if alive else 0)
            assert outcome.terminated[slot] == (alive and terminated[agent])
            assert outcome.truncated[slot] == (alive and truncated[agent])
            assert frame.alive[slot] == (agent in original.agents)
        lives.append((outcome.terminated.sum(), outcome.truncated.sum(), frame.alive.sum()))
    if ends == "limit":
        assert sum(truncated for _, truncated, _ in lives) == len(game.names)
    else:
        assert any(died and alive for died, _, alive in lives)
    game.close()
    original.close()


@pytest.mark.parametrize("env_id", ["sisl/multiwalker_v9", "butterfly/knights_archers_zombies_v11"])
def test_in_turn_an_episode_is_the_original_s(env_id):
    make = functools.partial(_make_by_id, env_id, "aec", SMALL[env_id][0])
    game, original = AECGame(make(), None, flatten=True), make()
    frame = game.reset(SEED)
    original.reset(seed=SEED)
    rng, steps = np.random.default_rng(0), 0
    paid, earned = (collections.defaultdict(float) for _ in range(2))
    ends = {}
    for agent in original.agent_iter(2_000):
        observation, reward, terminated, truncated, _ = original.last()
        earned[agent] += reward
        if terminated or truncated:
            assert ends.pop(agent) == (terminated, truncated)
            original.step(None)
            continue
        assert [game.names[slot] for slot in np.flatnonzero(frame.agent_mask)] == [agent]
        expect_seen(game, agent, observation)
        action = random_action(game, frame, rng)
        original.step(game._own(action, game.names.index(agent)))
        _, outcome, frame = game.step(action)
        steps += 1
        for slot, name in enumerate(game.names):
            paid[name] += float(outcome.reward[slot])
            if outcome.terminated[slot] or outcome.truncated[slot]:
                ends[name] = (outcome.terminated[slot], outcome.truncated[slot])
    assert not original.agents
    assert not frame.alive.any()
    assert not ends
    assert steps > 50
    for agent, sum_of_rewards in earned.items():
        np.testing.assert_allclose(paid[agent], sum_of_rewards, rtol=1e-5, atol=1e-4)
    game.close()
    original.close()
