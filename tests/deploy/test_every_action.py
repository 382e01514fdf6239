"""Policies of agents with choices, numbers and both act in the agents' own forms."""

import json
import zipfile
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hybrid_env_deploy import SPACES, Hybrid
from probe_envs import tiny_learner

from jaxmarl_envs import make
from jaxmarl_envs.actions import Action, ActionLayout
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple
from jaxmarl_ppo.deploy import jax_export as policy_export
from jaxmarl_ppo.deploy.exported import ExportedPolicy, load_exported
from jaxmarl_ppo.deploy.forms import Factors, Form, form_from_json, widen_mask
from jaxmarl_ppo.deploy.policy import Policy, form_of
from jaxmarl_ppo.rollout.act import act
from jaxmarl_ppo.rollout.lives import begin_lives
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.rollout.start import init_rollout_state
from jaxmarl_ppo.rollout.step import step

T, E = 7, 3
SPEC = {"prev_action": True, "prev_reward": True, "normalise_observations": True}


@pytest.fixture(scope="module")
def case():
    """One policy for everybody."""
    return played(tiny_learner(Hybrid(), None, memory="min_gru", spec=SPEC))


@pytest.fixture(scope="module")
def apart():
    """A policy for each agent, of which all but one lack choices or numbers."""
    spec = {**SPEC, "continuous": "beta"}
    return played(tiny_learner(Hybrid(), None, memory="min_gru", mapping="per_agent", spec=spec))


def played(learner):
    """A learner, parameters that make decisive policies, and what the rollout sees and does."""
    env = learner.env
    rng = np.random.default_rng(0)
    population = learner.init_population(jax.random.key(0))
    groups = [
        group.replace(
            params=jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape)), group.params)
        )
        for group in population.policy_groups
    ]
    population = population.replace(policy_groups=tuple(groups))
    players = learner.players
    state = init_rollout_state(env, None, players, population.league, jax.random.key(1), E)
    log = []

    @jax.jit
    def advance(state, key):
        noise = draw_noise(players, (E,), key)
        best = act(players, population, state, None, noise, greedy=True)
        drawn = act(players, population, state, None, noise)
        after, stepped = step(env, None, state, drawn, noise)
        after = begin_lives(players, population.league, state.obs.alive, after, stepped, noise)
        own_key = jax.random.split(key, 3 + len(players.policy_groups))[3]
        return after, (state, drawn.env_action, best.env_action, stepped.reward, own_key)

    for key in jax.random.split(jax.random.key(2), T):
        state, seen = advance(state, key)
        log.append(jax.device_get(seen))
    return learner, population, log


def own_of(learner, action, agent) -> Any:
    """One agent's actions `[E, ...]`, in its own form."""
    layout, slot = learner.env.action_layout(None), learner.env.agent_index(agent)
    rows = [layout.own(jax.tree.map(lambda x: x[e], action), slot) for e in range(E)]  # noqa: B023
    return jax.tree.map(lambda *x: np.stack(x), *rows)


def own_mask(learner, mask, agent) -> list[np.ndarray]:
    """One agent's legal options, an array `[E, options]` for each of its choices."""
    layout, slot = learner.env.action_layout(None), learner.env.agent_index(agent)
    counts = layout.factors[slot].counts
    return [mask[:, slot, start : start + n] for start, n in zip(layout.starts, counts)]  # noqa: B905


def assert_same(action, expected):
    assert jax.tree.structure(action) == jax.tree.structure(expected)
    for a, b in zip(jax.tree.leaves(action), jax.tree.leaves(expected), strict=True):
        assert a.shape == b.shape
        assert a.dtype == (jnp.int32 if b.dtype.kind == "i" else jnp.float32)
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("agent", SPACES)
@pytest.mark.parametrize("alone", [True, False])
def test_greedy_actions_have_the_agents_form_and_are_those_of_the_rollout(case, agent, alone):
    assert_greedy_alike(*case, agent, alone)


@pytest.mark.parametrize("agent", SPACES)
def test_policies_of_one_agent_each_act_as_in_the_rollout(apart, agent):
    assert_greedy_alike(*apart, agent, alone=True)


def assert_greedy_alike(learner, population, log, agent, alone):
    """A policy's own greedy actions, step by step, are those of the rollout."""
    policy = Policy.of(learner, population, agent=agent if alone else None)
    slot, given = learner.env.agent_index(agent), {} if alone else {"agent": agent}
    hidden = policy.initial_hidden(E)
    previous = own_of(learner, jax.tree.map(np.zeros_like, log[0][1]), agent)
    for state, drawn, best, _, _ in log:
        masks = own_mask(learner, state.obs.action_mask, agent)
        call = {"prev_action": previous, "prev_reward": state.last_reward[:, slot],
                "reset": state.is_first[:, slot], "action_mask": masks or None}  # fmt: skip
        call |= given
        features = state.obs.features[:, slot]
        action, moved = policy.act(features, hidden, **call)
        assert_same(action, own_of(learner, best, agent))
        if masks:
            one_array = np.concatenate(masks, axis=-1)
            other, _ = policy.act(features, hidden, **{**call, "action_mask": one_array})
            assert_same(other, own_of(learner, best, agent))
        hidden, previous = moved, own_of(learner, drawn, agent)


