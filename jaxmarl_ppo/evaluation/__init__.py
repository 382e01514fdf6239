"""How good trained policies are: episodes, cross-play, scenarios' measures."""

from jaxmarl_ppo.evaluation.cross_play import cross_play
from jaxmarl_ppo.evaluation.episodes import EpisodeTotals, play_episodes
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies, evaluate_run
from jaxmarl_ppo.evaluation.tables import format_cross_play, format_report, plot_cross_play

__all__ = [
    "EpisodeTotals",
    "cross_play",
    "evaluate_policies",
    "evaluate_run",
    "format_cross_play",
    "format_report",
    "play_episodes",
    "plot_cross_play",
]
