"""How commands describe action spaces, and what they say of environments with all of them."""

import pytest
from hybrid_env_deploy import Hybrid

import jaxmarl_envs
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Tuple
from jaxmarl_ppo.cli.check_env import format_report
from jaxmarl_ppo.cli.envs import describe_actions


@pytest.mark.parametrize(
    ("space", "words"),
    [
        (Discrete(4), "4"),
        (Box(-1.0, 1.0, (2,)), "box 2"),
        (Box(-1.0, 1.0, (2, 3)), "box 2 x 3"),
        (Box(-1.0, 1.0, ()), "box"),
        (MultiDiscrete([3, 3, 4]), "3 x 3 x 4"),
        (MultiDiscrete([3] * 20), "20 choices of 3"),
        (MultiDiscrete([3] * 19 + [5]), "20 choices of 3 to 5"),
        (Tuple((Discrete(3), Box(0.0, 1.0, (2,)))), "3 + box 2"),
        (Tuple((Tuple((Discrete(3), Discrete(2))), Discrete(5))), "(3 + 2) + 5"),
    ],
)
def test_action_spaces_are_described(space, words):
    assert describe_actions(space) == words


def test_a_checked_environment_is_described_agent_by_agent():
    env = Hybrid()
    report = format_report(env, None, jaxmarl_envs.check_env(env, None, num_envs=2), 2)
    for words in (
        "picker: 6 features, 4 actions;",
        "mover: 6 features, 2 real actions;",
        "both: 6 features, actions 3 + box 2;",
        "pair: 6 features, actions 2 x 3;",
    ):
        assert words in report
