"""VMAS scenarios, stepped by VMAS: one environment with a batch of one game for each episode."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.lockstep.original import Chosen, Original, Reported


class VmasOriginal(Original):
    """A VMAS environment, made with `terminated_truncated=True`.

    Args:
        make_batch: makes a batch of so many games of the adapter.
    """

    def __init__(self, make_batch: Callable[[int], Any]) -> None:
        self._make_batch, self._torch = make_batch, import_extra("torch", "vmas")

    def reset(self, key: Any, seed: int | None) -> Reported:
        """Begin an episode on a new object."""
        self.env = self._make_batch(1).env
        self._names = [agent.name for agent in self.env.agents]
        self._earned = dict.fromkeys(self._names, 0.0)
        self.env.seed(seed)
        self.env.reset_at(0, return_observations=False)
        seen = self.env.get_from_scenario(
            get_observations=True, get_rewards=False, get_infos=False, get_dones=False
        )[0]
        return self._report(seen, None)

    def step(self, key: Any, chosen: Mapping[str, Chosen]) -> Reported:
        """Step all agents."""
        actions = []
        for name in self._names:
            choices, numbers = chosen[name]
            row = choices if choices.size else numbers
            actions.append(self._torch.as_tensor(np.array(row))[None])
        with self._torch.no_grad():
            seen, rewards, terminated, truncated, _ = self.env.step(actions)
        for name, reward in zip(self._names, rewards, strict=True):
            self._earned[name] += float(reward)
        kind = "terminated" if bool(terminated) else "truncated" if bool(truncated) else None
        return self._report(seen, kind)

    def _report(self, seen: Any, end: str | None) -> Reported:
        shown = zip(self._names, map(_in_a_row, seen), strict=True)
        return Reported(
            observations=dict(shown),
            acting=[] if end else self._names,
            action_masks={},
            returns=dict(self._earned),
            ends=dict.fromkeys(self._names, end) if end else {},
            is_over=end is not None,
        )


def _in_a_row(seen: Any) -> np.ndarray:
    if isinstance(seen, Mapping):
        return np.concatenate(list(map(_in_a_row, seen.values())))
    return seen.numpy().ravel().astype(np.float32)
