"""Candidate runs of a search, made from values of its space."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.annotations import field_metadata
from jaxmarl_ppo.config.checks import MAX_INT, show
from jaxmarl_ppo.config.env_as_json import params_from_json
from jaxmarl_ppo.config.keys import reject_unknown
from jaxmarl_ppo.config.paths import with_values
from jaxmarl_ppo.config.run_file import override
from jaxmarl_ppo.config.search import Choices, Space, corners
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.training.evaluate_meanwhile import MeanwhileEvaluator
from jaxmarl_ppo.training.objective import Measure, check_measure
from jaxmarl_ppo.types import PyTree

Values = Mapping[str, Any]  # by path; for choices their labels


@dataclass(frozen=True)
class Candidate:
    """A run that a search may try.

    Attributes:
        values: that it was made from.
        env_params: parameters of its environment.
        config: the run.
        learner: of the run.
    """

    values: Values
    env_params: PyTree
    config: TrainConfig
    learner: Learner


@dataclass(frozen=True, eq=False)
class Candidates:
    """Makes the runs of a search: a common base with the searched values.

    Attributes:
        env: the environment.
        env_params: its parameters, unless they are searched.
        config: the base.
        space: of the search; other settings stay as in the base.
    """

    env: MultiAgentEnv
    env_params: PyTree
    config: TrainConfig
    space: Space

    def make(self, values: Values) -> Candidate:
        """Make the run with these values.

        Raises:
            ValueError: If they are no valid configuration.
        """
        written = {
            path: self.space[path].value_of(value) if path in self.space else value
            for path, value in values.items()
        }
        tables = with_values({}, written)
        about_env = tables.pop("env", {})
        reject_unknown(about_env, ["params"], "what is searched of env")
        params = about_env.get("params", {})
        env_params = params_from_json(params, self.env_params, partial=True)
        # Runs are spread over devices, each on one of them.
        config = replace(override(self.config, tables), num_devices=1)
        learner = make_learner(self.env, env_params, config)
        if any(pool.spec.on_device is not None for pool in learner.players.pools):
            raise ValueError(
                "snapshots that do not all lie on the device (on_device) cannot be searched over; "
                "give the pool a size alone"
            )
        return Candidate(values, env_params, config, learner)

    def check(self) -> None:
        """Make the runs at the ends of the space, and reject it where one of them is invalid.

        Every end of every dimension is tried once with the first ends of all others, and all last
        ends together.

        Raises:
            ValueError: For the first invalid one, with its values.
        """
        ends = {
            path: dimension.labels if isinstance(dimension, Choices) else dimension.ends
            for path, dimension in self.space.items()
        }
        checked = set[tuple[str, ...]]()
        for values in corners(ends):
            try:
                candidate = self.make(values)
                learner, run = candidate.learner, candidate.config
                evaluates = run.evaluation.every_env_steps is not None
                evaluator = MeanwhileEvaluator(learner, run) if evaluates else None
                Measure(run.objective.measure, learner)
                if learner.players.policies not in checked:
                    check_measure(run.objective.measure, learner, evaluator)
                checked.add(learner.players.policies)
            except ValueError as error:
                said = ", ".join(f"{path} = {show(value)}" for path, value in values.items())
                raise ValueError(f"the search can reach {said}, where {error}") from error


def check_trials(env: MultiAgentEnv, config: TrainConfig) -> None:
    """Reject a configuration that trials cannot share.

    Raises:
        ValueError: If something is impossible or would have no effect.
    """
    for part, prefix in ((config, ""), (config.objective, "objective.")):
        for name, metadata in field_metadata(type(part)).items():
            instead = metadata.in_search
            if instead and getattr(part, name) != getattr(type(part)(), name):
                raise ValueError(f"{prefix}{name} has no effect in a search: {instead}")
    if config.log_interval is not None and config.evaluation.every_env_steps is not None:
        raise ValueError(
            "log_interval has no effect in a search that evaluates: the log has an entry for every "
            "evaluation; drop it"
        )
    if config.total_env_steps > MAX_INT:
        raise ValueError(
            f"total_env_steps={config.total_env_steps} of a trial must be at most {MAX_INT}"
        )
    if env.steps_on_host:
        raise ValueError(
            f"environment {env.name!r} is stepped in Python, where runs cannot train side by side; "
            "search with an environment in JAX"
        )
