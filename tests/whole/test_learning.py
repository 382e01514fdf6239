"""Presets reach what is known to be reachable: one seed each, minutes of training."""

import dataclasses

import pytest

import jaxmarl_envs
from jaxmarl_ppo import Linear, PPOConfig, TrainConfig, Trainer, preset
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies

pytestmark = pytest.mark.slow


def train_and_evaluate(name, tmp_path, env_kwargs=None, greedy=False, **changes):
    env_name, _, variant = name.partition("/")
    chosen = preset(env_name, variant or None)
    env, params = jaxmarl_envs.make(env_name, **{**chosen.env_kwargs, **(env_kwargs or {})})
    config = dataclasses.replace(chosen.config, **changes)
    trainer = Trainer(env, params, config, tmp_path / "run", progress=False)
    result = trainer.train()
    return evaluate_policies(trainer.learner, result.population, greedy=greedy)


def test_tic_tac_toe_preset_is_perfect(tmp_path):
    report = train_and_evaluate("tic_tac_toe", tmp_path)
    assert report["exploitability"]["greedy"] == 0.0
    # Sampling explores; what it gives away is far less than the .66 of win-else-block play.
    assert report["exploitability"]["stochastic"] < 0.3


def test_products_in_bfloat16_are_fine_enough(tmp_path):
    """In a quarter of the preset's steps, after which sampled play still explores."""
    report = train_and_evaluate(
        "tic_tac_toe", tmp_path, matmul_precision="bfloat16", total_env_steps=4_000_000
    )
    assert report["exploitability"]["greedy"] == 0.0


def test_crypto_preset_keeps_the_secret(tmp_path):
    report = train_and_evaluate("crypto", tmp_path)
    assert report["episodes"] >= 1_000
    assert report["agents"]["bob_0"]["return_mean"] >= 20.0
    assert report["agents"]["alice_0"]["return_mean"] >= 20.0
    assert report["agents"]["eve_0"]["return_mean"] <= -23.0
    assert report["accuracy"]["bob_0"] > 0.9


def test_two_shuttles_learn_to_deliver(tmp_path):
    small = {"num_shuttles": 2, "num_rows": 4, "num_cols": 4, "ports": ((0, 1), (3, 2))}
    report = train_and_evaluate(
        "shuttle_grid", tmp_path, {**small, "max_steps": 128}, total_env_steps=800_000
    )
    deliveries = report["deliveries"]
    assert deliveries["mean"] > 0.9 * deliveries["dispatchers"]["greedy"]["mean"]


def test_who_imitates_a_dispatcher_soon_delivers_as_it_does(tmp_path):
    """In a fifth of the steps of the test above, by a reward that alone comes to .84 in them."""
    small = {"num_shuttles": 2, "num_rows": 4, "num_cols": 4, "ports": ((0, 1), (3, 2))}
    small |= {"max_steps": 128, "reward": "team"}
    spec = preset("shuttle_grid").config.default_policy
    spec = dataclasses.replace(spec, imitate="greedy", imitate_coef=1.0)
    report = train_and_evaluate(
        "shuttle_grid", tmp_path, small, total_env_steps=160_000, num_envs=32, default_policy=spec
    )
    deliveries = report["deliveries"]
    assert deliveries["mean"] > 0.95 * deliveries["dispatchers"]["greedy"]["mean"]


def test_kuhn_poker_comes_near_an_equilibrium(tmp_path):
    """In 4 M steps with schedules of their own; the preset takes 30 M."""
    ppo = dataclasses.replace(
        preset("kuhn_poker").config.default_ppo,
        learning_rate=Linear(2e-3, 0.0),
        entropy_coef=((0.0, 0.2), (2e6, 0.05), (4e6, 0.02)),
        num_minibatches=8,
    )
    report = train_and_evaluate("kuhn_poker", tmp_path, total_env_steps=4_000_000, default_ppo=ppo)
    # Uniform play has .458; seeds 0, 1 and 2 came to .02 to .04.
    assert report["exploitability"]["stochastic"] < 0.08
    assert report["value"] == pytest.approx(-1 / 18, abs=0.03)


def test_two_foragers_eat_everything(tmp_path):
    """Each food takes both, who see two cells far; a team that eats everything has 1."""
    pytest.importorskip("jumanji")
    report = train_and_evaluate("jumanji/lbf_2s_8x8_2p_2f_coop", tmp_path)
    assert report["all"]["return_mean"] > 0.97


@pytest.mark.parametrize(
    ("name", "mapping", "steps"),
    [("combination_lock", "shared", 1_000_000), ("convoy", "per_agent", 2_000_000)],
)
def test_products_of_choices_and_numbers_come_to_their_optimum(name, mapping, steps):
    """Six choices of six options; agents that choose, steer, and do both. The optimum is 1."""
    env, params = jaxmarl_envs.make(name)
    config = TrainConfig(
        num_envs=256,
        num_steps=16,
        total_env_steps=steps,
        mapping=mapping,
        default_ppo=PPOConfig(learning_rate=Linear(2e-3, 1e-4), entropy_coef=0.01),
    )
    trainer = Trainer(env, params, config, progress=False)
    population = trainer.train().population
    for greedy, least in ((False, 0.98), (True, 0.995)):
        report = evaluate_policies(trainer.learner, population, episodes=2048, greedy=greedy)
        returns = [agent["return_mean"] for agent in report["agents"].values()]
        assert min(returns) >= least
