"""RLlib's multi-agent environments, brought in as they stand: stepped on the host, and slow.

>>> env, params = make("rllib", env_id="my_package.my_env:MyEnv", env_config={"size": 3})
>>> env = from_rllib_env(lambda: MyEnv({"size": 3}))

Nothing of Ray is needed, unless the class itself imports it.
"""

import contextlib
import copy
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

from jaxmarl_envs import user_envs
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.rllib_game import MultiAgentGame, Roster
from jaxmarl_envs.adapters.incoming.rllib_roster import find_roster
from jaxmarl_envs.adapters.incoming.time_limit import check_at_time_limit, check_horizon
from jaxmarl_envs.adapters.incoming.trial import bring_in, call
from jaxmarl_envs.user_code import without_input
from jaxmarl_envs.user_env_names import HOW_TO_NAME, full_name, is_own


class EnvContext(dict[str, Any]):
    """An environment's configuration as RLlib hands it over: a dictionary with a few attributes."""

    worker_index = 0
    vector_index = 0
    num_workers = 0
    remote = False
    recreated_worker = False


def rllib(
    env_id: str,
    env_config: Mapping[str, Any] | None = None,
    max_agents: int | Mapping[str, int] | None = None,
    max_actors: int | None = None,
    horizon: int | None = None,
    flatten: bool = False,
    joint: bool | None = None,
    at_time_limit: str | None = None,
    num_workers: int | None = None,
    step_timeout: float | None = STEP_TIMEOUT_S,
) -> HostEnv:
    """Bring in a class of RLlib's `MultiAgentEnv` by its name, as `from_rllib_env` does.

    Args:
        env_id: of a class, or of a function that makes an environment from its configuration:
            `package.module:Class` or `path/to/file.py:Class`.
        env_config: what the class is made with, RLlib's `env_config`.
        max_agents: as in `from_rllib_env`.
        max_actors: as in `from_rllib_env`.
        horizon: as in `from_rllib_env`.
        flatten: as in `from_rllib_env`.
        joint: as in `from_rllib_env`.
        at_time_limit: as in `from_rllib_env`.
        num_workers: as in `from_rllib_env`.
        step_timeout: as in `from_rllib_env`.

    Raises:
        ValueError: If there is no such class, or as `from_rllib_env`.
    """
    if not is_own(env_id):
        raise ValueError(f"env_id={env_id!r}: give {HOW_TO_NAME}")
    if env_config is not None and not isinstance(env_config, Mapping):
        raise ValueError(f"env_config={env_config!r}: give a dictionary")
    found = user_envs.load_callable(full_name(env_id))
    return from_rllib_env(
        functools.partial(_make, found, dict(env_config or {})),
        max_agents=max_agents,
        max_actors=max_actors,
        horizon=horizon,
        flatten=flatten,
        joint=joint,
        at_time_limit=at_time_limit,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=getattr(found, "__name__", env_id),
    )


