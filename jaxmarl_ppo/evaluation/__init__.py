"""Evaluation of trained policies: episodes, cross-play, and measures of each scenario."""

from jaxmarl_ppo.evaluation.cross_play import cross_play
from jaxmarl_ppo.evaluation.episodes import EpisodeTotals, play_episodes
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies, evaluate_run
from jaxmarl_ppo.evaluation.group import evaluate_group
from jaxmarl_ppo.evaluation.recording import record_episodes
from jaxmarl_ppo.evaluation.seeds import summarise_seeds
from jaxmarl_ppo.evaluation.tables import (
    format_cross_play,
    format_group_report,
    format_report,
    plot_cross_play,
)
from jaxmarl_ppo.evaluation.trajectories import Trajectories, load_trajectories, save_trajectories

__all__ = [
    "EpisodeTotals",
    "Trajectories",
    "cross_play",
    "evaluate_group",
    "evaluate_policies",
    "evaluate_run",
    "format_cross_play",
    "format_group_report",
    "format_report",
    "load_trajectories",
    "play_episodes",
    "plot_cross_play",
    "record_episodes",
    "save_trajectories",
    "summarise_seeds",
]
