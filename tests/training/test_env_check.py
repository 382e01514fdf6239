"""`Trainer` looks at the environment before anything is compiled."""

import jax.numpy as jnp
import pytest

from jaxmarl_envs.crypto import Crypto
from jaxmarl_ppo import TrainConfig, Trainer
from jaxmarl_ppo.cli.train import parse_train

CONFIG = TrainConfig(total_env_steps=64, num_envs=4, num_steps=8, mapping="per_agent")


class Twins(Crypto):
    """Two agents of one name."""

    agents = ("eve_0", "bob_0", "bob_0")


class Unpaid(Crypto):
    """Rewards are whole numbers."""

    def step_env(self, key, state, action, params):
        obs, state, reward, *rest = super().step_env(key, state, action, params)
        return obs, state, jnp.zeros(reward.shape, jnp.int32), *rest


class Empty(Crypto):
    """Nobody is there."""

    agents = ()


@pytest.mark.parametrize(
    ("env_type", "message"),
    [
        (Twins, "environment 'crypto', agents is .* but 'bob_0' is there twice"),
        (Empty, "environment 'crypto', agents is .* a tuple of at least one string"),
        (Unpaid, r"environment 'crypto', step_env: reward is int32\[3\], expected float\[3\]"),
    ],
)
def test_a_wrong_environment_is_refused(tmp_path, env_type, message):
    env = Crypto()
    env.__class__ = env_type
    env.agents = env_type.agents
    with pytest.raises(ValueError, match=message):
        Trainer(env, env.default_params, CONFIG, tmp_path / "run", progress=False)
    assert not (tmp_path / "run").exists()


def test_the_check_can_be_left_out(tmp_path):
    env = Unpaid()
    Trainer(env, env.default_params, CONFIG, tmp_path / "run", progress=False, check_env=False)


def test_the_command_line_can_leave_it_out():
    assert parse_train(["crypto"]).options.check_env
    assert not parse_train(["crypto", "--no-check-env"]).options.check_env
