"""Numbers that change during a run: by the stages of its curriculum, and by callbacks."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.changing import changing_path, is_env_param
from jaxmarl_ppo.config.checks import show
from jaxmarl_ppo.config.conditions import Condition, parse_condition
from jaxmarl_ppo.config.curriculum import Number, check_changing_value, paths_of
from jaxmarl_ppo.config.keys import reject_unknown
from jaxmarl_ppo.config.paths import join_path, split_path, value_at
from jaxmarl_ppo.config.train import TrainConfig, check_changes, with_ppo_values
from jaxmarl_ppo.devices.compiled_runs import OwnHyperparams, hyperparams_of
from jaxmarl_ppo.learner.build import make_learner, without_loads
from jaxmarl_ppo.learner.env_params import parameters, with_parameters
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.training.conditions import Watched
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.types import PolicyGroupTraining, PyTree, TrainState

Values = Mapping[str, Number]  # by full path


class Changing:
    """What can change during a run, and how.

    Args:
        learner: of the run, with the numbers that it has without changes.
        config: of the run or group.
        alone: of the run, or of the first run of the group.
        evaluator: of the run; None where nothing is evaluated.
        check_env: raises a `ValueError` for an environment whose parameters are invalid; None to
            leave that out.

    Raises:
        ValueError: If a stage of the curriculum has a number that the environment or the run does
            not have, or a condition is on one that is not reported.
    """

    def __init__(
        self,
        learner: Learner,
        config: TrainConfig,
        alone: TrainConfig,
        evaluator: MeanwhileEvaluator | None,
        check_env: Callable[[MultiAgentEnv, PyTree], None] | None,
    ) -> None:
        self._check_env = check_env
        self.stages = config.curriculum
        self._learner, self._config, self._alone = learner, config, alone
        fields = [
            (f"curriculum[{index}].{name}", parse_condition(text))
            for index, stage in enumerate(self.stages)
            for name, text in stage.conditions.items()
        ]
        # Without seconds and the like, so that a run can be repeated.
        self.watched = Watched(fields, learner, evaluator, config, by_clock=False, of_seeds=False)
        for index, stage in enumerate(self.stages):
            field = f"curriculum[{index}].values"
            for path, value in stage.values.items():
                self._check_value(field, path, value)
            self._check_spaces(field, stage.values)

    def check(self, path: str, value: Any) -> tuple[str, Number]:
        """Return the full path of a number that a callback changes, and its new value.

        Raises:
            ValueError: If the number cannot change, cannot have this value, or is one that the
                curriculum changes.
        """
        full = join_path(changing_path("a change", path))
        value = check_changing_value(full, value)
        check_changes("a change", full, self._config)
        if full in paths_of(self.stages):
            raise ValueError(
                f"{full} belongs to the curriculum, and a callback must not change it; take it out "
                "of the stages' values"
            )
        self._check_value("a change", full, value)
        self._check_spaces("a change", {full: value})
        return full, value

    def env_params(self, values: Values) -> PyTree:
        """Return the environment's parameters with some values."""
        given = self._learner.env_params
        tables, changes = parameters(given), {}
        for path, value in values.items():
            name = _env_param(path)
            if name is not None:
                # Of the same type, which the compiled program depends on.
                leaf = tables[name]
                is_plain = isinstance(leaf, bool | int | float)
                changes[name] = type(leaf)(value) if is_plain else np.asarray(value, leaf.dtype)
        return with_parameters(given, changes)

    def hyperparams(self, values: Values) -> OwnHyperparams:
        """Return the hyper-parameters of all policy groups with some values."""
        return hyperparams_with(self._learner, with_ppo_values(self._alone, values))

    def changed(self, state: TrainState, values: Values) -> TrainState:
        """Return a state of training with some values, and the configured ones of all others."""
        state = state.replace(
            env_params=jax.tree.map(_in_place_of, state.env_params, self.env_params(values))
        )
        if all(_env_param(path) for path in (*values, *paths_of(self.stages))):
            return state
        training = with_hyperparams(state.training, self.hyperparams(values))
        placed = tuple(
            old.replace(hyperparams=jax.tree.map(_in_place_of, old.hyperparams, new.hyperparams))
            for old, new in zip(state.training, training, strict=True)
        )
        return state.replace(training=placed)

    def _check_value(self, field: str, path: str, value: Number) -> None:
        """Reject a value that nothing takes, or that is of another type."""
        name = _env_param(path)
        if name is None:
            self._check_effect(field, path, value)
            return
        found = parameters(self._learner.env_params)
        if name in found and np.ndim(found[name]):
            raise ValueError(f"{field}: {path} is an array, and only single numbers can change")
        dtypes = {key: jnp.result_type(leaf) for key, leaf in found.items() if not np.ndim(leaf)}
        valid = {key: _valid(dtype) for key, dtype in dtypes.items() if _valid(dtype) is not None}
        reject_unknown([name], valid or ["none"], f"{field}: env.params")
        if not _fits(value, dtypes[name]):
            raise ValueError(f"{field}.{path} must be {valid[name]}, got {show(value)}")

    def _check_effect(self, field: str, path: str, value: Number) -> None:
        """Reject a hyper-parameter that no policy of the run has."""
        configured = value_at(self._config, split_path(path))
        other = {path: value} if value != configured else {}
        leaves = jax.tree.leaves(self.hyperparams(other)), jax.tree.leaves(self.hyperparams({}))
        if other and all(np.array_equal(x, y) for x, y in zip(*leaves, strict=True)):
            raise ValueError(
                f"{field}.{path} has no effect: all trained policies have a ppo of their own; name "
                "policies.POLICY.ppo"
            )

    def _check_spaces(self, field: str, values: Values) -> None:
        """Reject parameters with which the environment is invalid, or has other spaces."""
        if all(_env_param(path) is None for path in values):
            return
        env, params = self._learner.env, self.env_params(values)
        if self._check_env is not None:
            self._check_env(env, params)
        for agent in env.agents:
            for space in (env.action_space, env.observation_space):
                was, now = repr(space(agent, self._learner.env_params)), repr(space(agent, params))
                if was != now:
                    raise ValueError(
                        f"{field} changes the {space.__name__} of {agent} from {was} to {now}, and "
                        "networks are made for the former; make it the same for all stages"
                    )


