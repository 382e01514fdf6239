"""`check_env` passes what keeps the contract, and names what breaks it, rule by rule."""

import re
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import struct

from jaxmarl_envs import (
    Box,
    Discrete,
    MultiAgentEnv,
    MultiDiscrete,
    Observation,
    Tuple,
    check_env,
    make,
    names,
    quick_check,
)
from jaxmarl_envs.check import EnvContractError, EnvReport
from jaxmarl_envs.check.interpret import Interpreter, OutOfBudget
from jaxmarl_envs.check.rules import BEGUN, DECLARED, OBSERVED, STEPPED, TRACED
from jaxmarl_envs.check.values import keys_from_words, words_of_keys

A, B, LATE = range(3)
WIDTHS = (2, 3, 2)
NUM_ACTIONS = (2, 3, 2)
LENGTH = 4


@struct.dataclass
class TinyParams:
    length: Any = LENGTH


@struct.dataclass
class TinyState:
    time: jax.Array  # [] int
    noise: jax.Array  # [] float
    said: jax.Array  # [A] int: last action of each agent


class Tiny(MultiAgentEnv):
    """a and b take turns for 4 steps, and a third agent, who joins after 2, acts beside them.

    `change` overrides attributes and methods; `on_reset` and `on_step` change what the two
    functions return, as `f(env, obs, state)` and `f(env, result, call)` on dicts.
    """

    name = "tiny"
    agents = ("a", "b", "late")

    def __init__(self, on_reset=None, on_step=None, **change):
        self.on_reset = on_reset or (lambda env, obs, state: (obs, state))
        self.on_step = on_step or (lambda env, result, call: result)
        self.change = change
        if "agents" in change:
            self.agents = change["agents"]
        self.calls = 0

    @property
    def default_params(self):
        return self.change.get("params", TinyParams())

    @property
    def max_actors(self):
        return self.change.get("max_actors", 2)

    def horizon(self, params):
        return self.change.get("horizon", LENGTH)

    def observation_space(self, agent, params):
        own = Box(0.0, 1.0, (WIDTHS[self.agents.index(agent)],))
        return self.change.get("observation_space", {}).get(agent, own)

    def action_space(self, agent, params):
        own = Discrete(NUM_ACTIONS[self.agents.index(agent)])
        return self.change.get("action_space", {}).get(agent, own)

    def reset_env(self, key, params):
        noise = jax.random.uniform(key)
        state = TinyState(jnp.zeros((), jnp.int32), noise, jnp.zeros(3, jnp.int32))
        return self.on_reset(self, self.observe(state, params), state)

    def step_env(self, key, state, action, params):
        before = self.observe(state, params)
        said = jnp.where(before.agent_mask, action, state.said)
        after = TinyState(state.time + 1, jax.random.uniform(key), said)
        obs = self.observe(after, params)
        over = after.time >= params.length
        earned = jnp.where(before.agent_mask, said.astype(jnp.float32), 0.0)
        result = {
            "obs": obs,
            "state": after,
            "reward": earned,
            "terminated": over & jnp.array([True, True, False]) & before.alive,
            "truncated": over & jnp.array([False, False, True]) & before.alive,
            "info": {"metrics": {"said": earned}},
        }
        call = {"key": key, "state": state, "action": action, "params": params, "before": before}
        result = self.on_step(self, result, call)
        return tuple(result.values()) if isinstance(result, dict) else result

    def observe(self, state, params):
        going = state.time < params.length
        alive = going & jnp.stack([True, True, state.time >= 2])
        turn = jnp.stack([state.time % 2 == 0, state.time % 2 == 1, True])
        own = jnp.arange(3) < jnp.array(WIDTHS)[:, None]
        mask = jnp.arange(3) < jnp.array(NUM_ACTIONS)[:, None]
        return Observation(
            features=jnp.where(own, state.noise, 0.0),
            action_mask=mask,
            alive=alive,
            agent_mask=alive & turn,
        )


