"""Any PettingZoo environment in plain Python, brought in: stepped on the host, and slow.

>>> env, params = make("pettingzoo", env_id="mpe2.simple_spread_v3", max_cycles=50)
>>> env = from_pettingzoo(lambda: my_game.parallel_env(size=3))
"""

import functools
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.pettingzoo_games import AECGame, ParallelGame, PettingZooGame
from jaxmarl_envs.adapters.incoming.returned import check_seed
from jaxmarl_envs.adapters.incoming.time_limit import check_at_time_limit, check_horizon
from jaxmarl_envs.adapters.incoming.trial import bring_in, split_options
from jaxmarl_envs.permission import ask_permission

# By the name of the API: the function of a module that makes such an environment.
_MAKERS = {"parallel": "parallel_env", "aec": "env"}
# Packages of environments that a file may name, see `permission`.
_PACKAGES = (
    *(f"pettingzoo.{family}" for family in ("atari", "butterfly", "classic", "mpe", "sisl")),
    *("mpe2", "magent2.environments"),
)
_HOW_TO_NAME = (
    "give the full name of a module such as 'mpe2.simple_spread_v3', or an id of PettingZoo's "
    "registry such as 'classic/connect_four_v3'"
)


def pettingzoo(env_id: str, api: str | None = None, **options: Any) -> HostEnv:
    """Bring in a PettingZoo environment by its name, as `from_pettingzoo` does.

    Args:
        env_id: full name of a module such as "mpe2.simple_spread_v3", or an id of PettingZoo's
            registry such as "classic/connect_four_v3".
        api: "parallel" or "aec", of a module its `parallel_env` or `env`; None for the first that
            there is.
        **options: those of `from_pettingzoo`, and keyword arguments of the environment, such as
            `max_cycles=50`.

    Raises:
        ValueError: For an unknown environment or API, options that it does not take, or as
            `from_pettingzoo`.
    """
    if api is not None and api not in _MAKERS:
        raise ValueError(f"api={api!r}: valid choices are {', '.join(_MAKERS)}")
    if not isinstance(env_id, str) or not ("/" in env_id or all(env_id.split("."))):
        raise ValueError(f"env_id={env_id!r}: {_HOW_TO_NAME}")
    import_extra("pettingzoo", "pettingzoo")
    if "/" not in env_id:
        ask_permission(env_id, env_id, _PACKAGES)
    own, kwargs = split_options(from_pettingzoo, options)
    make_fn = functools.partial(_make_by_id, env_id, api, kwargs)
    return from_pettingzoo(make_fn, name=env_id, **own)


