"""Evaluation of trained policies: returns of fresh episodes, and the scenario's own measures.

>>> report = evaluate_run("runs/tic_tac_toe")
>>> print(format_report(report))
"""

import dataclasses
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_code import host_errors
from jaxmarl_ppo.evaluation.cross_play import cross_play
from jaxmarl_ppo.evaluation.episodes import (
    EpisodeTotals,
    check_learner,
    check_num_episodes,
    play_episodes,
)
from jaxmarl_ppo.evaluation.recording import record_episodes
from jaxmarl_ppo.evaluation.scenarios.base import Evaluation, Report
from jaxmarl_ppo.evaluation.scenarios.registry import check_exact, find_scenario
from jaxmarl_ppo.evaluation.statistics import mean_and_se
from jaxmarl_ppo.evaluation.tables import plot_cross_play
from jaxmarl_ppo.evaluation.trajectories import check_new_record, save_trajectories
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.runs.files import CROSS_PLAY_FILE
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.types import Population, PyTree

DEFAULT_EPISODES = 256


def evaluate_run(
    run_dir: str | Path,
    episodes: int | None = None,
    seed: int = 0,
    greedy: bool = False,
    matrix: bool = False,
    row_agents: Sequence[str] | None = None,
    env: MultiAgentEnv | str | None = None,
    record: str | Path | None = None,
    allow_imports: Sequence[str] = (),
    exact: bool = False,
) -> Report:
    """Evaluate the newest policies of a run; see `evaluate_policies`.

    `env` and `allow_imports` are needed where `load_run` needs them.

    With `matrix`, the report's `cross_play` is the result of `cross_play.cross_play` with these
    `row_agents`, with a picture in the run's folder. Its games are not in `record`.

    Raises:
        ValueError: As `evaluate_policies`, or if there is no run in `run_dir`.
    """
    if episodes is not None:
        check_num_episodes(episodes)
    if row_agents is not None and not matrix:
        raise ValueError(f"row_agents={row_agents} has no effect without cross-play")
    if record is not None:
        check_new_record(record)
    run = load_run(run_dir, env=env, allow_imports=allow_imports)
    report = evaluate_policies(
        run.learner, run.population, episodes, seed, greedy, record=record, exact=exact
    )
    if matrix:
        report["cross_play"] = cross_play(
            run.learner, run.population, episodes or DEFAULT_EPISODES, seed, greedy,
            row_agents=row_agents,
        )  # fmt: skip
        title = f"{run.env.name}: {report['cross_play']['acting']} play"
        plot_cross_play(report["cross_play"], title, Path(run_dir) / CROSS_PLAY_FILE)
    return report


