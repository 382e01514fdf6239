"""Numbers that change while a run goes on: by the stages of its curriculum, and by callbacks."""

from collections.abc import Mapping, Sequence
from typing import Any, Self

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_ppo.config.changing import changing_path, is_env_param
from jaxmarl_ppo.config.checks import MAX_INT, show
from jaxmarl_ppo.config.conditions import parse_condition
from jaxmarl_ppo.config.curriculum import Number, check_changing_value, paths_of
from jaxmarl_ppo.config.keys import refuse_unknown
from jaxmarl_ppo.config.paths import join_path, split_path
from jaxmarl_ppo.config.train import TrainConfig, check_changes, with_ppo_values
from jaxmarl_ppo.devices.members import OwnHyperparams, hyperparams_of
from jaxmarl_ppo.learner.build import make_learner, without_loads
from jaxmarl_ppo.learner.env_params import parameters, with_parameters
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.training.conditions import Watched
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.types import PyTree, TrainState

Values = Mapping[str, Number]  # by full path


class Changing:
    """What can change during a run, and how.

    Args:
        learner: of the run, with the numbers that it has without changes.
        config: of the run or group.
        alone: of the run, or of the first run of the group.
        evaluator: of the run; None where nothing is evaluated.

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
    ) -> None:
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
            for path, value in stage.values.items():
                self._check_env_param(f"curriculum[{index}].values", path, value)

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
        self._check_env_param("a change", full, value)
        with_ppo_values(self._config, {full: value})
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
        training = tuple(
            group.replace(
                hyperparams=jax.tree.map(
                    _in_place_of, group.hyperparams, new.replace(kl_coef=group.hyperparams.kl_coef)
                )
            )
            for group, new in zip(state.training, self.hyperparams(values), strict=True)
        )
        return state.replace(training=training)

    def _check_env_param(self, field: str, path: str, value: Number) -> None:
        """Reject a value of an environment's parameter that there is not, or is of another type."""
        name = _env_param(path)
        if name is None:
            return
        all_of_them = parameters(self._learner.env_params)
        kinds = {key: _kind(leaf) for key, leaf in all_of_them.items() if np.ndim(leaf) == 0}
        kinds = {key: kind for key, kind in kinds.items() if kind is not None}
        refuse_unknown([name], kinds, f"{field}: env.params")
        if isinstance(value, bool) != (kinds[name] is bool):
            fits = False
        else:
            fits = kinds[name] is not int or (float(value).is_integer() and abs(value) <= MAX_INT)
        if not fits:
            valid = {bool: "true or false", int: "a whole number of 32 bits", float: "a number"}
            raise ValueError(f"{field}.{path} must be {valid[kinds[name]]}, got {show(value)}")


def _env_param(path: str) -> str | None:
    """Return the name of the environment's parameter at a full path; None if it is of another."""
    parts = split_path(path)
    return ".".join(parts[2:]) if is_env_param(parts) else None


def _kind(leaf: Any) -> type | None:
    """Return whether a parameter is a `bool`, an `int` or a `float`; None for anything else."""
    dtype = jnp.result_type(leaf)
    kinds = {bool: jnp.bool_, int: jnp.integer, float: jnp.floating}
    return next((kind for kind, each in kinds.items() if jnp.issubdtype(dtype, each)), None)


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
        self._set: dict[str, Number] = {}  # by callbacks
        self._set_by: list[str] = []  # names of these callbacks
        if recorded is not None:
            self._stage, self._since = recorded["stage"], recorded["since"]
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
        """Begin another stage if an entry of the log asks for it; return whether it does."""
        return self._see(self._changing.watched.in_entry(entry), entry["env_steps"])

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

    def _see(self, found: Mapping[Any, float], env_steps: int) -> bool:
        stages, steps = self._changing.stages, env_steps - self._since
        # A stage lasts at least until the entry or evaluation after the one that began it.
        if not stages or steps == 0:
            return False
        stage, move = stages[self._stage], 0
        if steps >= stage.min_env_steps:
            for text, direction in ((stage.return_when, -1), (stage.advance_when, 1)):
                condition = None if text is None else parse_condition(text)
                if condition is not None and condition in found:
                    move = direction if condition.holds(found[condition]) else move
        if move == 0 and stage.max_env_steps is not None and steps >= stage.max_env_steps:
            move = 1
        if move:
            self._stage, self._since = self._stage + move, env_steps
        return move != 0


def hyperparams_with(learner: Learner, config: TrainConfig) -> OwnHyperparams:
    """Make the numeric hyper-parameters of a configuration for a learner's runs."""
    own = make_learner(learner.env, learner.env_params, without_loads(config), strict=False)
    return hyperparams_of(own)


def _in_place_of(old: jax.Array | np.ndarray, new: Any) -> jax.Array:
    """Put numbers where others are: on their devices, or wherever JAX likes as they are."""
    new = np.asarray(new, old.dtype)
    if isinstance(old, jax.Array) and old.committed:
        return jax.device_put(new, old.sharding)
    return jnp.asarray(new)
