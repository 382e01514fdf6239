"""Gymnasium's environments as games over slots: those of one agent, of several, and vectors."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, read_spaces
from jaxmarl_envs.adapters.incoming.host_rows import GameStep
from jaxmarl_envs.adapters.incoming.returned import check_reset, check_step
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame, flag, number

AGENT = "agent"


class GymnasiumGame(SlotGame):
    """A game of Gymnasium's, whatever its agents."""

    @property
    def own_name(self) -> str:
        """Return the id of the environment, or the name of its class."""
        spec = getattr(self.env, "spec", None)
        return super().own_name if spec is None else str(spec.id)


class SingleGame(GymnasiumGame):
    """An `Env`: its one agent acts at every step."""

    def __init__(
        self, env: Any, horizon: int | None, flatten: bool = False, joint: bool | None = None
    ) -> None:
        own = {AGENT: (env.observation_space, env.action_space)}
        super().__init__(env, (AGENT,), read_spaces(own, flatten, joint), horizon)

    def _begin(self, seed: int) -> None:
        seen, info = check_reset(self.env.reset(seed=seed))
        self._look(seen, info, lives=True)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        seen, reward, terminated, truncated, info = check_step(self.env.step(self._own(action, 0)))
        outcome.reward[0] = number(AGENT, reward)
        self._note(0, info, outcome)
        outcome.terminated[0] = flag(AGENT, "terminated", terminated)
        outcome.truncated[0] = flag(AGENT, "truncated", truncated)
        self._look(seen, info, lives=not (outcome.terminated | outcome.truncated).item())

    def _look(self, seen: Any, info: Any, lives: bool) -> None:
        self._alive = self._acting = np.array([lives])
        self._show(0, seen, info, acts=lives)


class TeamGame(GymnasiumGame):
    """An `Env` of several agents: all who live act at every step."""

    def __init__(
        self, env: Any, horizon: int | None, flatten: bool = False, joint: bool | None = None
    ) -> None:
        pairs = zip(env.observation_space.spaces, env.action_space.spaces, strict=True)
        own = {f"agent_{index}": pair for index, pair in enumerate(pairs)}
        super().__init__(env, tuple(own), read_spaces(own, flatten, joint), horizon)

    def _begin(self, seed: int) -> None:
        seen, info = check_reset(self.env.reset(seed=seed))
        self._alive = np.ones(len(self.names), bool)
        self._look(seen, info)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        own = tuple(self._own_all(action, range(len(self.names))))
        seen, rewards, terminated, truncated, info = check_step(self.env.step(own))
        pairs = zip(self.names, self._each("rewards", rewards), strict=True)
        outcome.reward[:] = [number(agent, reward) for agent, reward in pairs]
        for slot in range(len(self.names)):
            self._note(slot, info, outcome)
        outcome.terminated[:] = self._flags("terminated", terminated) & self._alive
        outcome.truncated[:] = self._flags("truncated", truncated) & self._alive
        self._alive = self._alive & ~(outcome.terminated | outcome.truncated)
        self._look(seen, info)

    def _each(self, what: str, values: Any) -> Sequence[Any]:
        """Check that there is one value per agent."""
        if is_single(values) or len(values) != len(self.names):
            raise ValueError(
                f"the environment has {len(self.names)} agents and returns the {what} {values!r}: "
                "expected one for each"
            )
        return values

    def _flags(self, name: str, values: Any) -> np.ndarray:
        """Read everybody's flag, or one per agent, `[A]` bool."""
        own = [values] * len(self.names) if is_single(values) else self._each(name, values)
        pairs = zip(self.names, own, strict=True)
        return np.array([flag(agent, name, value) for agent, value in pairs])

    def _look(self, seen: Any, info: Any) -> None:
        self._acting = self._alive
        masks = info.get(MASK) if isinstance(info, Mapping) else None
        for slot, row in enumerate(self._each("observations", seen)):
            own = None if masks is None else {MASK: masks[slot]}
            self._show(slot, row, own, acts=bool(self._acting[slot]))


