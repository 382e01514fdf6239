"""What crosses rooms has the shapes that its class promises; one iteration, traced but not run."""

import functools
import inspect
import sys
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from probe_envs import Reach
from shapes import Promise, Sizes, arguments_of, promises_of

from jaxmarl_envs.core import MultiAgentEnv, Observation
from jaxmarl_envs.spaces import Box, Discrete
from jaxmarl_ppo import (
    LSTM,
    MLP,
    Linear,
    Matchups,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    TrainConfig,
)
from jaxmarl_ppo.credit import advantages, decision_table, pending
from jaxmarl_ppo.learner import league_results, metrics
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies import ask
from jaxmarl_ppo.policies.stacked_network import StackedNetwork
from jaxmarl_ppo.ppo import group_learner, loss, minibatches, update
from jaxmarl_ppo.rollout import act, bootstrap, faults, lives, rollout, step
from jaxmarl_ppo.types import Decisions, Hyperparams, PolicyGroupTraining, Schedule

T, E = 7, 8
# Of what is trained `K` counts the trained members alone.
OF_THE_TRAINED = (
    Hyperparams, Schedule, PolicyGroupTraining, group_learner.UpdateReport, update.UpdateStats,
    loss.LossSums, advantages.CreditParams, minibatches.Blocks, minibatches.Selection,
)  # fmt: skip
DOORS = (
    act.act, ask.ask, step.step, lives.begin_lives, bootstrap.final_value, bootstrap.value_of,
    rollout.rollout, faults.check, faults.check_last, faults.find_fault, decision_table.tabulate,
    advantages.rollout_end, advantages.own_timeline_gae, advantages.estimate_credit,
    pending.nothing_pending, pending.open_decisions, minibatches.pack_rows, minibatches.pack_chunks,
    minibatches.shuffle, minibatches.select_minibatch, update.update,
    group_learner.PolicyGroupLearner.init, group_learner.PolicyGroupLearner.learn,
    league_results.record_results, metrics.measure, Learner.init,
    Learner.learn, Learner.train_step, StackedNetwork.forward,
)  # fmt: skip
# What can be asked for all slots of a policy group instead of its active rows.
OF_ALL_SLOTS = ("ask", "own_timeline_gae", "StackedNetwork.forward")

# Which of them a case does not go through.
UNUSED = {
    "crowd": {minibatches.pack_rows},
    "reach": {minibatches.pack_chunks, league_results.record_results},
}


class Crowd(MultiAgentEnv[jax.Array, None]):
    """Six agents, of which three act at a step; no two axes of it are equally long."""

    name = "crowd"
    agents = ("a", "b", "c", "d", "e", "f")
    max_actors = 3

    @property
    def default_params(self) -> None:
        return None

    def observation_space(self, agent: str, params: None) -> Box:
        return Box(0.0, 1.0, (5,))

    def action_space(self, agent: str, params: None) -> Discrete:
        return Discrete(10)

    def _observe(self, time: jax.Array) -> Observation:
        slots = jnp.arange(6)
        return Observation(
            features=jnp.ones((6, 5)),
            action_mask=jnp.ones((6, 10), bool),
            alive=slots >= 0,
            agent_mask=(slots + time) % 2 == 0,
        )

    def reset_env(self, key, params):
        time = jnp.zeros((), jnp.int32)
        return self._observe(time), time

    def step_env(self, key, state, action, params):
        no = jnp.zeros(6, bool)
        return (
            self._observe(state + 1),
            state + 1,
            jnp.ones(6),
            no,
            no,
            {"metrics": {"m": no + 1.0}},
        )


@dataclass(frozen=True)
class Case:
    learner: Learner
    sizes: dict[str, int]
    trained: int


def stand_still(state, obs, params, key):
    return jnp.zeros(len(Crowd.agents), jnp.int32)


def rest(state, obs, params, key):
    return jnp.zeros((2, 2))


def crowd() -> Case:
    """A recurrent group of two policies and a pool, beside a script; all axes of other lengths."""
    everything = {
        "prev_action": True, "prev_reward": True, "append_agent_id": True,
        "normalise_observations": True, "normalise_rewards": True,
    }  # fmt: skip
    spec = PolicySpec(
        network=LSTM(hidden_sizes=(9,), lstm_size=11), imitate=stand_still, imitate_coef=1.0,
        **everything,
    )  # fmt: skip
    tables = [("a", "b", "a", "past", "b", "s"), ("b", "a", "past", "b", "a", "s")]
    pool = Snapshots("a", size=12, add_every=1)
    config = TrainConfig(
        mapping=Matchups([dict(zip(Crowd.agents, names, strict=True)) for names in tables]),
        policies={"a": spec, "b": spec, "past": pool, "s": Scripted("random")},
        default_ppo=PPOConfig(bptt_length=19, num_minibatches=3, num_epochs=2),
        num_envs=E,
        num_steps=T,
    )  # fmt: skip
    sizes = {"A": 6, "S": 5, "M": 3, "W": 10, "P": 4, "K": 14, "Q": 15, "H": 11, "B": 19}
    return Case(make_learner(Crowd(), None, config), sizes | {"D": 5 + 10 + 1 + 6}, trained=2)


