"""Episodes of an environment stepped plainly, step by step, to compare its adapters with."""

import functools
from collections import defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np
from probe_envs import quick_jit

from jaxmarl_envs.spaces import Discrete


class TimeStep(NamedTuple):
    """One step; before it `names` lived, of whom `acted` acted."""

    names: list  # [A] str or None
    acted: Any  # [A] bool
    actions: dict  # of those who acted
    obs: Any  # before
    reward: Any  # [A]
    terminated: Any  # [A]
    truncated: Any  # [A]
    final: Any
    after: Any  # the observation after
    names_after: list


class Decision(NamedTuple):
    """What came of one action."""

    features: Any
    action: Any
    reward: float  # until the next decision or the end
    next_features: Any
    terminated: bool
    truncated: bool


@functools.cache
def compiled(env):
    return quick_jit(env.reset_env), quick_jit(env.step_env)


def play(env, params, seed, episode, choose):
    """All steps of an episode; `choose(name, count, mask)` is the action of a decision.

    It has the form of the agent's own space, and the mask is as `own_mask` has it.
    """
    reset, step = compiled(env)
    key = jax.random.fold_in(jax.random.key(seed), episode)
    layout = env.action_layout(env.default_params if params is None else params)
    obs, state = jax.device_get(reset(jax.random.fold_in(key, 0), params))
    lives, decided = [0] * env.num_agents, defaultdict(int)
    names = _rename(env, [None] * env.num_agents, lives, obs)
    steps = []
    while obs.alive.any():
        actions, by_slot = {}, {}
        for slot, name in enumerate(names):
            if obs.agent_mask[slot]:
                own = own_mask(layout, slot, obs.action_mask[slot])
                by_slot[env.agents[slot]] = actions[name] = choose(name, decided[name], own)
                decided[name] += 1
        step_key = jax.random.fold_in(key, len(steps) + 1)
        results = step(step_key, state, layout.from_own(by_slot), params)
        after, state, reward, terminated, truncated, info = jax.device_get(results)
        final = info.get("final_observation", after)
        ended = terminated | truncated
        staying = [None if ended[slot] else name for slot, name in enumerate(names)]
        names_after = _rename(env, staying, lives, after)
        steps.append(
            TimeStep(names, obs.agent_mask, actions, obs, reward, terminated,
                     truncated & ~terminated, final, after, names_after)
        )  # fmt: skip
        obs, names = after, names_after
    return steps


def decisions(env, params, steps):
    """Every agent's decisions in order, and what it earned before its first one."""
    done, before, open_ = defaultdict(list), defaultdict(float), {}
    for time_step in steps:
        for slot, name in enumerate(time_step.names):
            if name is None:
                continue
            own = tuple(slice(n) for n in env.observation_space(env.agents[slot], params).shape)
            if time_step.acted[slot]:
                seen = time_step.obs.features[slot][own]
                if name in open_:
                    features, action, reward = open_.pop(name)
                    done[name].append(Decision(features, action, reward, seen, False, False))
                open_[name] = (seen, time_step.actions[name], 0.0)
            if name in open_:
                features, action, reward = open_[name]
                open_[name] = (features, action, reward + float(time_step.reward[slot]))
            else:
                before[name] += float(time_step.reward[slot])
            ends = bool(time_step.terminated[slot]), bool(time_step.truncated[slot])
            if any(ends) and name in open_:
                last = time_step.final.features[slot][own]
                done[name].append(Decision(*open_.pop(name), last, *ends))
    assert not open_
    return done, before


def returns(steps):
    """What every agent earned."""
    earned = defaultdict(float)
    for time_step in steps:
        for slot, name in enumerate(time_step.names):
            if name is not None:
                earned[name] += float(time_step.reward[slot])
    return earned


def by_rule(name, count, mask):
    """A legal action of a discrete space that depends on all arguments."""
    legal = np.flatnonzero(mask)
    return int(legal[(sum(map(ord, name)) + 7 * count + count**2) % len(legal)])


def own_mask(layout, slot, mask):
    """Of a discrete space which options are legal, of others a list of these for each choice."""
    legal, start = [], 0
    for choice, width in enumerate(layout.counts):
        if choice < len(layout.factors[slot].counts):
            legal.append(mask[start : start + layout.factors[slot].counts[choice]])
        start += width
    return legal[0] if isinstance(list(layout.spaces.values())[slot], Discrete) else legal


def _rename(env, names, lives, obs):
    names = list(names)
    for slot in range(env.num_agents):
        if names[slot] is None and obs.alive[slot]:
            lives[slot] += 1
            agent = env.agents[slot]
            names[slot] = agent if lives[slot] == 1 else f"{agent}#{lives[slot]}"
    return names