def from_pettingzoo(
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
    """Turn a PettingZoo environment, parallel or AEC, into one that is stepped on the host.

    The agents are its `possible_agents`; any of them may come late, end before others, and come
    back. In a parallel environment all who live and are observed act at every step. In an AEC
    environment the selected agent acts alone, and a step is one action of one agent. Action
    masks are taken from `observation["action_mask"]` or `info["action_mask"]`. See
    `gymnasium_spaces.AgentSpaces` for what becomes of observations and actions.

    Episodes begin with `env.reset(seed=...)`. Runs are repeated exactly, and resumed in the middle
    of an episode, where the environment does the same for the same seed and the same actions. It is
    tried out with random actions first: what cannot be played is rejected.

    Args:
        make_fn: makes one environment, the same each time; it may be a lambda.
        horizon: the step at which an episode that goes on is truncated for everybody. None for the
            limit that the environment's `spec` or a `TimeLimit` around it declares, else none.
            Without either, a state remembers 1,000 steps: a longer episode plays to its end, but
            begins anew where a run is resumed in it.
        flatten: show boards and images as vectors, as a network without convolutions needs them.
        joint: learn several choices of one agent (MultiDiscrete, MultiBinary, Tuple, Dict) as one
            choice over their combinations, at most 10,000, where they depend on each other. None
            for one distribution per choice, unless a mask can be read in two ways, which is an
            error; False says that such a mask is one for each choice.
        at_time_limit: what an end at the horizon is, "truncates" or "terminates", for environments
            that do not tell it as meant: multiwalker terminates at its limit. An end for another
            reason at that very step counts as the same. None for what is told.
        num_workers: processes to step in; None for one per CPU core, 0 to step in this process.
        step_timeout: seconds that one environment may take for a step or a reset. One that takes
            longer is ended with its worker process, and what was learnt is saved. None for no
            limit.
        name: what to call it; None for what it calls itself.

    Warns:
        UnrepeatableEnvironmentWarning: an episode differs when it is repeated.
        ObservationOutsideSpaceWarning: an agent observes numbers outside its space.
        UnusedMaskWarning: something is called like an action mask, and is not used as one.

    Raises:
        ValueError: If it is not a function, the environment is neither parallel nor AEC or has no
            `possible_agents`, spaces cannot be written as arrays, or `at_time_limit` has no effect.
    """
    check_horizon(horizon)
    check_at_time_limit(at_time_limit)
    check_step_timeout(step_timeout)
    if not callable(make_fn):
        raise ValueError(
            f"make_fn={make_fn!r}: give a function that makes an environment, such as "
            "lambda: simple_spread_v3.parallel_env()"
        )
    return bring_in(
        _GameMaker(make_fn, horizon, flatten, joint, at_time_limit),
        horizon=horizon,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=name,
    )


@dataclass
class _GameMaker:
    """Makes games of one kind, with the slots of the first one.

    In another process a list that was made of a set has another order.
    """

    make_fn: Callable[[], Any]
    horizon: int | None
    flatten: bool
    joint: bool | None
    at_time_limit: str | None
    agents: Sequence[Any] | None = None

    def __call__(self) -> PettingZooGame:
        module = import_extra("pettingzoo", "pettingzoo")
        env = self.make_fn()
        kinds = {module.ParallelEnv: ParallelGame, module.AECEnv: AECGame}
        for kind, make in kinds.items():
            if isinstance(env, kind):
                if not getattr(env, "possible_agents", None):
                    raise ValueError(
                        f"{env} has no possible_agents, and so no fixed number of agents"
                    )
                check_seed(env)
                game = make(env, self.horizon, self.flatten, self.joint, self.agents)
                self.agents = game.names
                game.set_at_time_limit(self.at_time_limit)
                return game
        raise ValueError(
            "expected a function that makes a PettingZoo ParallelEnv or AECEnv, but it made "
            f"{env!r}"
        )


def _make_by_id(env_id: str, api: str | None, options: dict[str, Any]) -> Any:
    kinds = tuple(_MAKERS) if api is None else (api,)
    for kind in kinds:
        maker = _registered(env_id, kind) if "/" in env_id else _of_module(env_id, kind)
        if maker is None:
            continue
        try:
            return maker(**options)
        except TypeError as error:
            if not options:
                raise
            raise ValueError(f"{env_id!r} does not take {options}: {error}") from error
    raise ValueError(f"there is no {' or '.join(kinds)} environment {env_id!r}: {_HOW_TO_NAME}")


def _registered(env_id: str, kind: str) -> Callable[..., Any] | None:
    """Find the function that makes an environment of PettingZoo's registry, or None."""
    library = import_extra("pettingzoo", "pettingzoo")
    if not hasattr(library, "make"):
        raise ValueError(
            f"env_id={env_id!r}: this PettingZoo has no registry; update it, or give the full name "
            "of a module"
        )
    errors = import_extra("pettingzoo.env_registry.exceptions", "pettingzoo")
    try:
        place = library.spec(kind, env_id).entry_point
    except errors.PettingZooRegistryError:
        return None
    ask_permission(env_id, place, _PACKAGES)
    return functools.partial(library.make, kind, env_id)


def _of_module(env_id: str, kind: str) -> Callable[..., Any] | None:
    try:
        module = importlib.import_module(env_id)
    except ModuleNotFoundError as error:
        raise ValueError(
            f"unknown env_id {env_id!r} ({error}): {_HOW_TO_NAME}, and install what it needs"
        ) from error
    maker = getattr(module, _MAKERS[kind], None)
    return maker if callable(maker) else None
