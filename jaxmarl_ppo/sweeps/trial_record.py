"""Record of a trial's run, with the same files as any run."""

from pathlib import Path

from jaxmarl_ppo.config import as_json
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.population_file import save_population
from jaxmarl_ppo.runs.callbacks import RunInfo
from jaxmarl_ppo.runs.files import CONFIG_FILE, POLICIES_FILE
from jaxmarl_ppo.runs.log import JsonLinesLogger, TensorBoardLogger
from jaxmarl_ppo.runs.run_folder import run_record
from jaxmarl_ppo.sweeps.workers import IntermediateResult
from jaxmarl_ppo.types import Population, PyTree


class TrialRecord:
    """Records a run that workers train.

    Args:
        learner: of the run.
        config: of the run, with its own seed.
        env_params: of the run.
        folder: for its record, empty or absent.
    """

    def __init__(
        self, learner: Learner, config: TrainConfig, env_params: PyTree, folder: Path
    ) -> None:
        self._folder, self._names = folder, learner.players.names
        self._last_finite: Population | None = None
        record = run_record(learner.env, env_params, config)
        as_json.write_json(folder / CONFIG_FILE, record)
        self._loggers = (JsonLinesLogger(), TensorBoardLogger())
        info = RunInfo(folder, config, record, learner.env.name, 0, (), ())
        for logger in self._loggers:
            logger.on_start(info)

    def add(self, result: IntermediateResult) -> None:
        """Record an intermediate result, and keep its policies."""
        self._last_finite = self._last_finite if result.population is None else result.population
        for logger in self._loggers:
            if result.entry is not None:
                logger.on_log(result.entry)
            if result.report is not None:
                logger.on_evaluation(result.report)

    def close(self) -> None:
        """Save the policies, and close the files."""
        if self._last_finite is not None:
            save_population(self._folder / POLICIES_FILE, self._names, self._last_finite)
        for logger in self._loggers:
            logger.close()
