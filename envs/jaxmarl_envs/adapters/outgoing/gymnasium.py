"""One agent's view of an environment, as a gymnasium `Env` or `VectorEnv`; the others are scripted.

>>> env = to_gymnasium(*jaxmarl_envs.make("tic_tac_toe"), agent="o", others="minimax")
>>> envs = to_gymnasium_vector(*make_multi_agent("CartPole-v1"), num_envs=256)

It needs the extra `gymnasium`.
"""

import math
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.actions import take_apart
from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.outgoing.forms import (
    in_layout,
    legal_options,
    sampling_mask,
    to_gymnasium_space,
)
from jaxmarl_envs.adapters.outgoing.one_agent import (
    ACTS,
    MOST_STEPS_WITHOUT_THE_AGENT,
    REWARD,
    REWARD_BEFORE,
    TERMINATED,
    TRUNCATED,
    Script,
    View,
    compiled,
    compiled_batch,
    game,
)
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.spaces import Discrete

gymnasium = import_extra("gymnasium", "gymnasium")
vector = import_extra("gymnasium.vector", "gymnasium")


def to_gymnasium(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    agent: str | None = None,
    others: str | Script = "random",
) -> "Single":
    """Make a `gymnasium.Env` in which one agent plays.

    An episode is the agent's life, from its first decision. A step goes on to its next decision, or
    to the end of its life with its own final observation, and earns all that it earned until then.
    What it earned before the first decision is in the reset's `info["reward_before"]`. Where others
    live on afterwards their game is dropped, and an episode without a decision of the agent is
    skipped.

    Actions have the form of the agent's own space: an int for `Discrete`, an array for
    `MultiDiscrete` and `Box`, a tuple for `Tuple`.

    Which are legal is in `info["action_mask"]`, as `action_space.sample(mask=...)` takes it: an
    int8 array for `Discrete`, a tuple of one for each choice for `MultiDiscrete`, and for `Tuple` a
    tuple of its parts' masks, with None for a `Box`. It is also in `action_masks()`, a bool array
    of the options of all choices, one after the other, as maskable trainers ask for it. An agent
    without a choice has no mask.

    Args:
        env: the environment.
        params: its parameters, by default `env.default_params`.
        agent: the name of its slot; needed where there are several.
        others: who plays the other slots: "random" (uniform over legal actions), one of
            `env.baselines`, or a pure function `(state, obs, params, key)` to all slots' actions.

    Raises:
        ValueError: For an unknown agent or script, or none named where there are several agents.
    """
    return Single(env, params, agent, others)


def to_gymnasium_vector(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    num_envs: int,
    agent: str | None = None,
    others: str | Script = "random",
) -> "Vector":
    """Make a `gymnasium.vector.VectorEnv` of `num_envs` games of one agent, stepped together.

    `AutoresetMode.SAME_STEP`: where a life has ended, the observation is the first of the next one,
    and the final one is in `infos["final_obs"]`. It does what a `SyncVectorEnv` of `to_gymnasium`
    environments does in this mode, in one compiled call: so masks are an array `[num_envs, n]` for
    `Discrete`, else an array `[num_envs]` of tuples. A seed `s` stands for `s`, `s + 1`, ....

    Raises:
        ValueError: As `to_gymnasium`, or if `num_envs` is below 1.
    """
    return Vector(env, params, num_envs, agent, others)


