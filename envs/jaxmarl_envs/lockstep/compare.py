"""`check_against_original`: an adapter and what it brings in, step by step on the same actions."""

import contextlib
import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxmarl_envs.adapters.incoming.own_randomness import generators_kept
from jaxmarl_envs.check.types import EnvContractError, breach
from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.lockstep.lookup import original_of
from jaxmarl_envs.lockstep.original import Chosen, Original, Reported
from jaxmarl_envs.user_code import host_errors

_ROUNDING = {"rtol": 1e-5, "atol": 1e-6}  # of programs that are compiled separately
_KINDS = ("terminated", "truncated")
_STEPS_WITHOUT_HORIZON, _MOST_STEPS = 256, 2_048


@dataclass(frozen=True)
class LockstepReport:
    """Counts of what has been compared, without a difference.

    Attributes:
        num_episodes: how many came to their end.
        num_steps: of all episodes.
        num_decisions: actions of agents that had to act.
        num_numbers: compared: observations, masks, rewards and ends.
        num_terminated: lives that were terminated.
        num_truncated: lives that were truncated.
        num_early: lives that ended before their episode did.
    """

    num_episodes: int = 0
    num_steps: int = 0
    num_decisions: int = 0
    num_numbers: int = 0
    num_terminated: int = 0
    num_truncated: int = 0
    num_early: int = 0

    def __add__(self, other: "LockstepReport") -> "LockstepReport":
        """Add the counts of two reports."""
        return LockstepReport(*(vars(self)[name] + vars(other)[name] for name in vars(self)))


@host_errors()
def check_against_original(
    env: MultiAgentEnv,
    params: Any = None,
    *,
    num_episodes: int = 4,
    num_steps: int | None = None,
    key: jax.Array | None = None,
    original: Original | None = None,
) -> LockstepReport:
    """Step an environment of another library beside its original, on random legal actions.

    The original is stepped by the functions of its own library, by code that the adapter does not
    use. Both begin with the same key or seed. After every step they must agree on who acts, what
    each agent observes, which actions are legal, what each has earned, whose life has ended and
    how, and whether the episode is over; in numbers up to rounding (1e-5).

    Args:
        env: an environment that an adapter has brought in.
        params: its parameters, by default `env.default_params`.
        num_episodes: how many to play.
        num_steps: at most, of each episode; by default its horizon, at most 2,048, or 256 where
            there is none.
        key: random key, by default `jax.random.key(0)`.
        original: what to compare it with; by default `original_of(env, params)`.

    Returns:
        Counts of what has been compared.

    Raises:
        EnvContractError: At the first difference, in one sentence with both values.
        ValueError: If there is no original, its episodes do not repeat, or a number is below 1.
    """
    if num_episodes < 1 or (num_steps is not None and num_steps < 1):
        raise ValueError(
            f"num_episodes={num_episodes}, num_steps={num_steps}: both must be at least 1"
        )
    params = env.default_params if params is None else params
    original = original_of(env, params) if original is None else original
    if num_steps is None:
        limit = env.horizon(params)
        num_steps = min(_STEPS_WITHOUT_HORIZON if limit is None else int(limit), _MOST_STEPS)
    keys = jax.random.split(jax.random.key(0) if key is None else key, num_episodes)
    pair = _Pair(env, params, original)
    with generators_kept() if env.steps_on_host else contextlib.nullcontext():
        reports = [pair.play(episode, key, num_steps) for episode, key in enumerate(keys)]
    return sum(reports, LockstepReport())


