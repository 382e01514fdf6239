"""Classes in plain Python with action spaces of every kind, in lockstep with themselves."""

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces

from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_envs.registry import make
from jaxmarl_envs.user_code import HostEnvironmentError, host_errors
from jaxmarl_envs.wrappers import Joined
from jaxmarl_ppo import MLP, PolicySpec, PPOConfig, TrainConfig, make_learner, summarise
from jaxmarl_ppo.evaluation.episodes import play_episodes

SPACES = {
    "chooses": spaces.Discrete(4, start=1),
    "steers": spaces.Box(np.array([-1, 0], np.float32), 3.0),
    "both": spaces.Tuple([spaces.Discrete(2), spaces.Box(-1.0, 1.0, (1, 2))]),
    "many": spaces.MultiDiscrete([2, 3, 2]),
    "bits": spaces.MultiBinary(2),
    "levels": spaces.Box(np.array([0, -3]), np.array([2, 1]), dtype=np.int16),
    "nest": spaces.Dict(
        {"a": spaces.Tuple([spaces.MultiDiscrete([3]), spaces.Discrete(2)]),
         "b": spaces.Box(0.0, 5.0, (1,), np.float64)}
    ),
}  # fmt: skip
SIX = {"six": spaces.MultiDiscrete([6] * 6)}
LENGTH = 6


def leaves(action):
    """All numbers of an action in the order of its space."""
    if isinstance(action, dict):
        action = tuple(action.values())
    if isinstance(action, tuple):
        return [x for part in action for x in leaves(part)]
    return [float(x) for x in np.ravel(action)]


class Rules:
    """The game itself: who acts, what is legal, and rewards that tell every action apart."""

    def __init__(self, own_spaces):
        self.spaces, self.time, self.received = own_spaces, 0, []

    def mask(self, agent):
        """One option of the first choice is illegal at odd times; by the agent's own form."""
        space, odd = self.spaces[agent], self.time % 2 == 1
        if isinstance(space, spaces.Discrete):
            return np.arange(space.n) != 0 if odd else None
        if isinstance(space, spaces.MultiDiscrete):
            return [[not (odd and i == 0 and j == 1) for j in range(n)]
                    for i, n in enumerate(space.nvec)]  # fmt: skip
        if isinstance(space, spaces.MultiBinary):
            return np.array([1 if odd else 2, 2], np.int8)
        if isinstance(space, spaces.Tuple):
            return ([True, not odd], None)
        return {"a": (None, [not odd, True])} if isinstance(space, spaces.Dict) else None

    def is_legal(self, agent, action):
        space, odd = self.spaces[agent], self.time % 2 == 1
        assert space.contains(action), (agent, action)
        first = leaves(action)
        if not odd or isinstance(space, spaces.Box):
            return True
        if isinstance(space, spaces.Discrete):
            return first[0] != space.start
        if isinstance(space, spaces.MultiBinary):
            return first[0] == 1
        if isinstance(space, spaces.Dict):
            return first[1] == 1
        return first[0] != 1

    def step(self, actions):
        rewards = {}
        for slot, (agent, action) in enumerate(actions.items()):
            if not self.is_legal(agent, action):
                raise RuntimeError(f"{agent} plays {action} at {self.time}")
            values = np.array(leaves(action))
            rewards[agent] = float(slot + values @ np.sqrt(np.arange(1, 1 + values.size)))
        self.received.append(actions)
        self.time += 1
        return rewards

    def observe(self, agent):
        return np.array([self.time, list(self.spaces).index(agent)], np.float32)


