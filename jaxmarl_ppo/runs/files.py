"""Names of the files in a run's folder."""

from jaxmarl_ppo.policies.population_file import POLICIES_FILE
from jaxmarl_ppo.policies.snapshot_files import CHECKPOINTS, MEMBERS, SNAPSHOTS

__all__ = [
    "BEST_FILE",
    "CHECKPOINTS",
    "CONFIG_FILE",
    "CROSS_PLAY_FILE",
    "CURVE_FILE",
    "EVALUATIONS_FILE",
    "LINEAGE_FILE",
    "LOCK_FILE",
    "LOGGERS_FILE",
    "MANIFEST_FILE",
    "MEMBERS",
    "METRICS_FILE",
    "POLICIES_FILE",
    "SNAPSHOTS",
    "SNAPSHOTS_FILE",
    "STATE_FOLDER",
]

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"  # where a run is evaluated while it trains
CURVE_FILE = "curve.png"
LINEAGE_FILE = "lineage.jsonl"  # of a group whose members learn from each other
BEST_FILE = "best.toml"  # the configuration that a search, or such a group, found best
CROSS_PLAY_FILE = "cross_play.png"  # once `evaluate` has been asked for it
LOGGERS_FILE = "loggers.json"  # which runs of other services log it
LOCK_FILE = ".lock"  # held by the process that trains
# In the folder of a checkpoint, beside the record and the policies, which are called as in a run's.
MANIFEST_FILE = "manifest.json"
STATE_FOLDER = "state"
SNAPSHOTS_FILE = "snapshots.json"  # which files of the run's snapshots it stands on
