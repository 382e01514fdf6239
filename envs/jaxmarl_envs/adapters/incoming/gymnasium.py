"""Gymnasium's environments in plain Python, brought in: stepped on the host, and slow.

>>> env, params = make("gymnasium", env_id="CartPole-v1", horizon=500)
>>> env = from_gymnasium(lambda: MyEnv(size=3))
>>> env = from_gymnasium(lambda: gymnasium.make_vec("CartPole-v1", num_envs=8))
>>> env, params = make("gymnasium", env_id="lbforaging:Foraging-8x8-2p-1f-v3")
"""

import contextlib
import functools
import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import MASK, read_spaces
from jaxmarl_envs.adapters.incoming.host import HostEnv, check_horizon
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.host_worker import GameStep
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame, flag, number
from jaxmarl_envs.adapters.incoming.trial import bring_in
from jaxmarl_envs.permission import ask_permission

AGENT = "agent"
# Packages of environments that a file may name, see `permission`.
_PACKAGES = ("gymnasium.envs", "ale_py", "minigrid", "lbforaging", "rware")
AT_TIME_LIMIT = ("truncates", "terminates")


def gymnasium(
    env_id: str,
    horizon: int | None = None,
    flatten: bool = False,
    joint: bool | None = None,
    at_time_limit: str | None = None,
    num_workers: int | None = None,
    step_timeout: float | None = STEP_TIMEOUT_S,
    **options: Any,
) -> HostEnv:
    """Bring in a registered environment by its id, as `from_gymnasium` does.

    Args:
        env_id: of Gymnasium's registry, such as "CartPole-v1", or "my_package:MyEnv-v0" of what the
            module `my_package` registers.
        horizon: as in `from_gymnasium`.
        flatten: as in `from_gymnasium`.
        joint: as in `from_gymnasium`.
        at_time_limit: as in `from_gymnasium`.
        num_workers: as in `from_gymnasium`.
        step_timeout: as in `from_gymnasium`.
        **options: keyword arguments of the environment.

    Raises:
        ValueError: For an unknown environment, or options that it does not take.
    """
    library = import_extra("gymnasium", "gymnasium")
    if not isinstance(env_id, str):
        raise ValueError(f"env_id={env_id!r}: give an id of Gymnasium's registry as a string")
    # Gymnasium's own checks warn of every list of rewards; environments are tried out here anyway.
    make_fn = functools.partial(library.make, env_id, **{"disable_env_checker": True, **options})
    try:
        _ask_permission(library, env_id)
        make_fn().close()
    except (library.error.Error, ModuleNotFoundError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"env_id={env_id!r} cannot be made with {options}: {reason}") from error
    return from_gymnasium(
        make_fn,
        horizon=horizon,
        flatten=flatten,
        joint=joint,
        at_time_limit=at_time_limit,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=env_id,
    )


def _ask_permission(library: Any, env_id: str) -> None:
    """Ask whether the modules may be imported that register and that make an environment."""
    module, _, name = env_id.rpartition(":")
    if module:
        ask_permission(env_id, module, _PACKAGES)
        importlib.import_module(module)  # which registers the environment
    spec = library.registry.get(name) or library.registry.get(_newest(name))
    if spec is None:
        return  # making it raises the error
    ask_permission(env_id, spec.entry_point, _PACKAGES)


def _newest(name: str) -> str | None:
    """Complete an id without a version, as Gymnasium does."""
    registration = import_extra("gymnasium.envs.registration", "gymnasium")
    namespace, name, version = registration.parse_env_id(name)
    if version is None:
        version = registration.find_highest_version(namespace, name)
    return registration.get_env_id(namespace, name, version)