class Factored(MultiAgentEnv):
    """One agent with two choices, of 2 and 3 options, and a number; the mask is given."""

    name = "factored"
    agents = ("a",)

    def __init__(self, mask):
        self.mask = mask

    @property
    def default_params(self):
        return TinyParams()

    def horizon(self, params):
        return LENGTH

    def observation_space(self, agent, params):
        return Box(0.0, 1.0, (1,))

    def action_space(self, agent, params):
        return Tuple((MultiDiscrete((2, 3)), Box(0.0, 1.0, (1,))))

    def reset_env(self, key, params):
        time = jnp.zeros((), jnp.int32)
        return self.observe(time, params), time

    def step_env(self, key, state, action, params):
        obs = self.observe(state + 1, params)
        reward = action.choices.sum(-1) + action.numbers.sum(-1)
        return obs, state + 1, reward, ~obs.alive, jnp.zeros(1, bool), {}

    def observe(self, time, params):
        alive = (time < params.length)[None]
        return Observation(jnp.zeros((1, 1)), self.mask[None], alive, alive)


def test_an_environment_of_choices_and_numbers_passes():
    report = check_env(Factored(jnp.array([True, True, False, False, True, True])))
    assert report.num_decisions["a"] > 0


def observing(**change):
    """Change fields of the observation after every step: `name=f(old, call)`."""

    def on_step(env, result, call):
        obs = result["obs"]
        new = {name: f(getattr(obs, name), call) for name, f in change.items()}
        return {**result, "obs": obs.replace(**new)}

    return Tiny(on_step=on_step)


def starting(**change):
    """Change fields of the first observation."""

    def on_reset(env, obs, state):
        new = {name: f(getattr(obs, name)) for name, f in change.items()}
        return obs.replace(**new), state

    return Tiny(on_reset=on_reset)


def stepping(**change):
    """Change what a step returns: `name=f(old, call)`."""

    def on_step(env, result, call):
        return {**result, **{name: f(result[name], call) for name, f in change.items()}}

    return Tiny(on_step=on_step)


def everywhere(**change):
    """Change fields of every observation."""
    env = observing(**{name: lambda old, call, f=f: f(old) for name, f in change.items()})
    env.on_reset = starting(**change).on_reset
    return env


def at(time, index, value):
    """Set one element at the step that begins at `time`."""
    return lambda old, call: jnp.where(call["state"].time == time, old.at[index].set(value), old)


def informing(**entries):
    return stepping(info=lambda old, call: {**old, **{k: f(call) for k, f in entries.items()}})


class Forgetful(Tiny):
    """Its own `step` never begins a new episode."""

    def step(self, key, state, action, params=None):
        key_step, _ = jax.random.split(key)
        return self._step(key_step, state, action, params)


class Hasty(Tiny):
    """Its own `step_batch` resets all as soon as one is over."""

    def step_batch(self, keys, state, action, params):
        keys = jax.vmap(jax.random.split)(keys)
        obs, state, *rest = jax.vmap(self._step, (0, 0, 0, None))(keys[:, 0], state, action, params)
        fresh = jax.vmap(self.reset_env, (0, None))(keys[:, 1], params)
        some = rest[-1]["episode_over"].any()
        obs, state = jax.tree.map(lambda x, y: jnp.where(some, x, y), fresh, (obs, state))
        return (obs, state, *rest)


def count_calls(env, result, call):
    env.calls += 1
    return {**result, "reward": result["reward"] + env.calls}


def draw_with_numpy(env, obs, state):
    return obs, state.replace(noise=jnp.asarray(np.random.default_rng().random(), jnp.float32))


def call_back(state):
    draw = jax.pure_callback(
        lambda: np.float32(np.random.default_rng().random()),
        jax.ShapeDtypeStruct((), jnp.float32),
        vmap_method="sequential",
    )
    return state.replace(noise=draw)


def branch_in_python(env, result, call):
    return result if call["state"].time < 2 else {**result, "reward": result["reward"] * 2}


def peek_at_tracers(env, result, call):
    under_jit = isinstance(call["state"].time, jax.core.Tracer)
    return result if under_jit else {**result, "reward": result["reward"] + 1}


@jax.tree_util.register_pytree_with_keys_class
class CustomNode:
    """A container with one leaf."""

    def __init__(self, leaf):
        self.leaf = leaf

    def tree_flatten_with_keys(self):
        return [(jax.tree_util.GetAttrKey("leaf"), self.leaf)], None

    @classmethod
    def tree_unflatten(cls, _, leaves):
        return cls(*leaves)


