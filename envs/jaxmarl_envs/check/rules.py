"""The rules that `check_env` asks of an environment.

A rule is a small function with the words of its complaint. The list that its decorator names says
when it is asked:

* `DECLARED`: about names, spaces and parameters, before anything runs.
* `TRACED`: about the structure, shapes and dtypes that `reset_env` and `step_env` return.
* `OBSERVED`, `BEGUN`: about every observation, about the first observation of every episode.
* `STEPPED`: about every step.
* `HARMLESS`: those of `OBSERVED` whose breach training does not suffer from.

Rules of the first two lists yield what is wrong, in words that can follow "environment 'x', ". The
others see NumPy arrays with a leading axis `E` and return a `Violation`: where the rule is broken,
what stands there, and what was expected. To add a rule, write one such function. What takes a
second run, such as the same key twice, is in `run`.
"""

import inspect
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.check.types import (
    STEP_FIELDS,
    Observed,
    Spec,
    TimeStep,
    Trace,
    Violation,
    describe,
)
from jaxmarl_envs.core import MEASURES, MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple

DECLARED: list[Callable[[MultiAgentEnv, Any], Iterator[str]]] = []
TRACED: list[Callable[[Spec, Trace], Iterator[str]]] = []
OBSERVED: list[Callable[[Spec, Observed], Violation]] = []
BEGUN: list[Callable[[Spec, Observed], Violation]] = []
STEPPED: list[Callable[[Spec, TimeStep], Violation | None]] = []
HARMLESS: list[Callable[[Spec, Observed], Violation]] = []

Rule = TypeVar("Rule", bound=Callable[..., Any])


def rule(asked: list[Rule]) -> Callable[[Rule], Rule]:
    """Add a rule to a list of those that are asked together, such as `STEPPED`."""

    def add(function: Rule) -> Rule:
        asked.append(function)
        return function

    return add


# ---- What an environment declares ----------------------------------------------------------------


