"""Our environments for users of RLlib (its new API stack), as a `MultiAgentEnv`.

>>> ray.tune.register_env("jaxmarl", rllib_env)
>>> config = PPOConfig().environment("jaxmarl", env_config={"env": "crypto"})
"""

import dataclasses
import functools
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.outgoing.forms import flat_mask_space, with_masks
from jaxmarl_envs.adapters.outgoing.stepper import Ended, Hosted, place_of_masks, slot_name
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.registry import make

if TYPE_CHECKING:
    import gymnasium

_multi_agent_env = import_extra("ray.rllib.env.multi_agent_env", "ray")

ACTION_MASKS = ("auto", "observation", "none")
_MOST_EPISODES_WITHOUT_A_DECISION = 100


def rllib_env(env_config: Mapping[str, Any]) -> "RLlibEnv":
    """Make an environment by name, for `ray.tune.register_env`.

    Args:
        env_config: `"env"`, the name; `"params"`, numeric parameters to change, by name;
            `"action_masks"` and `"max_lives"`, as `RLlibEnv` takes them; all else goes to
            `jaxmarl_envs.make`.

    Raises:
        ValueError: For a missing or unknown name, or an unknown option or parameter.
    """
    options = dict(env_config)
    if "env" not in options:
        raise ValueError(f"env_config={options}: name the environment, as in {{'env': 'crypto'}}")
    name, changes = options.pop("env"), options.pop("params", {})
    view = {key: options.pop(key) for key in ("action_masks", "max_lives") if key in options}
    try:
        env, params = _make_once(name, tuple(sorted(options.items())))
    except TypeError:  # an option that cannot be hashed
        env, params = make(name, **options)
    valid = list(getattr(params, "__dataclass_fields__", ()))
    for field in changes:
        if field not in valid:
            known = ", ".join(valid) or "none"
            raise ValueError(f"{name!r} has no parameter {field!r}; its parameters: {known}")
    return RLlibEnv(env, dataclasses.replace(params, **changes) if changes else params, **view)


@functools.lru_cache(maxsize=32)
def _make_once(name: str, options: tuple[tuple[str, Any], ...]) -> tuple[MultiAgentEnv, Any]:
    """Make an environment once, so that those of a vector share what is compiled for the first."""
    return make(name, **dict(options))


