"""Numbers and networks of RLlib's configuration as ours."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.rllib.findings import Findings, show
from jaxmarl_ppo.config.rllib.keys import MODEL
from jaxmarl_ppo.config.rllib.reading import activation_name
from jaxmarl_ppo.config.schedules import ScheduleSpec
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP

# Of Adam in torch, which RLlib leaves as it is.
ADAM_EPS = 1e-8
FILTERS = {"NoFilter": False, "MeanStdFilter": True, "ConcurrentMeanStdFilter": True}


@dataclass(frozen=True)
class Batch:
    """Says how much an iteration gathers.

    Attributes:
        num_envs: parallel environments.
        num_steps: steps of each.
        minibatch_rows: decisions of one policy in a minibatch; None for all.
    """

    num_envs: int
    num_steps: int
    minibatch_rows: float | None

    def num_minibatches(self, name: str, decisions_per_step: float, findings: Findings) -> int:
        """Count the minibatches of one policy; a fraction is rounded, and reported.

        Raises:
            ValueError: If there would be 2³¹ or more.
        """
        if self.minibatch_rows is None:
            return 1
        rows = self.num_envs * self.num_steps * decisions_per_step
        exact = rows / self.minibatch_rows
        if exact >= 2**31:
            raise ValueError(
                "minibatch_size must make at most 2147483647 minibatches of the "
                f"{rows:g} decisions of an iteration, got {self.minibatch_rows:g}"
            )
        count = max(1, round(exact))
        if not math.isclose(exact, count):
            findings.note_policy(
                name,
                f"minibatch_size: {rows:g} decisions of {{policy}} per iteration are {exact:.4g} "
                f"minibatches of {self.minibatch_rows:g}; taken as {count} of {rows / count:.4g}",
            )
        return count


def read_batch(
    values: Mapping[str, Any],
    num_envs: int | None,
    all_decisions_per_step: float | None,
    findings: Findings,
) -> Batch:
    """Read how many rows an iteration gathers.

    Args:
        values: all settings.
        num_envs: instead of RLlib's number of environments.
        all_decisions_per_step: of all policies together; None if it was not said.
        findings: what there is to tell.

    Raises:
        ValueError: If agents' steps are counted and their number was not given.
    """
    learners = values["num_learners"] or 1
    per_learner = values["_train_batch_size_per_learner"]
    if per_learner is None:
        size = _positive(values, "train_batch_size")
    else:
        size = _positive(values, "_train_batch_size_per_learner") * learners
    env_steps = size
    if values["count_steps_by"] == "agent_steps":
        if all_decisions_per_step is None:
            raise ValueError(
                "count_steps_by='agent_steps' needs decisions_per_step: how many decisions each "
                "policy takes per environment step"
            )
        env_steps = size / all_decisions_per_step
    elif values["count_steps_by"] != "env_steps":
        raise ValueError(
            f"count_steps_by must be 'env_steps' or 'agent_steps', got {values['count_steps_by']!r}"
        )
    fragment = values["rollout_fragment_length"]
    if num_envs is None:
        runners = values["num_env_runners"] or 1
        num_envs = int(runners * _positive(values, "num_envs_per_env_runner"))
        if num_envs >= 2**31:
            raise ValueError(
                f"num_env_runners times num_envs_per_env_runner must be at most 2147483647 "
                f"environments, got {num_envs}"
            )
    else:
        _positive({"num_envs": num_envs}, "num_envs")
        fragment = "auto"
    num_steps = math.ceil(env_steps / num_envs)
    if fragment != "auto":
        # RLlib gathers complete fragments of all environments until there are enough.
        fragment = int(_positive(values, "rollout_fragment_length"))
        num_steps = math.ceil(num_steps / fragment) * fragment
    if num_steps >= 2**31:
        raise ValueError(
            "train_batch_size or train_batch_size_per_learner, in whole fragments of "
            "rollout_fragment_length, must be at most 2147483647 steps of every environment, "
            f"got {num_steps}"
        )
    if not math.isclose(num_envs * num_steps, env_steps):
        findings.note(
            f"train_batch_size: {env_steps:g} environment steps per iteration become "
            f"{num_envs * num_steps}, {num_envs} environments times {num_steps} steps"
        )
    rows = None
    if values["minibatch_size"] is not None:
        rows = _positive(values, "minibatch_size") * learners
    return Batch(num_envs, num_steps, rows)


def read_ppo(
    values: Mapping[str, Any],
    num_minibatches: int,
    all_decisions_per_step: float | None,
    findings: Findings,
    policy: str | None = None,
) -> PPOConfig:
    """Read the hyper-parameters of one policy, or of all where `policy` is None.

    Raises:
        ValueError: For a value that is invalid here.
    """
    num_epochs = int(values["num_epochs"])
    kl_coeff = values["kl_coeff"]
    # Before the first of its steps an iteration's KL divergence is 0, and so is its gradient.
    penalty = values["use_kl_loss"] and kl_coeff != 0 and num_epochs * num_minibatches > 1
    vf_clip = values["vf_clip_param"]
    clips_value = vf_clip is not None and vf_clip < math.inf
    steps = (all_decisions_per_step, findings)
    try:
        return PPOConfig(
            learning_rate=_schedule(values, "lr", "lr_schedule", *steps),
            num_epochs=num_epochs,
            num_minibatches=num_minibatches,
            gamma=values["gamma"],
            gae_lambda=values["lambda"],
            clip_eps=values["clip_param"],
            value_clip="squared_error" if clips_value else "off",
            value_clip_eps=vf_clip if clips_value else None,
            value_coef=2.0 * values["vf_loss_coeff"],
            entropy_coef=_schedule(values, "entropy_coeff", "entropy_coeff_schedule", *steps),
            max_grad_norm=values["grad_clip"],
            kl_control="penalty" if penalty else "off",
            initial_kl_coef=kl_coeff if penalty else None,
            target_kl=values["kl_target"] if penalty else None,
            bptt_length=int(values["model"]["max_seq_len"])
            if values["model"]["use_lstm"]
            else None,
            adam_eps=ADAM_EPS,
        )
    except ValueError as error:
        whose = "" if policy is None else f" of policy {policy!r}"
        given = next((text for name, text in _THEIRS.items() if str(error).startswith(name)), None)
        theirs = "" if given is None else f" (RLlib's {given}={show(values[given])})"
        raise ValueError(f"RLlib's configuration{whose} is refused: {error}{theirs}") from error


# RLlib's key of a field that may be rejected.
_THEIRS = {
    "learning_rate": "lr",
    "num_minibatches": "minibatch_size",
    "gae_lambda": "lambda",
    "clip_eps": "clip_param",
    "value_clip_eps": "vf_clip_param",
    "value_coef": "vf_loss_coeff",
    "entropy_coef": "entropy_coeff",
    "max_grad_norm": "grad_clip",
    "initial_kl_coef": "kl_coeff",
    "target_kl": "kl_target",
}


def check_grad_clip(values: Mapping[str, Any], key: str, findings: Findings) -> None:
    """Note gradients that are clipped otherwise than by their global norm."""
    if values["grad_clip"] is not None and values["grad_clip_by"] != "global_norm":
        findings.lose(key, values["grad_clip_by"], "gradients are clipped by their global norm")


def read_network(values: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Read the fields of `PolicySpec` on a policy's network and its inputs."""
    model = values["model"]
    lstm, separate = bool(model["use_lstm"]), not model["vf_share_layers"]
    sizes: dict[str, Any] = {
        name: tuple(int(size) for size in model[key])
        for name, key in (("hidden_sizes", "fcnet_hiddens"), ("head_sizes", "head_fcnet_hiddens"))
    }
    # Where heads alone have layers, these are all there are.
    decisive = "fcnet_activation" if model["fcnet_hiddens"] else "head_fcnet_activation"
    key = decisive if model["head_fcnet_hiddens"] else "fcnet_activation"
    sizes["activation"] = activation_name(model[key]) or MODEL["fcnet_activation"]
    if lstm:
        # The former API stack has one LSTM, whose outputs both heads read.
        separate &= bool(values["enable_rl_module_and_learner"])
        sizes["lstm_size"] = int(model["lstm_cell_size"])
    sizes["separate_critic"] = separate
    observation_filter = values["observation_filter"]
    if observation_filter not in FILTERS:
        findings.lose("observation_filter", observation_filter, f"valid: {', '.join(FILTERS)}")
    return {
        "network": LSTM(**sizes) if lstm else MLP(**sizes),
        "prev_action": lstm and bool(model["lstm_use_prev_action"]),
        "prev_reward": lstm and bool(model["lstm_use_prev_reward"]),
        "normalise_observations": FILTERS.get(observation_filter, False),
    }