def _env_param(path: str) -> str | None:
    """Return the name of the environment's parameter at a full path; None if it is of another."""
    parts = split_path(path)
    return ".".join(parts[2:]) if is_env_param(parts) else None


def _valid(dtype: Any) -> str | None:
    """Describe the values of a parameter of a type; None for one that cannot change."""
    if dtype == jnp.bool_:
        return "true or false"
    if jnp.issubdtype(dtype, jnp.integer):
        limits = jnp.iinfo(dtype)
        return f"a whole number from {limits.min} to {limits.max}"
    return "a number" if jnp.issubdtype(dtype, jnp.floating) else None


def _fits(value: Number, dtype: Any) -> bool:
    """Return whether a parameter of a type can have a value."""
    if isinstance(value, bool) or dtype == jnp.bool_:
        return isinstance(value, bool) and dtype == jnp.bool_
    if not jnp.issubdtype(dtype, jnp.integer):
        return True
    limits = jnp.iinfo(dtype)
    return float(value).is_integer() and limits.min <= value <= limits.max


class InForce:
    """The numbers of one run that are in force now.

    Args:
        changing: what can change.
        recorded: `as_json` of an earlier moment; None for a new run.

    Raises:
        ValueError: If the record does not fit the curriculum.
    """

    def __init__(self, changing: Changing, recorded: Mapping[str, Any] | None = None) -> None:
        self._changing = changing
        self._stage: int = 0
        self._since: int = 0  # environment steps at which the stage began
        self._logged: int = 0  # those up to the newest entry of the log
        self._set: dict[str, Number] = {}  # by callbacks
        self._set_by: list[str] = []  # names of these callbacks
        if recorded is not None:
            self._stage, self._since = recorded["stage"], recorded["since"]
            self._logged = recorded["logged"]
            self._set = dict(changing.check(*each) for each in recorded["values"].items())
            self._set_by = list(recorded["set_by"])
            if self._stage >= max(1, len(changing.stages)):
                raise ValueError(
                    f"the checkpoint is of stage {self._stage}, but the curriculum has "
                    f"{len(changing.stages)} stages"
                )

    @property
    def values(self) -> dict[str, Number]:
        """Return the values that differ from the configuration, by path."""
        stages = self._changing.stages
        return {**(stages[self._stage].values if stages else {}), **self._set}

    @property
    def env_params(self) -> PyTree:
        """Return the environment's parameters with these values."""
        return self._changing.env_params(self.values)

    def as_json(self) -> dict[str, Any] | None:
        """Return what a checkpoint needs to know; None where nothing changes."""
        if not self._changing.stages and not self._set:
            return None
        return {
            "stage": self._stage,
            "since": self._since,
            "logged": self._logged,
            "values": dict(self._set),
            "set_by": list(self._set_by),
        }

    def for_entry(self) -> dict[str, Any]:
        """Return what an entry of the log says of these numbers."""
        result: dict[str, Any] = {}
        if self._changing.stages:
            result["curriculum"] = {"stage": self._stage}
        if self.values:
            result["values"] = self.values
        return result

    def see_entry(self, entry: Mapping[str, Any]) -> bool:
        """Begin another stage if an entry of the log asks for it; return whether it does.

        An entry whose interval began in an earlier stage has no say.
        """
        is_of_stage = self._logged >= self._since
        self._logged = entry["env_steps"]
        found = self._changing.watched.in_entry(entry) if is_of_stage else {}
        return self._see(found, entry["env_steps"])

    def see_evaluation(self, report: Mapping[str, Any]) -> bool:
        """Begin another stage if an evaluation asks for it; return whether it does."""
        return self._see(self._changing.watched.in_evaluation(report), report["env_steps"])

    def set(self, values: Values, set_by: Sequence[str]) -> None:
        """Take over values from callbacks of these names."""
        self._set.update(values)
        self._set_by += [name for name in set_by if name not in self._set_by]

    def copy_stage(self, other: Self) -> None:
        """Be at the stage of another run."""
        self._stage, self._since = other._stage, other._since

    def changed(self, state: TrainState) -> TrainState:
        """Return a state of training with these values."""
        return self._changing.changed(state, self.values)

    def _see(self, found: Mapping[Condition, float], env_steps: int) -> bool:
        stages, steps = self._changing.stages, env_steps - self._since
        # A stage lasts at least until the entry or evaluation after the one that began it.
        if not stages or steps == 0:
            return False
        stage = stages[self._stage]
        is_over = stage.max_env_steps is not None and steps >= stage.max_env_steps
        is_long_enough = steps >= stage.min_env_steps
        if is_over or (is_long_enough and _holds(stage.advance_when, found)):
            self._stage += 1
        elif is_long_enough and _holds(stage.return_when, found):
            self._stage -= 1
        else:
            return False
        self._since = env_steps
        return True


