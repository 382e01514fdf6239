"""Names of the files in a run's folder."""

from jaxmarl_ppo.policies.population_file import POLICIES_FILE

__all__ = [
    "CONFIG_FILE",
    "CROSS_PLAY_FILE",
    "CURVE_FILE",
    "LOGGERS_FILE",
    "METRICS_FILE",
    "POLICIES_FILE",
]

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
CURVE_FILE = "curve.png"
CROSS_PLAY_FILE = "cross_play.png"  # once `evaluate` has been asked for it
LOGGERS_FILE = "loggers.json"  # which runs of other services log it
