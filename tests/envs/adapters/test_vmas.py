"""VMAS scenarios, played here and there with the same batch, seeds and actions."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import status_of

pytest.importorskip("vmas")

import torch
import vmas
from vmas.simulator.core import Agent, Sphere, World
from vmas.simulator.scenario import BaseScenario

from jaxmarl_envs import check_against_original, check_env, make
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.vmas import EndlessEnvironmentWarning, from_vmas
from jaxmarl_envs.permission import importing_only

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*is stepped in Python"),
    pytest.mark.filterwarnings("ignore:.*does not do the same for the same seed"),
]

NUM_GAMES = 3
# Ends of their own, and at a limit; several sizes of observations and actions; messages; choices.
SCENARIOS = (
    ("balance", {"max_steps": 45, "n_agents": 2}),
    ("simple_spread", {"max_steps": 7}),
    ("navigation", {"max_steps": 9, "n_agents": 2}),
    ("simple_speaker_listener", {"max_steps": 5}),
    ("simple_speaker_listener", {"max_steps": 5, "continuous_actions": False}),
    (
        "simple_crypto",
        {"max_steps": 5, "continuous_actions": False, "multidiscrete_actions": True},
    ),
    ("diff_drive", {"max_steps": 6}),
    ("wheel", {"max_steps": 6}),
)


class Race(BaseScenario):
    """Two agents on a line; who is sensed by a dictionary; over when one is far out."""

    def make_world(self, batch_dim, device, **kwargs):
        self.length = kwargs.pop("length", 0.5)
        world = World(batch_dim, device)
        for name in ("car", "bike"):
            world.add_agent(Agent(name, shape=Sphere(0.02), collide=False, u_multiplier=4))
        return world

    def reset_world_at(self, env_index=None):
        for agent in self.world.agents:
            shape = (1 if env_index is not None else self.world.batch_dim, 2)
            agent.set_pos(torch.rand(shape) * 0.1, batch_index=env_index)

    def observation(self, agent):
        return {"pos": agent.state.pos, "vel": agent.state.vel[:, :1]}

    def reward(self, agent):
        return agent.state.pos[:, 0]

    def done(self):
        return torch.stack([a.state.pos[:, 0] > self.length for a in self.world.agents]).any(0)

    def info(self, agent):
        return {"x": agent.state.pos[:, 0], "pos": agent.state.pos}


class Lottery(Race):
    """Draws chance within an episode."""

    def reward(self, agent):
        return torch.rand(self.world.batch_dim)


@functools.cache
def made(name, options=()):
    return make("vmas", env_id=name, num_workers=0, **dict(options))[0]


def own_actions(env, actions):
    """The same actions as VMAS takes them, by agent a tensor."""
    parts = []
    for slot in range(env.num_agents):
        rows = [env._actions.own(jax.tree.map(lambda x, i=i: x[i], actions), slot)
                for i in range(NUM_GAMES)]  # fmt: skip
        parts.append(torch.tensor(np.array(rows).reshape(NUM_GAMES, -1)))
    return parts


@pytest.mark.parametrize(("name", "options"), SCENARIOS)
def test_a_batch_goes_as_in_vmas(name, options):
    env = made(name, tuple(options.items()))
    there = vmas.make_env(name, NUM_GAMES, seed=0, terminated_truncated=True, **options)
    assert env.agents == tuple(agent.name for agent in there.agents)
    reset = jax.jit(jax.vmap(env.reset_env, in_axes=(0, None)))
    step = jax.jit(env.step_batch)
    obs, state = reset(jax.random.split(jax.random.key(0), NUM_GAMES), ())

    def begin(places):
        for place in places:
            there.seed(int(state.seed[place]))
            there.reset_at(int(place), return_observations=False)
        return there.get_from_scenario(True, False, False, False)[0]

    def check(features, observed, places):
        for slot, seen in enumerate(observed):
            own = np.asarray(seen)[places]
            np.testing.assert_array_equal(features[places, slot, : own.shape[1]], own)

    everyone = np.arange(NUM_GAMES)
    check(obs.features, begin(everyone), everyone)
    rng, num_terminated, num_truncated = np.random.default_rng(1), 0, 0
    for _ in range(200 if name == "balance" else 25):
        noise = rng.random((NUM_GAMES, *env._actions.exists.shape))
        actions = env._actions.pick(noise, env._actions.exists)
        keys = jax.random.split(jax.random.key(int(rng.integers(1000))), NUM_GAMES)
        obs, state, reward, terminated, truncated, info = step(keys, state, actions, ())
        observed, rewards, ended, at_limit, infos = there.step(own_actions(env, actions))
        np.testing.assert_array_equal(reward, np.stack([x.numpy().ravel() for x in rewards], 1))
        np.testing.assert_array_equal(
            terminated, np.repeat(ended.numpy()[:, None], reward.shape[1], 1)
        )
        truncations = (at_limit & ~ended).numpy()
        np.testing.assert_array_equal(
            truncated, np.repeat(truncations[:, None], reward.shape[1], 1)
        )
        check(info["final_observation"].features, observed, everyone)
        for metric, values in info.get("metrics", {}).items():
            own = np.stack([i[metric].numpy() for i in infos], 1).astype(np.float32)
            np.testing.assert_array_equal(values, own)
        over = np.flatnonzero((ended | at_limit).numpy())
        num_terminated, num_truncated = (
            num_terminated + ended.sum(),
            num_truncated + truncations.sum(),
        )
        np.testing.assert_array_equal(info["episode_over"], (ended | at_limit).numpy())
        if over.size:
            check(obs.features, begin(over), over)
    assert num_truncated
    assert num_terminated or name != "balance"


def test_one_game_is_vmas_s_own_by_the_command_of_users():
    env, _ = make("vmas", env_id="simple_tag", num_workers=0, max_steps=9)
    report = check_against_original(env, num_episodes=2)
    assert report.num_episodes == 2
    assert report.num_truncated == 2 * env.num_agents
    assert report.num_numbers > 9 * report.num_steps


def test_a_resumed_batch_goes_on_where_it_was():
    """Games at different steps are played again so that all end up where they were."""
    options = {"num_workers": 0, "length": 0.1}
    first, second = (from_vmas(Race, max_steps=20, **options) for _ in range(2))
    keys = jax.random.split(jax.random.key(3), 4)
    _, state = jax.vmap(first.reset_env, in_axes=(0, None))(keys, ())
    rng, past, times = np.random.default_rng(0), [], []
    for number in range(30):
        action = rng.uniform(-1, 1, (4, 2, 2)).astype(np.float32)
        if number == 15:
            kept = state
        result = first.step_batch(keys, state, action, ())
        state = result[1]
        if number >= 15:
            past.append((action, result))
        times.append(np.asarray(state.time))
    assert len(set(times[14].tolist())) > 1  # some are further than others
    state = kept
    for action, expected in past:
        result = second.step_batch(keys, state, action, ())
        jax.tree.map(np.testing.assert_array_equal, result, expected)
        state = result[1]


def test_an_evaluation_in_between_changes_nothing():
    env = from_vmas(Race, max_steps=20, num_workers=0)
    keys = jax.random.split(jax.random.key(3), 4)
    action = np.full((4, 2, 2), 0.3, np.float32)
    _, state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, ())
    state = env.step_batch(keys, state, action, ())[1]
    expected = env.step_batch(keys, state, action, ())
    for size in (4, 2):
        _, other = jax.vmap(env.reset_env, in_axes=(0, None))(keys[:size], ())
        env.step_batch(keys[:size], other, action[:size], ())
    jax.tree.map(np.testing.assert_array_equal, env.step_batch(keys, state, action, ()), expected)


def test_workers_play_as_this_process_does():
    keys = jax.random.split(jax.random.key(1), 5)
    action = np.full((5, 3, 2), 0.8, np.float32)
    results = []
    for num_workers in (0, 1):
        env, _ = make("vmas", env_id="simple_spread", max_steps=4, num_workers=num_workers)
        _, state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, ())
        for _ in range(6):
            result = env.step_batch(keys, state, action, ())
            state = result[1]
        results.append(result)
        env.close()
    jax.tree.map(np.testing.assert_array_equal, *results)


def test_a_scenario_of_ones_own_keeps_the_contract():
    env = from_vmas(Race(), max_steps=6, num_workers=0, name="race")
    assert (env.name, env.agents, env.horizon(())) == ("race", ("car", "bike"), 6)
    assert env.observation_space("car", ()).shape == (3,)
    assert env.layout.metrics == ("x",)
    assert check_env(env, (), num_steps=10, num_envs=2).num_steps == 20


def test_chance_within_an_episode_is_reported():
    with pytest.warns(UnrepeatableEnvironmentWarning, match="draws chance for a whole batch"):
        env = from_vmas(Lottery, max_steps=5, num_workers=0)
    assert not env.pool.make_game(1).repeats
    assert from_vmas(Race, max_steps=5, num_workers=0).pool.make_game(1).repeats


def test_a_scenario_without_an_end_is_reported():
    with pytest.warns(EndlessEnvironmentWarning, match="give max_steps=, such as 100"):
        from_vmas(Race, length=1e9, num_workers=0)


def test_random_play_earns_what_it_earns_in_vmas():
    """Mean return of an episode, over as many games with other seeds."""
    size, steps = 64, 20
    env = made("navigation", (("max_steps", steps), ("n_agents", 2)))
    there = vmas.make_env("navigation", size, seed=5, max_steps=steps, n_agents=2)
    rng, returns = np.random.default_rng(2), np.zeros((2, size))
    keys = jax.random.split(jax.random.key(8), size)
    _, state = jax.vmap(env.reset_env, in_axes=(0, None))(keys, ())
    step = jax.jit(env.step_batch)
    for _ in range(steps):
        action = rng.uniform(-1, 1, (size, 2, 2)).astype(np.float32)
        _, state, reward, *_ = step(keys, state, action, ())
        returns[0] += np.asarray(reward).sum(1)
        returns[1] += sum(there.step(there.get_random_actions())[1]).numpy()
    error = np.sqrt(returns.var(axis=1).sum() / size)
    assert abs(returns[0].mean() - returns[1].mean()) < 3 * error
    assert error < 0.3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"env_id": "balanse"}, "VMAS has no scenario 'balanse'; valid: balance, "),
        ({"env_id": "balance", "n_agent": 2}, r"take \{'n_agent': 2\}; valid .* n_agents, package"),
        ({"env_id": "balance", "n_agents": "two"}, "cannot make 'balance' with .*TypeError"),
        ({"env_id": "balance", "seed": 2}, "seed=2 cannot be given: the adapter sets it"),
        ({"env_id": "balance", "max_steps": 0}, "max_steps=0: give a whole number"),
        ({"env_id": "balance", "multidiscrete_actions": True}, "needs continuous_actions=False"),
    ],
)
def test_what_cannot_be_made_is_rejected(options, message):
    with pytest.raises(ValueError, match=message):
        make("vmas", num_workers=0, **options)


def test_published_scenarios_need_no_permission():
    with importing_only():
        env, _ = make("vmas", env_id="simple", max_steps=5, num_workers=0)
    assert env.imports == ()


@pytest.mark.parametrize("scenario", [3, int, lambda: 3])
def test_what_is_no_scenario_is_rejected(scenario):
    with pytest.raises(ValueError, match="BaseScenario"):
        from_vmas(scenario, num_workers=0)


def test_an_error_of_a_scenario_names_its_line():
    class Broken(Race):
        def reward(self, agent):
            if not hasattr(self, "calls"):
                self.calls = 0
            self.calls += 1
            if self.world.batch_dim == 2:
                raise KeyError("fuel")
            return super().reward(agent)

    env = from_vmas(Broken, max_steps=5, num_workers=0)
    _, state = jax.vmap(env.reset_env, in_axes=(0, None))(jax.random.split(jax.random.key(0)), ())
    with pytest.raises(Exception, match=r"a step of a batch of 2 raises KeyError: 'fuel'"):
        env.step_batch(jax.random.split(jax.random.key(0)), state, jnp.zeros((2, 2, 2)), ())


def test_a_scenario_trains_and_resumes_from_the_command_line(tmp_path):
    """A run that is resumed in the middle of episodes ends with the weights of one that is not."""
    common = ["--env-kwargs", "env_id=simple_spread", "max_steps=16", "num_workers=1"]
    common += ["--num-envs", "4", "--num-steps", "10", "--hidden-sizes", "8"]
    weights = []
    for run, first in (("whole", 160), ("halves", 80)):
        folder = str(tmp_path / run)
        train = ["train", "vmas", *common, "--run-dir", folder, "--total-env-steps", str(first)]
        commands = [train, ["resume", folder, "--total-env-steps", "160"]]
        for command in commands[: 1 + (first < 160)]:
            assert status_of(*command) == 0
        weights.append((tmp_path / run / "params" / "policies.msgpack").read_bytes())
    assert weights[0] == weights[1]
