"""Configurations: what they refuse, and that a file of one is the same one again."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from flax import struct

import jaxmarl_envs
from jaxmarl_ppo import (
    CNN,
    LSTM,
    MLP,
    PRESETS,
    CheckpointConfig,
    Choices,
    Ensemble,
    EvaluationConfig,
    Linear,
    MappingFunction,
    Matchups,
    ObjectiveConfig,
    PbtConfig,
    PolicySpec,
    PPOConfig,
    Range,
    Scripted,
    Snapshots,
    TrainConfig,
    preset,
)
from jaxmarl_ppo.config.as_json import (
    config_from_dict,
    config_to_dict,
    dump_json,
    from_format_1,
    mapping_from_json,
    network_kind,
    to_plain,
    with_explicit_network,
)
from jaxmarl_ppo.config.curriculum import Stage
from jaxmarl_ppo.config.env_as_json import params_from_json, params_to_json
from jaxmarl_ppo.config.presets import SLOW_ENV
from jaxmarl_ppo.learner.build import make_learner


def through_json(config: TrainConfig, **kwargs) -> TrainConfig:
    return config_from_dict(json.loads(dump_json(config_to_dict(config))), **kwargs)


EVERYTHING = TrainConfig(
    total_env_steps=1234,
    num_envs=3,
    num_steps=7,
    seed=5,
    mapping={"x": "red", "o": "blue"},
    default_policy=PolicySpec(
        continuous="beta",
        network=LSTM(hidden_sizes=(8, 9), lstm_size=5, activation="relu", separate_critic=True),
        prev_action=True,
        prev_reward=True,
        append_agent_id=True,
        normalise_observations=True,
        normalise_rewards=True,
        central_critic=True,
        ppo=PPOConfig(gae_lambda=0.5),
        imitate="tuned",
        imitate_coef=Linear(1.0, 0.0),
        load="runs/before:red",
    ),
    default_ppo=PPOConfig(
        learning_rate=Linear(1e-3, 1e-5),
        num_epochs=5,
        num_minibatches=3,
        gamma=0.75,
        gae_lambda=0.25,
        clip_eps=0.125,
        entropy_coef=((0.0, 0.1), (100.0, 0.01)),
        max_grad_norm=None,
        kl_control="penalty",
        target_kl=0.02,
        initial_kl_coef=0.3,
        magnet="average",
        magnet_coef=((0.0, 0.5), (100.0, 0.1)),
        magnet_rate=0.25,
        log_barrier_coef=Linear(0.02, 0.01),
        ema_decay=0.99,
        value_clip="ppo2",
        value_clip_eps=0.5,
        value_coef=0.75,
        normalise_advantages=False,
        discount_by="step",
        bptt_length=4,
        adam_eps=1e-7,
    ),
    policies={
        "red": PolicySpec(
            network=MLP(hidden_sizes=(3,)),
            ppo=PPOConfig(
                learning_rate=Linear(0.1),
                gamma=Linear(0.9, 1.0),
                gae_lambda=((0.0, 0.5), (9.0, 0.9)),
                clip_eps=Linear(0.3, 0.1),
                value_coef=Linear(1.0, 0.5),
                num_epochs=9,
                optimiser="sgd",
            ),
        ),
        "bl*": PolicySpec(network="lstm", prev_action=True, trainable=False),
        "green": Snapshots(
            of="red", size=3, add_at_win_rate=0.75, draw="prioritised", priority=2.0
        ),
        "brown": Snapshots(of="red", size=None, add_every=9, on_device=2, exchange_every=3),
        "grey": Snapshots(of="red", size=2, add_every=4, draw="latest"),
        "white": Scripted("random"),
    },
    env_schedules={"light": Linear(-1.0, 1.0), "inner.wind": ((0.0, 0.5), (100.0, -2.0))},
    curriculum=(
        Stage({"env.params.speed": 2}, "all.return_mean > 1", min_env_steps=3, max_env_steps=9),
        Stage({"env.params.inner.calm": True}, return_when="all.return_mean < 0"),
    ),
    stagger_starts=False,
    micro_batch_rows=64,
    matmul_precision="bfloat16",
    fused_gradients=True,
    fused_acting=True,
    rollout_unroll=7,
    num_devices=2,
    num_seeds=3,
    skip_nonfinite_updates=True,
    log_interval=2,
    max_minutes=1.5,
    until=("x.return_mean > 0.5", "wall_s>=60"),
    checkpoints=CheckpointConfig(every_minutes=None, every_env_steps=50, keep=3),
    evaluation=EvaluationConfig(
        every_env_steps=100, episodes=4, greedy=True, opponents=("random", "minimax")
    ),
    objective=ObjectiveConfig(
        measure="evaluation/rivals/least/all/return_mean", goal="minimise", stop_at=0.5, patience=2
    ),
    pbt=PbtConfig(
        {
            "default_ppo.learning_rate": Range(1e-4, 1e-2, log=True),
            "policies.red.ppo.gamma": Choices([0.9, 0.95, 1.0]),
            "default_ppo.entropy_coef": Range(0.0, 1.0, step=0.125),
        },
        every_env_steps=210,
        fraction=0.5,
        perturb=1.5,
        resample_probability=0.125,
        rivals=("x",),
    ),
)


MAPPINGS = [
    "shared",
    "per_agent",
    "ensemble:3",
    {"x": "red", "o": "blue"},
    {"car_*": "car", "*": "other"},
    {"x": ["red", "blue"], "o": {"red": 0.25, "blue": 3.0}},
    {"x": ("red", "blue"), "o": "red"},
    {"x*": {"a": 1, "b": 0}},
    {"kind": "of agent"},
    Ensemble(3),
    Ensemble(2, weights=(1.0, 0.5), joint=True),
    Matchups(({"x": "red", "o": "blue"}, {"*": "red"})),
    Matchups(({"x": "red", "o": "blue"}, {"x": "blue", "o": "red"}), weights=(0.25, 0.75)),
]


@pytest.mark.parametrize(
    "config",
    [
        TrainConfig(),
        EVERYTHING,
        *(TrainConfig(mapping=mapping) for mapping in MAPPINGS),
        TrainConfig(default_policy=PolicySpec(network="lstm")),
        TrainConfig(default_policy=PolicySpec(network=CNN(channels=(4,), hidden_sizes=()))),
        *(chosen.config for chosen in PRESETS.values()),
    ],
)
def test_round_trip_is_exact(config):
    assert through_json(config) == config


def test_environment_steps_are_read_under_their_former_name():
    written = config_to_dict(TrainConfig(default_ppo=PPOConfig(discount_by="step")))
    assert written["default_ppo"]["discount_by"] == "step"
    assert PPOConfig(discount_by="tick") == PPOConfig(discount_by="step")  # pyright: ignore
    written["default_ppo"]["discount_by"] = "tick"
    assert config_from_dict(written).default_ppo.discount_by == "step"


def test_every_field_is_written_and_differs_from_its_default():
    """So that the round trip above would notice a field that is dropped."""
    assert set(config_to_dict(EVERYTHING)) == {f.name for f in dataclasses.fields(TrainConfig)}
    for f in dataclasses.fields(TrainConfig):
        assert getattr(EVERYTHING, f.name) != getattr(TrainConfig(), f.name), f.name
    for f in dataclasses.fields(PolicySpec):
        if f.name != "trainable":  # which would forbid the field `ppo`
            assert getattr(EVERYTHING.default_policy, f.name) != f.default, f.name
    for part in ("checkpoints", "evaluation", "objective", "pbt"):
        for f in dataclasses.fields(getattr(EVERYTHING, part)):
            assert getattr(getattr(EVERYTHING, part), f.name) != f.default, f.name
    for f in dataclasses.fields(PPOConfig):
        # Which epsilon Adam has is said where there is Adam.
        ppo = EVERYTHING.policies["red"].ppo if f.name == "optimiser" else EVERYTHING.default_ppo
        assert getattr(ppo, f.name) != getattr(PPOConfig(), f.name), f.name
    assert not EVERYTHING.policies["bl*"].trainable
    snapshots = [spec for spec in EVERYTHING.policies.values() if isinstance(spec, Snapshots)]
    for f in dataclasses.fields(Snapshots):
        assert any(getattr(spec, f.name) != f.default for spec in snapshots), f.name
    for cls in (Ensemble, Matchups):
        mappings = [mapping for mapping in MAPPINGS if isinstance(mapping, cls)]
        for f in dataclasses.fields(cls):
            assert any(getattr(mapping, f.name) != f.default for mapping in mappings), f.name


def test_explicit_network_says_every_size():
    config = with_explicit_network(TrainConfig(default_policy=PolicySpec(network="lstm")))
    network = config_to_dict(config)["default_policy"]["network"]
    sizes = {
        "kind": "lstm",
        "hidden_sizes": [64],
        "head_sizes": [],
        "activation": "tanh",
        "separate_critic": False,
        "unimix": 0.0,
        "dtype": "float32",
        "lstm_size": 64,
    }
    assert network == sizes
    explicit = with_explicit_network(EVERYTHING)
    specs = config_to_dict(explicit)["policies"]
    assert specs["bl*"]["network"] == sizes
    assert specs["red"]["network"]["hidden_sizes"] == [3]
    assert explicit.policies["grey"] == EVERYTHING.policies["grey"]
    assert explicit.default_policy == EVERYTHING.default_policy


@pytest.mark.parametrize(
    ("path", "named"),
    [
        ((), "the configuration"),
        (("default_policy",), "default_policy"),
        (("default_ppo",), "default_ppo"),
        (("default_policy", "network"), r"default_policy.network \(network 'lstm'\)"),
        (("policies", "red"), "policies.red"),
        (("policies", "red", "ppo"), "policies.red.ppo"),
        (("policies", "red", "network"), r"policies.red.network \(network 'mlp'\)"),
        (("policies", "green"), "policies.green"),
        (("policies", "white"), "policies.white"),
    ],
)
def test_unknown_key_is_refused_by_name(path, named):
    data = json.loads(dump_json(config_to_dict(EVERYTHING)))
    table = data
    for key in path:
        table = table[key]
    table["learning_rat"] = 1
    with pytest.raises(ValueError, match=rf"^{named} has no 'learning_rat'; .*valid: \w+(, |$)"):
        config_from_dict(data)


def test_values_are_checked_when_read():
    with pytest.raises(ValueError, match="gamma must be finite and lie in"):
        config_from_dict({"default_ppo": {"gamma": 2.0}})
    with pytest.raises(ValueError, match=r"must be \{'linear': \[start, end\]\}"):
        config_from_dict({"default_ppo": {"learning_rate": {"linear": 3}}})
    with pytest.raises(ValueError, match="default_ppo must be a table, got 3"):
        config_from_dict({"default_ppo": 3})
    with pytest.raises(ValueError, match="unknown network kind 'rnn'; valid: mlp, lstm, gru"):
        config_from_dict({"default_policy": {"network": {"kind": "rnn"}}})
    with pytest.raises(ValueError, match=r"unknown network kind \['mlp'\]; valid: mlp, lstm, gru"):
        config_from_dict({"default_policy": {"network": {"kind": ["mlp"]}}})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"policies": 3}, "policies must be a table, got 3"),
        (
            {"mapping": {"kind": "ensemble", "size": 0}},
            "mapping.size must be a whole number of at least 1, got 0",
        ),
        (
            {"mapping": {"kind": "ensemble", "sise": 2}},
            "mapping has no 'sise'; did you mean 'size'. valid: size, weights, joint",
        ),
        (
            {"mapping": {"kind": "matchups", "tables": [{"x": "a"}], "weights": [1, 2]}},
            r"1 matchups need as many weights, got \(1.0, 2.0\)",
        ),
        ({"policies": {"a": "mlp"}}, r"policies.a must be a table, got 'mlp'"),
        (
            {"policies": {"a": {"kind": "robot"}}},
            r"policies.a has the kind 'robot'; valid: network, snapshots, scripted",
        ),
        (
            {"policies": {"a": {"kind": ["snapshots"]}}},
            r"policies.a has the kind \['snapshots'\]; valid: network, snapshots, scripted",
        ),
        (
            {"policies": {"a": {"network": "mlp"}}},
            "policies.a lacks kind; valid: network, snapshots, scripted",
        ),
        (
            {"policies": {"a": {"kind": "network", "ppo": {"gamma": 2}}}},
            "gamma must be finite and lie in",
        ),
        (
            {"policies": {"a": {"kind": "snapshots", "of": "b", "add_every": 0}}},
            "policies.a.add_every must be a whole number of at least 1, got 0",
        ),
        (
            {"policies": {"a": {"kind": "snapshots", "of": "b", "add_every": 1, "draw": "best"}}},
            "unknown policies.a.draw 'best'; valid: uniform, latest, prioritised",
        ),
    ],
)
def test_mappings_and_specs_are_checked_when_read(data, message):
    with pytest.raises(ValueError, match=message):
        config_from_dict(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ({"mapping": {"kind": "ensemble"}}, r"mapping lacks size"),
        ({"mapping": {"kind": "matchups"}}, r"mapping lacks tables"),
        ({"policies": {"a": {"kind": "snapshots", "size": 2}}}, r"policies.a lacks of"),
        ({"policies": {"a": {"kind": "scripted"}}}, r"policies.a lacks script"),
    ],
)
def test_what_has_no_default_must_be_there_when_read(data, message):
    with pytest.raises(ValueError, match=message):
        config_from_dict(data)


class MyNetwork(nn.Module):
    width: int = 3


def test_a_module_of_the_users_own_has_to_be_handed_in_again():
    config = TrainConfig(default_policy=PolicySpec(network=MyNetwork(width=5), prev_action=True))
    recorded = config_to_dict(config)["default_policy"]["network"]
    assert recorded["kind"] == network_kind(MyNetwork()) == "custom"
    assert recorded["class"] == f"{__name__}:MyNetwork"
    assert "width = 5" in recorded["repr"]
    with pytest.raises(ValueError, match=r"MyNetwork; pass it from Python: load_run\("):
        through_json(config)
    assert through_json(config, network=MyNetwork(width=5)) == config


WHOLE = r"pass the whole configuration from Python: load_run\(run_dir, config=...\)"


def test_a_module_of_a_single_policy_takes_the_whole_configuration():
    config = TrainConfig(policies={"red": PolicySpec(network=MyNetwork(width=5))})
    assert config_to_dict(config)["policies"]["red"]["network"]["class"] == f"{__name__}:MyNetwork"
    for network in (None, MyNetwork(width=5)):  # which stands in for that of `default_policy` alone
        with pytest.raises(ValueError, match=f"MyNetwork; {WHOLE}"):
            through_json(config, network=network)


def draw_first(key, draw):
    return jnp.zeros(2, jnp.int32)


def move_first(state, obs, params, key):
    return jnp.argmax(obs.action_mask, -1)


@dataclasses.dataclass(frozen=True)
class MoveAt:
    slot: int

    def __call__(self, state, obs, params, key):
        return jnp.full(2, self.slot)


def test_functions_of_the_users_own_have_to_be_handed_in_again():
    config = TrainConfig(mapping=MappingFunction(draw_first, ("a", "b")))
    recorded = config_to_dict(config)["mapping"]
    assert recorded == {"kind": "custom", "function": repr(draw_first)}
    with pytest.raises(ValueError, match=f"mapping of this run is a function of its own; {WHOLE}"):
        through_json(config)
    for script in (move_first, MoveAt(3)):
        config = TrainConfig(policies={"white": Scripted(script)})
        recorded = config_to_dict(config)["policies"]["white"]
        assert recorded == {"kind": "scripted", "script": {"custom": repr(script)}}
        with pytest.raises(
            ValueError, match=rf"policies.white of this run is a function of its own; {WHOLE}"
        ):
            through_json(config)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_mapping_is_plain_json_by_itself(mapping):
    plain = to_plain(mapping)
    assert json.loads(json.dumps(plain)) == plain
    assert to_plain(mapping_from_json(plain)) == plain


@struct.dataclass
class Numbers:
    count: int = 3
    speed: float = 0.1
    table: jax.Array = struct.field(default_factory=lambda: jnp.array([1.5, np.inf], jnp.float32))
    inner: dict = struct.field(default_factory=lambda: {"flag": True})


def test_environment_parameters_round_trip():
    params = Numbers(count=5, speed=0.7, inner={"flag": False})
    recorded = json.loads(json.dumps(params_to_json(params)))
    restored = params_from_json(recorded, Numbers())
    assert (restored.count, restored.speed, restored.inner) == (5, 0.7, {"flag": False})
    assert restored.table.dtype == jnp.float32
    np.testing.assert_array_equal(restored.table, params.table)
    del recorded["speed"]
    with pytest.raises(ValueError, match="environment parameters do not fit"):
        params_from_json(recorded, Numbers())


def test_json_is_strict():
    assert (
        dump_json({"a": [float("nan"), 1.0], "b": float("inf")}) == '{"a": [null, 1.0], "b": null}'
    )


@pytest.mark.rare_cases(
    "gymnax",
    *(n for n in PRESETS if n.startswith("jaxmarl/") and n != "jaxmarl/smax_3m_theirs"),
    *(n for n in PRESETS if n.startswith("jumanji/") and n != "jumanji/rware_tiny_2ag"),
)
@pytest.mark.parametrize("name", [name for name in PRESETS if "craftax" not in name])
def test_preset_fits_its_environment(name):
    env_name, _, variant = name.partition("/")
    if env_name in ("jaxmarl", "jumanji"):
        pytest.importorskip(env_name)
    chosen = preset(env_name, variant or None)
    assert chosen is PRESETS[name]
    env, env_params = jaxmarl_envs.make(env_name, **chosen.env_kwargs)
    make_learner(env, env_params, chosen.config)


@pytest.mark.parametrize("env_name", ["crypto", "shuttle_grid", "asymmetric_play", "flex_agents"])
def test_the_preset_for_few_steps_fits_every_environment(env_name):
    chosen = preset(env_name, SLOW_ENV)
    assert chosen.env_kwargs == preset(env_name).env_kwargs
    assert chosen.config.num_envs * chosen.config.num_steps < TrainConfig().num_envs * 8
    env, env_params = jaxmarl_envs.make(env_name, **chosen.env_kwargs)
    make_learner(env, env_params, chosen.config)


def test_the_main_scenarios_have_presets():
    assert PRESETS.keys() >= {"crypto", "shuttle_grid", "tic_tac_toe", "tic_tac_toe/league"}


def test_unknown_variant_of_a_preset():
    with pytest.raises(
        ValueError, match="'tic_tac_toe' has no preset 'legue'; valid: league, rllib, slow_env"
    ):
        preset("tic_tac_toe", "legue")
    with pytest.raises(ValueError, match="'basic' has no preset 'league'; valid: rllib"):
        preset("basic", "league")


def test_without_a_preset_the_defaults_hold():
    assert preset("no such environment").config == TrainConfig()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: PPOConfig(gamma=1.1), r"gamma must be finite and lie in \[0.0, 1.0\], got 1.1"),
        (lambda: PPOConfig(gamma=float("nan")), "gamma must be finite and lie in"),
        (lambda: PPOConfig(clip_eps=0.0), "clip_eps must be positive"),
        (lambda: PPOConfig(clip_eps=Linear(0.2, 0.0)), "the end of clip_eps must be positive"),
        (lambda: PPOConfig(gamma=((0, 0.9), (9, 1.5))), r"a value of gamma must .* got 1.5"),
        (lambda: PPOConfig(optimiser="adma"), "unknown optimiser 'adma'; valid: adam, adabelief"),
        (lambda: PPOConfig(optimiser=3), "unknown optimiser 3; valid: adam"),
        (lambda: PPOConfig(optimiser="sgd", adam_eps=1e-8), "adam_eps=1e-08 has no effect with"),
        (lambda: PPOConfig(num_epochs=0), "num_epochs must be a whole number of at least 1"),
        (lambda: PPOConfig(learning_rate=-1.0), "learning_rate must be finite and not negative"),
        (lambda: PPOConfig(learning_rate=((5, 1), (5, 2))), "steps of learning_rate must ascend"),
        (lambda: PPOConfig(value_clip="on"), "unknown value_clip 'on'; valid: off, ppo2"),
        (lambda: PPOConfig(value_clip_eps=1.0), "value_clip_eps=1.0 has no effect"),
        (lambda: PPOConfig(value_clip="ppo2"), "value_clip='ppo2' needs value_clip_eps"),
        (lambda: PPOConfig(target_kl=0.1), "target_kl=0.1 has no effect"),
        (lambda: PPOConfig(initial_kl_coef=0.1), "initial_kl_coef=0.1 has no effect"),
        (
            lambda: PolicySpec(network="rnn"),
            "unknown network 'rnn'; valid: mlp, lstm, gru, min_gru",
        ),
        (lambda: PPOConfig(magnet="uniform"), "unknown magnet 'uniform'; valid: off, average"),
        (lambda: PPOConfig(magnet_coef=0.1), "magnet_coef=0.1 has no effect with magnet='off'"),
        (lambda: PPOConfig(magnet_rate=0.1), "magnet_rate=0.1 has no effect with magnet='off'"),
        (lambda: PPOConfig(log_barrier_coef=0.0), "log_barrier_coef=0 has no effect"),
        (
            lambda: PPOConfig(log_barrier_coef=-0.1),
            "log_barrier_coef must be finite and not negative",
        ),
        (lambda: PPOConfig(ema_decay=0), "ema_decay=0 evaluates the newest parameters"),
        (lambda: PPOConfig(ema_decay=1), "ema_decay=1 keeps the initial parameters"),
        (lambda: PPOConfig(ema_decay=1.5), r"ema_decay must be finite and lie in \[0.0, 1.0\]"),
        (lambda: PPOConfig(magnet="average", magnet_rate=0.1), "'average' needs magnet_coef"),
        (lambda: PPOConfig(magnet="average", magnet_coef=0.1), "'average' needs magnet_rate"),
        (
            lambda: PPOConfig(magnet="average", magnet_coef=0.0, magnet_rate=0.1),
            "magnet_coef=0 has no effect",
        ),
        (
            lambda: PPOConfig(magnet="average", magnet_coef=0.1, magnet_rate=1.5),
            r"magnet_rate must be finite and lie in \[0.0, 1.0\]",
        ),
        (
            lambda: PPOConfig(
                magnet="average", magnet_coef=1, magnet_rate=1, num_epochs=1, num_minibatches=1
            ),
            "magnet_rate=1 has no effect on a single step",
        ),
        (lambda: PolicySpec(network=3), "network must be 'mlp'"),
        (lambda: PolicySpec(imitate="tuned"), "imitate='tuned' needs imitate_coef; give a number"),
        (lambda: PolicySpec(imitate_coef=0.5), "imitate_coef=0.5 has no effect without imitate"),
        (lambda: PolicySpec(imitate=3, imitate_coef=0.5), "imitate must be 'random', the name"),
        (
            lambda: PolicySpec(imitate="tuned", imitate_coef=-1.0),
            "imitate_coef must be finite and not negative",
        ),
        (lambda: PolicySpec(imitate="tuned", imitate_coef=0.0), "imitate_coef=0 has no effect"),
        (
            lambda: PolicySpec(imitate="random", imitate_coef=1.0),
            "imitate='random' would draw towards uniform play",
        ),
        (
            lambda: PolicySpec(imitate="tuned", imitate_coef=1.0, trainable=False),
            "imitate has no effect on a policy with trainable=False",
        ),
        (lambda: TrainConfig(num_envs=0), "num_envs must be a whole number of at least 1, got 0"),
        (lambda: TrainConfig(num_steps=True), "num_steps must be a whole number"),
        (
            lambda: TrainConfig(num_steps=12, rollout_unroll=5),
            "rollout_unroll=5 does not divide num_steps=12; valid: 1, 2, 3, 4, 6, 12",
        ),
        (lambda: TrainConfig(seed=-1), "seed must be a whole number of at least 0, got -1"),
        (
            lambda: PPOConfig(kl_control="penalty", target_kl=1, num_epochs=1, num_minibatches=1),
            "kl_control='penalty' has no effect on a single step .*; raise num_epochs or num_mini",
        ),
        (
            lambda: PolicySpec(ppo=PPOConfig(), trainable=False),
            "ppo has no effect on a policy with trainable=False; drop one of them",
        ),
        (
            lambda: TrainConfig(policies={"x": 3}),
            r"policies\['x'\] must be a PolicySpec, Snapshots or Scripted, got 3",
        ),
        (
            lambda: TrainConfig(policies={"x": PPOConfig(gamma=0.5)}),
            r"policies\['x'\] must be a PolicySpec, Snapshots or Scripted, got PPOConfig\(.*gamma",
        ),
    ],
)
def test_bad_values_are_refused(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def make_pool(past, **specs):
    return TrainConfig(mapping={"x": "main", "o": "past"}, policies={"past": past, **specs})


RECURRENT = PPOConfig(num_minibatches=7, bptt_length=4)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (TrainConfig(mapping="both"), "unknown policy mapping 'both'; valid: 'shared'"),
        (TrainConfig(mapping={"x": "a"}), "gives no policy to o"),
        (TrainConfig(mapping={"x": "a", "o": "a", "y": "a"}), "unknown agent 'y'"),
        (TrainConfig(policies={"x": PolicySpec()}), "unknown policy 'x'; those .* are shared"),
        (
            TrainConfig(policies={"y*": PolicySpec()}, mapping="per_agent"),
            r"unknown policy 'y\*'; those of the mapping are x, o",
        ),
        (
            make_pool(Snapshots("mian", add_every=1)),
            "'past' is to be snapshots of 'mian', which is no trainable policy; valid: main$",
        ),
        (
            make_pool(Snapshots("past", add_every=1)),
            "'past' is to be snapshots of 'past', which is no trainable policy; valid: main$",
        ),
        (
            make_pool(Snapshots("main", add_every=1), main=PolicySpec(trainable=False)),
            "'past' is to be snapshots of 'main', which is no trainable policy; valid: none$",
        ),
        (
            make_pool(Snapshots("main", add_every=1), main=Scripted("random")),
            "'past' is to be snapshots of 'main', which is no trainable policy; valid: none$",
        ),
        (
            TrainConfig(mapping={"x": {"main": 1, "spare": 0}, "o": "main"}),
            "no agent can be played by policy 'spare'; drop it",
        ),
        (
            TrainConfig(mapping=MappingFunction(draw_first, ("a", "b"), {"*": ["a"]})),
            "no agent can be played by policy 'b'; drop it",
        ),
        (
            TrainConfig(mapping="per_agent", default_policy=PolicySpec(trainable=False)),
            "none of the policies x, o is trainable",
        ),
        (make_pool(Scripted("best")), "unknown scripted policy 'best'; .*'tic_tac_toe' has random"),
        (make_pool(Scripted(lambda obs: obs)), "scripted policy <lambda> cannot be called: "),
        (
            make_pool(Scripted(lambda state, obs, params, key: obs.action_mask)),
            r"<lambda> must return actions of shape \(2,\), got \(2, 9\)",
        ),
        (TrainConfig(default_ppo=PPOConfig(bptt_length=8)), "bptt_length=8 has no effect"),
        (TrainConfig(default_policy=PolicySpec(network="cnn")), "needs planes"),
        (TrainConfig(default_policy=PolicySpec(network=MyNetwork())), "network MyNetwork"),
        (
            TrainConfig(num_envs=1, num_steps=1, default_ppo=PPOConfig(num_minibatches=3)),
            "num_minibatches=3 exceeds the 2 rows",
        ),
        (
            TrainConfig(
                num_envs=1,
                num_steps=2,
                mapping="per_agent",
                default_ppo=PPOConfig(num_minibatches=2),
                policies={"o": PolicySpec(ppo=PPOConfig(num_minibatches=3))},
            ),
            "num_minibatches=3 exceeds the 2 rows of a rollout .*; set num_minibatches to at most",
        ),
        (
            TrainConfig(
                num_envs=1,
                num_steps=9,
                default_ppo=RECURRENT,
                default_policy=PolicySpec(network="lstm"),
            ),
            "num_minibatches=7 exceeds the 6 chunks of 4 decisions .* at most 6, or lower bptt_len",
        ),
    ],
)
def test_what_does_not_fit_the_environment_is_refused(config, message):
    env, env_params = jaxmarl_envs.make("tic_tac_toe")
    with pytest.raises(ValueError, match=message):
        make_learner(env, env_params, config)


@pytest.mark.parametrize(
    ("own", "num_groups"),
    [
        ({}, 1),
        ({"num_epochs": 9, "num_minibatches": 2, "gamma": 0.5, "learning_rate": 0.1}, 1),
        ({"max_grad_norm": None, "entropy_coef": Linear(0.1)}, 1),
        ({"kl_control": "early_stop", "target_kl": 0.1}, 2),
        ({"value_clip": "ppo2", "value_clip_eps": 0.1}, 2),
        ({"normalise_advantages": False}, 2),
        ({"discount_by": "step"}, 2),
        ({"adam_eps": 1e-8}, 2),
        ({"optimiser": "sgd"}, 2),
        ({"clip_eps": Linear(0.3, 0.1)}, 1),
        ({"magnet": "average", "magnet_coef": 0.1, "magnet_rate": 0.05}, 2),
        ({"log_barrier_coef": 0.1}, 2),
        ({"ema_decay": 0.9}, 2),
    ],
)
def test_policies_are_stacked_unless_the_form_of_their_update_differs(own, num_groups):
    env, env_params = jaxmarl_envs.make("tic_tac_toe")
    specs = {"o": PolicySpec(ppo=PPOConfig(**own))}
    config = TrainConfig(mapping="per_agent", num_envs=2, num_steps=8, policies=specs)
    learner = make_learner(env, env_params, config)
    assert len(learner.players.policy_groups) == num_groups
    gammas = np.concatenate([group.hyperparams.gamma for group in learner.group_learners])
    epochs = np.concatenate([group.hyperparams.num_epochs for group in learner.group_learners])
    np.testing.assert_allclose(gammas, [0.99, own.get("gamma", 0.99)], rtol=1e-6)
    np.testing.assert_array_equal(epochs, [4, own.get("num_epochs", 4)])


# What version 0.1.0 wrote: `policies` was the mapping, `specs` what policies are.
FORMAT_1 = """
{
  "total_env_steps": 640, "num_envs": 4, "num_steps": 8, "seed": 3,
  "policies": {"x": "red", "o": ["red", "past"]},
  "policy": {"network": {"kind": "mlp", "hidden_sizes": [4], "activation": "relu",
                         "separate_critic": true, "dtype": "float32"}, "prev_action": true},
  "ppo": {"learning_rate": {"linear": [0.001, 0.0]}, "gamma": 0.9},
  "specs": {
    "red": {"kind": "network", "network": "lstm", "ppo": {"gamma": 0.5}},
    "past": {"kind": "snapshots", "of": "red", "size": 3, "add_every": 2}
  },
  "stagger_starts": true, "micro_batch_rows": null, "num_devices": 1, "log_interval": null
}
"""


def test_a_configuration_of_the_first_format_is_read():
    recorded = json.loads(FORMAT_1)
    config = config_from_dict(from_format_1(recorded))
    assert config == TrainConfig(
        total_env_steps=640,
        num_envs=4,
        num_steps=8,
        seed=3,
        mapping={"x": "red", "o": ("red", "past")},
        policies={
            "red": PolicySpec(network="lstm", ppo=PPOConfig(gamma=0.5)),
            "past": Snapshots("red", size=3, add_every=2),
        },
        default_policy=PolicySpec(
            network=MLP(hidden_sizes=(4,), activation="relu", separate_critic=True),
            prev_action=True,
        ),
        default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), gamma=0.9),
        num_devices=1,
    )
    assert recorded == json.loads(FORMAT_1)
    assert config_from_dict(from_format_1({"stagger_starts": False})).stagger_starts is False