class VectorGame(GymnasiumGame):
    """A `VectorEnv`: an agent for each of its environments."""

    def __init__(
        self, env: Any, horizon: int | None, flatten: bool = False, joint: bool | None = None
    ) -> None:
        library = import_extra("gymnasium.vector", "gymnasium")
        names = tuple(f"env_{i}" for i in range(env.num_envs))
        spaces = env.single_observation_space, env.single_action_space
        own = read_spaces(dict.fromkeys(names, spaces), flatten, joint)
        super().__init__(env, names, own, horizon)
        modes = library.AutoresetMode
        self._mode = modes(env.metadata.get("autoreset_mode", modes.NEXT_STEP))
        self._resets_later = self._mode == modes.NEXT_STEP
        self._resets_by_itself = self._mode != modes.DISABLED
        self._utils = library.utils

    @property
    def declared_horizon(self) -> int | None:
        """Return None: a limit is of the lives in a vector."""
        return None

    def set_at_time_limit(self, at_time_limit: str | None) -> None:
        """Reject it: each life in a vector has its own time."""
        if at_time_limit is not None:
            raise ValueError(
                f"at_time_limit={at_time_limit!r} has no effect: a vector tells its lives' limits; "
                "give the limit of a single environment as horizon"
            )

    def _begin(self, seed: int) -> None:
        seen, info = self.env.reset(seed=seed)
        self._alive = np.ones(len(self.names), bool)
        self._look(self._split(seen), info)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        before = self._alive
        own = self._own_all(action, range(len(self.names)))
        # Not the same array at every step: the environment may remember it.
        space = self.env.single_action_space
        actions = self._utils.create_empty_array(space, len(own))
        actions = self._utils.concatenate(space, own, actions)
        seen, reward, terminated, truncated, info = self.env.step(actions)
        rows = self._split(seen)
        for slot in range(len(self.names)):
            self._note(slot, _info_of(slot, info), outcome)
        outcome.reward[:] = reward
        outcome.terminated[:] = np.asarray(terminated, bool) & before
        outcome.truncated[:] = np.asarray(truncated, bool) & before
        ended = outcome.terminated | outcome.truncated
        if self._resets_later or not ended.any():
            # Whoever was not there has been reset by this step.
            self._alive = ~ended
            self._look(rows, info)
            return
        last = info["final_obs"] if self._resets_by_itself else rows
        for slot in range(len(self.names)):
            self._show(slot, last[slot] if ended[slot] else rows[slot], None, acts=True)
        self._keep_final()
        if not self._resets_by_itself:
            seen, begun = self.env.reset(options={"reset_mask": ended})
            rows = self._split(seen)
            if MASK in info and MASK in begun:  # it covers only those that were reset
                info = {MASK: np.where(ended[:, None], begun[MASK], info[MASK])}
        self._alive = np.ones(len(self.names), bool)
        self._look(rows, info)

    def _split(self, seen: Any) -> list[Any]:
        """Split a batch of observations into copies: the batch may be overwritten."""
        return [np.copy(row) if isinstance(row, np.ndarray) else row
                for row in self._utils.iterate(self.env.observation_space, seen)]  # fmt: skip

    def _look(self, rows: list[Any], info: Any) -> None:
        self._acting = self._alive
        masks = info.get(MASK)
        for slot, row in enumerate(rows):
            own = None if masks is None else {MASK: masks[slot]}
            self._show(slot, row, own, acts=bool(self._acting[slot]))


def _info_of(slot: int, info: Mapping[str, Any]) -> dict[str, Any]:
    """Take one environment's infos out of those of a vector: its last ones, if it was reset."""
    own = {}
    for key, values in info.items():
        there = info.get(f"_{key}")
        if there is None or not there[slot] or key.startswith("_"):
            continue
        if key == "final_info" or isinstance(values, Mapping):
            found = _info_of(slot, values)
            own.update(found if key == "final_info" else {key: found})
        elif key != "final_obs":
            own.setdefault(key, values[slot])
    return own


def is_single(value: Any) -> bool:
    """Return whether a value is one, rather than one for each agent."""
    return value.ndim == 0 if hasattr(value, "ndim") else not isinstance(value, Sequence)