@dataclass
class Case:
    rule: str
    env: MultiAgentEnv
    message: str
    quick: bool = True  # whether `quick_check` sees it, too


class Painter(Tiny):
    def render(self, state):
        return "<svg/>"


NOBODY = "because the slot held nobody before this step"
CASES = [
    # Declarations.
    Case("_names", Tiny(agents=("a", "b", "a")), "unique names, but 'a' is there twice"),
    Case("_names", Tiny(agents=["a", "b"]), r"agents is \['a', 'b'\], expected a tuple"),
    Case("_names", Tiny(agents=("a", "", "b")), r"agents is \('a', '', 'b'\), expected names"),
    Case("_names", Tiny(agents=()), r"agents is \(\), expected a tuple of at least one string"),
    Case(
        "_params_are_numbers",
        Tiny(params=TinyParams(length="four")),
        r"params\.length is 'four', expected a number or an array",
    ),
    Case(
        "_observation_space",
        Tiny(observation_space={"b": Discrete(3)}),
        r"agent 'b': observation_space is Discrete\(n=3.*\) of jaxmarl_envs, expected a Box",
    ),
    Case(
        "_observation_space",
        Tiny(observation_space={"b": Box(0.0, 1.0, (3, 1))}),
        r"agent 'b': observation_space has shape \(3, 1\), expected .* as many as",
    ),
    Case(
        "_observation_space",
        Tiny(observation_space={"a": Box(0.0, 1.0, ())}),
        r"agent 'a': observation_space has shape \(\), expected at least one dimension",
    ),
    Case(
        "_action_space",
        Tiny(action_space={"b": 3}),
        "agent 'b': action_space is 3 of builtins, expected a D",
    ),
    Case(
        "_action_space",
        Tiny(action_space={"b": Box(0.0, 1.0, (2, 2))}),
        r"agent 'b': action_space has shape \(2, 2\), expected one dimension",
    ),
    Case(
        "_action_space",
        Tiny(action_space={"b": Tuple((Discrete(2), Box(0.0, 1.0, (0,))))}),
        r"agent 'b': action_space has shape \(0,\), expected at least one element",
    ),
    Case("_max_actors", Tiny(max_actors=4), "max_actors is 4, expected an integer from 1 to 3"),
    Case("_horizon", Tiny(horizon=0), "horizon is 0, expected None or a number of steps"),
    # Structure, shapes and dtypes.
    Case(
        "",
        Tiny(on_reset=lambda env, obs, state: (obs, state, {})),
        r"reset_env returns a tuple of 3, expected the tuple \(obs, state\)",
    ),
    Case(
        "",
        Tiny(on_step=lambda env, result, call: tuple(result.values())[:5]),
        r"step_env returns a tuple of 5, expected the tuple \(obs, state, reward, terminated, tr",
    ),
    Case(
        "",
        Tiny(on_step=branch_in_python),
        "step_env raises TracerBoolConversionError when traced by JAX: ",
    ),
    Case(
        "_observation_layout",
        Tiny(on_reset=lambda env, obs, state: (obs.features, state)),
        r"reset_env: obs is float32\[3, 3\], expected an Observation",
    ),
    Case(
        "_observation_layout",
        everywhere(features=lambda old: old.astype(jnp.int32)),
        r"reset_env: obs\.features is int32\[3, 3\], expected float\[3, 3\]",
    ),
    Case(
        "_observation_layout",
        observing(features=lambda old, call: old[:, :2]),
        r"step_env: obs\.features is float32\[3, 2\], expected float\[3, 3\]",
    ),
    Case(
        "_observation_layout",
        everywhere(action_mask=lambda old: old.astype(jnp.float32)),
        r"reset_env: obs\.action_mask is float32\[3, 3\], expected bool\[3, 3\]",
    ),
    Case(
        "_observation_layout",
        everywhere(alive=lambda old: old.any()),
        r"reset_env: obs\.alive is bool\[\], expected bool\[3\]",
    ),
    Case(
        "_observation_layout",
        everywhere(agent_mask=lambda old: old.astype(jnp.int32)),
        r"reset_env: obs\.agent_mask is int32\[3\], expected bool\[3\]",
    ),
    Case(
        "_same_layout_after_every_step",
        stepping(state=lambda old, call: old.replace(time=old.time.astype(jnp.float32))),
        r"state\.time is int32\[\] after reset_env and float32\[\] after step_env, expected the",
    ),
    Case(
        "_same_layout_after_every_step",
        stepping(state=lambda old, call: old.replace(noise=0.5)),
        r"state\.noise is float32\[\] after reset_env and weakly typed float32\[\] after step_env",
        quick=False,
    ),
    Case(
        "_same_layout_after_every_step",
        stepping(state=lambda old, call: old.replace(said=None)),
        r"state\.said is int32\[3\] after reset_env and missing after step_env",
    ),
    Case(
        "_same_layout_after_every_step",
        stepping(state=lambda old, call: old.replace(said=CustomNode(old.said))),
        r"state\.said",
    ),
    Case(
        "_step_layout",
        stepping(reward=lambda old, call: old[:, None]),
        r"step_env: reward is float32\[3, 1\], expected float\[3\]",
    ),
    Case(
        "_step_layout",
        stepping(reward=lambda old, call: old.astype(jnp.int32)),
        r"step_env: reward is int32\[3\], expected float\[3\]",
    ),
    Case(
        "_step_layout",
        stepping(terminated=lambda old, call: old.astype(jnp.float32)),
        r"step_env: terminated is float32\[3\], expected bool\[3\]",
    ),
    Case(
        "_step_layout",
        stepping(truncated=lambda old, call: old.any()),
        r"step_env: truncated is bool\[\], expected bool\[3\]",
    ),
    Case("_info_layout", stepping(info=lambda old, call: []), "info is a list, expected a dict"),
    Case(
        "_info_layout",
        informing(metrics=lambda call: call["before"].features),
        r"info\['metrics'\] is float32\[3, 3\], expected a dict",
    ),
    Case(
        "_info_layout",
        informing(metrics=lambda call: {"wins": jnp.zeros(())}),
        r"info\['metrics'\]\['wins'\] is float32\[\], expected float\[3\]",
    ),
    Case(
        "_info_layout",
        informing(metrics=lambda call: {"length_mean": jnp.zeros(3)}),
        r"info\['metrics'\] has the key 'length_mean', expected a name, but none of .* entropy, ",
    ),
    Case(
        "_info_layout",
        informing(metrics=lambda call: {"": jnp.zeros(3)}),
        r"info\['metrics'\] has the key '', expected a name",
    ),
    Case(
        "_info_layout",
        informing(final_observation=lambda call: call["before"].features),
        r"info\['final_observation'\] is float32\[3, 3\], expected an Observation",
    ),
    # Observations.
    Case(
        "_features_are_finite",
        starting(features=lambda old: old.at[B, 1].set(jnp.nan)),
        r"seed 0, episode 0, step 0, agent 'b': obs\.features\[1\] is nan, expected a finite",
    ),
    Case(
        "_features_are_padded_with_zeros",
        observing(features=at(1, (A, 2), 0.5)),
        r"step 2, agent 'a': obs\.features\[2\] is 0\.5, expected 0 beyond the agent's own",
    ),
    Case(
        "_features_are_in_their_space",
        observing(features=at(1, (B, 2), 1.5)),
        r"step 2, agent 'b': obs\.features\[2\] is 1\.5, expected a value within the bounds",
        quick=False,
    ),
    Case(
        "_features_are_in_their_space",
        observing(features=at(1, (B, 0), -0.5)),
        r"step 2, agent 'b': obs\.features\[0\] is -0\.5, expected a value within the bounds",
        quick=False,
    ),
    Case(
        "_an_action_is_legal",
        observing(action_mask=at(0, A, False)),
        r"step 1, agent 'a': obs\.action_mask is \[False, False, False\], expected at least one",
    ),
    Case(
        "_an_action_is_legal",
        Factored(jnp.array([True, True, False, False, False, True])),
        r"agent 'a': obs\.action_mask is \[.*\], expected at least one True for every choice",
    ),
    Case(
        "_own_numbers_exist",
        Factored(jnp.array([True, True, False, False, True, False])),
        r"agent 'a': obs\.action_mask\[5\] is False, expected True, because the agent has this num",
    ),
    Case(
        "_only_own_actions_are_legal",
        everywhere(action_mask=lambda old: jnp.ones_like(old)),
        r"step 0, agent 'a': obs\.action_mask\[2\] is True, expected False beyond the agent's own",
    ),
    Case(
        "_who_acts_is_alive",
        observing(agent_mask=at(0, LATE, True)),
        r"step 1, agent 'late': obs\.agent_mask is True, expected False, because alive is False",
    ),
    Case(
        "_no_more_act_than_declared",
        Tiny(max_actors=1),
        r"step 2: obs\.agent_mask is \[True, False, True\], expected at most max_actors=1 slots",
    ),
    Case(
        "_somebody_lives_at_the_start",
        starting(alive=jnp.zeros_like, agent_mask=jnp.zeros_like),
        r"step 0: obs\.alive is \[False, False, False\], expected at least one True at the start",
    ),
    # Steps.
    Case(
        "_rewards_are_finite",
        stepping(reward=at(2, B, jnp.inf)),
        r"step 3, agent 'b': reward is inf, expected a finite number",
    ),
    Case(
        "_nobody_earns_nothing",
        stepping(reward=at(1, LATE, 0.25)),
        rf"step 2, agent 'late': reward is 0\.25, expected exactly 0, {NOBODY}",
    ),
    Case(
        "_only_lives_terminate",
        stepping(terminated=at(0, LATE, True)),
        f"step 1, agent 'late': terminated is True, expected False, {NOBODY}",
    ),
    Case(
        "_only_lives_are_truncated",
        stepping(truncated=at(0, LATE, True)),
        f"step 1, agent 'late': truncated is True, expected False, {NOBODY}",
    ),
    Case(
        "_lives_end_with_an_edge",
        stepping(terminated=at(LENGTH - 1, B, False)),
        r"step 4, agent 'b': obs\.alive is False, expected True, because the agent was alive",
    ),
    Case(
        "_rebirths_keep_the_final_observation",
        stepping(terminated=at(1, A, True)),
        r"step 2, agent 'a': obs\.alive is True, expected False, because the agent's life ended",
    ),
    Case(
        "_final_features_are_finite",
        informing(
            final_observation=lambda call: call["before"].replace(
                features=call["before"].features.at[B, 0].set(jnp.nan)
            )
        ),
        r"step 1, agent 'b': info\['final_observation'\]\.features\[0\] is nan, expected a finite",
    ),
    Case(
        "_metrics_are_finite",
        informing(metrics=lambda call: {"ok": jnp.zeros(3), "bad": jnp.array([0, jnp.nan, 0])}),
        r"step 1, agent 'b': info\['metrics'\]\['bad'\] is nan, expected a finite number",
    ),
    Case(
        "_episodes_end_by_their_horizon",
        Tiny(horizon=3),
        r"step 3: obs\.alive is \[True, True, True\], expected all False, because horizon is 3",
    ),
    # Repetition.
    Case(
        "",
        Tiny(on_step=count_calls),
        "step_env becomes another program when it is traced again, expected a pure function",
    ),
    Case(
        "",
        Tiny(on_reset=draw_with_numpy),
        "reset_env becomes another program when it is traced again, expected a pure function",
    ),
    Case(
        "",
        Tiny(on_reset=lambda env, obs, state: (obs, call_back(state))),
        r"seed 0: reset_env gives state\.noise .* in one call and .* in another with the same key",
        quick=False,
    ),
    Case(
        "",
        stepping(state=lambda old, call: call_back(old)),
        r"step 1: step_env gives state\.noise .* in one call and .* in another with the same key",
        quick=False,
    ),
    Case(
        "",
        stepping(state=lambda old, call: old.replace(said=call["action"])),
        r"step_env gives state\.said\[.\] . for one action and . for another of slots whose agent",
        quick=False,
    ),
    Case(
        "",
        Tiny(on_step=peek_at_tracers),
        r"seed 0: step_env gives reward\[0\] .* under jit and .* without, expected the same",
        quick=False,
    ),
    Case(
        "",
        Forgetful(),
        r"seed 0: step gives obs\..* in step and .* in step_env, and reset_env",
        quick=False,
    ),
    Case(
        "",
        Hasty(),
        r"seed 1: step_batch gives obs\..* in step_batch and .* in step_env, and",
        quick=False,
    ),
    Case("_drawing", Painter(), r"render takes \(state\), expected \(state, params, last_action\)"),
]


