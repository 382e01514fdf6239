"""What an evaluation says of games of imperfect information: exact exploitability of networks."""

import jax
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_envs.poker import InformationTable
from jaxmarl_ppo import LSTM, MLP, PolicySpec, TrainConfig, evaluate_policies, make_learner
from jaxmarl_ppo.evaluation import evaluate
from jaxmarl_ppo.evaluation.scenarios import imperfect_information
from jaxmarl_ppo.evaluation.tables import format_report

NETWORK = MLP(hidden_sizes=(8,))


def prepare(name, **changes):
    env, params = jaxmarl_envs.make(name)
    config = {"default_policy": PolicySpec(network=NETWORK), "num_devices": 1, **changes}
    learner = make_learner(env, params, TrainConfig(num_envs=4, num_steps=8, **config))
    # Larger than at the start of training, so that policies differ from uniform ones.
    population = jax.tree.map(lambda x: 100 * x, learner.init(jax.random.key(1)).population)
    return learner, population


def played_by_hand(learner, population, group, policy_index):
    """Action probabilities of one network at every information state, by flax alone."""
    table = InformationTable(learner.env)
    obs = jax.vmap(learner.env.observe)(table.states())
    rows = np.arange(table.num_info_states)
    params = jax.tree.map(lambda x: x[policy_index], population.policy_groups[group].params)
    module = learner.players.policy_groups[group].network.module
    inputs = obs.features[rows, table.mover]
    _, logits, _ = module.apply({"params": params}, (), inputs)
    return np.asarray(jax.nn.softmax(np.where(table.action_mask, logits, -np.inf)))


@pytest.mark.parametrize("name", ["kuhn_poker", "leduc_holdem"])
def test_the_report_is_of_the_shared_network(name):
    learner, population = prepare(name)
    report = evaluate_policies(learner, population, 64)
    table, policy = InformationTable(learner.env), played_by_hand(learner, population, 0, 0)
    found = report["exploitability"]
    assert found["stochastic"] == pytest.approx(table.exploitability(policy), abs=1e-5)
    assert found["greedy"] == pytest.approx(table.exploitability(table.greedy(policy)), abs=1e-5)
    assert found["best_response"]["stochastic"]["second"]["shared"] == pytest.approx(
        table.best_response_value(policy, "first"), abs=1e-5
    )
    assert report["value"] == pytest.approx(table.expected_value(policy, policy), abs=1e-5)
    assert f"stochastic policy: exact exploitability {found['stochastic']:.4f} antes" in (
        format_report(report)
    )
    uniform = table.exploitability(table.uniform_policy())
    assert abs(found["stochastic"] - uniform) > 0.02  # or this would show nothing


def test_each_seat_has_a_policy_of_its_own():
    learner, population = prepare("kuhn_poker", mapping="per_agent")
    table = InformationTable(learner.env)
    first, second = (
        played_by_hand(learner, population, 0, policy_index) for policy_index in range(2)
    )
    report = evaluate_policies(learner, population, 64)
    policy = np.where(table.mover[:, None] == 0, first, second)
    assert report["exploitability"]["stochastic"] == pytest.approx(
        table.exploitability(policy), abs=1e-5
    )
    assert report["value"] == pytest.approx(table.expected_value(first, second), abs=1e-5)


def test_information_states_are_tabulated_in_batches(monkeypatch):
    """The last one is not full: 12 states in batches of 5."""
    learner, population = prepare("kuhn_poker")
    report = evaluate_policies(learner, population, 16)
    monkeypatch.setattr(imperfect_information, "_BATCH_SIZE", 5)
    in_batches = evaluate_policies(learner, population, 16)
    for name in ("stochastic", "greedy"):
        assert in_batches["exploitability"][name] == pytest.approx(
            report["exploitability"][name], abs=1e-6
        )


def test_a_critic_that_sees_all_cards_changes_nothing_of_it():
    spec = PolicySpec(network=MLP(hidden_sizes=(8,), separate_critic=True), central_critic=True)
    learner, population = prepare("leduc_holdem", default_policy=spec)
    critic_moved = {
        key: jax.tree.map(lambda x: x + 1.0, value) if key.startswith("critic") else value
        for key, value in population.policy_groups[0].params.items()
    }
    group = population.policy_groups[0].replace(params=critic_moved)
    reports = [
        evaluate_policies(learner, each, 16)["exploitability"]["stochastic"]
        for each in (population, population.replace(policy_groups=(group,)))
    ]
    assert reports[0] == pytest.approx(reports[1], abs=1e-6)


def test_memory_has_no_table():
    spec = PolicySpec(network=LSTM(hidden_sizes=(4,), lstm_size=4))
    learner, population = prepare("kuhn_poker", default_policy=spec)
    report = evaluate_policies(learner, population, 16)
    assert "exploitability" not in report
    assert report["exploitability_note"] == (
        "left out: a policy with memory does not play by the information state alone"
    )


def test_phantom_tic_tac_toe_is_played_against_random():
    learner, population = prepare("phantom_tic_tac_toe")
    report = evaluate_policies(learner, population, 256)
    against = report["against"]["stochastic"]["random"]
    for seat in ("x", "o"):
        assert sum(against[seat][name] for name in ("win", "draw", "loss")) == pytest.approx(1)
    # Of two that hardly differ from random play the one who begins wins more often.
    assert against["x"]["win"] > against["o"]["win"]
    assert "exploitability" not in report  # unless asked for


def cannot_play(*args, **kwargs):
    raise AssertionError("played episodes before the options were checked")


@pytest.mark.parametrize("name", ["kuhn_poker", "tic_tac_toe", "crypto"])
def test_exact_measures_that_are_not_left_out_cannot_be_asked_for(name, monkeypatch):
    learner, population = prepare(name)
    monkeypatch.setattr(evaluate, "play_episodes", cannot_play)
    with pytest.raises(ValueError, match=f"exact=True has no effect on {name}: .*: phantom_tic"):
        evaluate_policies(learner, population, 16, exact=True)


def test_exact_measures_are_not_asked_for_of_memory(monkeypatch):
    spec = PolicySpec(network=LSTM(hidden_sizes=(4,), lstm_size=4))
    learner, population = prepare("phantom_tic_tac_toe", default_policy=spec)
    monkeypatch.setattr(evaluate, "play_episodes", cannot_play)
    with pytest.raises(ValueError, match=r"exact=True: .* a policy with memory does not play by"):
        evaluate_policies(learner, population, 16, exact=True)


@pytest.mark.slow
def test_phantom_tic_tac_toe_is_evaluated_exactly_on_request():
    """Over 6 million information states, in half a minute."""
    learner, population = prepare("phantom_tic_tac_toe", mapping="per_agent")
    report = evaluate_policies(learner, population, 30_000, exact=True)
    found = report["exploitability"]
    assert report["headline"][0] == (
        f"stochastic policy: exact exploitability {found['stochastic']:.4f} per game"
    )
    assert "against random" in report["headline"][-1]
    # The value of the game is 2/3, and nobody can be held to less by a best response.
    won = {agent: found["best_response"]["stochastic"][agent][agent] for agent in ("x", "o")}
    assert won["o"] > 2 / 3 > -won["x"]
    assert found["stochastic"] == pytest.approx((won["x"] + won["o"]) / 2)
    assert found["greedy"] > found["stochastic"]
    x = report["agents"]["x"]
    assert abs(report["value"] - x["return_mean"]) < 4 * x["return_se"]
