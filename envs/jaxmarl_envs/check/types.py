"""Types of `check_env`: an environment's declaration, what it was seen to do, and violations."""

import contextlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.user_code import describe_error

STEP_FIELDS = ("obs", "state", "reward", "terminated", "truncated", "info")


class EnvContractError(ValueError):
    """An environment breaks the contract; the message is one sentence that says how."""


@dataclass(frozen=True)
class EnvReport:
    """Report of `check_env`: counts of what it has seen. A part whose count is 0 was not tried."""

    num_steps: int  # over all seeds
    num_episodes: int  # that ended
    num_decisions: Mapping[str, int]  # by agent: steps at which it had to act
    num_lives: Mapping[str, int]  # by agent: lives that ended


@dataclass(frozen=True)
class Spec:
    """Declaration of an environment, with the spaces padded to the widest agent."""

    env: MultiAgentEnv
    params: Any
    horizon: int | None
    features: tuple[np.ndarray, np.ndarray, np.ndarray]  # each [A, ...]: own (bool), low, high
    layout: ActionLayout


@dataclass(frozen=True)
class Trace:
    """The results of `reset_env` and `step_env` as shapes and dtypes."""

    reset: tuple[Any, Any]  # obs, state
    step: tuple[Any, ...]  # STEP_FIELDS


@dataclass(frozen=True)
class Observed:
    """`Observation` of `E` environments as NumPy arrays."""

    features: np.ndarray  # [E, A, ...] float
    action_mask: np.ndarray  # [E, A, W] bool
    alive: np.ndarray  # [E, A] bool
    agent_mask: np.ndarray  # [E, A] bool

    @property
    def over(self) -> np.ndarray:
        """Return whether no agent is alive, `[E]` bool."""
        return np.asarray(~self.alive.any(-1))


@dataclass(frozen=True)
class TimeStep:
    """One call of `step_env` on `E` environments."""

    before: Observed
    time: np.ndarray  # [E] int: steps of the episode, this one included
    obs: Observed
    reward: np.ndarray  # [E, A] float
    terminated: np.ndarray  # [E, A] bool
    truncated: np.ndarray  # [E, A] bool
    final: Observed | None  # the environment's own `info["final_observation"]`
    metrics: dict[str, np.ndarray]  # each [E, A] float

    @property
    def edge(self) -> np.ndarray:
        """Return whether a life ends, `[E, A]` bool."""
        return self.terminated | self.truncated


@dataclass(frozen=True)
class Violation:
    """A broken rule: `field` is `found` where `broken`, but should be `expected`."""

    field: str
    broken: np.ndarray  # [E], [E, A] or [E, A, ...] bool
    found: np.ndarray  # the same shape, possibly with more axes
    expected: str


def describe(value: Any) -> str:
    """Describe an array as "float32[2, 3]", anything else by its type."""
    if not hasattr(value, "dtype"):
        return f"a {type(value).__name__}" + (f" of {len(value)}" if type(value) is tuple else "")
    weak = "weakly typed " if getattr(value, "weak_type", False) else ""
    return f"{weak}{value.dtype}{list(value.shape)}"


def breach(env: MultiAgentEnv, complaint: str) -> EnvContractError:
    """Make the exception for `complaint`, whose words follow the environment's name."""
    name = getattr(env, "name", None)
    return EnvContractError(f"environment {name or type(env).__name__!r}, {complaint}")


@contextlib.contextmanager
def calling(env: MultiAgentEnv, function: str, how: str = "") -> Iterator[None]:
    """Turn any exception in the environment's own code into a sentence with its file and line."""
    try:
        yield
    except EnvContractError:
        raise
    except Exception as error:
        raise breach(env, f"{function} raises {describe_error(error, how)}") from error
