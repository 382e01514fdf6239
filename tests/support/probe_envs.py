"""Tiny environments for tests, some random, some with answers that are known by hand."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.networks.actor_critic import GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.ppo.group_learner import PolicyGroupLearner

# Tests compile many small functions and run each a few times.
QUICK = {"xla_backend_optimization_level": 0, "xla_llvm_disable_expensive_passes": True}
quick_jit = functools.partial(jax.jit, compiler_options=QUICK)

SLEEPING_FEATURE = 50.0


@struct.dataclass
class LivesParams:
    p_act: float | jax.Array = 0.5
    p_terminate: float | jax.Array = 0.12
    p_truncate: float | jax.Array = 0.12
    p_reborn: float | jax.Array = 0.5
    p_join: float | jax.Array = 0.3


@struct.dataclass
class LivesState:
    alive: jax.Array  # [A] bool
    time: jax.Array  # []


class RandomLives(MultiAgentEnv[LivesState, LivesParams]):
    """Everything that masks can do: waits, deaths, rebirths, late joins, steps for nobody.

    Agent `c` has an action more than the others, so policies of single agents make two groups.
    """

    name = "random_lives"
    agents = ("a", "b", "c")
    num_features = 4
    max_steps = 11
    most_act = 3  # of them, at a step
    max_actors = 3

    @property
    def default_params(self) -> LivesParams:
        return LivesParams()

    def observation_space(self, agent: str, params: LivesParams) -> Box:
        return Box(-np.inf, np.inf, (self.num_features,))

    def action_space(self, agent: str, params: LivesParams) -> Discrete:
        return Discrete(4 if agent == "c" else 3)

    def _observe(self, noise: jax.Array, alive: jax.Array, p_act: Any) -> Observation:
        """From uniform `noise [A, D + N + 1]`."""
        num_actions = 1 + len(self.agents)
        features, legal, acts = jnp.split(noise, (self.num_features, noise.shape[1] - 1), axis=-1)
        own = jnp.arange(num_actions) < jnp.array([[3], [3], [4]])
        return Observation(
            features=jnp.where(alive[:, None], 4.0 * features - 2.0, SLEEPING_FEATURE),
            action_mask=((legal < 0.7) & own).at[:, 0].set(True),
            alive=alive,
            agent_mask=self._first(alive & (acts[:, 0] < p_act)),
        )

    def _first(self, acts: jax.Array) -> jax.Array:
        return acts & (jnp.cumsum(acts) <= self.most_act)

    def _noise(self, key: jax.Array, columns: int) -> tuple[jax.Array, jax.Array]:
        """One draw for everything, as every draw takes its time to compile."""
        width = self.num_features + 2 + len(self.agents)
        noise = jax.random.uniform(key, (self.num_agents, columns + width))
        return noise[:, :columns], noise[:, columns:]

    def reset_env(self, key: jax.Array, params: LivesParams) -> tuple[Observation, LivesState]:
        noise, seen = self._noise(key, 1)
        alive = (noise[:, 0] < 0.6).at[0].set(True)
        return self._observe(seen, alive, params.p_act), LivesState(alive, jnp.zeros((), int))

    def step_env(self, key, state, action, params):
        noise, seen = self._noise(key, 5 + self.num_features)
        alive, time = state.alive, state.time + 1
        last = time >= self.max_steps
        terminated = alive & (noise[:, 0] < params.p_terminate)
        truncated = alive & ((noise[:, 1] < params.p_truncate) | last)
        ended = terminated | truncated
        reward = jnp.where(alive, jnp.round(4.0 * noise[:, 2] - 2.0, 2) + action, 0.0)
        reborn = ended & (noise[:, 3] < params.p_reborn)
        joins = ~alive & (noise[:, 4] < params.p_join)
        after = ((alive & ~ended) | reborn | joins) & ~last
        obs = self._observe(seen, after, params.p_act)
        features = jnp.where(ended[:, None], noise[:, 5:], obs.features)
        final = obs.replace(features=features)
        info = {"final_observation": final, "metrics": {"twice": 2.0 * reward}}
        return obs, LivesState(after, time), reward, terminated, truncated, info


class FewAct(RandomLives):
    """The same, but two agents at most act at a step, and it says so."""

    name = "few_act"
    most_act = max_actors = 2


@struct.dataclass
class ConstantParams:
    length: int | jax.Array = 1
    truncate: bool | jax.Array = False
    reward: float | jax.Array = 1.0


class Constant(MultiAgentEnv[jax.Array, ConstantParams]):
    """One agent, one observation, the same reward at every step.

    V = reward when it terminates at step 1, and reward / (1 - gamma) when it is truncated.
    """

    name = "constant"
    agents = ("only",)

    @property
    def default_params(self) -> ConstantParams:
        return ConstantParams()

    def observation_space(self, agent: str, params: ConstantParams) -> Box:
        return Box(0.0, 1.0, (1,))

    def action_space(self, agent: str, params: ConstantParams) -> Discrete:
        return Discrete(2)

    def horizon(self, params: ConstantParams) -> int | jax.Array:
        return params.length

    def reset_env(self, key, params):
        return _everyone_acts(jnp.ones((1, 1)), 2), jnp.zeros((), jnp.int32)

    def step_env(self, key, state, action, params):
        over = (state + 1 >= params.length)[None]
        obs = _everyone_acts(jnp.ones((1, 1)), 2)
        obs = obs.replace(alive=obs.alive & ~over, agent_mask=obs.agent_mask & ~over)
        reward = jnp.full(1, params.reward, jnp.float32)
        truncate = jnp.asarray(params.truncate)
        return obs, state + 1, reward, over & ~truncate, over & truncate, {}


class Duel(MultiAgentEnv[Any, None]):
    """First acts, then second; both are paid on second's move, each by its own action alone.

    First earns 1 for action 1, second for action 0. Second also earns 5 at first's step, which no
    action of its own has brought about.
    """

    name = "duel"
    agents = ("first", "second")

    @property
    def default_params(self) -> None:
        return None

    @property
    def max_actors(self) -> int:
        return 1

    def observation_space(self, agent: str, params: None) -> Box:
        return Box(0.0, 1.0, (2,))

    def action_space(self, agent: str, params: None) -> Discrete:
        return Discrete(2)

    def _observe(self, turn: Any, over: Any) -> Observation:
        obs = _everyone_acts(jnp.eye(2), 2)
        return obs.replace(alive=jnp.full(2, ~over), agent_mask=(jnp.arange(2) == turn) & ~over)

    def reset_env(self, key, params):
        zero = jnp.zeros((), jnp.int32)
        return self._observe(0, jnp.zeros((), bool)), (zero, zero)

    def step_env(self, key, state, action, params):
        turn, chosen = state
        over = turn == 1
        chosen = jnp.where(over, chosen, action[0])
        paid = jnp.stack([chosen == 1, action[1] == 0]).astype(jnp.float32)
        reward = jnp.where(over, paid, jnp.array([0.0, 5.0]))
        ended = jnp.full(2, over)
        obs = self._observe(turn + 1, over)
        return obs, (turn + 1, chosen), reward, ended, jnp.zeros(2, bool), {}


class Recall(MultiAgentEnv[Any, None]):
    """A cue at the first decision, a step of waiting, then a blank: name the cue for a reward."""

    name = "recall"
    agents = ("only",)

    @property
    def default_params(self) -> None:
        return None

    def observation_space(self, agent: str, params: None) -> Box:
        return Box(-1.0, 1.0, (2,))

    def action_space(self, agent: str, params: None) -> Discrete:
        return Discrete(2)

    def _observe(self, time: Any, cue: Any) -> Observation:
        seen = jnp.where(time == 0, 2.0 * cue - 1.0, jnp.where(time == 1, 1.0 - 2.0 * cue, 0.0))
        obs = _everyone_acts(jnp.stack([seen, time / 2.0])[None], 2)
        over = time > 2
        return obs.replace(alive=obs.alive & ~over, agent_mask=obs.agent_mask & (time != 1) & ~over)

    def reset_env(self, key, params):
        cue = jax.random.bernoulli(key).astype(jnp.int32)
        zero = jnp.zeros((), jnp.int32)
        return self._observe(zero, cue), (zero, cue)

    def step_env(self, key, state, action, params):
        time, cue = state
        over = (time == 2)[None]
        reward = jnp.where(over, action == cue, False).astype(jnp.float32)
        return (
            self._observe(time + 1, cue),
            (time + 1, cue),
            reward,
            over,
            jnp.zeros(1, bool),
            {},
        )


class Answers(Recall):
    """A cue, then eight signs: say of each whether it is that of the cue."""

    name = "answers"
    num_signs = 8

    def _tell(self, time: Any, cue: Any, sign: Any) -> Observation:
        begins, over = time == 0, time > self.num_signs
        seen = jnp.stack([begins * (2.0 * cue - 1.0), ~begins * (2.0 * sign - 1.0)])
        obs = _everyone_acts(seen[None], 2)
        return obs.replace(alive=obs.alive & ~over, agent_mask=obs.agent_mask & ~over)

    def reset_env(self, key, params):
        cue, zero = jax.random.bernoulli(key), jnp.zeros((), jnp.int32)
        return self._tell(zero, cue, cue), (zero, cue, cue)

    def step_env(self, key, state, action, params):
        time, cue, sign = state
        reward = ((time > 0) & (action == (cue == sign))).astype(jnp.float32) / self.num_signs
        state = (time + 1, cue, jax.random.bernoulli(key))
        over = (time == self.num_signs)[None]
        return self._tell(*state), state, reward, over, jnp.zeros(1, bool), {}


class Reach(MultiAgentEnv[Any, None]):
    """Continuous, one step: each agent earns minus the squared distance to its own target.

    `narrow` has one dimension within [-1, 3] and target 2, `wide` two within [0, 1] and [-2, 2]
    and target (0.2, -1). A dimension that `narrow` does not have must arrive as 0.
    """

    name = "reach"
    agents = ("narrow", "wide")
    target = np.array([[2.0, 0.0], [0.2, -1.0]], np.float32)

    @property
    def default_params(self) -> None:
        return None

    def observation_space(self, agent: str, params: None) -> Box:
        return Box(0.0, 1.0, (2,))

    def action_space(self, agent: str, params: None) -> Box:
        if agent == "narrow":
            return Box(-1.0, 3.0, (1,))
        return Box(np.array([0.0, -2.0]), np.array([1.0, 2.0]), (2,))

    def reset_env(self, key, params):
        obs = _everyone_acts(jnp.eye(2), 2)
        return obs.replace(action_mask=jnp.array([[True, False], [True, True]])), jnp.zeros(())

    def step_env(self, key, state, action, params):
        reward = -((action - self.target) ** 2).sum(-1)
        obs, _ = self.reset_env(key, params)
        nobody = jnp.zeros(2, bool)
        return obs.replace(alive=nobody, agent_mask=nobody), state, reward, ~nobody, nobody, {}


class OpenReach(Reach):
    """`Reach` in which a number of each agent lacks one bound or both; the targets are outside."""

    name = "open_reach"
    target = np.array([[5.0, 0.0], [0.2, -4.0]], np.float32)

    def action_space(self, agent: str, params: None) -> Box:
        if agent == "narrow":
            return Box(-1.0, np.inf, (1,))
        return Box(np.array([0.0, -np.inf]), np.array([1.0, 3.4e38]), (2,))


FAULTS = ("none", "features", "state", "action_mask", "reward", "final_observation")


@struct.dataclass
class FaultyParams:
    fault: int | jax.Array = 0  # index into FAULTS
    step: int | jax.Array = 0  # since the start of the run, if no episode ends before
    value: float | jax.Array = np.nan


class Faulty(MultiAgentEnv[jax.Array, FaultyParams]):
    """Two agents, episodes truncated after 100 steps, a bad number at one of them.

    Bad features, states and masks are in the observation that step `step` is decided by; agent `b`
    has them, but for the state. A bad final observation truncates `b` at that step.
    """

    name = "faulty"
    agents = ("a", "b")

    @property
    def default_params(self) -> FaultyParams:
        return FaultyParams()

    def observation_space(self, agent: str, params: FaultyParams) -> Box:
        return Box(-1.0, 1.0, (3,))

    def action_space(self, agent: str, params: FaultyParams) -> Discrete:
        return Discrete(2)

    def _bad(self, fault: str, now: Any, params: FaultyParams) -> jax.Array:
        chosen = (params.fault == FAULTS.index(fault)) & (now == params.step)
        return jnp.array([False, True]) & chosen

    def _observe(self, time: jax.Array, params: FaultyParams) -> Observation:
        obs = _everyone_acts(jnp.cos(time + jnp.arange(6.0)).reshape(2, 3), 2)
        bad = self._bad("features", time, params)[:, None]
        return obs.replace(
            features=jnp.where(bad, params.value, obs.features),
            action_mask=obs.action_mask & ~self._bad("action_mask", time, params)[:, None],
            state=jnp.where(self._bad("state", time, params), params.value, jnp.sin(time + 0.0)),
        )

    def reset_env(self, key, params):
        time = jnp.zeros((), jnp.int32)
        return self._observe(time, params), time

    def step_env(self, key, state, action, params):
        obs = self._observe(state + 1, params)
        reward = jnp.where(self._bad("reward", state, params), params.value, action.astype(float))
        ends = self._bad("final_observation", state, params)
        final = obs.replace(features=jnp.where(ends[:, None], params.value, obs.features))
        truncated = ends | (state + 1 >= 100)
        over = state + 1 >= 100
        obs = obs.replace(alive=obs.alive & ~over, agent_mask=obs.agent_mask & ~over)
        return obs, state + 1, reward, jnp.zeros(2, bool), truncated, {"final_observation": final}


class Log(NamedTuple):
    """What an environment was asked and answered, `[steps, A]` each."""

    acted: Any  # bool
    alive: Any  # bool, before the step
    reward: Any
    terminated: Any
    truncated: Any
    final_features: Any  # [steps, A, D]
    over: Any  # [steps] bool: the episode


@struct.dataclass
class LedgerState:
    inner: Any
    acts: jax.Array  # [A]
    alive: jax.Array  # [A]
    log: Log
    time: jax.Array


class Ledger(MultiAgentEnv[LedgerState, Any]):
    """Keeps a log of another environment in its state, across auto-resets.

    So a test can compute the truth without relying on what the trainer recorded.
    """

    def __init__(self, env: MultiAgentEnv, num_steps: int) -> None:
        self.inner, self.num_steps = env, num_steps
        self.name, self.agents = env.name, env.agents

    @property
    def default_params(self) -> Any:
        return self.inner.default_params

    @property
    def max_actors(self) -> int:
        return self.inner.max_actors

    def observation_space(self, agent: str, params: Any) -> Box:
        return self.inner.observation_space(agent, params)

    def action_space(self, agent: str, params: Any) -> Any:
        return self.inner.action_space(agent, params)

    def reset_env(self, key, params):
        obs, inner = self.inner.reset_env(key, params)
        shape = (self.num_steps, self.num_agents)
        no = jnp.zeros(shape, bool)
        features = jnp.zeros((self.num_steps, *obs.features.shape))
        log = Log(no, no, jnp.zeros(shape), no, no, features, no[:, 0])
        return obs, LedgerState(inner, obs.agent_mask, obs.alive, log, jnp.zeros((), jnp.int32))

    def step_batch(self, keys, state, action, params):
        obs, inner, reward, terminated, truncated, info = self.inner.step_batch(
            keys, state.inner, action, params
        )
        final = info["final_observation"].features
        over = info["episode_over"]
        entry = Log(state.acts, state.alive, reward, terminated, truncated, final, over)
        write = jax.vmap(lambda log, time, x: log.at[time].set(x))
        log = jax.tree.map(lambda log, x: write(log, state.time, x), state.log, entry)
        state = LedgerState(inner, obs.agent_mask, obs.alive, log, state.time + 1)
        return obs, state, reward, terminated, truncated, info


class Decided(NamedTuple):
    """One decision, as the log tells it."""

    step: int
    reward: float  # summed until the outcome
    num_steps: int
    first: bool  # of its life


class Truth(NamedTuple):
    """A slot's history so far."""

    trained: list[Decided]  # decisions whose outcome is known
    pending: Decided | None
    uncredited: float
    lives: list[tuple[float, int]]  # (return, steps alive) of finished lives
    running: float  # return of the life that goes on


