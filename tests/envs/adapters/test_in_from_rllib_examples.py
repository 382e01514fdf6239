"""RLlib's own example environments come in as they stand."""

import importlib

import jax
import numpy as np
import pytest
from probe_envs import tiny_learner

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_ppo import PPOConfig, TrainConfig, Trainer
from jaxmarl_ppo.evaluation import evaluate_policies

pytest.importorskip("ray.rllib")
pytest.importorskip("torch")
pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning",
    "ignore::DeprecationWarning",
)
CLASSES = "ray.rllib.examples.envs.classes"
MULTI = f"{CLASSES}.multi_agent"
TWO = {"num_agents": 2}
EXAMPLES = {
    "tic_tac_toe": (f"{MULTI}.tic_tac_toe:TicTacToe", {}),
    "rock_paper_scissors": (f"{MULTI}.rock_paper_scissors:RockPaperScissors", {}),
    "two_step": (f"{MULTI}:TwoStepGame", {"env": 1}),
    "two_step_grouped": (f"{MULTI}:TwoStepGameWithGroupedAgents", {}),
    "guess_the_number": (f"{MULTI}:GuessTheNumberGame", {}),
    "double_row_corridor": (f"{MULTI}.double_row_corridor_env:DoubleRowCorridorEnv", {}),
    "cartpole": (f"{MULTI}:MultiAgentCartPole", TWO),
    "pendulum": (f"{MULTI}:MultiAgentPendulum", TWO),
    "dict_observations": (f"{MULTI}:MultiAgentCartPoleWithDictObservationSpace", TWO),
    "six_rooms": (
        f"{CLASSES}.six_room_env:HierarchicalSixRoomEnv",
        {"max_steps_low_level": 5, "time_limit": 30},
    ),
}


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_keeps_the_contract(name):
    env_id, env_config = EXAMPLES[name]
    env, _ = make("rllib", env_id=env_id, env_config=env_config, num_workers=0)
    check_env(env)


def test_agents_that_act_at_random_train(tmp_path):
    """It draws what it shows from spaces without a seed, so no episode can be played again."""
    module = importlib.import_module(f"{CLASSES}.random_env")
    with pytest.warns(UnrepeatableEnvironmentWarning):
        env = from_rllib_env(lambda: module.RandomMultiAgentEnv(TWO), num_workers=0)
    config = TrainConfig(total_env_steps=64, num_envs=2, num_steps=16)
    result = Trainer(env, (), config, tmp_path / "run", progress=False, check_env=False).train()
    assert result.history[-1]["decisions"] > 0


def test_a_group_decides_together(tmp_path):
    """Alone its members settle for 7; 8 takes both, of which each alone would lose."""
    module = importlib.import_module(MULTI)
    env = from_rllib_env(lambda: module.TwoStepGameWithGroupedAgents({}), horizon=2, num_workers=0)
    assert env.agents == ("agents",)
    config = TrainConfig(
        total_env_steps=16_000,
        num_envs=16,
        num_steps=16,
        default_ppo=PPOConfig(learning_rate=3e-3, entropy_coef=0.05),
    )
    trainer = Trainer(env, (), config, tmp_path / "run", progress=False)
    result = trainer.train()
    report = evaluate_policies(trainer.learner, result.population, 8, greedy=True)
    assert report["agents"]["agents"]["return_mean"] == 8


def test_numbers_are_guessed():
    """Two choices at once, of which the first player heeds the second alone."""
    module = importlib.import_module(MULTI)
    env = from_rllib_env(lambda: module.GuessTheNumberGame({}), num_workers=0)
    learner = tiny_learner(env, (), mapping="per_agent")
    state = jax.jit(learner.init)(jax.random.key(0))
    _, metrics = jax.jit(learner.train_step)(state)
    assert float(metrics.sums.decisions.sum()) == float(metrics.sums.env_steps)
    assert np.isfinite(float(metrics.sums.reward.sum()))
