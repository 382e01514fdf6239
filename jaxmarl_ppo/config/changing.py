"""Numbers that can change during a run: some of PPO's, and parameters of the environment."""

import dataclasses
import difflib
from collections.abc import Mapping
from typing import Any

from jaxmarl_ppo.config.keys import reject_unknown
from jaxmarl_ppo.config.paths import Path, full_path, join_path
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.types import Hyperparams

ENV_PARAMS = ("env", "params")
# Of what the state of training holds, what training adapts, and what shapes the compiled program.
_FIXED = ("kl_coef", "num_epochs", "num_minibatches")
_OF_PPO = tuple(field.name for field in dataclasses.fields(PPOConfig))
CHANGING = tuple(
    field.name
    for field in dataclasses.fields(Hyperparams)
    if field.name in _OF_PPO and field.name not in _FIXED
)
# Without such a number, the compiled program does not have what the number is for.
OPTIONAL = tuple(
    field.name
    for field in dataclasses.fields(Hyperparams)
    if field.name in CHANGING and field.default is None
)


def is_env_param(parts: Path) -> bool:
    """Return whether a path names one of the environment's parameters."""
    return parts[:2] == ENV_PARAMS and len(parts) > 2


def is_hyperparam(parts: Path) -> bool:
    """Return whether a path has the form of a hyper-parameter's, such as `default_ppo.gamma`."""
    is_own = len(parts) == 4 and (parts[0], parts[2]) == ("policies", "ppo")
    return is_own or (len(parts) == 2 and parts[0] == "default_ppo")


def check_hyperparam(name: str, parts: Path) -> None:
    """Check that a hyper-parameter is a number that can change during a run.

    Args:
        name: of the field that names it, for messages.
        parts: its path, of which `is_hyperparam` is true.

    Raises:
        ValueError: If it cannot change, or there is none.
    """
    reject_unknown(parts[-1:], _OF_PPO, join_path(parts[:-1]))
    if parts[-1] not in CHANGING:
        raise ValueError(
            f"{name} has {join_path(parts)}, which cannot change during a run; valid: "
            f"{', '.join(CHANGING)}"
        )


def changing_path(name: str, written: str) -> Path:
    """Return the parts of a path whose number can change during a run.

    Whether an environment has such a parameter is not known here.

    Raises:
        ValueError: For any other path.
    """
    parts = full_path(written)
    if is_hyperparam(parts):
        check_hyperparam(name, parts)
    elif not is_env_param(parts):
        close = difflib.get_close_matches(written, CHANGING, n=1)
        guess = f"did you mean {close[0]!r}? " if close else ""
        raise ValueError(
            f"{name} has {written!r}, which cannot change during a run; {guess}valid: "
            "env.params.NAME, default_ppo.NAME and policies.POLICY.ppo.NAME, where the latter two "
            f"are of {', '.join(CHANGING)}"
        )
    return parts


def check_present(name: str, parts: Path, configured: Any) -> None:
    """Check that the compiled program has the term of the loss whose weight changes.

    Args:
        name: of the field that names the weight, for messages.
        parts: its path, of which `is_hyperparam` is true.
        configured: its value in the run's configuration.

    Raises:
        ValueError: If it is a weight that the run has not.
    """
    if configured is None and parts[-1] in OPTIONAL:
        raise ValueError(
            f"{name} has {join_path(parts)}, which is None in the run's configuration; give it "
            "a number there"
        )


def check_own_ppo(name: str, parts: Path, policies: Mapping[str, Any]) -> None:
    """Check that a policy whose hyper-parameter is named has some of its own.

    Args:
        name: of the field that names it, for messages.
        parts: the path, of which `is_hyperparam` is true.
        policies: those of the configuration.

    Raises:
        ValueError: If there is no such policy, or it has the hyper-parameters of all.
    """
    if parts[0] == "default_ppo":
        return
    policy = parts[1]
    reject_unknown([policy], policies, f"{name}: policies")
    spec = policies[policy]
    if not isinstance(spec, PolicySpec) or spec.ppo is None:
        raise ValueError(
            f"{name} has {join_path(parts)}, but policies.{policy} has no ppo of its own; give it "
            "one, or use default_ppo"
        )