def read_log(log: Log, acts_next: bool, slot: int, num_steps: int) -> Truth:
    """Follow one slot through the log `[steps, A]`, one step at a time."""
    trained: list[Decided] = []
    lives: list[tuple[float, int]] = []
    current: list[Any] | None = None
    uncredited = running = 0.0
    length, first = 0, True
    for t in range(num_steps):
        if log.acted[t, slot]:
            if current is not None:
                trained.append(Decided(*current))
            current = [t, 0.0, 0, first]
            first = False
        reward = float(log.reward[t, slot])
        running += reward
        length += bool(log.alive[t, slot])
        if current is None:
            uncredited += reward
        else:
            current[1] += reward
            current[2] += 1
        if log.terminated[t, slot] or log.truncated[t, slot]:
            if current is not None:
                trained.append(Decided(*current))
            lives.append((running, length))
            current, running, length, first = None, 0.0, 0, True
    if acts_next and current is not None:
        trained.append(Decided(*current))
        current = None
    pending = None if current is None else Decided(*current)
    return Truth(trained, pending, uncredited, lives, running)


def read_all(state: LedgerState, num_steps: int) -> list[list[Truth]]:
    """The truth of every environment and slot, `[E][A]`."""
    log, acts = jax.device_get((state.log, state.acts))
    num_envs, num_agents = acts.shape
    logs = [Log(*[x[e] for x in log]) for e in range(num_envs)]
    return [
        [read_log(logs[e], bool(acts[e, a]), a, num_steps) for a in range(num_agents)]
        for e in range(num_envs)
    ]


