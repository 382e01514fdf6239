"""VMAS scenarios, brought in: simulated by torch on the CPU, a batch of games at once.

>>> env, params = make("vmas", env_id="balance", max_steps=100, n_agents=4)
>>> env = from_vmas(MyScenario, max_steps=100)
"""

import contextlib
import copy
import functools
import inspect
import itertools
import random
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.incoming.host import HostEnv
from jaxmarl_envs.adapters.incoming.host_patience import STEP_TIMEOUT_S, check_step_timeout
from jaxmarl_envs.adapters.incoming.time_limit import check_horizon
from jaxmarl_envs.adapters.incoming.trial import layout_of, try_game, warn_of_chance
from jaxmarl_envs.adapters.incoming.vmas_batch import TriedGame, VmasBatch
from jaxmarl_envs.user_code import describe_error

# Arguments of `vmas.make_env` that are set here.
_SET_HERE = (
    *("num_envs", "device", "seed", "wrapper", "wrapper_kwargs", "dict_spaces"),
    *("clamp_actions", "grad_enabled", "terminated_truncated", "scenario"),
)
_OWN = ("continuous_actions", "multidiscrete_actions", "max_steps", "flatten")
_UNUSED = re.compile(r"Scenario kwargs: (\{.*\}) passed but not used by the scenario")
# How scenarios read their keyword arguments.
_OPTION = re.compile(r"""kwargs\.(?:pop|get)\(\s*["'](\w+)["']""")
# Games of a batch in which one is tried out.
_TRIED = 3


class EndlessEnvironmentWarning(UserWarning):
    """An environment has no time limit, and no episode has ended while it was tried out."""


def vmas(env_id: str, **options: Any) -> HostEnv:
    """Bring in a scenario by its name, as `from_vmas` does.

    Args:
        env_id: name of a scenario such as "balance".
        **options: those of `from_vmas`, and arguments of the scenario, such as `n_agents=4`.

    Raises:
        ValueError: For an unknown scenario or option, or as `from_vmas`.
    """
    library = _vmas()
    known = [*library.scenarios, *library.mpe_scenarios, *library.debug_scenarios]
    if env_id not in known:
        raise ValueError(f"VMAS has no scenario {env_id!r}; valid: {', '.join(known)}")
    return from_vmas(functools.partial(_load, env_id), name=env_id, **options)


def from_vmas(
    scenario: Any,
    *,
    max_steps: int | None = None,
    continuous_actions: bool = True,
    multidiscrete_actions: bool = False,
    flatten: bool = False,
    num_workers: int | None = None,
    step_timeout: float | None = STEP_TIMEOUT_S,
    name: str | None = None,
    **options: Any,
) -> HostEnv:
    """Turn a VMAS scenario into an environment whose games are simulated in batches on the CPU.

    Each process has one `vmas.make_env` environment for all its games. The agents are those of
    `env.agents`; all act at every step, and an episode ends for all at once. Numbers in infos are
    metrics. Observations that are dictionaries become vectors.

    An episode begins with `env.seed(...)` and `env.reset_at(...)`. VMAS draws chance within an
    episode for a whole batch at once, and games of a batch can influence each other; where trying
    the scenario out shows this, a warning says that episodes do not repeat.

    Args:
        scenario: a subclass of `BaseScenario`, an object of one, or a function that makes one.
        max_steps: the step at which an episode that goes on is truncated; None for no limit, like
            VMAS.
        continuous_actions: as in `vmas.make_env`: forces and messages are numbers, else choices.
        multidiscrete_actions: without continuous actions: one choice for each force and for the
            message, instead of one for all.
        flatten: show observations of several axes as vectors.
        num_workers: processes to step in; None for one per CPU core, 0 to step in this process.
        step_timeout: seconds that a step or a reset of a batch may take. One that takes longer is
            ended with its worker process, and what was learnt is saved. None for no limit.
        name: what to call it; None for the name of the class.
        **options: keyword arguments of the scenario, such as `n_agents=4`.

    Warns:
        UnrepeatableEnvironmentWarning: an episode differs when it is repeated.
        EndlessEnvironmentWarning: there is no limit, and no episode has come to its end.

    Raises:
        ValueError: If it is no scenario, cannot be made, or does not take an option.
    """
    check_step_timeout(step_timeout)
    check_horizon(max_steps, "max_steps")
    if multidiscrete_actions and continuous_actions:
        raise ValueError("multidiscrete_actions=True needs continuous_actions=False")
    if fixed := [key for key in _SET_HERE if key in options]:
        raise ValueError(
            f"{fixed[0]}={options[fixed[0]]!r} cannot be given: the adapter sets it; valid "
            f"options besides the scenario's are {', '.join(_OWN)}"
        )
    given = {
        "max_steps": max_steps,
        "continuous_actions": continuous_actions,
        "multidiscrete_actions": multidiscrete_actions,
    }
    make_scenario = _scenario_maker(scenario)
    make_batch = functools.partial(_make_batch, make_scenario, given, options, flatten)
    counter = itertools.count()
    name, game, found = try_game(
        lambda: TriedGame(make_batch(_TRIED), neighbours=next(counter)),
        num_workers,
        step_timeout,
        name,
    )
    repeats = found.repeats and not found.renews
    if not repeats:
        warn_of_chance(
            name,
            "VMAS draws chance for a whole batch, or games of a batch influence each other. Runs "
            "with the same seed still repeat, but a resumed one begins its episodes anew",
        )
    if max_steps is None and found.length is None:
        warnings.warn(
            f"environment {name!r} has no time limit, and no episode ended while it was tried out: "
            "without ends there are no returns to report; give max_steps=, such as 100",
            EndlessEnvironmentWarning,
            stacklevel=2,
        )
    return HostEnv(
        name,
        layout_of(game, found, max_steps),
        functools.partial(_make_found, make_batch, repeats, found.metrics),
        num_workers,
        step_timeout,
        in_batches=True,
    )