@rule(DECLARED)
def _names(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    agents = getattr(env, "agents", None)
    if not isinstance(getattr(env, "name", None), str):
        yield f"name is {getattr(env, 'name', None)!r}, expected a string"
    elif not isinstance(agents, tuple) or not agents or not all(type(a) is str for a in agents):
        yield f"agents is {agents!r}, expected a tuple of at least one string"
    elif not all(agents):
        yield f"agents is {agents!r}, expected names, but one is empty"
    elif len(set(agents)) < len(agents):
        twice = next(agent for agent in agents if agents.count(agent) > 1)
        yield f"agents is {agents!r}, expected unique names, but {twice!r} is there twice"


@rule(DECLARED)
def _params_are_numbers(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    for path, leaf in jax.tree_util.tree_leaves_with_path(params):
        if not isinstance(leaf, bool | int | float | np.generic | np.ndarray | jax.Array):
            yield (
                f"params{jax.tree_util.keystr(path)} is {leaf!r}, expected a number or an array "
                "(structure belongs to the constructor of the environment)"
            )


@rule(DECLARED)
def _observation_space(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    rank = None
    for agent in env.agents:
        space = env.observation_space(agent, params)
        if not isinstance(space, Box):
            yield (
                f"agent {agent!r}: observation_space is {space!r} of {_module(space)}, expected a "
                "Box of jaxmarl_envs"
            )
            continue
        rank = rank or len(space.shape)
        if not space.shape or len(space.shape) != rank:
            yield (
                f"agent {agent!r}: observation_space has shape {space.shape}, expected at least "
                "one dimension and as many as for every other agent"
            )


@rule(DECLARED)
def _action_space(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    for agent in env.agents:
        space = env.action_space(agent, params)
        if isinstance(space, Box) and len(space.shape) != 1:
            yield (
                f"agent {agent!r}: action_space has shape {space.shape}, expected one dimension "
                "with at least one element"
            )
        for fault in _action_faults(space):
            yield f"agent {agent!r}: action_space {fault}"


def _action_faults(space: Any) -> Iterator[str]:
    if isinstance(space, Tuple):
        for part in space.spaces:
            yield from _action_faults(part)
    elif isinstance(space, Box):
        if not space.size:
            yield f"has shape {space.shape}, expected at least one element"
    elif not isinstance(space, Discrete | MultiDiscrete):
        yield (
            f"is {space!r} of {_module(space)}, expected a Discrete, a MultiDiscrete, a Box or a "
            "Tuple of them, of jaxmarl_envs"
        )


def _module(value: object) -> str:
    return type(value).__module__.split(".")[0]


@rule(DECLARED)
def _max_actors(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    if not isinstance(env.max_actors, int) or not 1 <= env.max_actors <= len(env.agents):
        yield f"max_actors is {env.max_actors!r}, expected an integer from 1 to {len(env.agents)}"


@rule(DECLARED)
def _horizon(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    horizon = env.horizon(params)
    if horizon is not None and (np.shape(horizon) != () or not horizon >= 1):
        yield f"horizon is {horizon!r}, expected None or a number of steps of at least 1"


@rule(DECLARED)
def _drawing(env: MultiAgentEnv, params: Any) -> Iterator[str]:
    # Drawn after training only, when an error would come too late.
    for name, arguments in (("render", "state, params, last_action"), ("sign", "agent")):
        signature = inspect.signature(getattr(env, name))
        try:
            signature.bind(*arguments.split(", "))
        except TypeError:
            yield f"{name} takes {signature}, expected ({arguments})"


# ---- What the functions return: structure, shapes, dtypes ----------------------------------------


@rule(TRACED)
def _observation_layout(spec: Spec, trace: Trace) -> Iterator[str]:
    yield from _observation_faults(spec, "reset_env: obs", trace.reset[0])
    yield from _observation_faults(spec, "step_env: obs", trace.step[0])


@rule(TRACED)
def _same_layout_after_every_step(spec: Spec, trace: Trace) -> Iterator[str]:
    # `lax.scan` wants this; a weak type that changes costs a second compilation.
    for field, began, stepped in zip(("obs", "state"), trace.reset, trace.step[:2], strict=True):
        before, after = (
            {field + jax.tree_util.keystr(path): describe(leaf) for path, leaf in leaves}
            for leaves in map(jax.tree_util.tree_leaves_with_path, (began, stepped))
        )
        for path in [*before, *(path for path in after if path not in before)]:
            one, two = before.get(path, "missing"), after.get(path, "missing")
            if one != two:
                yield f"{path} is {one} after reset_env and {two} after step_env, expected the same"
        if jax.tree.structure(began) != jax.tree.structure(stepped):
            yield (
                f"{field} is {describe(began)} after reset_env and {describe(stepped)} after "
                "step_env, expected the same structure"
            )


@rule(TRACED)
def _step_layout(spec: Spec, trace: Trace) -> Iterator[str]:
    shape = (len(spec.env.agents),)
    for name, dtype in (("reward", jnp.floating), ("terminated", bool), ("truncated", bool)):
        value = trace.step[STEP_FIELDS.index(name)]
        yield from _array_faults(f"step_env: {name}", value, shape, dtype)


@rule(TRACED)
def _info_layout(spec: Spec, trace: Trace) -> Iterator[str]:
    info = trace.step[STEP_FIELDS.index("info")]
    if not isinstance(info, dict):
        yield f"step_env: info is {describe(info)}, expected a dict"
        return
    metrics = info.get("metrics", {})
    if not isinstance(metrics, dict):
        yield f"step_env: info['metrics'] is {describe(metrics)}, expected a dict"
        return
    for name, value in metrics.items():
        if not isinstance(name, str) or not name or name in MEASURES:
            yield (
                f"step_env: info['metrics'] has the key {name!r}, expected a name, but none of "
                f"those that logs have of every environment: {', '.join(sorted(MEASURES))}"
            )
        field = f"step_env: info['metrics'][{name!r}]"
        yield from _array_faults(field, value, (len(spec.env.agents),), jnp.floating)
    if "final_observation" in info:
        field = "step_env: info['final_observation']"
        yield from _observation_faults(spec, field, info["final_observation"])


def _observation_faults(spec: Spec, field: str, obs: Any) -> Iterator[str]:
    if not isinstance(obs, Observation):
        yield f"{field} is {describe(obs)}, expected an Observation"
        return
    features, actions, agents = (
        spec.features[0].shape,
        spec.layout.exists.shape,
        spec.env.num_agents,
    )
    yield from _array_faults(f"{field}.features", obs.features, features, jnp.floating)
    yield from _array_faults(f"{field}.action_mask", obs.action_mask, actions, bool)
    yield from _array_faults(f"{field}.alive", obs.alive, (agents,), bool)
    yield from _array_faults(f"{field}.agent_mask", obs.agent_mask, (agents,), bool)


def _array_faults(field: str, value: Any, shape: tuple[int, ...], dtype: Any) -> Iterator[str]:
    kind = "bool" if dtype is bool else "float"
    if getattr(value, "shape", None) != shape or not jnp.issubdtype(value.dtype, dtype):
        yield f"{field} is {describe(value)}, expected {kind}{list(shape)}"


# ---- What stands in an observation ---------------------------------------------------------------


@rule(OBSERVED)
def _features_are_finite(spec: Spec, obs: Observed) -> Violation:
    broken = ~np.isfinite(obs.features)
    return Violation("obs.features", broken, obs.features, "a finite number")


@rule(OBSERVED)
def _features_are_padded_with_zeros(spec: Spec, obs: Observed) -> Violation:
    broken = (obs.features != 0) & ~spec.features[0]
    return Violation(
        "obs.features", broken, obs.features, "0 beyond the agent's own observation_space"
    )


@rule(HARMLESS)
@rule(OBSERVED)
def _features_are_in_their_space(spec: Spec, obs: Observed) -> Violation:
    own, low, high = spec.features
    slack = 1e-5 * np.maximum(1.0, np.abs(obs.features))
    inside = (obs.features >= low - slack) & (obs.features <= high + slack)
    alive = obs.alive.reshape(obs.alive.shape + (1,) * (own.ndim - 1))
    expected = "a value within the bounds of the agent's observation_space"
    return Violation("obs.features", ~inside & own & alive, obs.features, expected)


@rule(OBSERVED)
def _an_action_is_legal(spec: Spec, obs: Observed) -> Violation:
    broken = ~spec.layout.all_legal(obs.action_mask)
    several = "" if spec.layout.is_choice or spec.layout.is_numbers else " for every choice"
    expected = f"at least one True{several}, also where the agent does not act"
    return Violation("obs.action_mask", np.asarray(broken), obs.action_mask, expected)


@rule(OBSERVED)
def _only_own_actions_are_legal(spec: Spec, obs: Observed) -> Violation:
    broken = obs.action_mask & ~spec.layout.exists
    return Violation(
        "obs.action_mask", broken, obs.action_mask, "False beyond the agent's own action_space"
    )


@rule(OBSERVED)
def _own_numbers_exist(spec: Spec, obs: Observed) -> Violation:
    number = np.arange(spec.layout.width) >= spec.layout.starts[-1]
    broken = ~obs.action_mask & spec.layout.exists & number
    return Violation(
        "obs.action_mask", broken, obs.action_mask, "True, because the agent has this number"
    )


@rule(OBSERVED)
def _who_acts_is_alive(spec: Spec, obs: Observed) -> Violation:
    broken = obs.agent_mask & ~obs.alive
    return Violation(
        "obs.agent_mask", broken, obs.agent_mask, "False, because alive is False in this slot"
    )


@rule(OBSERVED)
def _no_more_act_than_declared(spec: Spec, obs: Observed) -> Violation:
    broken = obs.agent_mask.sum(-1) > spec.env.max_actors
    expected = f"at most max_actors={spec.env.max_actors} slots to be True"
    return Violation("obs.agent_mask", broken, obs.agent_mask, expected)


@rule(BEGUN)
def _somebody_lives_at_the_start(spec: Spec, obs: Observed) -> Violation:
    expected = "at least one True at the start of an episode"
    return Violation("obs.alive", obs.over, obs.alive, expected)


# ---- What happens at a step ----------------------------------------------------------------------


@rule(STEPPED)
def _rewards_are_finite(spec: Spec, time_step: TimeStep) -> Violation:
    return Violation("reward", ~np.isfinite(time_step.reward), time_step.reward, "a finite number")


@rule(STEPPED)
def _nobody_earns_nothing(spec: Spec, time_step: TimeStep) -> Violation:
    broken = (time_step.reward != 0) & ~time_step.before.alive
    return Violation(
        "reward",
        broken,
        time_step.reward,
        "exactly 0, because the slot held nobody before this step",
    )


@rule(STEPPED)
def _only_lives_terminate(spec: Spec, time_step: TimeStep) -> Violation:
    broken = time_step.terminated & ~time_step.before.alive
    expected = "False, because the slot held nobody before this step"
    return Violation("terminated", broken, time_step.terminated, expected)


@rule(STEPPED)
def _only_lives_are_truncated(spec: Spec, time_step: TimeStep) -> Violation:
    broken = time_step.truncated & ~time_step.before.alive
    expected = "False, because the slot held nobody before this step"
    return Violation("truncated", broken, time_step.truncated, expected)


@rule(STEPPED)
def _lives_end_with_an_edge(spec: Spec, time_step: TimeStep) -> Violation:
    broken = time_step.before.alive & ~time_step.obs.alive & ~time_step.edge
    expected = "True, because the agent was alive and is neither terminated nor truncated"
    return Violation("obs.alive", broken, time_step.obs.alive, expected)


@rule(STEPPED)
def _rebirths_keep_the_final_observation(spec: Spec, time_step: TimeStep) -> Violation:
    reborn = time_step.edge & time_step.obs.alive
    broken = reborn & (time_step.final is None)
    expected = (
        "False, because the agent's life ended at this step and info['final_observation'] does "
        "not hold its last observation, as it must where a slot is reborn at once"
    )
    return Violation("obs.alive", broken, time_step.obs.alive, expected)


@rule(STEPPED)
def _final_features_are_finite(spec: Spec, time_step: TimeStep) -> Violation:
    features = (time_step.final or time_step.obs).features
    field = "info['final_observation'].features"
    return Violation(field, ~np.isfinite(features), features, "a finite number")


@rule(STEPPED)
def _metrics_are_finite(spec: Spec, time_step: TimeStep) -> Violation | None:
    for name, value in time_step.metrics.items():
        if not np.isfinite(value).all():
            field = f"info['metrics'][{name!r}]"
            return Violation(field, ~np.isfinite(value), value, "a finite number")
    return None


@rule(STEPPED)
def _episodes_end_by_their_horizon(spec: Spec, time_step: TimeStep) -> Violation | None:
    if spec.horizon is None:
        return None
    broken = (time_step.time >= spec.horizon) & ~time_step.obs.over
    expected = f"all False, because horizon is {spec.horizon}"
    return Violation("obs.alive", broken, time_step.obs.alive, expected)