@pytest.mark.parametrize("case", CASES, ids=[f"{i}{case.rule}" for i, case in enumerate(CASES)])
def test_a_broken_rule_is_named_in_one_sentence(case):
    with pytest.raises(EnvContractError, match=case.message) as error:
        check_env(case.env, num_envs=2)
    text = str(error.value)
    assert text.startswith(f"environment {case.env.name!r}, ")
    assert "\n" not in text
    assert re.search(r"expected|raises", text)


def test_the_first_observation_of_a_later_episode_is_looked_at():
    def on_reset(env, obs, state):
        rare = state.noise > 0.9
        return obs.replace(features=jnp.where(rare, jnp.nan, obs.features)), state

    place = r"seed 0, episode [1-9]\d*, step 0, agent 'a': obs\.features\[0\] is nan"
    with pytest.raises(EnvContractError, match=place):
        check_env(Tiny(on_reset=on_reset), num_steps=200, num_envs=1)


def test_every_rule_has_an_environment_that_breaks_it():
    rules = {rule.__name__ for rule in [*DECLARED, *TRACED, *OBSERVED, *BEGUN, *STEPPED]}
    assert rules == {case.rule for case in CASES} - {""}


# ---- What keeps the contract ---------------------------------------------------------------------


@pytest.mark.rare_cases("shuttle_grid", "crypto", "basic", "asymmetric_play", "round_robin")
@pytest.mark.parametrize("name", names())
def test_registered_environments_keep_the_contract(name):
    # A small one, so that its episodes end and its slots are used within the check.
    env, params = make(name, **({"num_slots": 3} if name == "flex_agents" else {}))
    if name == "flex_agents":
        params = params.replace(max_age=3, p_join=0.5, p_leave=0.3)
    report = check_env(env, params)
    assert report.num_episodes >= 4
    assert min(report.num_decisions.values()) > 0
    assert min(report.num_lives.values()) > 0


