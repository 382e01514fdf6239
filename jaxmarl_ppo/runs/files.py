"""Names of the files in a run's folder."""

from pathlib import Path

from jaxmarl_ppo.machine.files import reject_link
from jaxmarl_ppo.policies.population_file import POLICIES_FILE
from jaxmarl_ppo.policies.snapshot_files import CHECKPOINTS, MEMBERS, SNAPSHOTS

CONFIG_FILE = "config.json"
METRICS_FILE = "metrics.jsonl"
EVALUATIONS_FILE = "evaluations.jsonl"  # where a run is evaluated while it trains
CURVE_FILE = "curve.png"
END_FILE = "end.json"  # how the run ended; absent while it trains
LINEAGE_FILE = "lineage.jsonl"  # of a group whose members learn from each other
BEST_FILE = "best.toml"  # the configuration that a search, or such a group, found best
CROSS_PLAY_FILE = "cross_play.png"  # once `evaluate` has been asked for it
LOGGERS_FILE = "loggers.json"  # which runs of other services log it
LOCK_FILE = ".lock"  # held by the process that trains
# In the folder of a search.
SEARCH_FILE = "search.json"
STUDY_FILE = "study.db"
LOCKS_FOLDER = "locks"  # each process that drives it holds one
TRIALS = "trials"  # a folder for each
# In the folder of a checkpoint, beside the record and the policies, which are called as in a run's.
MANIFEST_FILE = "manifest.json"
STATE_FOLDER = "state"
SNAPSHOTS_FILE = "snapshots.json"  # which files of the run's snapshots it stands on


def reject_links(run_dir: Path) -> None:
    """Reject a run whose folders are links: processes write, rename and remove in them.

    The folder of the run itself may be a link, since the user named it.

    Raises:
        ValueError: If one is a link.
    """
    for name in (CHECKPOINTS, SNAPSHOTS, MEMBERS, Path(POLICIES_FILE).parent, "wandb"):
        reject_link(run_dir / name)
    for pool in _folders_in(run_dir / SNAPSHOTS):
        reject_link(pool)
    for member in _folders_in(run_dir / MEMBERS):
        reject_link(member)
        reject_links(member)


def _folders_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.glob("*") if path.is_dir())