def test_drawn_actions_of_all_agents_at_once_are_those_of_the_rollout(case):
    """A tuple of choices and numbers, as the agents' forms differ."""
    learner, population, log = case
    policy = Policy.of(learner, population)
    hidden = policy.initial_hidden((E, 4))
    previous = (np.zeros((E, 4, 2), np.int32), np.zeros((E, 4, 2), np.float32))
    differ = False
    for state, drawn, best, _, key in log:
        obs = state.obs
        action, hidden = policy.act(
            obs.features, hidden, key, action_mask=obs.action_mask, agent=np.arange(4),
            prev_action=previous, prev_reward=state.last_reward, reset=state.is_first,
        )  # fmt: skip
        previous = (drawn.choices, drawn.numbers)
        assert_same(action, previous)
        differ |= not np.array_equal(drawn.choices, best.choices)
    assert differ


def test_an_action_is_in_its_agents_space_without_a_batch_too(case):
    learner, population, _ = case
    for agent, space in SPACES.items():
        policy = Policy.of(learner, population, agent=agent)
        hidden, key = policy.initial_hidden(), jax.random.key(3)
        action, hidden = policy.act(np.zeros(6), hidden, key, reset=True)
        assert bool(space.contains(action))
        again, _ = policy.act(np.zeros(6), hidden, key, prev_action=action, prev_reward=0.0)
        assert bool(space.contains(again))
        inside, _ = jax.jit(
            lambda features, before, policy=policy, hidden=hidden: policy.act(
                features, hidden, jax.random.key(3), prev_action=before, prev_reward=0.0
            )
        )(np.zeros(6), action)
        assert_same(inside, jax.tree.map(np.asarray, again))


def test_illegal_options_of_every_choice_are_never_drawn(case):
    learner, population, _ = case
    policy = Policy.of(learner, population, agent="pair")
    masks = [[True, False], [False, True, True]]
    keys = jax.random.split(jax.random.key(0), 40)
    drawn = jax.vmap(
        lambda key: policy.act(jnp.zeros(6), policy.initial_hidden(), key, action_mask=masks,
                               reset=True)[0]
    )(keys)  # fmt: skip
    assert set(map(tuple, np.asarray(drawn).tolist())) == {(0, 1), (0, 2)}


@pytest.mark.parametrize(
    ("agent", "changes", "message"),
    [
        (
            "pair",
            {"prev_action": 1},
            r"prev_action has shape \(\), but .* \(2,\) for actions 2 x 3",
        ),
        ("both", {"prev_action": 1}, r"'shared' takes a tuple of 2 parts \(3 \+ box 2\), got 1"),
        (
            "both",
            {"prev_action": (1, [0.1])},
            r"prev_action has a part of shape \(1,\), but .*\(2,",
        ),
        (
            "pair",
            {"action_mask": [[1, 1], [1, 1]]},
            r"action_mask has shape \(2, 2\), but .*\(5,\)",
        ),
        (
            "pair",
            {"action_mask": [[1], [1, 1]]},
            r"\(5,\) wide, or one for each choice .* 2, 3 opt",
        ),
        ("pair", {"action_mask": [[1, 1], [0, 0, 0]]}, "leaves no legal action in choice 2"),
        (
            None,
            {"agent": None},
            "acts differently for each of its agents: pass agent=, one of pick",
        ),
    ],
)
def test_what_does_not_fit_is_named(case, agent, changes, message):
    learner, population, _ = case
    policy = Policy.of(learner, population, agent=agent)
    call = {"prev_reward": 0.0, "prev_action": np.zeros(2, int), **changes}
    with pytest.raises(ValueError, match=message):
        policy.act(np.zeros(6), policy.initial_hidden(), **call)


# ---- Export --------------------------------------------------------------------------------------


@pytest.mark.parametrize("agent", [None, "both", "pair"])
def test_an_exported_policy_acts_as_the_original(case, tmp_path, agent):
    learner, population, _ = case
    policy = Policy.of(learner, population, agent=agent)
    loaded = policy.export(tmp_path / "policy", platforms=("cpu",))
    assert load_exported(tmp_path / "policy").signature == loaded.signature == policy.signature
    inputs, hidden = policy_export.random_inputs(policy, 6)
    given = policy_export.as_arguments(policy.signature, inputs)
    for key in (None, jax.random.key(4)):
        action, moved = policy.act(hidden=hidden, key=key, **given)
        other, other_moved = loaded.act(hidden=hidden, key=key, **given)
        assert_same(other, jax.tree.map(np.asarray, action))
        np.testing.assert_allclose(moved[0], other_moved[0], rtol=1e-5, atol=1e-5)
    assert loaded.header["format"] == 2
    assert loaded.header["agents"][agent or "both"]["action"] == (
        {"choices": [2, 3]} if agent == "pair" else {"tuple": [{"choice": 3}, {"numbers": [2]}]}
    )


