"""Our environments for users of PettingZoo, as a ParallelEnv or as an AECEnv.

>>> env = to_parallel(*jaxmarl_envs.make("crypto"))
>>> env = to_aec(*jaxmarl_envs.make("tic_tac_toe"))

Both step one environment on the host, so they are for the tools and trainers of PettingZoo's
neighbourhood, not for speed. `stepper` says which keys a seed stands for: the same seed gives the
same episodes through either interface. A reset with a seed seeds the action spaces too.
"""

from typing import TYPE_CHECKING, Any

import numpy as np

from jaxmarl_envs.adapters import import_extra
from jaxmarl_envs.adapters.outgoing.forms import sampling_mask, sampling_mask_space, with_masks
from jaxmarl_envs.adapters.outgoing.stepper import Hosted, place_of_masks, slot_name
from jaxmarl_envs.core import MultiAgentEnv

if TYPE_CHECKING:
    import gymnasium

pettingzoo = import_extra("pettingzoo", "pettingzoo")

ACTION_MASKS = ("auto", "observation", "info", "none")


def to_parallel(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    action_masks: str = "auto",
    max_lives: int | None = 1,
) -> "Parallel":
    """Make a `pettingzoo.ParallelEnv`, with a step for each step of the environment.

    **Who acts.** All that live are in `agents` and may send actions; those of agents that wait are
    ignored and may be left out. `infos[agent]["acts"]` says whether the next action counts. The
    mask of an agent that waits leaves it one option of each choice, so that a masked policy is
    certain of it and learns nothing from it.

    **Actions** have the form of the agent's own space: an int for `Discrete`, an array for
    `MultiDiscrete` and `Box`, a tuple for `Tuple`.

    **Masks** are what `action_space(agent).sample(mask=...)` takes: an int8 array for `Discrete`, a
    tuple of one for each choice for `MultiDiscrete`, and for `Tuple` a tuple of its parts' masks,
    with None for a `Box`. An agent without a choice has no mask. `"observation"` makes every
    observation a dict of `"observation"` and `"action_mask"`, as PettingZoo's own board games do;
    `"info"` puts the mask into `infos[agent]["action_mask"]`; `"none"` leaves it out. `"auto"` is
    `"observation"` where actions can be illegal or agents can wait (`max_actors` is below the
    number of slots), and otherwise `"none"`, which it always is where no agent has a choice.

    **Lives.** An agent whose life ends gets its own final observation with the reward and the flag
    of that step, and leaves `agents`. PettingZoo forbids names to return, so the next life in a
    slot gets a new one: `car`, then `car#2`, `car#3`. They are all in `possible_agents`, for
    `max_lives` lives of every slot; a further one is an error. With `max_lives=None` there is no
    bound, and no `possible_agents`, as PettingZoo has it for generated agents. A slot has one pair
    of spaces, for all of its lives.

    Args:
        env: the environment.
        params: its parameters, by default `env.default_params`.
        action_masks: where masks go, see above.
        max_lives: the most lives in a slot in one episode, or None.

    Raises:
        ValueError: For an unknown choice, masks where no agent has a choice, or `max_lives` below
            1.
    """
    return Parallel(env, params, action_masks, max_lives)


def to_aec(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    action_masks: str = "auto",
    max_lives: int | None = 1,
) -> "AEC":
    """Make a `pettingzoo.AECEnv`, in which whoever must act does so in the order of the slots.

    Agents that act at the same step see what was there at its beginning; the step is made when the
    last of them has acted. Steps at which nobody acts pass unseen. What an agent earns while it
    waits adds up until its next `last()`; an agent whose life ends, whether it ever acted or not,
    gets a last turn with its final observation, all that it has earned since and its flag, to which
    the only answer is `step(None)`. Agents that are born appear in `agents` at once.

    Arguments, masks and lives are as for `to_parallel`, except that `"auto"` puts masks into
    observations only where actions can be illegal, for nobody is asked who waits.
    """
    return AEC(env, params, action_masks, max_lives)


class _Common:
    """Base class of the parallel and the AEC environment."""

    render_mode = None
    masks_waiting = False  # whether agents that wait are stepped, with a mask of their own
    agents: list[str]

    def __init__(
        self,
        env: MultiAgentEnv,
        params: Any = None,
        action_masks: str = "auto",
        max_lives: int | None = 1,
    ) -> None:
        self._hosted = hosted = Hosted(env, params, max_lives)
        waiting = self.masks_waiting and env.max_actors < env.num_agents
        self.action_masks = place_of_masks(hosted, action_masks, ACTION_MASKS, waiting)
        self.metadata = {"name": env.name, "render_modes": [], "is_parallelizable": False}
        self._observation_spaces = hosted.feature_spaces
        if self.action_masks == "observation":
            self._observation_spaces = with_masks(
                hosted.feature_spaces, hosted.spaces, "observation", sampling_mask_space
            )
        if max_lives is not None:
            self.possible_agents = hosted.possible_agents
        self.agents = []

    def observation_space(self, agent: str) -> "gymnasium.Space":
        """Return the agent's own observation space, the same object every time."""
        return self._observation_spaces[self._hosted.env.agent_index(slot_name(agent))]

    def action_space(self, agent: str) -> "gymnasium.Space":
        """Return the agent's own action space, the same object every time."""
        return self._hosted.action_spaces[self._hosted.env.agent_index(slot_name(agent))]

    def state(self) -> np.ndarray:
        """Return the state for a centralised critic, `[G]`.

        Raises:
            NotImplementedError: If the environment has no central state.
        """
        state = self._hosted.central_state
        if state is None:
            raise NotImplementedError(f"{self._hosted.env.name!r} shows no central state")
        return state

    def _begin(self, seed: int | None) -> None:
        self._hosted.reset(seed)
        if seed is not None:  # for everyone, because late-comers sample actions too
            for slot, space in enumerate(self._hosted.action_spaces):
                space.seed(seed + slot)

    def _observe(self, slot: int, final: bool = False) -> Any:
        features = self._hosted.features(slot, final)
        if self.action_masks != "observation":
            return features
        return {"observation": features, **self._mask(slot, final)}

    def _info(self, slot: int, final: bool = False) -> dict[str, Any]:
        return self._mask(slot, final) if self.action_masks == "info" else {}

    def _mask(self, slot: int, final: bool) -> dict[str, Any]:
        """Return the mask by its name, if the slot's agent has a choice."""
        legal = self._legal_options(slot, final)
        if not legal:
            return {}
        return {"action_mask": sampling_mask(self._hosted.spaces[slot], legal)}

    def _legal_options(self, slot: int, final: bool) -> list[np.ndarray]:
        return self._hosted.legal_options(slot, final)