class RLlibEnv(_multi_agent_env.MultiAgentEnv):
    """A `ray.rllib` `MultiAgentEnv` that loses no transition.

    **Who is asked.** Observations are given to those alone who must act on them, and to those whose
    life has ended: their own final observation, with the flag and all that they have earned since
    their last decision. So what an agent earns while it waits arrives with its next observation and
    is credited to its last decision, wherever RLlib cuts its fragments. Steps at which nobody acts
    pass unseen, so that RLlib never gets an empty dict.

    What an agent has earned before its first decision comes beside its first observation, where
    RLlib trains nothing on it; after a reset it is in `infos[agent]["reward_before"]`, for want of
    rewards there. Of an agent that never decides anything RLlib hears nothing.

    **Ends.** RLlib takes an episode for over, and for terminated, as soon as all the agents that it
    has seen in it have ended. Where others are still to come (a life ends as the next one begins),
    the last one's end is therefore told one step later. And where the last agents of an episode are
    truncated, that is told by `truncateds["__all__"]` alone: with flags of their own as well RLlib
    would take them for terminated, and not bootstrap their values.

    **Lives.** RLlib forbids ids to return within an episode, so the next life in a slot has a new
    one: `car`, then `car#2`, `car#3`. They are all in `possible_agents`, for `max_lives` lives of
    every slot; a further one is an error. With `max_lives=None` there is no bound, and RLlib must
    be told not to look ids up, by `.environment(normalize_actions=False, clip_actions=False)`. A
    slot has one pair of spaces, for all of its lives, and `slot_name(agent_id)` tells a
    `policy_mapping_fn` the slot.

    **Actions** have the form of the agent's own space: an int for `Discrete`, an array for
    `MultiDiscrete` and `Box`, a tuple for `Tuple`.

    **Masks.** With `action_masks="observation"` an observation is a dict of `"observations"` and
    `"action_mask"` (float32 zeros and ones), as RLlib's example `ActionMaskingTorchRLModule` takes
    it for `Discrete`. Of an agent that has several choices the options of all of them stand one
    after the other, `[sum of the options]`, in the order of its space and without its numbers: as
    they stand in the inputs of RLlib's action distributions for `MultiDiscrete`. An agent without a
    choice just sees its features. `"auto"` is that where actions can be illegal, and else `"none"`.

    Args:
        env: the environment.
        params: its parameters, by default `env.default_params`.
        action_masks: "auto", "observation" or "none".
        max_lives: the most lives in a slot in one episode, or None.

    Raises:
        ValueError: an unknown choice, masks where no agent has a choice, or `max_lives` below 1.
    """

    def __init__(
        self,
        env: MultiAgentEnv,
        params: Any = None,
        action_masks: str = "auto",
        max_lives: int | None = 1,
    ) -> None:
        super().__init__()
        self._hosted = hosted = Hosted(env, params, max_lives)
        self.masked = place_of_masks(hosted, action_masks, ACTION_MASKS) == "observation"
        spaces = hosted.feature_spaces
        if self.masked:
            masked = with_masks(spaces, hosted.spaces, "observations", flat_mask_space)
            counts = [own.counts for own in hosted.layout.factors]
            spaces = [masked[i] if counts[i] else seen for i, seen in enumerate(spaces)]
        self._spaces = {
            agent: (spaces[slot], hosted.action_spaces[slot])
            for slot, agent in enumerate(env.agents)
        }
        self.possible_agents = hosted.possible_agents
        self.agents = list(self.possible_agents)
        self.observation_spaces = {x: self.get_observation_space(x) for x in self.agents}
        self.action_spaces = {x: self.get_action_space(x) for x in self.agents}

    def get_observation_space(self, agent_id: str) -> "gymnasium.Space":
        """Return the observation space of the agent's slot."""
        return self._spaces[slot_name(agent_id)][0]

    def get_action_space(self, agent_id: str) -> "gymnasium.Space":
        """Return the action space of the agent's slot."""
        return self._spaces[slot_name(agent_id)][1]

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode, up to its first decision; `options` are not used."""
        for _ in range(_MOST_EPISODES_WITHOUT_A_DECISION):
            self._hosted.reset(seed)
            seed = None
            self._owed: dict[str, float] = defaultdict(float)
            self._known: set[str] = set()  # who is not known to have ended, of those ever asked
            self._untold: dict[str, tuple[Any, Ended]] = {}  # ends, with the final observations
            if not self._hosted.acts.any():
                self._go_on({})
            if self._hosted.slots:
                break
        else:
            raise ValueError(
                f"{self._hosted.env.name!r}: nobody was to act in "
                f"{_MOST_EPISODES_WITHOUT_A_DECISION} episodes"
            )
        observations = self._ask()
        earned = {agent: self._owed.pop(agent, 0.0) for agent in observations}
        self._known = set(observations)
        self.agents = list(self._hosted.slots)
        return observations, {
            agent: {"reward_before": x} if x else {} for agent, x in earned.items()
        }

    def step(
        self, action_dict: dict[str, Any]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Make steps up to the next decision or the end of the episode."""
        self._go_on(action_dict)
        over = not self._hosted.slots
        told = dict(self._untold)
        if not over and self._known and self._known <= told.keys():
            told.popitem()  # the last to end, reported once others are known
        observations = {agent: final for agent, (final, _) in told.items()} | self._ask()
        rewards = {agent: self._owed.pop(agent, 0.0) for agent in observations}
        terminateds, truncateds = _flags({agent: end for agent, (_, end) in told.items()}, over)

        self.agents = [*self._untold, *self._hosted.slots]
        self._untold = {agent: x for agent, x in self._untold.items() if agent not in told}
        self._known = (self._known | observations.keys()) - told.keys()
        return observations, rewards, terminateds, truncateds, {agent: {} for agent in observations}

    def _go_on(self, actions: dict[str, Any]) -> None:
        """Make steps, at least one, until an agent must act or none lives."""
        while True:
            passed = self._hosted.step(actions, until_asked=True)
            for agent, reward in passed.rewards.items():
                self._owed[agent] += reward
            for agent, end in passed.ended.items():
                if agent in self._known:
                    self._untold[agent] = self._observe(end.slot, final=True), end
            if self._hosted.acts.any() or not self._hosted.slots:
                return
            actions = {}

    def _ask(self) -> dict[str, Any]:
        slots, acts = self._hosted.slots, self._hosted.acts
        return {agent: self._observe(slot) for agent, slot in slots.items() if acts[slot]}

    def _observe(self, slot: int, final: bool = False) -> Any:
        features = self._hosted.features(slot, final)
        legal = self._hosted.legal_options(slot, final)
        if not self.masked or not legal:
            return features
        return {"observations": features, "action_mask": np.concatenate(legal).astype(np.float32)}


def _flags(ends: dict[str, Ended], over: bool) -> tuple[dict[str, bool], dict[str, bool]]:
    """Write `terminateds` and `truncateds` such that RLlib takes each agent for what it is."""
    terminateds = {agent: end.terminated for agent, end in ends.items()}
    truncateds = {agent: end.truncated for agent, end in ends.items()}
    cut_short = over and any(truncateds.values())
    if cut_short:
        truncateds = {}
    terminateds["__all__"], truncateds["__all__"] = over and not cut_short, cut_short
    return terminateds, truncateds