def _everyone_acts(features: jax.Array, num_actions: int) -> Observation:
    num_agents = features.shape[0]
    yes = jnp.ones(num_agents, bool)
    return Observation(features, jnp.ones((num_agents, num_actions), bool), yes, yes)


def tiny_learner(
    env: MultiAgentEnv,
    params: Any,
    memory: bool | str = False,
    mapping: Any = "shared",
    num_envs: int = 3,
    num_steps: int = 5,
    spec: dict[str, Any] | None = None,
    network: dict[str, Any] | None = None,
    config: dict[str, Any] | None = None,
    **ppo: Any,
) -> Learner:
    """A learner that compiles fast; `memory` is a kind of it, or True for an LSTM."""
    sizes: dict[str, Any] = {"hidden_sizes": (8,), **(network or {})}
    kinds = {True: LSTM, "gru": GRU, "min_gru": MinGRU}
    size = "lstm_size" if memory is True else "gru_size"
    module = kinds[memory](**{size: 6, **sizes}) if memory else MLP(**sizes)
    ppo = {"num_epochs": 1, "num_minibatches": 1, **ppo}
    return make_learner(
        env,
        params,
        TrainConfig(
            num_envs=num_envs,
            num_steps=num_steps,
            mapping=mapping,
            default_policy=PolicySpec(network=module, **(spec or {})),
            default_ppo=PPOConfig(**ppo),
            **{"stagger_starts": False, **(config or {})},
        ),
        strict=False,
    )