class Parallel(_Common, pettingzoo.ParallelEnv):
    """An environment of ours as a PettingZoo `ParallelEnv`; see `to_parallel`."""

    masks_waiting = True

    def reset(
        self, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[dict[str, Any], dict[str, dict[str, Any]]]:
        """Begin an episode; `options` are not used."""
        self._begin(seed)
        self.agents = list(self._hosted.slots)
        slots = self._hosted.slots
        observations = {agent: self._observe(slot) for agent, slot in slots.items()}
        return observations, {agent: self._info(slot) for agent, slot in slots.items()}

    def step(
        self, actions: dict[str, Any]
    ) -> tuple[
        dict[str, Any],
        dict[str, float],
        dict[str, bool],
        dict[str, bool],
        dict[str, dict[str, Any]],
    ]:
        """Make one step with the actions of agents by name."""
        passed = self._hosted.step(actions)
        self.agents = list(self._hosted.slots)
        observations, infos = {}, {}
        for agent in passed.rewards:
            final = agent in passed.ended
            slot = passed.ended[agent].slot if final else self._hosted.slots[agent]
            observations[agent] = self._observe(slot, final)
            infos[agent] = self._info(slot, final)
        terminated, truncated = passed.flags()
        return observations, passed.rewards, terminated, truncated, infos

    def _legal_options(self, slot: int, final: bool) -> list[np.ndarray]:
        legal = super()._legal_options(slot, final)
        if not final and not self._hosted.acts[slot]:
            for options in legal:
                options[np.argmax(options) + 1 :] = False
        return legal

    def _info(self, slot: int, final: bool = False) -> dict[str, Any]:
        acts = not final and bool(self._hosted.acts[slot])
        return {"acts": acts, **super()._info(slot, final)}


class AEC(_Common, pettingzoo.AECEnv):
    """An environment of ours as a PettingZoo `AECEnv`; see `to_aec`."""

    def reset(self, seed: int | None = None, options: dict[str, Any] | None = None) -> None:
        """Begin an episode in which an agent must act; `options` are not used."""
        self.agents, self._ended = [], {}
        self.rewards, self._cumulative_rewards = {}, {}
        self.terminations, self.truncations, self.infos = {}, {}, {}
        self._actions: dict[str, Any] = {}
        self._skip_agent_selection = None
        self._begin(seed)
        self._enter()
        self._go_on()

    def step(self, action: Any) -> None:
        """Take the selected agent's action, or None of one whose life has ended."""
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            self._ended.pop(agent)
            return
        self._clear_rewards()
        self._cumulative_rewards[agent] = 0.0
        self._actions[agent] = action
        if len(self._actions) < len(self._turns):
            self.agent_selection = self._turns[len(self._actions)]
            return
        self._step()
        self._go_on()

    def observe(self, agent: str) -> Any:
        """Show what the agent sees now, or saw at the end of its life."""
        if agent in self._ended:
            return self._ended[agent]
        return self._observe(self._hosted.slots[agent])

    def _go_on(self) -> None:
        """Make steps until an agent must act or none lives, and select the next agent."""
        while self._hosted.slots and not self._hosted.acts.any():
            self._step()
        acts = self._hosted.acts
        self._turns = [agent for agent, slot in self._hosted.slots.items() if acts[slot]]
        self.agent_selection = self._turns[0] if self._turns else self.agents[0]
        self._deads_step_first()

    def _step(self) -> None:
        passed = self._hosted.step(self._actions, until_asked=True)
        self._actions = {}
        for agent, end in passed.ended.items():
            self._ended[agent] = self._observe(end.slot, final=True)
            self.terminations[agent], self.truncations[agent] = end.terminated, end.truncated
            self.infos[agent] = self._info(end.slot, final=True)
        self._enter()
        for agent, reward in passed.rewards.items():
            self.rewards[agent] += reward
            self._cumulative_rewards[agent] += reward

    def _enter(self) -> None:
        """Let in those who were born, and tell all that live what is new."""
        for agent, slot in self._hosted.slots.items():
            if agent not in self.rewards:
                self.agents.append(agent)
                self.rewards[agent] = self._cumulative_rewards[agent] = 0.0
                self.terminations[agent] = self.truncations[agent] = False
            self.infos[agent] = self._info(slot)
