"""One environment stepped from Python, its agents called by name: what all adapters share.

Keys: episode `e` after `seed(s)` has the key `fold_in(key(s), e)`, of which `fold_in(., 0)` begins
it and `fold_in(., t)` makes its step `t = 1, 2, ...`.
"""

import math
import secrets
from collections.abc import Mapping
from typing import Any, NamedTuple

import jax
import numpy as np

from jaxmarl_envs.actions import take_apart
from jaxmarl_envs.adapters.outgoing.forms import (
    legal_options,
    to_gymnasium_space,
)
from jaxmarl_envs.adapters.outgoing.programs import (
    ACTS,
    ALIVE,
    MOST_STEPS_WITHOUT_AN_AGENT,
    REWARD,
    TERMINATED,
    TRUNCATED,
    RunningEpisode,
    programs,
)
from jaxmarl_envs.core import MultiAgentEnv

_LIFE = "#"


class Ended(NamedTuple):
    """End of an agent's life: terminated or truncated."""

    slot: int
    terminated: bool
    truncated: bool


class Passed(NamedTuple):
    """Result of a step by agent name: rewards, and the lives that ended."""

    rewards: dict[str, float]  # of everyone who lived before or lives now
    ended: dict[str, Ended]

    def flags(self) -> tuple[dict[str, bool], dict[str, bool]]:
        """Return for each agent whether it was terminated, and whether truncated, at this step."""
        terminated = dict.fromkeys(self.rewards, False)
        truncated = dict(terminated)
        for agent, end in self.ended.items():
            terminated[agent], truncated[agent] = end.terminated, end.truncated
        return terminated, truncated


class Hosted:
    """An environment that is being stepped, one episode after another.

    Agents are called by `name_of_life`.

    Args:
        env: the environment.
        params: its parameters, by default `env.default_params`.
        max_lives: the most lives that a slot can have in an episode, or None.

    Attributes:
        slots: the slot of everyone who lives, by name, in the order of the slots.
        acts: `[A]` bool, who must act now.
        layout: of the environment's actions and masks.
        spaces: every slot's action space.
        action_spaces: gymnasium's own of these.
        episode: how many episodes have been begun since the seed before this one.
        possible_agents: the names of the first `max_lives` lives of all slots, or where there is
            no bound those of the first.
    """

    def __init__(self, env: MultiAgentEnv, params: Any, max_lives: int | None) -> None:
        if max_lives is not None and max_lives < 1:
            raise ValueError(f"max_lives={max_lives}: must be at least 1, or None for no bound")
        for agent in env.agents:
            if _LIFE in agent:
                raise ValueError(f"agent {agent!r}: a name with {_LIFE!r} is that of a later life")
        self.env, self.max_lives = env, max_lives
        self.params = jax.device_put(env.default_params if params is None else params)
        self.layout = env.action_layout(self.params)
        self.spaces = list(self.layout.spaces.values())
        self.action_spaces = [to_gymnasium_space(space) for space in self.spaces]
        self.feature_spaces = [
            to_gymnasium_space(env.observation_space(agent, self.params)) for agent in env.agents
        ]
        self._shape = tuple(np.max([space.shape for space in self.feature_spaces], axis=0))
        self._num_features = math.prod(self._shape)
        self._own = [tuple(slice(n) for n in space.shape or ()) for space in self.feature_spaces]
        self.possible_agents = [
            name_of_life(agent, life)
            for life in range(1, (max_lives or 1) + 1)
            for agent in env.agents
        ]
        self._programs = programs(env)
        self._series: jax.Array | None = None
        self._running: RunningEpisode | None = None

    # ---- Stepping --------------------------------------------------------------------------------

    def reset(self, seed: int | None = None) -> None:
        """Begin an episode: the first one after a seed, or the next one."""
        if seed is not None or self._series is None:
            self._series = jax.random.key(secrets.randbits(31) if seed is None else seed)
            self.episode = 0
        else:
            self.episode += 1
        self._running = self._programs.reset(self._series, self.episode, self.params)
        self._see(self._running)
        self._lives = [0] * self.env.num_agents
        self._names: list[str | None] = [None] * self.env.num_agents
        self._name_lives()

    def step(self, actions: Mapping[str, Any], until_asked: bool = False) -> Passed:
        """Make one step, or steps until an agent must act or a life begins or ends.

        Args:
            actions: of those who must act; others may be named too.
            until_asked: whether to continue over steps that concern no agent.

        Raises:
            ValueError: If no episode is running, an agent that must act does not, or an agent or
                action is unknown.
        """
        if self._running is None or not self.slots:
            raise ValueError(f"{self.env.name!r}: no episode is running: call reset first")
        step = self._programs.step_on if until_asked else self._programs.step
        self._running = step(self._running, self._encode(actions), self.params)
        table = self._see(self._running)
        reward, terminated, truncated = table[:, [REWARD, TERMINATED, TRUNCATED]].T
        lived, ended = self.slots, {}
        if terminated.any() or truncated.any():
            self._final = np.asarray(self._running.final)
            for agent, slot in lived.items():
                if terminated[slot] or truncated[slot]:
                    ended[agent] = Ended(slot, bool(terminated[slot]), bool(truncated[slot]))
                    self._names[slot] = None
        self._name_lives()
        if until_asked and not self.acts.any() and self.slots == lived:
            raise ValueError(
                f"{self.env.name!r}: nobody was to act for {MOST_STEPS_WITHOUT_AN_AGENT:,} steps"
            )
        rewards = dict.fromkeys(self.slots, 0.0)  # who has just been born has earned nothing
        rewards |= {agent: float(reward[slot]) for agent, slot in lived.items()}
        return Passed(rewards, ended)

    def _see(self, running: RunningEpisode) -> np.ndarray:
        """Fetch the table `[A, F + W + 5]` of what the last step, or the reset, brought."""
        self._table = table = np.asarray(running.table)
        self.acts, self._alive = table[:, ACTS] > 0, table[:, ALIVE] > 0
        return table

    def _name_lives(self) -> None:
        for slot, name in enumerate(self.env.agents):
            if self._names[slot] is None and self._alive[slot]:
                self._lives[slot] += 1
                self._names[slot] = name_of_life(name, self._lives[slot])
                if self.max_lives is not None and self._lives[slot] > self.max_lives:
                    raise ValueError(
                        f"{self._names[slot]!r} was born, one more life in its slot than "
                        f"max_lives={self.max_lives}: give a larger max_lives, or None for no bound"
                    )
        self.slots = {name: slot for slot, name in enumerate(self._names) if name is not None}

    def _encode(self, actions: Mapping[str, Any]) -> Any:
        """Check actions by name and write them as those of all slots."""
        choices = np.zeros((self.env.num_agents, len(self.layout.counts)), np.int32)
        numbers = np.zeros((self.env.num_agents, self.layout.num_numbers), np.float32)
        for agent, action in actions.items():
            if agent not in self.slots:
                raise ValueError(f"unknown agent {agent!r}: alive are {', '.join(self.slots)}")
            slot = self.slots[agent]
            try:
                chosen, vector = take_apart(self.spaces[slot], action)
            except ValueError:
                raise ValueError(
                    f"action {action} of {agent!r} is not in its space {self.action_spaces[slot]}"
                ) from None
            choices[slot, : chosen.size], numbers[slot, : vector.size] = chosen, vector
        for agent, slot in self.slots.items():
            if self.acts[slot] and agent not in actions:
                raise ValueError(f"{agent!r} must act, and {', '.join(actions) or 'nobody'} did")
        return self.layout.join(choices, numbers)

    # ---- What agents see -------------------------------------------------------------------------

    def features(self, slot: int, final: bool = False) -> np.ndarray:
        """Copy the slot's own features, now or at the end of the life that has just ended."""
        row = self._final[slot] if final else self._table[slot]
        return row[: self._num_features].reshape(self._shape)[self._own[slot]].copy()

    def legal_options(self, slot: int, final: bool = False) -> list[np.ndarray]:
        """Return which options of each of the slot's own choices are legal, `[options]` bool."""
        row = self._final[slot] if final else self._table[slot]
        return legal_options(self.layout, slot, row[self._num_features :] > 0)

    @property
    def central_state(self) -> np.ndarray | None:
        """Copy what a centralised critic may see, `[G]`, or give None where nothing is shown."""
        central = None if self._running is None else self._running.central
        return None if central is None else np.array(central)


