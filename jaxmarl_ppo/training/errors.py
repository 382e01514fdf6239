"""What can go wrong while a run trains, as errors that say where and what is saved."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxmarl_ppo.rollout.faults import FAULT_FIELDS, Fault


class EnvironmentFault(ValueError):  # noqa: N818
    """Tells that the environment gave something that cannot be trained on.

    Attributes:
        field: what was wrong: one of `rollout.faults.FAULT_FIELDS`.
        agent: whose.
        iteration: in which, counted from 0.
        tick: within that iteration's rollout, counted from 0.
        env_index: in which of the parallel environments.
    """

    def __init__(self, env_name: str, agent: str, fault: Fault, num_steps: int, run_dir: Path):
        self.field = FAULT_FIELDS[int(fault.field)]
        self.agent = agent
        self.iteration, self.tick = int(fault.iteration), int(fault.tick)
        self.env_index = int(fault.env)
        what = "NaN" if fault.is_nan else "an infinite value"
        masks = {
            "action_mask": "no legal action",
            "agent_mask": "one more to act than its max_actors allows",
        }
        what = masks.get(self.field, what)
        super().__init__(
            f"environment {env_name!r} gave {what} in {self.field!r} of agent {agent!r} at tick "
            f"{self.tick} of iteration {self.iteration} (environment {self.env_index}, its tick "
            f"{self.iteration * num_steps + self.tick} since training began, all counted from 0); "
            f"the parameters from before it are saved in {run_dir}"
        )


class TrainingDiverged(ValueError):  # noqa: N818
    """Tells that policies' parameters are no longer finite, and which of their losses neither.

    Attributes:
        policies: by name, what else of them was not finite in the interval, such as `value_loss`.
    """

    def __init__(
        self,
        policies: Mapping[str, Sequence[str]],
        env_steps: int,
        saved_env_steps: int,
        run_dir: Path,
    ):
        self.policies = policies
        causes = "; ".join(
            f"{name} ({', '.join(found) or 'no loss'})" for name, found in policies.items()
        )
        super().__init__(
            f"training diverged: after {env_steps:,} environment steps there are parameters that "
            f"are not finite, of {causes}; try a lower learning_rate or max_grad_norm, or "
            f"skip_nonfinite_updates. The parameters of {saved_env_steps:,} environment steps are "
            f"saved in {run_dir}"
        )