class _Common:
    """Base class of the single environment and the vector of environments."""

    def _init(
        self, env: MultiAgentEnv, params: Any, agent: str | None, others: str | Script
    ) -> None:
        if agent is None and env.num_agents > 1:
            raise ValueError(f"{env.name!r}: name one agent of {', '.join(env.agents)}")
        self._env, self._slot = env, 0 if agent is None else env.agent_index(agent)
        self._params = params = jax.device_put(env.default_params if params is None else params)
        self._game = game(env, self._slot, others)
        spaces = [env.observation_space(name, params) for name in env.agents]
        self._shape = tuple(np.max([space.shape for space in spaces], axis=0))
        self._num_features = math.prod(self._shape)
        self._own = tuple(slice(n) for n in spaces[self._slot].shape)
        self._layout = env.action_layout(params)
        self._has_choice = bool(self._layout.factors[self._slot].counts)
        self._chosen_from = space = env.action_space(env.agents[self._slot], params)
        self._spaces = to_gymnasium_space(spaces[self._slot]), to_gymnasium_space(space)

    def _features(self, rows: np.ndarray) -> np.ndarray:
        """Read the agent's own features `[E, ...]`, unpadded, from fetched `rows [E, ...]`."""
        features = rows[:, : self._num_features].reshape(len(rows), *self._shape)
        return features[(slice(None), *self._own)].copy()

    def _legal(self, rows: np.ndarray) -> list[np.ndarray]:
        """Read the legal options of each choice, `[E, options]` bool, from `rows [E, ...]`."""
        return legal_options(self._layout, self._slot, rows[:, self._num_features :] > 0)

    def _sent(self, actions: Any, *batch_shape: int) -> Any:
        """Read actions of the agent, with leading axes `batch_shape`, in the form of the layout.

        Raises:
            ValueError: If they are not of its space, or not as many.
        """
        try:
            return in_layout(self._layout, *take_apart(self._chosen_from, actions, batch_shape))
        except ValueError:
            many = f", num_envs={batch_shape[0]} of them" if batch_shape else ""
            raise ValueError(
                f"actions {actions} are not of the space {self._spaces[1]}{many}"
            ) from None

    def _expect_asked(self, rows: np.ndarray) -> None:
        if not (rows[:, [ACTS, TERMINATED, TRUNCATED]] > 0).any(axis=1).all():
            raise ValueError(
                f"{self._env.name!r}: {self._env.agents[self._slot]!r} was not to act for "
                f"{MOST_STEPS_WITHOUT_THE_AGENT:,} steps"
            )


class Single(_Common, gymnasium.Env):
    """One agent's game as a `gymnasium.Env`; see `to_gymnasium`."""

    def __init__(
        self,
        env: MultiAgentEnv,
        params: Any = None,
        agent: str | None = None,
        others: str | Script = "random",
    ) -> None:
        self._init(env, params, agent, others)
        self.observation_space, self.action_space = self._spaces
        self._begin, self._step = compiled(self._game)
        self._view: View | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode: the first one after a seed, or the next one; `options` are not used."""
        super().reset(seed=seed)
        if seed is None and self._view is not None:
            series, last = self._view.series, self._view.episode
        else:
            seed = int(self.np_random.integers(2**31)) if seed is None else seed
            series, last = jax.random.key(seed), np.int32(-1)
        self._view, row = self._begin(series, last, self._params)
        observation, info = self._show(row)
        return observation, {"reward_before": float(self._row[0, REWARD]), **info}

    def step(self, action: Any) -> tuple[np.ndarray, float, bool, bool, dict[str, Any]]:
        """Go on to the agent's next decision or to the end of its life."""
        if self._view is None or (self._row[0, TERMINATED:] > 0).any():
            raise ValueError(f"{self._env.name!r}: no episode is running: call reset first")
        self._view, row = self._step(self._view, self._sent(action), self._params)
        observation, info = self._show(row)
        reward, terminated, truncated = self._row[0, REWARD:]
        return observation, float(reward), bool(terminated), bool(truncated), info

    def action_masks(self) -> np.ndarray:
        """Return which options of all choices are legal, `[sum of the options]` bool."""
        legal = self._legal(self._row)
        return np.concatenate([options[0] for options in legal]) if legal else np.zeros(0, bool)

    def _show(self, row: jax.Array) -> tuple[np.ndarray, dict[str, Any]]:
        self._row = rows = np.asarray(row)[None]
        self._expect_asked(rows)
        features = self._features(rows)[0]
        if not self._has_choice:
            return features, {}
        legal = [options[0] for options in self._legal(rows)]
        return features, {"action_mask": sampling_mask(self._chosen_from, legal)}