def test_other_choices_and_other_numbers_are_noticed(case, tmp_path):
    learner, population, _ = case
    policy = Policy.of(learner, population, agent="both")
    loaded = policy.export(tmp_path / "policy", platforms=("cpu",))
    for changes in ((lambda x: (x + 1) % 3, lambda x: x), (lambda x: x, lambda x: 1 - x)):

        class Other(ExportedPolicy):
            def decide(self, params, inputs, hidden, key, changes=changes):
                action, moved = super().decide(params, inputs, hidden, key)
                choices, numbers = (
                    change(action[name])
                    for change, name in zip(changes, ("choices", "numbers"), strict=True)
                )
                return {"choices": choices, "numbers": numbers}, moved

        other = Other(loaded.signature, loaded.programs, loaded.header)
        with pytest.raises(ValueError, match="acts differently from 'shared' on"):
            policy_export.check_same(policy, other)


@pytest.mark.parametrize(("agent", "form"), [("picker", ("choice", (4,))), ("mover", None)])
def test_files_without_forms_are_read(case, tmp_path, agent, form):
    """Those of older versions: the number of actions says the form."""
    learner, population, _ = case
    policy, path = Policy.of(learner, population, agent=agent), tmp_path / "policy"
    loaded = policy.export(path, platforms=("cpu",))
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    header = json.loads(parts["header.json"])
    assert header["format"] == 1
    del header["agents"][agent]["action"]
    parts["header.json"] = json.dumps(header).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, content in parts.items():
            file.writestr(zipfile.ZipInfo(name), content)
    old = load_exported(path)
    assert old.signature.form == Form(*(form or ("numbers", (2,))))
    inputs, hidden = policy_export.random_inputs(policy, 4)
    given = policy_export.as_arguments(policy.signature, inputs)
    expected = loaded.act(hidden=hidden, **given)[0]
    np.testing.assert_array_equal(old.act(hidden=hidden, **given)[0], expected)


# ---- Forms ---------------------------------------------------------------------------------------


def test_forms_are_those_of_spaces_and_come_back_from_json():
    forms = {agent: form_of(space) for agent, space in SPACES.items()}
    described = {agent: str(form) for agent, form in forms.items()}
    assert described == {"picker": "4", "mover": "box 2", "both": "3 + box 2", "pair": "2 x 3"}
    for form in (*forms.values(), Form("tuple", parts=(forms["both"], forms["pair"]))):
        data = json.loads(json.dumps(form.as_json()))
        assert form_from_json(data, lambda x: isinstance(x, int)) == form


def test_actions_are_built_and_taken_apart_as_the_environments_layout_does():
    inner = Tuple((Discrete(5), Box(0.0, 1.0, ())))
    space = Tuple((Discrete(3), MultiDiscrete([2, 4]), Box(0.0, 1.0, (2, 2)), inner))
    form, layout = form_of(space), ActionLayout({"a": space})
    assert form.factors == Factors((3, 2, 4, 5), 5)
    choices, numbers = np.array([[2, 1, 3, 4]], np.int32), np.linspace(0, 1, 5, dtype=np.float32)
    own = form.build(choices, numbers[None])
    expected = layout.own(Action(choices, numbers[None]), 0)
    jax.tree.map(lambda a, b: np.testing.assert_array_equal(a[0], b), own, expected)
    for batch_shape in ((1,), (2, 1)):
        again = form.split(form.flatten(own), batch_shape)
        np.testing.assert_array_equal(again[0], np.broadcast_to(choices, (*batch_shape, 4)))
        np.testing.assert_array_equal(again[1], np.broadcast_to(numbers, (*batch_shape, 5)))


def test_a_mask_is_widened_choice_by_choice():
    own, wide = Factors((2,), 1), Factors((3, 2), 2)
    mask = widen_mask(np.array([True, False, True]), own, wide)
    np.testing.assert_array_equal(mask, [1, 0, 0, 1, 0, 1, 0])


def test_policies_of_choices_alone_are_exported(tmp_path):
    env, params = make("combination_lock", num_wheels=3, num_options=4)
    learner = tiny_learner(env, params)
    population = learner.init_population(jax.random.key(0))
    policy = Policy.of(learner, population)
    code = np.eye(12, dtype=np.float32)[:5]
    action, _ = policy.act(code, policy.initial_hidden(5))
    assert (action.shape, action.dtype) == ((5, 3), jnp.int32)
    policy.export(tmp_path / "lock.zip")
    exported = load_exported(tmp_path / "lock.zip")
    again, _ = exported.act(code, exported.initial_hidden(5))
    np.testing.assert_array_equal(again, action)