def name_of_life(slot: str, life: int) -> str:
    """Name the `life`-th agent in a slot: `car`, then `car#2`, `car#3`."""
    return slot if life == 1 else f"{slot}{_LIFE}{life}"


def slot_name(agent: str) -> str:
    """Return the name of the slot that an agent lives in: `car` for `car` and for `car#2`."""
    return agent.split(_LIFE)[0]


def place_of_masks(
    hosted: Hosted, choice: str, valid: tuple[str, ...], needed_anyway: bool = False
) -> str:
    """Decide where action masks go: as chosen, or for "auto" to "observation" or "none".

    Raises:
        ValueError: For another choice, or masks where no agent has a choice.
    """
    if choice not in valid:
        raise ValueError(f"action_masks={choice!r}: valid choices: {', '.join(valid)}")
    if hosted.layout.is_numbers and choice not in ("auto", "none"):
        raise ValueError(
            f"action_masks={choice!r}: {hosted.env.name!r} has continuous actions, which have no "
            "masks: choose 'auto' or 'none'"
        )
    if choice != "auto":
        return choice
    needed = needed_anyway or has_illegal_actions(hosted.env, hosted.params)
    return "observation" if needed and not hosted.layout.is_numbers else "none"


def has_illegal_actions(env: MultiAgentEnv, params: Any) -> bool:
    """Return whether an option that an agent has can ever be masked, as far as tracing tells.

    False only where the masks depend on neither chance nor state nor action and allow everything.
    """
    layout = env.action_layout(params)
    if layout.is_numbers:
        return False

    def masks(key: jax.Array) -> tuple[jax.Array, jax.Array]:
        obs, state = env.reset_env(key, params)
        action = layout.pick(jax.random.uniform(key, layout.exists.shape), layout.exists)
        return obs.action_mask, env.step_env(key, state, action, params)[0].action_mask

    # Under `vmap` only what depends on the keys has a batch axis.
    try:
        jax.eval_shape(jax.vmap(masks, out_axes=None), jax.random.split(jax.random.key(0), 2))
    except ValueError as error:
        if "out_axes" not in str(error):
            raise
        return True
    found = jax.device_get(jax.jit(masks)(jax.random.key(0)))
    return any((layout.exists & ~mask).any() for mask in found)