def test_continuous_actions_keep_the_contract():
    env, params = make("crypto", continuous_actions=True)
    assert check_env(env, params, num_steps=30, num_envs=1).num_steps == 30


def test_the_report_counts_what_was_seen():
    report = check_env(Tiny(), num_steps=2 * LENGTH + 1, num_envs=2)
    assert report == EnvReport(
        num_steps=2 * (2 * LENGTH + 1),
        num_episodes=4,
        # Per episode a acts at steps 0 and 2, b at 1 and 3, late at 2 and 3; then a acts once more.
        num_decisions={"a": 10, "b": 8, "late": 8},
        num_lives={"a": 4, "b": 4, "late": 4},
    )


def test_a_rebirth_that_keeps_the_final_observation_is_legal():
    def on_step(env, result, call):
        reborn = call["state"].time == 1
        terminated = result["terminated"].at[A].set(result["terminated"][A] | reborn)
        info = {**result["info"], "final_observation": result["obs"]}
        return {**result, "terminated": terminated, "info": info}

    report = check_env(Tiny(on_step=on_step), num_steps=LENGTH, num_envs=1)
    assert report.num_lives == {"a": 2, "b": 1, "late": 1}


def test_a_step_on_which_nobody_acts_and_keys_in_the_state_are_legal():
    @struct.dataclass
    class Keyed:
        inner: TinyState
        key: jax.Array  # a typed key

    class Pause(Tiny):
        def reset_env(self, key, params):
            obs, state = super().reset_env(key, params)
            return self.pause(obs, state), Keyed(state, key)

        def step_env(self, key, state, action, params):
            obs, inner, *rest = super().step_env(key, state.inner, action, params)
            return self.pause(obs, inner), Keyed(inner, state.key), *rest

        def observe(self, state, params):
            return self.pause(super().observe(state, params), state)

        def pause(self, obs, state):
            return obs.replace(agent_mask=obs.agent_mask & (state.time > 0))

    report = check_env(Pause(), num_envs=2, num_steps=2 * LENGTH)
    assert report.num_decisions == {"a": 4, "b": 8, "late": 8}