class Vector(_Common, vector.VectorEnv):
    """Games of one agent as a `gymnasium.vector.VectorEnv`; see `to_gymnasium_vector`."""

    def __init__(
        self,
        env: MultiAgentEnv,
        params: Any = None,
        num_envs: int = 1,
        agent: str | None = None,
        others: str | Script = "random",
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs={num_envs}: must be at least 1")
        self._init(env, params, agent, others)
        self.num_envs = num_envs
        self.metadata = {"autoreset_mode": vector.AutoresetMode.SAME_STEP, "render_modes": []}
        self.single_observation_space, self.single_action_space = self._spaces
        self.observation_space = vector.utils.batch_space(self.single_observation_space, num_envs)
        self.action_space = vector.utils.batch_space(self.single_action_space, num_envs)
        self._begin, self._step = compiled_batch(self._game)
        self._views: View | None = None

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[np.ndarray, dict[str, Any]]:
        """Begin an episode everywhere; `options` are not used."""
        super().reset(seed=seed)
        if seed is None and self._views is not None:
            series, last = self._views.series, self._views.episode
        else:
            seed = int(self.np_random.integers(2**31)) if seed is None else seed
            series = jax.vmap(jax.random.key)(np.arange(seed, seed + self.num_envs))
            last = np.full(self.num_envs, -1, np.int32)
        self._views, rows = self._begin(series, last, self._params)
        rows = np.asarray(rows)
        self._expect_asked(rows)
        everywhere = np.ones(self.num_envs, bool)
        return self._features(rows), {
            **_told("reward_before", rows[:, REWARD].astype(np.float64), everywhere),
            **self._masks_told(rows, everywhere),
        }

    def step(
        self, actions: Any
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, dict[str, Any]]:
        """Go on everywhere to the agent's next decision or to the end of its life."""
        if self._views is None:
            raise ValueError(f"{self._env.name!r}: no episode is running: call reset first")
        sent = self._sent(actions, self.num_envs)
        self._views, rows, last = self._step(self._views, sent, self._params)
        rows = np.asarray(rows)
        self._expect_asked(rows)
        reward, terminated, truncated = rows[:, REWARD:].T
        ended = (terminated > 0) | (truncated > 0)
        infos: dict[str, Any] = {}
        if ended.any():
            last = np.asarray(last)
            final, features = np.full(self.num_envs, None, dtype=object), self._features(last)
            for i in np.flatnonzero(ended):
                final[i] = features[i]
            before = np.where(ended, rows[:, REWARD_BEFORE], 0.0).astype(np.float64)
            infos |= _told("final_obs", final, ended)
            infos |= _told("final_info", self._masks_told(last, ended), ended)
            infos |= _told("reward_before", before, ended)
        infos |= self._masks_told(rows, np.ones(self.num_envs, bool))
        return self._features(rows), reward.astype(np.float64), terminated > 0, truncated > 0, infos

    def _masks_told(self, rows: np.ndarray, where: np.ndarray) -> dict[str, Any]:
        """Write masks as gymnasium collects those of single views: arrays, or tuples one by one."""
        if not self._has_choice:
            return {}
        legal = self._legal(rows)
        if isinstance(self._chosen_from, Discrete):
            return _told("action_mask", (legal[0] & where[:, None]).astype(np.int8), where)
        masks = np.full(self.num_envs, None, dtype=object)
        for i in np.flatnonzero(where):
            masks[i] = sampling_mask(self._chosen_from, [options[i] for options in legal])
        return _told("action_mask", masks, where)


def _told(key: str, values: Any, where: np.ndarray) -> dict[str, Any]:
    """Write values of environments as gymnasium's infos do, valid where `where [E]` is True."""
    return {key: values, f"_{key}": where.copy()}