class RLlibClass:
    """As RLlib has it: masks in the infos; it raises on an illegal action."""

    def __init__(self, own_spaces=SPACES):
        self.possible_agents = list(own_spaces)
        self.action_spaces = own_spaces
        self.observation_spaces = dict.fromkeys(own_spaces, spaces.Box(0.0, 99.0, (2,)))
        self.own_spaces = own_spaces

    def _seen(self):
        agents = self.possible_agents
        seen = {agent: self.rules.observe(agent) for agent in agents}
        masks = {agent: self.rules.mask(agent) for agent in agents}
        infos = {a: {} if mask is None else {"action_mask": mask} for a, mask in masks.items()}
        return seen, infos

    def reset(self, *, seed=None, options=None):
        self.rules = Rules(self.own_spaces)
        return self._seen()

    def step(self, actions):
        rewards = self.rules.step(actions)
        over = self.rules.time >= LENGTH
        seen, infos = self._seen()
        ends = dict.fromkeys([*self.possible_agents, "__all__"], False)
        # Rewards and flags as many classes have them.
        rewards = {agent: np.array([reward]) for agent, reward in rewards.items()}
        truncated = {agent: np.array(over) for agent in ends}
        return seen, rewards, ends, truncated, infos


def pettingzoo_class(own_spaces=SPACES):
    import pettingzoo

    class Parallel(pettingzoo.ParallelEnv):
        metadata = {"name": "every_space"}  # noqa: RUF012
        possible_agents = list(own_spaces)  # noqa: RUF012

        def observation_space(self, agent):
            return spaces.Box(0.0, 99.0, (2,))

        def action_space(self, agent):
            return own_spaces[agent]

        def reset(self, seed=None, options=None):
            self.agents = list(self.possible_agents)
            self.inner = RLlibClass(own_spaces)
            return self.inner.reset()

        def step(self, actions):
            seen, rewards, ends, truncated, infos = self.inner.step(actions)
            ends.pop("__all__")
            truncated.pop("__all__")
            if truncated["__all__" if not truncated else next(iter(truncated))]:
                self.agents = []
            return seen, rewards, ends, truncated, infos

        @property
        def rules(self):
            return self.inner.rules

    return Parallel()


def own_form(space, choices, numbers):
    """An action of ours in the space's own form, written apart from the adapter."""
    if isinstance(space, spaces.Discrete):
        return int(choices.pop(0)) + int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return np.array([choices.pop(0) for _ in range(space.nvec.size)], space.dtype)
    if isinstance(space, spaces.MultiBinary):
        return np.array([choices.pop(0) for _ in range(space.n)], np.int8)
    if isinstance(space, spaces.Box) and space.dtype.kind == "i":
        values = [low + choices.pop(0) for low in space.low.ravel().tolist()]
        return np.array(values, space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Box):
        size = int(np.prod(space.shape))
        values = [numbers.pop(0) for _ in range(size)]
        return np.array(values, space.dtype).reshape(space.shape)
    if isinstance(space, spaces.Tuple):
        return tuple(own_form(part, choices, numbers) for part in space.spaces)
    return {key: own_form(part, choices, numbers) for key, part in space.spaces.items()}