def from_gymnasium(
    make_fn: Callable[[], Any],
    *,
    horizon: int | None = None,
    flatten: bool = False,
    joint: bool | None = None,
    at_time_limit: str | None = None,
    num_workers: int | None = None,
    step_timeout: float | None = STEP_TIMEOUT_S,
    name: str | None = None,
) -> HostEnv:
    """Turn an environment of Gymnasium, single or vectorised, into one stepped on the host.

    A single one has one agent, or several where observations and actions are Tuples of equal length
    and a step returns a list of rewards, as in Level-Based Foraging and RWARE: `agent_0`, `agent_1`
    and so on. One flag is everybody's, a list has one for each.

    The environments of a `VectorEnv` are agents that live side by side, one each, whose lives are
    the episodes; so `num_envs` of a training run counts vectors. A life that ends is followed by
    the next one as the vector's autoreset mode has it: at the same step or, with nobody alive in
    between, on the next one. Action masks are taken from `info["action_mask"]`.

    Episodes begin with `env.reset(seed=...)`. Runs are repeated exactly, and resumed in the middle
    of an episode, where the environment does the same for the same seed and the same actions. It is
    tried out with random actions first: what cannot be played is rejected.

    Args:
        make_fn: makes one environment, the same each time; it may be a lambda.
        horizon: the step at which an episode that goes on is truncated, and a vector begins anew.
            None for the limit that the environment's `spec` or a `TimeLimit` around it declares,
            else none: a vector goes on for ever, so give one to evaluate on it. Without either, a
            state remembers 1,000 steps: a longer episode plays to its end, but begins anew where a
            run is resumed in it.
        flatten: show boards and images as vectors, as a network without convolutions needs them.
        joint: learn several choices of one agent (MultiDiscrete, MultiBinary, Tuple, Dict) as one
            choice over their combinations, at most 10,000, where they depend on each other. None
            for one distribution per choice, unless a mask can be read in two ways, which is an
            error; False says that such a mask is one for each choice.
        at_time_limit: what an end at the horizon is, "truncates" or "terminates", for environments
            that do not tell it as meant: Level-Based Foraging and RWARE terminate at theirs. An end
            for another reason at that very step counts as the same. None for what is told.
        num_workers: processes to step in; None for one per CPU core, 0 to step in this process.
        step_timeout: seconds that one environment may take for a step or a reset. One that takes
            longer is ended with its worker process, and what was learnt is saved. None for no
            limit.
        name: what to call it; None for its id, or the name of its class.

    Warns:
        UnrepeatableEnvironmentWarning: an episode comes out otherwise the second time.
        ObservationOutsideSpaceWarning: an agent observes numbers outside its space.

    Raises:
        ValueError: If it is not a function, it returns no Gymnasium environment, spaces cannot be
            written as arrays, or `at_time_limit` has no effect.
    """
    check_horizon(horizon)
    check_step_timeout(step_timeout)
    if not callable(make_fn):
        raise ValueError(f"make_fn={make_fn!r}: give a function that makes an environment")
    if at_time_limit not in (None, *AT_TIME_LIMIT):
        raise ValueError(
            f"at_time_limit={at_time_limit!r}: valid choices are {', '.join(AT_TIME_LIMIT)}"
        )
    return bring_in(
        _GameMaker(make_fn, horizon, flatten, joint, at_time_limit),
        horizon=horizon,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=name,
    )


class _GymnasiumGame(SlotGame):
    # What an end at the limit is, where the user says so.
    at_time_limit: str | None = None

    @functools.cached_property
    def _limit(self) -> float:
        return self.horizon or self.declared_horizon or math.inf

    def _set_flags(self, outcome: GameStep, terminated: Any, truncated: Any) -> None:
        """Fill in who is terminated and who is truncated, `[A]` bool."""
        if self.at_time_limit and self._time >= self._limit:
            ended = terminated | truncated
            truncated = ended & (self.at_time_limit == "truncates")
            terminated = ended & ~truncated
        outcome.terminated[:], outcome.truncated[:] = terminated, truncated

    @property
    def own_name(self) -> str:
        """Return the id of the environment, or the name of its class."""
        spec = getattr(self.env, "spec", None)
        return super().own_name if spec is None else str(spec.id)


class SingleGame(_GymnasiumGame):
    """An `Env`: its one agent acts at every step."""

    def __init__(
        self, env: Any, horizon: int | None, flatten: bool = False, joint: bool | None = None
    ) -> None:
        own = {AGENT: (env.observation_space, env.action_space)}
        super().__init__(env, (AGENT,), read_spaces(own, flatten, joint), horizon)

    def _begin(self, seed: int) -> None:
        seen, info = self.env.reset(seed=seed)
        self._look(seen, info, lives=True)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        seen, reward, terminated, truncated, info = self.env.step(self._own(action, 0))
        outcome.reward[0] = number(AGENT, reward)
        self._note(0, info, outcome)
        terminated = np.array([flag(AGENT, "terminated", terminated)])
        truncated = np.array([flag(AGENT, "truncated", truncated)])
        self._set_flags(outcome, terminated, truncated)
        self._look(seen, info, lives=not (terminated | truncated).item())

    def _look(self, seen: Any, info: Any, lives: bool) -> None:
        self._alive = self._acting = np.array([lives])
        self._show(0, seen, info, acts=lives)