def _holds(text: str | None, found: Mapping[Condition, float]) -> bool:
    """Return whether there is a condition that holds for the numbers found."""
    condition = None if text is None else parse_condition(text)
    return condition is not None and condition in found and condition.holds(found[condition])


def hyperparams_with(learner: Learner, config: TrainConfig) -> OwnHyperparams:
    """Make the numeric hyper-parameters of a configuration for a learner's runs."""
    own = make_learner(learner.env, learner.env_params, without_loads(config), strict=False)
    return hyperparams_of(own)


def with_hyperparams(
    training: tuple[PolicyGroupTraining, ...], own: OwnHyperparams
) -> tuple[PolicyGroupTraining, ...]:
    """Replace the hyper-parameters of policy groups, except the weights that training adapts."""
    return tuple(
        group.replace(hyperparams=new.replace(kl_coef=group.hyperparams.kl_coef))
        for group, new in zip(training, own, strict=True)
    )


def _in_place_of(old: jax.Array | np.ndarray, new: Any) -> jax.Array:
    """Put numbers where others are: on their devices, or wherever JAX likes as they are."""
    new = np.asarray(new, old.dtype)
    if isinstance(old, jax.Array) and old.committed:
        return jax.device_put(new, old.sharding)
    return jnp.asarray(new)