DOORS = {
    "rllib": lambda **options: from_rllib_env(RLlibClass, num_workers=0, horizon=50, **options),
    "pettingzoo": lambda **options: from_pettingzoo(
        pettingzoo_class, num_workers=0, horizon=50, **options
    ),
}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("door", DOORS)
def test_every_space_in_lockstep_with_the_class_itself(door):
    env = DOORS[door]()
    layout = env.action_layout(())
    original = RLlibClass()
    seen, _ = original.reset()
    obs, state = env.reset_env(jax.random.key(0), ())
    rng = np.random.default_rng(0)
    for time in range(LENGTH):
        np.testing.assert_array_equal(obs.features, list(seen.values()))
        mask = np.asarray(obs.action_mask)
        assert layout.all_legal(mask).all()
        action = layout.pick(rng.random(mask.shape), mask)
        choices, numbers = layout.split(action)
        sent = {
            agent: own_form(SPACES[agent], choices[slot].tolist(), numbers[slot].tolist())
            for slot, agent in enumerate(SPACES)
        }
        obs, state, reward, terminated, truncated, _ = env.step_env(
            jax.random.key(1), state, action, ()
        )
        seen, rewards, *_ = original.step(sent)
        expected = [rewards[agent].item() for agent in SPACES]
        np.testing.assert_allclose(reward, expected, rtol=1e-6)
        assert not np.any(terminated)
        assert np.all(truncated) == (time == LENGTH - 1)
    env.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_masks_are_never_violated_and_what_came_is_in_the_space():
    # The class itself raises on an illegal action, and one outside its space.
    env = from_rllib_env(RLlibClass, num_workers=0, horizon=50)
    config = TrainConfig(
        num_envs=4, num_steps=LENGTH * 2, total_env_steps=10**4,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(8,))),
        default_ppo=PPOConfig(num_epochs=1, num_minibatches=1),
    )  # fmt: skip
    learner = make_learner(env, (), config)
    state = jax.jit(learner.init)(jax.random.key(0))
    step = jax.jit(learner.train_step)
    for _ in range(5):
        state, metrics = step(state)
    (own,) = summarise(learner, jax.device_get(metrics))["policies"].values()
    assert own["episodes"] > 0
    assert own["kl"] == pytest.approx(0.0, abs=1e-9)
    env.close()


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("door", ["gymnasium", *DOORS])
def test_masks_are_not_violated_in_100_000_steps(door):
    # The classes raise on an illegal action, and one outside its space. 35,000 for each of three.
    if door == "gymnasium":
        env = from_gymnasium(lambda: Single(SPACES["many"]), num_workers=0, horizon=50)
    else:
        env = DOORS[door]()
    config = TrainConfig(
        num_envs=64, num_steps=LENGTH * 2, total_env_steps=10**6,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(8,))),
        default_ppo=PPOConfig(learning_rate=0.03, entropy_coef=0.0),
    )  # fmt: skip
    learner = make_learner(env, (), config)
    state = jax.jit(learner.init)(jax.random.key(0))
    state, _ = jax.jit(learner.train_steps)(state, np.int32(20))
    num_acting = len(env.agents) * LENGTH
    episodes = -(-35_000 // num_acting)
    key = jax.random.key(1)
    totals = play_episodes(learner, state.population, episodes=episodes, key=key)
    assert totals.finished.all()
    assert totals.lengths.sum() == episodes * num_acting
    env.close()


class Single(gymnasium.Env):
    """One agent with choices and a number; or any space."""

    observation_space = spaces.Box(0.0, 99.0, (2,))

    def __init__(self, action_space):
        self.action_space = action_space

    def reset(self, seed=None, options=None):
        super().reset(seed=seed)
        self.rules = Rules({"a": self.action_space})
        return self.rules.observe("a"), {"action_mask": self.rules.mask("a")}

    def step(self, action):
        (reward,) = self.rules.step({"a": action}).values()
        over = self.rules.time >= LENGTH
        return self.rules.observe("a"), reward, False, over, {"action_mask": self.rules.mask("a")}


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize("name", [*SPACES, "six"])
def test_one_agent_of_gymnasium_with_each_space(name):
    space = {**SPACES, **SIX}[name]
    env = from_gymnasium(lambda: Single(space), num_workers=0, horizon=50)
    layout = env.action_layout(())
    game, original = jax.jit(env.step_env), Single(space)
    original.reset()
    obs, state = env.reset_env(jax.random.key(0), ())
    rng = np.random.default_rng(1)
    for _ in range(LENGTH):
        mask = np.asarray(obs.action_mask)
        action = layout.pick(rng.random(mask.shape), mask)
        choices, numbers = layout.split(action)
        sent = own_form(space, choices[0].tolist(), numbers[0].tolist())
        obs, state, reward, *_ = game(jax.random.key(1), state, action, ())
        _, expected, *_ = original.step(sent)
        assert float(reward[0]) == pytest.approx(expected, rel=1e-6)
    env.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_vector_of_environments_gets_batches_of_its_space():
    def make_vector():
        return gymnasium.vector.SyncVectorEnv([lambda: Unmasked(SPACES["nest"])] * 3)

    class Unmasked(Single):
        def reset(self, seed=None, options=None):
            return super().reset(seed=seed)[0], {}

        def step(self, action):
            self.rules.time = 0  # nothing is illegal then
            return *super().step(action)[:4], {}

    env = from_gymnasium(make_vector, num_workers=0, horizon=50)
    layout = env.action_layout(())
    _, state = env.reset_env(jax.random.key(0), ())
    action = layout.pick(np.random.default_rng(0).random(layout.exists.shape), layout.exists)
    *_, reward, _, _, _ = env.step_env(jax.random.key(1), state, action, ())
    choices, numbers = layout.split(action)
    for slot in range(3):
        rules = Rules({"a": SPACES["nest"]})
        sent = own_form(SPACES["nest"], choices[slot].tolist(), numbers[slot].tolist())
        assert float(reward[slot]) == pytest.approx(rules.step({"a": sent})["a"], rel=1e-6)
    env.close()


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"rewards": {"chooses": "much"}}, r"agent 'chooses' has the reward 'much', expected one"),
        (
            {"rewards": {"chooses": np.ones(2)}},
            "agent 'chooses' has the reward .* expected one num",
        ),
        (
            {"truncated": {"chooses": "False"}},
            "agent 'chooses' is truncated='False', expected True",
        ),
        ({"masks": {"chooses": [1, 0, 1]}}, r"agent 'chooses' has the action_mask \[1, 0, 1\]"),
        ({"masks": {"bits": [1, 0, 0, 1]}}, "agent 'bits' .* give joint=False if it is for each"),
    ],
)
def test_what_is_neither_number_nor_flag_nor_mask_is_told_with_its_agent(change, message):
    class Wrong(RLlibClass):
        def step(self, actions):
            seen, rewards, ends, truncated, infos = super().step(actions)
            masks = {a: {"action_mask": mask} for a, mask in change.get("masks", {}).items()}
            return (
                seen, {**rewards, **change.get("rewards", {})}, ends,
                {**truncated, **change.get("truncated", {})}, {**infos, **masks},
            )  # fmt: skip

    def play():
        env = from_rllib_env(Wrong, num_workers=0, horizon=50)
        _, state = env.reset_env(jax.random.key(0), ())
        layout = env.action_layout(())
        action = layout.pick(np.full(layout.exists.shape, 0.5), layout.exists)
        with host_errors():
            env.step_env(jax.random.key(1), state, action, ())

    # Some in the trial, others as soon as they are played.
    with pytest.raises((ValueError, HostEnvironmentError), match=message):
        play()


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_groups_action_becomes_those_of_its_members():
    members = ("nest", "chooses", "bits", "steers")
    joined = Joined(DOORS["rllib"](), {"all": members})
    layout, slot = joined.action_layout(()), joined.agents.index("all")
    rng = np.random.default_rng(0)
    for _ in range(20):
        drawn = layout.pick(rng.random(layout.exists.shape), layout.exists)
        choices, numbers = (part[slot].tolist() for part in layout.split(drawn))
        expected = {agent: own_form(SPACES[agent], choices, numbers) for agent in members}
        own = joined.own_action("all", layout.own(drawn, slot))
        assert tuple(own) == members
        assert all(SPACES[agent].contains(action) for agent, action in own.items())
        assert leaves(own) == leaves(expected)
    alone = layout.own(drawn, joined.agents.index("many"))
    assert joined.own_action("many", alone).tolist() == alone.tolist()


def test_a_combination_becomes_the_actions_of_its_members():
    joined = Joined(make("tic_tac_toe")[0], {"both": ["o", "x"]})
    assert joined.own_action("both", 5 * 9 + 2) == {"o": 5, "x": 2}
    with pytest.raises(ValueError, match="is not of"):
        joined.own_action("both", 81)