def reach() -> Case:
    """Feed-forward policies with continuous actions, every agent in an active row of its own."""
    config = TrainConfig(
        default_policy=PolicySpec(network=MLP((9,)), imitate=rest, imitate_coef=Linear(1.0, 0.0)),
        num_envs=E, num_steps=T,
        default_ppo=PPOConfig(num_minibatches=3),
    )  # fmt: skip
    sizes = {"A": 2, "S": 2, "M": 2, "W": 2, "P": 1, "K": 1, "Q": 1, "D": 2}
    return Case(make_learner(Reach(), None, config), sizes, trained=1)


@pytest.fixture(scope="module", params=[crowd, reach], ids=["recurrent", "continuous"])
def case(request) -> Case:
    return request.param()


def watch(door: Any, seen: list[tuple[str, Any, Promise | None]]) -> Any:
    """Wrap a function so that what it takes and gives is noted, with what is promised of it."""
    promised, signature = arguments_of(door), inspect.signature(door)

    @functools.wraps(door)
    def watched(*args, **kwargs):
        result = door(*args, **kwargs)
        arguments = signature.bind(*args, **kwargs).arguments
        for name, value in arguments.items():
            seen.append((f"{door.__qualname__}({name}=)", value, promised.get(name)))
        seen.append((f"{door.__qualname__}()", result, None))
        return result

    return watched


def put_watches(monkeypatch) -> list[tuple[str, Any, Promise | None]]:
    """Watch every door, wherever it was imported to."""
    seen: list[tuple[str, Any, Promise | None]] = []
    owners = [module for name, module in sys.modules.items() if name.startswith("jaxmarl_ppo")]
    for door in DOORS:
        watched = watch(door, seen)
        for owner in (*owners, group_learner.PolicyGroupLearner, Learner, StackedNetwork):
            if vars(owner).get(door.__name__) is door:
                monkeypatch.setattr(owner, door.__name__, watched)
    return seen


def test_what_crosses_rooms_has_the_shapes_that_its_class_promises(case, monkeypatch):
    seen = put_watches(monkeypatch)
    state = jax.eval_shape(case.learner.init, jax.random.key(0))
    jax.eval_shape(case.learner.train_step, state)
    assert {name.partition("(")[0] for name, _, _ in seen} >= {
        door.__qualname__ for door in DOORS if door not in UNUSED[case.learner.env.name]
    }
    trained, all_slots = {"K": case.trained}, {"M": case.sizes["S"]}
    sizes = Sizes({"T": T, "E": E, **case.sizes}, dict.fromkeys(OF_THE_TRAINED, trained))
    found = []
    for name, value, promise in seen:
        wrong = list(sizes.faults(value, name, promise))
        door = name.partition("(")[0]
        if wrong and door in OF_ALL_SLOTS:
            wrong = Sizes(sizes.sizes | all_slots, {}).faults(value, name, promise)
        elif wrong and door == "update":
            wrong = Sizes(sizes.sizes | trained, {}).faults(value, name, promise)
        found += wrong
    assert not found, "\n".join(dict.fromkeys(found))
    if case.learner.env.name == "crowd":
        sizes.sizes["trained"] = case.trained
        assert len(set(sizes.sizes.values())) == len(sizes.sizes), "axes could be swapped unseen"
        assert sizes.met == set("TEADPQKSMRCBWH")


def test_a_record_of_other_shapes_is_found():
    number, flag = np.zeros((3, 4)), np.zeros((3, 4), bool)
    right = Decisions(
        inputs=np.zeros((3, 4, 6)), action_mask=np.zeros((3, 4, 5), bool),
        action=number.astype(int), log_prob=number, value=number,
        hidden=(np.zeros((3, 4, 2)), np.zeros((3, 4, 2))), is_first=flag, acted=flag,
        policy_index=number.astype(int),
    )  # fmt: skip
    sizes = {"E": 3, "S": 4, "W": 5, "D": 6, "H": 2}
    held = Promise("[E, S]: open")

    def faults_of(**change):
        found = Sizes(sizes, {}).faults(right.replace(**change), "d", held)
        return [fault.partition(":")[0] for fault in found]

    assert faults_of() == []
    assert faults_of(inputs=np.zeros((4, 3, 6))) == ["d.inputs"]
    assert faults_of(value=np.zeros(3)) == ["d.value"]
    assert faults_of(acted=number) == ["d.acted"]
    assert faults_of(policy_index=number) == ["d.policy_index"]
    assert faults_of(hidden=(np.zeros((3, 4, 2)), np.zeros((3, 4)))) == ["d.hidden"]
    assert faults_of(action_mask=np.zeros((3, 4, 6), bool)) == ["d.action_mask"]


def test_promises_are_read_beside_and_above_fields():
    promises = promises_of(Decisions)
    assert promises["action"].forms == [(("...",), "int"), (("...", "N"), "float")]
    assert promises["hidden"].of_leaves
    assert promises["slot"].forms == [(("...",), "int")]
    assert promises["value"].under(Promise("[T, E, M]")).forms == [(("T", "E", "M"), None)]
    assert promises_of(advantages.TimelineEntry)["reward_scale"].forms == [(("...", "M"), None)]
