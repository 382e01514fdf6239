"""Options that would change nothing are refused, and those that change something are not."""

import dataclasses

import pytest

import jaxmarl_envs
from jaxmarl_ppo import (
    MLP,
    Linear,
    MappingFunction,
    Matchups,
    PolicySpec,
    PPOConfig,
    Scripted,
    Snapshots,
    TrainConfig,
    Trainer,
    preset,
)
from jaxmarl_ppo.learner.build import make_learner

OWN = PolicySpec(ppo=PPOConfig(gamma=0.5))
WIDE = PolicySpec(network=MLP(hidden_sizes=(9,)))
TOLD = PolicySpec(append_agent_id=True)
LATE = ((1e6, 1e-3), (2e6, 0.0))
POOL = Snapshots("main", add_every=3)


def config(**kwargs):
    return TrainConfig(**{"num_envs": 4, "num_steps": 8, "total_env_steps": 64, **kwargs})


def draw_first(key, draw):
    return draw.held * 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"default_ppo": PPOConfig(gamma=0.9), "policies": {"shared": OWN}},
            "default_ppo has no effect: every policy that is trained has a ppo of its own",
        ),
        (
            {"default_ppo": PPOConfig(gamma=0.9), "default_policy": OWN},
            "default_ppo has no effect",
        ),
        (
            {
                "default_ppo": PPOConfig(gamma=0.9),
                "mapping": "per_agent",
                "policies": {"x": OWN, "o": PolicySpec(trainable=False)},
            },
            "default_ppo has no effect",
        ),
        (
            {"default_ppo": PPOConfig(gamma=0.9), "default_policy": PolicySpec(trainable=False)},
            "default_ppo has no effect: none is trained",
        ),
        (
            {"default_policy": WIDE, "mapping": "per_agent", "policies": {"*": OWN}},
            r"default_policy has no effect: policies says of every policy what it is \(x, o\)",
        ),
        ({"mapping": {"x": "a", "o": "b", "*": "c"}}, r"entry '\*' has no effect: every agent"),
        ({"mapping": Matchups(({"x": "a", "*": "b", "o*": "a"},))}, r"entry 'o\*' has no effect"),
        (
            {"mapping": MappingFunction(draw_first, ("a",), {"*": ["a"], "x*": ["a"]})},
            r"entry 'x\*' has no effect",
        ),
        (
            {"default_policy": TOLD, "mapping": "per_agent"},
            "append_agent_id of default_policy has no effect: x plays x alone, o plays o alone",
        ),
        (
            {"policies": {"o": TOLD}, "mapping": "per_agent"},
            r"append_agent_id of policies\['o'\] has no effect: o plays o alone; drop it",
        ),
        (
            {"mapping": {"x": "main", "o": "past"}, "policies": {"past": POOL}},
            r"'past' takes its first snapshot after 3 iterations \(add_every\), but the run has 2;",
        ),
        (
            {"default_ppo": PPOConfig(learning_rate=LATE)},
            "learning_rate of default_ppo begins to change at environment step 1e[+]06",
        ),
        (
            {"policies": {"shared": PolicySpec(ppo=PPOConfig(entropy_coef=((64, 1), (65, 0))))}},
            r"entropy_coef of policies\['shared'\].ppo begins to change at environment step 64",
        ),
    ],
)
def test_an_option_without_effect_is_refused(options, message):
    with pytest.raises(ValueError, match=message):
        make_learner(*jaxmarl_envs.make("tic_tac_toe"), config(**options))


@pytest.mark.parametrize(
    "options",
    [
        {"default_ppo": PPOConfig(gamma=0.9), "mapping": "per_agent", "policies": {"x": OWN}},
        {"default_policy": WIDE, "mapping": "per_agent", "policies": {"x": OWN}},
        {"mapping": {"x": "a", "*": "c"}},
        {"default_policy": TOLD},
        # Its snapshots play the other side.
        {
            "mapping": {"x": "main", "o": "past"},
            "policies": {"past": Snapshots("main", add_every=2), "main": TOLD},
        },
        # One of the two that it is said of plays both sides.
        {
            "mapping": Matchups(({"x": "a", "o": "b"}, {"x": "b", "o": "b"})),
            "policies": {"*": TOLD},
        },
        {"default_ppo": PPOConfig(learning_rate=((63, 1e-3), (65, 0)), entropy_coef=Linear(0.1))},
        {"default_ppo": PPOConfig(learning_rate=((1e9, 1e-3),))},
        {"mapping": "per_agent", "policies": {"o": Scripted("random")}},
        {"stagger_starts": True},
    ],
)
def test_an_option_with_some_effect_is_not(options):
    make_learner(*jaxmarl_envs.make("tic_tac_toe"), config(**options))


def test_a_recorded_run_may_have_options_without_effect():
    with_useless = config(default_policy=TOLD, mapping="per_agent")
    make_learner(*jaxmarl_envs.make("tic_tac_toe"), with_useless, strict=False)


def test_starts_are_staggered_where_there_is_a_horizon():
    env, params = jaxmarl_envs.make("flex_agents")
    assert env.horizon(params) is None
    for said in (None, False):
        make_learner(env, params, config(stagger_starts=said))
    with pytest.raises(
        ValueError, match="stagger_starts=True has no effect on environment 'flex_agents', which"
    ):
        make_learner(env, params, config(stagger_starts=True))
    tic_tac_toe = jaxmarl_envs.make("tic_tac_toe")
    assert make_learner(*tic_tac_toe, config()).stagger_starts
    assert not make_learner(*tic_tac_toe, config(stagger_starts=False)).stagger_starts


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"config": {"num_envs": 4}}, "config must be a TrainConfig, got {'num_envs': 4}"),
        (
            {"env_params": jaxmarl_envs.make("crypto")[1]},
            "env_params of environment 'tic_tac_toe' must be its own, .* got CryptoParams",
        ),
        ({"env_params": None}, "env_params of environment 'tic_tac_toe' must be its own"),
        ({"env_params": TrainConfig()}, "a TrainConfig stands in the place of the env"),
        ({"env": "tic_tac_toe"}, "env must be a MultiAgentEnv, such as make.* got 'tic_tac_toe'"),
        ({"run_dir": 3}, "run_dir must be a path, got 3"),
        ({"progress": "no"}, "progress must be True or False, got 'no'"),
        ({"keep_cores_awake": "no"}, "keep_cores_awake must be True or False, got 'no'"),
    ],
)
def test_a_trainer_refuses_wrong_arguments_by_name(change, message):
    env, params = jaxmarl_envs.make("tic_tac_toe")
    given = {"env": env, "env_params": params, "config": config(), **change}
    with pytest.raises(ValueError, match=message):
        Trainer(**given)


def test_presets_have_no_option_without_effect():
    chosen = preset("asymmetric_play")
    env, params = jaxmarl_envs.make("asymmetric_play", **chosen.env_kwargs)
    make_learner(env, params, chosen.config)
    own = {"alice": OWN, "bob": OWN}
    with pytest.raises(ValueError, match="default_ppo has no effect"):
        make_learner(env, params, dataclasses.replace(chosen.config, policies=own))