def _positive(values: Mapping[str, Any], key: str) -> float:
    value = values[key]
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ValueError(f"{key.lstrip('_')} must be positive and finite, got {show(value)}")
    return value


def _schedule(
    values: Mapping[str, Any],
    key: str,
    former_key: str,
    all_decisions_per_step: float | None,
    findings: Findings,
) -> ScheduleSpec:
    """Read a number, or points (environment step, value) joined by lines."""
    former = values[former_key]
    if former is None:
        if isinstance(values[key], Sequence) and not isinstance(values[key], str):
            return _points(values[key], key, 1.0)
        return values[key]
    if all_decisions_per_step is None:
        findings.note(
            f"{former_key}: RLlib counts its steps in decisions of all agents together, here they "
            "are environment steps; decisions_per_step would convert them"
        )
    return _points(former, former_key, all_decisions_per_step or 1.0)


def _points(spec: Any, key: str, decisions_per_step: float) -> ScheduleSpec:
    steps = [int(step) for step, _ in spec]
    if steps != sorted(steps):
        raise ValueError(f"the steps of {key} must ascend, got {steps}")
    points: list[tuple[int, float]] = []
    for step, (_, value) in zip(steps, spec, strict=True):
        if points and step == points[-1][0]:
            _end_before_jump(points)
        points.append((step, float(value)))
    return tuple((step / decisions_per_step, value) for step, value in points)


def _end_before_jump(points: list[tuple[int, float]]) -> None:
    """Let the last line end one step early, at the value that it has there."""
    (end, value) = points.pop()
    if points and points[-1][0] < end - 1:
        start, first = points[-1]
        points.append((end - 1, value + (first - value) / (end - start)))
