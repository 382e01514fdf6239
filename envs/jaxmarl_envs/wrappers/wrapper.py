"""Common parts of environments around another environment."""

from typing import Any, TypeVar

import jax

from jaxmarl_envs.core import MultiAgentEnv

State = TypeVar("State")


class Wrapper(MultiAgentEnv[State, Any]):
    """An environment around another one, whose parameters, lengths and processes it has.

    Args:
        env: the environment to wrap.
    """

    def __init__(self, env: MultiAgentEnv) -> None:
        self.env = env
        self.steps_on_host = env.steps_on_host

    def prepare(self, num_envs: int) -> None:
        """Start what steps of the wrapped environment need."""
        self.env.prepare(num_envs)

    def close(self) -> None:
        """End what the wrapped environment has started."""
        self.env.close()

    @property
    def default_params(self) -> Any:
        """Return the wrapped environment's own parameters."""
        return self.env.default_params

    def horizon(self, params: Any) -> int | jax.Array | None:
        """Return the wrapped environment's own horizon."""
        return self.env.horizon(params)

    def phase_length(self, params: Any) -> int | jax.Array | None:
        """Return the wrapped environment's own length of phases."""
        return self.env.phase_length(params)
