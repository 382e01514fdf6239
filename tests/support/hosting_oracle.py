"""Episodes of an environment stepped plainly, step by step, to compare its adapters with."""

import functools
from collections import defaultdict
from typing import Any, NamedTuple

import jax
import numpy as np
from probe_envs import quick_jit

from jaxmarl_envs import Box


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
    """All steps of an episode; `choose(name, count, mask [n])` is the action of a decision."""
    reset, step = compiled(env)
    key = jax.random.fold_in(jax.random.key(seed), episode)
    obs, state = jax.device_get(reset(jax.random.fold_in(key, 0), params))
    lives, decided = [0] * env.num_agents, defaultdict(int)
    names = _rename(env, [None] * env.num_agents, lives, obs)
    steps = []
    while obs.alive.any():
        actions, encoded = {}, _no_action(env, params)
        for slot, name in enumerate(names):
            if obs.agent_mask[slot]:
                own = obs.action_mask[slot][: _width(env, params, slot)]
                actions[name] = choose(name, decided[name], own)
                decided[name] += 1
                encoded[slot][..., : np.size(actions[name])] = actions[name]
        step_key = jax.random.fold_in(key, len(steps) + 1)
        sent = encoded if _is_box(env) else encoded[:, 0]
        results = step(step_key, state, sent, params)
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


def _rename(env, names, lives, obs):
    names = list(names)
    for slot in range(env.num_agents):
        if names[slot] is None and obs.alive[slot]:
            lives[slot] += 1
            agent = env.agents[slot]
            names[slot] = agent if lives[slot] == 1 else f"{agent}#{lives[slot]}"
    return names


def _is_box(env):
    return isinstance(env.action_space(env.agents[0], env.default_params), Box)


def _width(env, params, slot):
    space = env.action_space(env.agents[slot], params)
    return space.size if isinstance(space, Box) else space.n


def _no_action(env, params):
    width = env.action_layout(params).width if _is_box(env) else 1
    dtype = np.float32 if _is_box(env) else np.int32
    return np.zeros((env.num_agents, width), dtype)