def from_rllib_env(
    make_fn: Callable[[], Any],
    *,
    max_agents: int | Mapping[str, int] | None = None,
    max_actors: int | None = None,
    horizon: int | None = None,
    flatten: bool = False,
    joint: bool | None = None,
    at_time_limit: str | None = None,
    num_workers: int | None = None,
    step_timeout: float | None = STEP_TIMEOUT_S,
    name: str | None = None,
) -> HostEnv:
    """Turn a `MultiAgentEnv` of RLlib into an environment that is stepped on the host.

    A step is one of RLlib's environment. Who is in its dictionary of observations acts, everyone
    else who lives waits; with an empty dictionary only time goes on. Rewards count for whom they
    are given to, observed or not. Lives end by `terminateds`, `truncateds` and their `"__all__"`.
    Action masks are taken from `observation["action_mask"]` or `info["action_mask"]`. See
    `gymnasium_spaces.AgentSpaces` for what becomes of observations and actions, and
    `rllib_roster.find_roster` for who the agents are. Classes of earlier versions, whose `step`
    returns four dictionaries, come in as well.

    Episodes begin with `env.reset(seed=...)`, or after seeding what the class has for that, and
    NumPy's and Python's global generators. Runs are repeated exactly, and resumed in the middle of
    an episode, where the environment does the same for the same seed and the same actions.

    Args:
        make_fn: makes one environment, the same each time; it may be a lambda.
        max_agents: where ids are names that come and go, such as `car_17`: the most who live at
            once, or that by what their ids begin with, such as `{"car": 8, "bike": 4}`. The slots
            are `agent_0, ...`, or `car_0, ...`. None where all ids are known.
        max_actors: the most who act at one step, which makes training faster where turns are taken;
            None for all.
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
            that do not tell it as meant. An end for another reason at that very step counts as the
            same. None for what is told.
        num_workers: processes to step in; None for one per CPU core, 0 to step in this process.
        step_timeout: seconds that one environment may take for a step or a reset. One that takes
            longer is ended with its worker process, and what was learnt is saved. None for no
            limit.
        name: what to call it; None for the name of its class.

    Warns:
        UnrepeatableEnvironmentWarning: an episode differs when it is repeated.
        ObservationOutsideSpaceWarning: an agent observes numbers outside its space.
        UnusedMaskWarning: something is called like an action mask, and is not used as one.

    Raises:
        ValueError: If it is not a function, it returns no such environment, ids or spaces cannot be
            determined, spaces cannot be written as arrays, `at_time_limit` has no effect, or the
            environment raises an exception.
    """
    check_horizon(horizon)
    check_at_time_limit(at_time_limit)
    check_step_timeout(step_timeout)
    if not callable(make_fn):
        raise ValueError(
            f"make_fn={make_fn!r}: give a function that makes an environment, such as "
            "lambda: MyEnv({'size': 3})"
        )
    _check_counts(max_agents, max_actors)
    # Whoever steps in this process may look into the environment by a debugger.
    with contextlib.nullcontext() if num_workers == 0 else without_input():
        env = call(make_fn, step_timeout, "making it")
        name = type(env).__name__ if name is None else name
        roster = call(
            functools.partial(find_roster, make_fn, max_agents, flatten, joint),
            step_timeout,
            f"environment {name!r}, tried out with random actions,",
        )
    num_agents = len(roster.names)
    if max_actors is not None and max_actors > num_agents:
        raise ValueError(f"max_actors={max_actors}: there are {num_agents} agents")
    return bring_in(
        functools.partial(_make_game, make_fn, roster, horizon, at_time_limit),
        horizon=horizon,
        num_workers=num_workers,
        step_timeout=step_timeout,
        name=name,
        max_actors=max_actors,
    )


def _make(found: Callable[..., Any], env_config: dict[str, Any]) -> Any:
    """Call a class as RLlib does, or without arguments if it takes none."""
    try:
        parameters = inspect.signature(found).parameters
    except ValueError:  # unknown for code that is not Python
        parameters = {"config": None}
    if not parameters:
        if env_config:
            raise ValueError(f"{found!r} takes no env_config, got {env_config}")
        return found()
    # A copy, since many classes remove entries that they read.
    return found(EnvContext(copy.deepcopy(env_config)))


def _make_game(
    make_fn: Callable[[], Any], roster: Roster, horizon: int | None, at_time_limit: str | None
) -> MultiAgentGame:
    game = MultiAgentGame(make_fn(), roster, horizon)
    game.set_at_time_limit(at_time_limit)
    return game


def _check_counts(max_agents: object, max_actors: object) -> None:
    counts = {"max_actors": max_actors, "max_agents": max_agents}
    if isinstance(max_agents, Mapping):
        counts.pop("max_agents")
        counts.update({f"max_agents[{kind!r}]": count for kind, count in max_agents.items()})
        if not max_agents or not all(isinstance(kind, str) for kind in max_agents):
            raise ValueError(
                f"max_agents={max_agents!r}: give numbers by what ids begin with, such as "
                "{'car': 8, 'bike': 4}"
            )
    for key, count in counts.items():
        whole = isinstance(count, int) and not isinstance(count, bool) and count >= 1
        if count is not None and not whole:
            raise ValueError(f"{key}={count!r}: give a whole number of at least 1")