def _make_found(
    make_batch: Callable[[int], VmasBatch], repeats: bool, metrics: tuple[str, ...], num_games: int
) -> VmasBatch:
    batch = make_batch(num_games)
    batch.repeats, batch.metrics = repeats, metrics
    return batch


def _make_batch(
    make_scenario: Callable[[], Any],
    given: dict[str, Any],
    options: dict[str, Any],
    flatten: bool,
    num_games: int,
) -> VmasBatch:
    library, scenario = _vmas(), make_scenario()
    _seed_making()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            env = library.make_env(
                scenario, num_envs=num_games, terminated_truncated=True, seed=0, **given, **options
            )
        except Exception as error:
            shown = f" with {options}" if options else ""
            raise ValueError(
                f"VMAS cannot make {_name(scenario)!r}{shown}: {describe_error(error)}"
            ) from error
    for each in caught:
        if match := _UNUSED.match(str(each.message)):
            raise ValueError(
                f"scenario {_name(scenario)!r} does not take {match[1]}; valid options: "
                f"{', '.join([*_OWN, *_options_of(scenario)])}"
            )
        warnings.warn(each.message, stacklevel=2)
    return VmasBatch(env, flatten)


def _seed_making() -> None:
    """Seed the generators that all of VMAS shares, since worlds may draw as they are made."""
    torch, library = import_extra("torch", "vmas"), _vmas()
    states = library.simulator.environment.Environment.vmas_random_state
    states[:] = (
        torch.Generator().manual_seed(0).get_state(),
        np.random.RandomState(0).get_state(),
        random.Random(0).getstate(),
    )


def _scenario_maker(scenario: Any) -> Callable[[], Any]:
    """Return a function that makes a new object of a scenario."""
    base = _vmas().simulator.scenario.BaseScenario
    if isinstance(scenario, base):
        return functools.partial(copy.deepcopy, scenario)
    if not callable(scenario) or (isinstance(scenario, type) and not issubclass(scenario, base)):
        raise ValueError(
            f"scenario={scenario!r}: give a subclass of vmas.simulator.scenario.BaseScenario, an "
            'object of one, or a function that makes one; VMAS\'s own by make("vmas", env_id=...)'
        )
    return functools.partial(_checked, scenario, base)


def _checked(make_scenario: Callable[[], Any], base: type) -> Any:
    made = make_scenario()
    if not isinstance(made, base):
        raise ValueError(f"expected a function that makes a BaseScenario, but it made {made!r}")
    return made


def _load(env_id: str) -> Any:
    return import_extra("vmas.scenarios", "vmas").load(f"{env_id}.py").Scenario()


def _name(scenario: Any) -> str:
    """Name a scenario in messages: VMAS's own are all called Scenario, in files of their names."""
    name = type(scenario).__name__
    return Path(type(scenario).make_world.__code__.co_filename).stem if name == "Scenario" else name


def _options_of(scenario: Any) -> list[str]:
    """Find the names of a scenario's keyword arguments in its source."""
    found: list[str] = []
    for member in vars(type(scenario)).values():
        with contextlib.suppress(TypeError, OSError):  # it is no function, or has no source
            found += _OPTION.findall(inspect.getsource(member))
    return list(dict.fromkeys(found))


def _vmas() -> Any:
    import_extra("vmas.simulator.scenario", "vmas")
    return import_extra("vmas", "vmas")