class _Pair:
    """An environment and its original."""

    def __init__(self, env: MultiAgentEnv, params: Any, original: Original) -> None:
        self.env, self.params, self.original = env, params, original
        self.layout = env.action_layout(params)
        limit = env.horizon(params)
        self.limit = math.inf if limit is None else int(limit)
        self.reset, self.step = jax.jit(env.reset_env), jax.jit(env.step_env)

    def play(self, episode: int, key: jax.Array, num_steps: int) -> LockstepReport:
        """Play an episode on both sides."""
        rng = np.random.default_rng(np.asarray(jax.random.bits(key, (4,))))
        obs, state = self.reset(key, self.params)
        self.when = f"episode {episode}, step 0"
        self.num_numbers = num_decisions = num_early = 0
        self.earned = np.zeros(self.env.num_agents)
        ended = np.zeros((2, self.env.num_agents), int)
        seed = int(state.seed) if self.env.steps_on_host else None
        self._expect_observed(obs, obs, self.original.reset(key, seed))
        time = 0
        while np.asarray(obs.alive).any() and time < num_steps:
            time += 1
            self.when = f"episode {episode}, step {time}"
            key, key_step = jax.random.split(key)
            before, (action, chosen) = obs, self._draw(rng, obs)
            num_decisions += len(chosen)
            obs, state, reward, *ends, info = self.step(key_step, state, action, self.params)
            reported = self.original.step(key_step, chosen)
            self.earned += np.asarray(reward, np.float64)
            ends = np.array(ends)
            if time == self.original.horizon and not reported.is_over:
                reported = self._cut(before, reported)
            if self.original.at_time_limit and time >= self.limit:
                reported = reported._replace(ends=dict.fromkeys(reported.ends, "ended"))
            self._expect_returns(reported)
            self._expect_ends(ends, reported)
            self._expect_observed(obs, info.get("final_observation", obs), reported)
            self.original.follow(state)
            ended += ends
            num_early += int(ends.any(0).sum()) * bool(np.asarray(obs.alive).any())
        terminated, truncated = ended.sum(1).tolist()
        return LockstepReport(
            num_episodes=int(not np.asarray(obs.alive).any()),
            num_steps=time,
            num_decisions=num_decisions,
            num_numbers=self.num_numbers,
            num_terminated=terminated,
            num_truncated=truncated,
            num_early=num_early,
        )

    def _draw(self, rng: np.random.Generator, obs: Observation) -> tuple[Any, dict[str, Chosen]]:
        """Draw legal actions, and anything for those that wait."""
        acts = np.asarray(obs.agent_mask)
        mask = np.where(acts[:, None], obs.action_mask, self.layout.exists)
        action = self.layout.pick(rng.random(mask.shape), mask)
        choices, numbers = (np.asarray(part) for part in self.layout.split(action))
        own = zip(self.env.agents, self.layout.factors, acts, strict=True)
        chosen = {
            agent: (choices[slot, : len(f.counts)], numbers[slot, : f.low.size])
            for slot, (agent, f, does) in enumerate(own)
            if does
        }
        return action, chosen

    def _cut(self, before: Observation, reported: Reported) -> Reported:
        """Truncate whoever lives at a horizon that the adapter alone knows."""
        lived = zip(self.env.agents, np.asarray(before.alive), strict=True)
        ends = {agent: "truncated" for agent, lives in lived if lives}
        return reported._replace(
            acting=(), action_masks={}, ends={**ends, **reported.ends}, is_over=True
        )

    def _expect_returns(self, reported: Reported) -> None:
        for agent, amount in reported.returns.items():
            found = self.earned[self.env.agent_index(agent)]
            self._expect(agent, "the sum of rewards so far", found, amount)

    def _expect_ends(self, ends: np.ndarray, reported: Reported) -> None:
        for slot, agent in enumerate(self.env.agents):
            kinds = zip(_KINDS, ends[:, slot], strict=True)
            found = next((kind for kind, end in kinds if end), None)
            expected = reported.ends.get(agent)
            same = (found is None) == (expected is None) and expected in (found, "ended", None)
            if not same:
                raise self._differs(agent, "the end of its life", found, expected)
            self.num_numbers += 2

    def _expect_observed(self, obs: Observation, final: Observation, reported: Reported) -> None:
        """Compare what is there now; rows of those whose lives have just ended are final."""
        over = not np.asarray(obs.alive).any()
        if over != reported.is_over:
            raise self._differs(None, "whether the episode is over", over, reported.is_over)
        if reported.acting is not None:
            agents = zip(self.env.agents, np.asarray(obs.agent_mask), strict=True)
            found = {agent for agent, acts in agents if acts}
            if found != set(reported.acting):
                raise self._differs(None, "who acts", sorted(found), sorted(reported.acting))
        for agent, values in reported.observations.items():
            slot = self.env.agent_index(agent)
            row = np.asarray((final if agent in reported.ends else obs).features[slot])
            own = row[tuple(map(slice, self.env.observation_space(agent, self.params).shape))]
            if own.size != values.size:
                raise self._differs(agent, "the size of an observation", own.size, values.size)
            self._expect(agent, "the observation", own.ravel(), values)
        for agent, legal in reported.action_masks.items():
            slot = self.env.agent_index(agent)
            row = np.asarray(obs.action_mask)[slot]
            own = [row[start : start + count] for start, count in self._choices(slot)]
            self._expect(agent, "the action mask", np.concatenate(own), legal)

    def _choices(self, slot: int) -> Iterator[tuple[int, int]]:
        """Pair where the options of a slot's choices begin in a mask with how many there are."""
        return zip(self.layout.starts, self.layout.factors[slot].counts, strict=False)

    def _expect(self, agent: str, what: str, found: Any, expected: Any) -> None:
        found, expected = np.atleast_1d(found), np.atleast_1d(expected)
        self.num_numbers += found.size
        same = np.isclose(found.astype(float), expected.astype(float), equal_nan=True, **_ROUNDING)
        if not same.all():
            place = int(np.argmin(same))
            index = f"[{place}]" if found.size > 1 else ""
            raise self._differs(
                agent, f"{what}{index}", found[place].item(), expected[place].item()
            )

    def _differs(self, agent: str | None, what: str, found: Any, expected: Any) -> EnvContractError:
        who = "" if agent is None else f", agent {agent!r}"
        return breach(
            self.env, f"{self.when}{who}: {what} is {found}, but {expected} in the original"
        )
