"""Errors of training that report where they occurred and what is saved."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from jaxmarl_ppo.rollout.faults import FAULT_FIELDS, Fault


class EnvironmentFault(ValueError):  # noqa: N818
    """Reports that the environment produced a value that cannot be trained on.

    Attributes:
        field: what was wrong: one of `rollout.faults.FAULT_FIELDS`.
        agent: the agent with that value.
        iteration: counted from 0.
        step: within the iteration's rollout, counted from 0.
        env_index: of the parallel environment.
    """

    def __init__(
        self,
        env_name: str,
        agent: str,
        fault: Fault,
        num_steps: int,
        run_dir: Path,
        num_choices: int = 1,  # that the agent makes at once
    ):
        self.field = FAULT_FIELDS[int(fault.field)]
        self.agent = agent
        self.iteration, self.step = int(fault.iteration), int(fault.step)
        self.env_index = int(fault.env)
        what = "NaN" if fault.is_nan else "an infinite value"
        masks = {
            "action_mask": "no legal action"
            if num_choices < 2
            else "a choice without a legal option",
            "agent_mask": "one more to act than its max_actors allows",
        }
        what = masks.get(self.field, what)
        super().__init__(
            f"environment {env_name!r} gave {what} in {self.field!r} of agent {agent!r} at step "
            f"{self.step} of iteration {self.iteration} (environment {self.env_index}, its step "
            f"{self.iteration * num_steps + self.step} since training began, all counted from 0); "
            f"the parameters from before it are saved in {run_dir}"
        )


# Beyond it the square of a sum of rewards may overflow float32.
LARGE_REWARD = 1e15


class TrainingDiverged(ValueError):  # noqa: N818
    """Reports which policies have non-finite values, and why.

    Attributes:
        policies: by name, their non-finite values, see `learner.summary.find_divergence`.
    """

    def __init__(
        self,
        policies: Mapping[str, Sequence[str]],
        largest_reward: float,
        env_steps: int,
        saved_env_steps: int,
        run_dir: Path,
    ):
        self.policies = policies
        causes = "; ".join(f"{name} ({', '.join(found)})" for name, found in policies.items())
        super().__init__(
            f"training diverged: after {env_steps:,} environment steps there are values that are "
            f"not finite, of {causes}. {_explain(policies, largest_reward)}. The parameters of "
            f"{saved_env_steps:,} environment steps are saved in {run_dir}"
        )


def _explain(policies: Mapping[str, Sequence[str]], largest_reward: float) -> str:
    """Explain the cause of non-finite values and the remedy."""
    found = {part for own in policies.values() for part in own}
    if "observation normaliser" in found:
        return (
            "The normaliser squares observations, and these are too large for that in float32 "
            "(beyond about 1e19): scale them in the environment"
        )
    # Also where it is NaN, which results from larger values.
    if not largest_reward < LARGE_REWARD:
        return (
            f"Rewards are too large for float32 (returns or rewards of {largest_reward:.3g}), in "
            "which the loss squares them: scale them in the environment"
        )
    return "Try a lower learning_rate or max_grad_norm, or skip_nonfinite_updates"