def group_of(learner: Learner, slot: int) -> tuple[int, int]:
    """The first group that can play a slot, and the slot's place among those of the group."""
    for index, group in enumerate(learner.players.policy_groups):
        if slot in group.interface.slots:
            return index, group.interface.slots.index(slot)
    raise ValueError(f"no policy group plays slot {slot}")


def of_slot(learner: Learner, per_group: Any, slot: int, axis: int) -> Any:
    """What its group keeps of a slot; `axis` of the leaves of `per_group` is that of slots."""
    index, place = group_of(learner, slot)
    return jax.tree.map(lambda x: np.take(x, place, axis=axis), per_group[index])


def params_of(learner: Learner, stacks: Any, slot: int) -> Any:
    """Parameters of the policy that alone plays a slot."""
    index, _ = group_of(learner, slot)
    player = learner.players.first_player_of[learner.players.mapping.candidates[slot][0]]
    policy_index = player - learner.players.policy_groups[index].first_player
    return jax.tree.map(lambda x: x[policy_index], stacks[index].params)


def with_spy(learner: Learner, on_pack: Callable[..., None]) -> Learner:
    """The same learner, which calls `on_pack(pack_fn, *args)` before every group's `_pack`."""

    class Spy(PolicyGroupLearner):
        def _pack(self, *args: Any) -> Any:
            on_pack(super()._pack, *args)
            return super()._pack(*args)

    def spy_on(group: Any) -> PolicyGroupLearner:
        return Spy(
            **{field.name: getattr(group, field.name) for field in dataclasses.fields(group)}
        )

    return dataclasses.replace(learner, group_learners=tuple(map(spy_on, learner.group_learners)))