def test_bad_numbers_of_steps_are_refused():
    for wrong in ({"num_steps": 0}, {"num_envs": 0}):
        with pytest.raises(ValueError, match="must be at least 1") as error:
            check_env(Tiny(), **wrong)
        assert not isinstance(error.value, EnvContractError)


# ---- The quick check -----------------------------------------------------------------------------

QUICK_CASES = [
    *[case for case in CASES if case.quick],
    Case(
        "",
        stepping(reward=lambda old, call: old + jnp.asarray(np.random.default_rng().random(3))),
        "step_env becomes another program when it is traced again",
    ),
    Case(
        "",
        stepping(
            reward=lambda old, call: (
                old + jax.jit(lambda x: x * np.random.default_rng().random(3))(old)
            )
        ),
        "step_env becomes another program when it is traced again",
    ),
    Case(
        "",
        everywhere(agent_mask=jnp.zeros_like),
        "agent_mask is all False at the first 8 steps, over 2 episodes that ended, expected agen",
    ),
    Case(
        "",
        Tiny(
            horizon=None,
            on_reset=everywhere(agent_mask=jnp.zeros_like).on_reset,
            on_step=lambda env, result, call: {
                **result,
                "obs": call["before"].replace(agent_mask=jnp.zeros(3, bool)),
                "state": call["state"],
            },
        ),
        "agent_mask is all False at the first 8 steps, and the state stays as it is, expected",
    ),
    Case(
        "",
        Tiny(
            horizon=None,
            on_reset=lambda env, obs, state: (obs.replace(alive=jnp.ones(3, bool)), state),
            on_step=lambda env, result, call: {
                **result,
                "obs": result["obs"].replace(alive=jnp.ones(3, bool)),
                "terminated": jnp.zeros(3, bool),
                "truncated": jnp.zeros(3, bool),
            },
        ),
        r"obs\.alive is \[True, True, True\] and terminated and truncated are all False whatever",
    ),
]