class TeamGame(_GymnasiumGame):
    """An `Env` of several agents: all who live act at every step."""

    def __init__(
        self, env: Any, horizon: int | None, flatten: bool = False, joint: bool | None = None
    ) -> None:
        pairs = zip(env.observation_space.spaces, env.action_space.spaces, strict=True)
        own = {f"agent_{index}": pair for index, pair in enumerate(pairs)}
        super().__init__(env, tuple(own), read_spaces(own, flatten, joint), horizon)

    def _begin(self, seed: int) -> None:
        seen, info = self.env.reset(seed=seed)
        self._alive = np.ones(len(self.names), bool)
        self._look(seen, info)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        own = tuple(self._own(action, slot) for slot in range(len(self.names)))
        seen, rewards, terminated, truncated, info = self.env.step(own)
        pairs = zip(self.names, self._each("rewards", rewards), strict=True)
        outcome.reward[:] = [number(agent, reward) for agent, reward in pairs]
        for slot in range(len(self.names)):
            self._note(slot, info, outcome)
        terminated = self._flags("terminated", terminated)
        truncated = self._flags("truncated", truncated)
        self._set_flags(outcome, terminated & self._alive, truncated & self._alive)
        self._alive = self._alive & ~(outcome.terminated | outcome.truncated)
        self._look(seen, info)

    def _each(self, what: str, values: Any) -> Sequence[Any]:
        """Check that there is one value per agent."""
        if _is_single(values) or len(values) != len(self.names):
            raise ValueError(
                f"the environment has {len(self.names)} agents and returns the {what} {values!r}: "
                "expected one for each"
            )
        return values

    def _flags(self, name: str, values: Any) -> np.ndarray:
        """Read everybody's flag, or one per agent, `[A]` bool."""
        own = [values] * len(self.names) if _is_single(values) else self._each(name, values)
        pairs = zip(self.names, own, strict=True)
        return np.array([flag(agent, name, value) for agent, value in pairs])

    def _look(self, seen: Any, info: Any) -> None:
        self._acting = self._alive
        masks = info.get(MASK) if isinstance(info, Mapping) else None
        for slot, row in enumerate(self._each("observations", seen)):
            own = None if masks is None else {MASK: masks[slot]}
            self._show(slot, row, own, acts=bool(self._acting[slot]))


class VectorGame(_GymnasiumGame):
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
        self._iterate, self._concatenate = library.utils.iterate, library.utils.concatenate
        self._sent = library.utils.create_empty_array(env.single_action_space, env.num_envs)

    @property
    def declared_horizon(self) -> int | None:
        """Return None: a limit is of the lives in a vector."""
        return None

    def _begin(self, seed: int) -> None:
        seen, info = self.env.reset(seed=seed)
        self._alive = np.ones(len(self.names), bool)
        self._look(self._rows(seen), info)

    def _advance(self, action: np.ndarray, outcome: GameStep) -> None:
        before = self._alive
        own = [self._own(action, slot) for slot in range(len(self.names))]
        actions = self._concatenate(self.env.single_action_space, own, self._sent)
        seen, reward, terminated, truncated, info = self.env.step(actions)
        rows = self._rows(seen)
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
            rows = self._rows(seen)
            if MASK in info and MASK in begun:  # it covers only those that were reset
                info = {MASK: np.where(ended[:, None], begun[MASK], info[MASK])}
        self._alive = np.ones(len(self.names), bool)
        self._look(rows, info)

    def _rows(self, seen: Any) -> list[Any]:
        """Split a batch of observations into copies: the batch may be overwritten."""
        return [np.copy(row) if isinstance(row, np.ndarray) else row
                for row in self._iterate(self.env.observation_space, seen)]  # fmt: skip

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


@dataclass
class _GameMaker:
    """Makes games of one kind, which is found as the first is made."""

    make_fn: Callable[[], Any]
    horizon: int | None
    flatten: bool
    joint: bool | None
    at_time_limit: str | None
    has_team: bool | None = None

    def __call__(self) -> SlotGame:
        library = import_extra("gymnasium", "gymnasium")
        env = self.make_fn()
        is_vector = isinstance(env, import_extra("gymnasium.vector", "gymnasium").VectorEnv)
        if not is_vector and not isinstance(env, library.Env):
            raise ValueError(
                "expected a function that makes an Env or VectorEnv of Gymnasium, but it made "
                f"{env!r}"
            )
        if self.has_team is None:
            self.has_team = not is_vector and _has_team(env, self.make_fn)
        kind = VectorGame if is_vector else TeamGame if self.has_team else SingleGame
        game = kind(env, self.horizon, self.flatten, self.joint)
        if self.at_time_limit and (is_vector or not (self.horizon or game.declared_horizon)):
            why = "a vector tells its lives' limits" if is_vector else "no limit is known"
            raise ValueError(
                f"at_time_limit={self.at_time_limit!r} has no effect: {why}; give the limit of a "
                "single environment as horizon"
            )
        game.at_time_limit = self.at_time_limit
        return game


def _has_team(env: Any, make_fn: Callable[[], Any]) -> bool:
    """Find out whether an environment pays each part of its Tuples, by a step of another one."""
    spaces = env.observation_space, env.action_space
    sizes = {len(getattr(space, "spaces", ())) for space in spaces if _is_tuple(space)}
    if not all(map(_is_tuple, spaces)) or len(sizes) != 1 or 0 in sizes:
        return False
    with contextlib.closing(make_fn()) as other:
        seen, info = other.reset(seed=0)
        (whole,) = read_spaces({AGENT: spaces})
        action = whole.draw(np.random.default_rng(0), seen, info)
        reward = other.step(action)[1]
    return not _is_single(reward) and len(reward) in sizes


def _is_single(value: Any) -> bool:
    """Return whether a value is one, rather than one for each agent."""
    return value.ndim == 0 if hasattr(value, "ndim") else not isinstance(value, Sequence)


def _is_tuple(space: Any) -> bool:
    return isinstance(space, import_extra("gymnasium.spaces", "gymnasium").Tuple)
