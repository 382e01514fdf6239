"""Gymnasium's environments in plain Python, brought in: stepped on the host, and slow.

>>> env, params = make("gymnasium", env_id="CartPole-v1", horizon=500)
>>> env = from_gymnasium(lambda: MyEnv(size=3))
>>> env = from_gymnasium(lambda: gymnasium.make_vec("CartPole-v1", num_envs=8))
>>> env, params = make("gymnasium", env_id="lbforaging:Foraging-8x8-2p-1f-v3")
"""

import contextlib
import functools
import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.gymnasium_games import (
    AGENT,
    SingleGame,
    TeamGame,
    VectorGame,
    is_single,
)
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import read_spaces
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.returned import check_seed
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame
from jaxmarl_envs.adapters.incoming.time_limit import check_at_time_limit, check_horizon
from jaxmarl_envs.adapters.incoming.trial import bring_in, split_options
from jaxmarl_envs.permission import ask_permission

# Packages of environments that a file may name, see `permission`.
_PACKAGES = ("gymnasium.envs", "ale_py", "minigrid", "lbforaging", "rware")


def gymnasium(env_id: str, **options: Any) -> HostEnv:
    """Bring in a registered environment by its id, as `from_gymnasium` does.

    Args:
        env_id: of Gymnasium's registry, such as "CartPole-v1", or "my_package:MyEnv-v0" of what the
            module `my_package` registers.
        **options: those of `from_gymnasium`, and keyword arguments of the environment.

    Raises:
        ValueError: For an unknown environment, or options that it does not take.
    """
    library = import_extra("gymnasium", "gymnasium")
    if not isinstance(env_id, str):
        raise ValueError(f"env_id={env_id!r}: give an id of Gymnasium's registry as a string")
    # Gymnasium's own checks warn of every list of rewards; environments are tried out here anyway.
    own, kwargs = split_options(from_gymnasium, options)
    make_fn = functools.partial(library.make, env_id, **{"disable_env_checker": True, **kwargs})
    try:
        _ask_permission(library, env_id)
        make_fn().close()
    except (library.error.Error, ModuleNotFoundError, TypeError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"env_id={env_id!r} cannot be made with {kwargs}: {reason}") from error
    return from_gymnasium(make_fn, name=env_id, **own)


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
        UnrepeatableEnvironmentWarning: an episode differs when it is repeated.
        ObservationOutsideSpaceWarning: an agent observes numbers outside its space.
        UnusedMaskWarning: something is called like an action mask, and is not used as one.

    Raises:
        ValueError: If it is not a function, it returns no Gymnasium environment, spaces cannot be
            written as arrays, or `at_time_limit` has no effect.
    """
    check_horizon(horizon)
    check_step_timeout(step_timeout)
    if not callable(make_fn):
        raise ValueError(f"make_fn={make_fn!r}: give a function that makes an environment")
    check_at_time_limit(at_time_limit)
    return bring_in(
        _GameMaker(make_fn, horizon, flatten, joint, at_time_limit),
        horizon=horizon,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=name,
    )


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
        check_seed(env)
        if self.has_team is None:
            self.has_team = not is_vector and _has_team(env, self.make_fn)
        kind = VectorGame if is_vector else TeamGame if self.has_team else SingleGame
        game = kind(env, self.horizon, self.flatten, self.joint)
        game.set_at_time_limit(self.at_time_limit)
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
    return not is_single(reward) and len(reward) in sizes


def _is_tuple(space: Any) -> bool:
    return isinstance(space, import_extra("gymnasium.spaces", "gymnasium").Tuple)