@pytest.mark.parametrize("case", QUICK_CASES, ids=range(len(QUICK_CASES)))
def test_the_quick_check_names_what_breaks_the_contract(case):
    with pytest.raises(EnvContractError, match=case.message) as error:
        quick_check(case.env)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("name", names())
def test_registered_environments_pass_the_quick_check(name):
    quick_check(*make(name))


@pytest.mark.parametrize(
    "case", [case for case in CASES if "weakly" in case.message or r"is 1\.5" in case.message]
)
def test_the_quick_check_lets_pass_what_can_be_trained_on(case):
    quick_check(case.env)


def test_the_quick_check_compiles_nothing():
    found = []

    def listen(event, duration, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            found.append(duration)

    jax.monitoring.register_event_duration_secs_listener(listen)
    quick_check(*make("crypto"))
    assert not found


@pytest.mark.rare_cases("shuttle_grid")
@pytest.mark.parametrize("name", ["asymmetric_play", "crypto", "flex_agents", "shuttle_grid"])
def test_the_interpreter_plays_as_the_compiled_environment(name):
    env, params = make(name)
    key = jax.random.key(3)
    words = np.asarray(jax.random.key_data(key))
    run = Interpreter(budget=10**6)
    reset = jax.make_jaxpr(env.reset_env)(key, params)
    found = run(reset, [keys_from_words(words), *jax.tree.leaves(params)])
    expected = jax.jit(env.reset_env)(key, params)
    for _ in range(6):
        for x, y in zip(found, jax.tree.leaves(expected[:2]), strict=False):
            if jnp.issubdtype(y.dtype, jax.dtypes.prng_key):
                x, y = words_of_keys(x), jax.random.key_data(y)
            assert x.dtype == y.dtype
            np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-5)
        state = jax.tree.leaves(expected[1])
        action = np.asarray(expected[0].action_mask).argmax(-1).astype(np.int32)
        step = jax.make_jaxpr(env.step_env)(key, expected[1], action, params)
        expected = jax.jit(env.step_env)(key, expected[1], action, params)
        found = run(step, [keys_from_words(words), *state, action, *jax.tree.leaves(params)])


def test_the_interpreter_stops_when_its_budget_is_used_up():
    def forever(x):
        return jax.lax.while_loop(lambda x: x < 1e9, lambda x: x + 1, x)

    with pytest.raises(OutOfBudget):
        Interpreter(budget=100)(jax.make_jaxpr(forever)(0), [0])
