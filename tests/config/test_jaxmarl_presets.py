"""Presets of JaxMARL's environments, and its own IPPO in terms of ours."""

import dataclasses

import pytest

from jaxmarl_ppo import GRU, MLP, PRESETS, Linear, preset
from jaxmarl_ppo.cli.train import parse_train
from jaxmarl_ppo.config.jaxmarl_presets import GAMES, KINDS
from jaxmarl_ppo.config.parsing import parse_file

# What training depends on in baselines/IPPO/config of github.com/FLAIROx/JaxMARL at c793d09, as it
# stands there.
YAML = {
    "ippo_ff_mpe": """
"LR": 2.5e-4
"NUM_ENVS": 16
"NUM_STEPS": 128
"UPDATE_EPOCHS": 4
"NUM_MINIBATCHES": 4
"GAMMA": 0.99
"GAE_LAMBDA": 0.95
"CLIP_EPS": 0.2
"ENT_COEF": 0.01
"VF_COEF": 0.5
"MAX_GRAD_NORM": 0.5
"ACTIVATION": "tanh"
"ANNEAL_LR": True
""",
    "ippo_rnn_smax": """
"LR": 0.004
"NUM_ENVS": 128
"NUM_STEPS": 128
"GRU_HIDDEN_DIM": 128
"FC_DIM_SIZE": 128
"UPDATE_EPOCHS": 4
"NUM_MINIBATCHES": 4
"GAMMA": 0.99
"GAE_LAMBDA": 0.95
"CLIP_EPS": 0.05
"SCALE_CLIP_EPS": False
"ENT_COEF": 0.01
"VF_COEF": 0.5
"MAX_GRAD_NORM": 0.25
"ACTIVATION": "relu"
"ANNEAL_LR": True
""",
    "ippo_ff_overcooked": """
"LR": 2.5e-4
"NUM_ENVS": 16
"NUM_STEPS": 128
"UPDATE_EPOCHS": 4
"NUM_MINIBATCHES": 4
"GAMMA": 0.99
"GAE_LAMBDA": 0.95
"CLIP_EPS": 0.2
"ENT_COEF": 0.01
"VF_COEF": 0.5
"MAX_GRAD_NORM": 0.5
"ACTIVATION": "tanh"
"ANNEAL_LR": True
"TOTAL_TIMESTEPS": 5e6
"REW_SHAPING_HORIZON": 2.5e6
""",
    "ippo_ff_hanabi": """
"LR": 5e-4
"NUM_ENVS": 1024
"NUM_STEPS": 128
"UPDATE_EPOCHS": 4
"NUM_MINIBATCHES": 4
"GAMMA": 0.99
"GAE_LAMBDA": 0.95
"CLIP_EPS": 0.2
"ENT_COEF": 0.01
"VF_COEF": 0.5
"MAX_GRAD_NORM": 0.5
"ANNEAL_LR": False
""",
}


@pytest.mark.parametrize("kind", KINDS.values(), ids=list(KINDS))
def test_what_is_translated_is_what_jaxmarl_s_file_says(tmp_path, kind):
    path = tmp_path / "config.yaml"
    path.write_text(YAML[kind.file])
    assert kind.theirs == parse_file(path)


def test_their_hyper_parameters_in_our_words():
    mpe, smax, hanabi = (
        preset("jaxmarl", name).config
        for name in ("mpe_spread_theirs", "smax_3m_theirs", "hanabi_2_theirs")
    )
    assert (mpe.num_envs, mpe.num_steps, mpe.mapping, mpe.stagger_starts) == (
        *(16, 128, "shared"),
        False,
    )
    ppo = mpe.default_ppo
    assert ppo.learning_rate == Linear(2.5e-4, 0.0)
    assert (ppo.num_epochs, ppo.num_minibatches) == (4, 4)
    assert (ppo.gamma, ppo.gae_lambda, ppo.clip_eps) == (0.99, 0.95, 0.2)
    assert (ppo.value_clip, ppo.value_clip_eps) == ("ppo2", 0.2)
    assert (ppo.entropy_coef, ppo.value_coef, ppo.max_grad_norm) == (0.01, 0.5, 0.5)
    assert (ppo.optimiser, ppo.adam_eps) == ("adam", 1e-5)
    assert mpe.default_policy.network == MLP(hidden_sizes=(64, 64), separate_critic=True)

    assert (smax.num_envs, smax.num_steps) == (128, 128)
    assert smax.default_ppo == dataclasses.replace(
        ppo,
        learning_rate=Linear(4e-3, 0.0),
        clip_eps=0.05,
        value_clip_eps=0.05,
        max_grad_norm=0.25,
        bptt_length=128,
    )
    assert smax.default_policy.network == GRU(
        hidden_sizes=(128,), gru_size=128, head_sizes=(128,), activation="relu"
    )

    kitchen = preset("jaxmarl", "overcooked_coord_ring_theirs").config
    assert kitchen == dataclasses.replace(
        mpe, env_schedules={"shaped_reward": ((0.0, 1.0), (kitchen.total_env_steps / 2, 0.0))}
    )

    assert (hanabi.num_envs, hanabi.num_steps) == (1024, 128)
    assert hanabi.default_ppo == dataclasses.replace(ppo, learning_rate=5e-4)
    assert hanabi.default_policy.network == MLP(
        hidden_sizes=(512,), head_sizes=(512,), activation="relu"
    )


@pytest.mark.parametrize("name", GAMES)
def test_both_trainers_have_the_same_game_and_budget_in_whole_iterations(name):
    ours, theirs = PRESETS[f"jaxmarl/{name}"], PRESETS[f"jaxmarl/{name}_theirs"]
    assert ours.env_kwargs == theirs.env_kwargs
    budgets = {chosen.config.total_env_steps for chosen in (ours, theirs)}
    assert len(budgets) == 1
    for chosen in (ours, theirs):
        config = chosen.config
        assert config.total_env_steps % (config.num_envs * config.num_steps) == 0


def test_the_games_are_jaxmarl_s_known_ones():
    maps = ("smax_3m", "smax_2s3z", "smax_3s5z", "smax_5m_vs_6m")
    layouts = ("cramped_room", "asymm_advantages", "coord_ring", "forced_coord", "counter_circuit")
    assert list(GAMES) == [
        *("mpe_spread", "mpe_speaker_listener", "mpe_tag", *maps),
        *(f"overcooked_{layout}" for layout in layouts),
        "hanabi_2",
    ]


def test_the_command_line_repeats_a_row():
    options = parse_train(["jaxmarl", "--preset", "smax_3m"])
    assert options.run.config == preset("jaxmarl", "smax_3m").config
    assert options.run.env_kwargs == {
        "env_id": "HeuristicEnemySMAX",
        "scenario": "3m",
        "see_enemy_actions": True,
        "walls_cause_death": True,
        "attack_mode": "closest",
    }
    kitchen = ["jaxmarl", "--preset", "overcooked_coord_ring_theirs", "--seed", "2"]
    options = parse_train(kitchen)
    assert options.run.config == dataclasses.replace(
        preset("jaxmarl", "overcooked_coord_ring_theirs").config, seed=2
    )
    assert options.run.env_kwargs == {"env_id": "overcooked", "layout": "coord_ring"}