@host_errors()
def evaluate_policies(
    learner: Learner,
    population: Population,
    episodes: int | None = None,
    seed: int = 0,
    greedy: bool = False,
    *,
    env: MultiAgentEnv | None = None,
    env_params: PyTree | None = None,
    record: str | Path | None = None,
    exact: bool = False,
) -> Report:
    """Play fresh episodes and return a report of plain data, fit for JSON.

    Args:
        learner: of the policies' view of the environment, and the players.
        population: as in `TrainState.population`; players are drawn as in training.
        episodes: their number; None for the scenario's default (crypto, poker and tic_tac_toe
            1,024, others 256).
        seed: the same seed gives the same report.
        greedy: take the most likely actions instead of samples.
        env: to play; None for the learner's own, else one with the same agents and sizes.
        env_params: its parameters; None for the learner's, or with an `env` for its default ones.
        record: a new `.npz` file for the episodes, step by step; see `load_trajectories`.
        exact: also compute exact measures that take long and are left out otherwise. In
            `phantom_tic_tac_toe`, these are exploitability and value over all 6 million information
            states.

    Returns:
        `{"env", "episodes", "acting": "sample" or "greedy", "seed", "all": {...}, "agents": {name:
        {...}}}` and the entries of `scenario_reports`. `all` has the returns of all agents
        together: `return_mean`, `return_se` (standard error; None for one episode), `return_min`
        and `return_max`. An agent's entries are these, `length_mean` (steps alive) and the means of
        the environment's own metrics, all totals of an episode. They cover the episodes in which
        the slot held an agent. Where there were others, `episodes` counts the covered ones, and
        without any the means are absent. `lives_mean` is present if slots were reborn. `unfinished`
        counts episodes that the step limit cut off.

    Raises:
        ValueError: If `episodes` is not a whole number of at least 1, `env` has other agents than
            the learner, `record` exists, cannot be written or would be too large, or `exact` has no
            effect in the environment or is impossible for these policies.
    """
    check_learner(learner)
    if record is not None:
        check_new_record(record)
    if env is None:
        env = learner.env
        env_params = learner.env_params if env_params is None else env_params
    elif env_params is None:
        env_params = env.default_params
    if env.agents != learner.env.agents:
        raise ValueError(
            f"the environment has the agents {', '.join(env.agents)}, but the policies were made "
            f"for {', '.join(learner.env.agents)}"
        )
    scenario, exact_fn = find_scenario(env), check_exact(learner, env) if exact else None
    if episodes is None:
        episodes = scenario.num_episodes if scenario else DEFAULT_EPISODES
    episodes = check_num_episodes(episodes)
    if env is not learner.env:
        learner = dataclasses.replace(learner, env=env, env_params=env_params)
    key_play, key_scenario = jax.random.split(jax.random.key(seed))
    totals = _play(learner, population, episodes, key_play, greedy, env_params, record)
    report: Report = {
        "env": env.name,
        "episodes": episodes,
        "acting": "greedy" if greedy else "sample",
        "seed": int(seed),
        "all": _episode_report(totals),
        "agents": {name: _agent_report(totals, slot) for slot, name in enumerate(env.agents)},
    }
    if not totals.finished.all():
        report["unfinished"] = int((~totals.finished).sum())
        report["unfinished_note"] = (
            f"were not over after {int(totals.num_steps):,} steps; their totals are up to there"
        )
    if scenario:
        evaluation = Evaluation(learner, env_params, population, totals, greedy, key_scenario)
        report |= scenario.report_fn(evaluation)
        if exact_fn is not None:
            measured = exact_fn(evaluation)
            headline = [*measured["headline"], *report["headline"]]
            report |= {**measured, "headline": headline}
    return report


def _play(
    learner: Learner,
    population: Population,
    episodes: int,
    key: jax.Array,
    greedy: bool,
    env_params: PyTree,
    record: str | Path | None,
) -> EpisodeTotals:
    args = (learner, population, episodes, key, greedy)
    if record is None:
        return jax.device_get(play_episodes(*args, env_params=env_params))
    totals, trajectories = record_episodes(*args, env_params=env_params)
    save_trajectories(record, trajectories)
    return totals


def _episode_report(totals: EpisodeTotals) -> dict[str, Any]:
    # Summed in float64, so that zero-sum returns cancel exactly.
    returns = np.sum(totals.returns, axis=1, dtype=np.float64)
    stats = mean_and_se(returns)
    return {
        "return_mean": stats["mean"],
        "return_se": stats["se"],
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
    }


def _agent_report(totals: EpisodeTotals, slot: int) -> dict[str, Any]:
    lived = totals.lives[:, slot] > 0
    num_lived = int(lived.sum())
    summary: dict[str, Any] = {} if lived.all() else {"episodes": num_lived}
    if not num_lived:
        return summary

    def mean(totals: Any) -> float:
        return float(np.mean(totals[lived, slot], dtype=np.float64))

    returns = totals.returns[lived, slot]
    stats = mean_and_se(returns)
    summary |= {
        "return_mean": stats["mean"],
        "return_se": stats["se"],
        "return_min": float(returns.min()),
        "return_max": float(returns.max()),
        "length_mean": mean(totals.lengths),
    }
    if (totals.lives > 1).any():
        summary["lives_mean"] = mean(totals.lives)
    return summary | {name: mean(metric) for name, metric in totals.metrics.items()}
