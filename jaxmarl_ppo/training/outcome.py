"""Files that a run writes at its end: policies, curve and report."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.as_json import network_kind
from jaxmarl_ppo.config.env_as_json import params_to_json
from jaxmarl_ppo.config.printing import print_settings
from jaxmarl_ppo.config.run_file import Settings
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.files import write_atomically
from jaxmarl_ppo.pages.report import REPORT_FILE, describe_group, describe_runs, report_page
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs.callbacks import TrainResult
from jaxmarl_ppo.runs.curve import plot_curve
from jaxmarl_ppo.runs.files import BEST_FILE, CURVE_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.lineage import Event, config_of
from jaxmarl_ppo.runs.status import record_end
from jaxmarl_ppo.types import Population


@dataclass(frozen=True)
class Logged:
    """Holds the records of a run.

    Attributes:
        run_dir: its folder.
        config: its configuration.
        record: the content of its `config.json`.
        history: entries of its log.
        evaluations: its evaluations.
        lineage: how members of a group with population-based training descended from each other.
    """

    run_dir: Path
    config: TrainConfig
    record: Mapping[str, Any]
    history: Sequence[Mapping[str, Any]]
    evaluations: Sequence[Mapping[str, Any]]
    lineage: Sequence[Event] = ()

    @property
    def both(self) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
        """Entries and evaluations."""
        return self.history, self.evaluations


def name_of_run(env: MultiAgentEnv, config: TrainConfig) -> str:
    """Name a run by its environment and its network."""
    return f"{env.name}-{network_kind(config.default_policy.network)}"


def save_run(
    learner: Learner, last_finite: Population, logged: Logged, result: TrainResult
) -> None:
    """Save the newest finite policies, how the run ended, the curve and the report."""
    save_population(logged.run_dir / POLICIES_FILE, learner.players.names, last_finite)
    status = record_end(result)
    _plot(learner, logged, f"seed {logged.config.seed}", result.interrupted)
    described = describe_runs([str(logged.run_dir)], [logged.record], [logged.both], [status])
    report_page(described).save(logged.run_dir / REPORT_FILE)


def save_group(
    learner: Learner, logged: Logged, members: Sequence[Logged], result: TrainResult
) -> None:
    """Save how a group ended, its curve and its report; its members save their own policies."""
    status = record_end(result)
    first, last = logged.config.seed, logged.config.seed + logged.config.num_seeds - 1
    _plot(learner, logged, f"seeds {first} to {last}", result.interrupted)
    described = describe_group(
        logged.both,
        [member.run_dir.name for member in members],
        [member.record for member in members],
        [member.both for member in members],
        logged.lineage,
        status,
        result.stopped_members,
    )
    report_page(described).save(logged.run_dir / REPORT_FILE)


def save_best(learner: Learner, logged: Logged, config: TrainConfig, member: str) -> None:
    """Save the hyper-parameter schedule of a member as the file of a run with it.

    Args:
        learner: of the group.
        logged: of the group, with its lineage.
        config: of that run, without those numbers.
        member: the name of the best member.
    """
    made = learner.env.made_as
    if made is None:  # it cannot be described in a file
        return
    name, kwargs = made
    settings = Settings(name, None, config_of(config, logged.lineage, member), kwargs)
    text = print_settings(settings, params_to_json(learner.env_params), "toml")
    write_atomically(logged.run_dir / BEST_FILE, text.encode())


def _plot(learner: Learner, logged: Logged, which: str, stopped: bool) -> None:
    title = f"{name_of_run(learner.env, logged.config)}, {which}" + (", stopped" if stopped else "")
    plot_curve(logged.history, learner.env.agents, title, logged.run_dir / CURVE_FILE)
