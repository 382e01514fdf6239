"""Presets of JaxMARL's environments: ours, and JaxMARL's own IPPO in terms of ours.

Each game of `GAMES` has two: `smax_3m` is how we train it, and `smax_3m_theirs` has what the file
under `baselines/IPPO/config` of github.com/FLAIROx/JaxMARL says for its kind of game.
docs/learning.md lists what those baselines do that no option of ours can reproduce.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import Linear, ScheduleSpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import GRU, MLP

THEIRS = "theirs"  # the end of the names of presets with JaxMARL's hyper-parameters


@dataclass(frozen=True)
class KnownGame:
    """An environment of JaxMARL and the budget that both trainers have on it.

    Attributes:
        kind: a key of `KINDS`.
        env_kwargs: what JaxMARL builds it with.
        total_env_steps: whole iterations of both trainers.
        mapping: which policy plays which agent, with our own hyper-parameters.
        ours: these, where they are not those of the kind.
    """

    kind: str
    env_kwargs: Mapping[str, Any]
    total_env_steps: int
    mapping: str | Mapping[str, str] = "shared"
    ours: TrainConfig | None = None


@dataclass(frozen=True)
class Kind:
    """Preset for games of one kind, and the settings of JaxMARL's baseline.

    Attributes:
        ours: our own hyper-parameters.
        file: the baseline, `baselines/IPPO/<file>.py` and `config/<file>.yaml`.
        theirs: values of that file, by its own keys, on which training depends.
        network: the baseline's network, as near as ours come to it.
        bptt_length: decisions that it sends gradients through; None for a network without memory.
    """

    ours: TrainConfig
    file: str
    theirs: Mapping[str, Any]
    network: MLP | GRU
    bptt_length: int | None = None


# As they stand in ippo_ff_mpe.yaml and, beside the shaped rewards, in ippo_ff_overcooked.yaml.
_FEED_FORWARD = {
    "LR": 2.5e-4,
    "NUM_ENVS": 16,
    "NUM_STEPS": 128,
    "UPDATE_EPOCHS": 4,
    "NUM_MINIBATCHES": 4,
    "GAMMA": 0.99,
    "GAE_LAMBDA": 0.95,
    "CLIP_EPS": 0.2,
    "ENT_COEF": 0.01,
    "VF_COEF": 0.5,
    "MAX_GRAD_NORM": 0.5,
    "ACTIVATION": "tanh",
    "ANNEAL_LR": True,
}
_SMAX = {
    **_FEED_FORWARD,
    "LR": 4e-3,
    "NUM_ENVS": 128,
    "GRU_HIDDEN_DIM": 128,
    "FC_DIM_SIZE": 128,
    "CLIP_EPS": 0.05,
    "SCALE_CLIP_EPS": False,
    "MAX_GRAD_NORM": 0.25,
    "ACTIVATION": "relu",
}
# Shaped rewards fade there over a share of the budget.
_OVERCOOKED = {**_FEED_FORWARD, "TOTAL_TIMESTEPS": 5e6, "REW_SHAPING_HORIZON": 2.5e6}
_HANABI = {**_FEED_FORWARD, "LR": 5e-4, "NUM_ENVS": 1024, "ANNEAL_LR": False}
del _HANABI["ACTIVATION"]  # which is not a key there: relu


def _kitchen(num_envs: int, learning_rate: float, entropy_coef: float | Linear) -> TrainConfig:
    return TrainConfig(
        num_envs=num_envs,
        num_steps=128,
        default_policy=PolicySpec(network=MLP(separate_critic=True), normalise_rewards=True),
        default_ppo=PPOConfig(learning_rate=Linear(learning_rate, 0.0), entropy_coef=entropy_coef),
        env_schedules={"shaped_reward": 1.0},  # in training alone
    )


KINDS: dict[str, Kind] = {
    "mpe": Kind(
        TrainConfig(
            num_envs=32,
            num_steps=128,
            default_policy=PolicySpec(network=MLP(separate_critic=True), normalise_rewards=True),
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), gamma=0.95, entropy_coef=0.005),
        ),
        "ippo_ff_mpe",
        _FEED_FORWARD,
        MLP(hidden_sizes=(64, 64), separate_critic=True),
    ),
    "smax": Kind(
        TrainConfig(
            num_envs=64,
            num_steps=64,
            default_policy=PolicySpec(network=MLP(hidden_sizes=(128, 128), separate_critic=True)),
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), entropy_coef=0.005),
        ),
        "ippo_rnn_smax",
        _SMAX,
        GRU(hidden_sizes=(128,), gru_size=128, head_sizes=(128,), activation="relu"),
        bptt_length=128,
    ),
    "overcooked": Kind(
        _kitchen(32, 1e-3, Linear(0.02, 0.0)),
        "ippo_ff_overcooked",
        _OVERCOOKED,
        MLP(hidden_sizes=(64, 64), separate_critic=True),
    ),
    "hanabi": Kind(
        TrainConfig(
            num_envs=256,
            num_steps=128,
            default_policy=PolicySpec(network=MLP(hidden_sizes=(512, 512), activation="relu")),
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0)),
        ),
        "ippo_ff_hanabi",
        _HANABI,
        MLP(hidden_sizes=(512,), head_sizes=(512,), activation="relu"),
    ),
}

# How JaxMARL's own runs build battles; the first two are its defaults, too.
_BATTLE = {"see_enemy_actions": True, "walls_cause_death": True, "attack_mode": "closest"}
# Two small kitchens were tuned by themselves: what finds a way in large ones settles for a worse
# one there.
_LAYOUTS: dict[str, TrainConfig | None] = {
    "cramped_room": _kitchen(16, 1e-3, 0.01),
    "asymm_advantages": None,
    "coord_ring": _kitchen(32, 5e-4, Linear(0.02, 0.0)),
    "forced_coord": None,
    "counter_circuit": None,
}

GAMES: dict[str, KnownGame] = {
    "mpe_spread": KnownGame("mpe", {"env_id": "MPE_simple_spread_v3"}, 2**21),
    "mpe_speaker_listener": KnownGame(
        "mpe", {"env_id": "MPE_simple_speaker_listener_v4"}, 2**21, "per_agent"
    ),
    "mpe_tag": KnownGame(
        "mpe",
        {"env_id": "MPE_simple_tag_v3"},
        2**21,
        {"adversary_*": "predator", "agent_*": "prey"},
    ),
    **{
        f"smax_{scenario}": KnownGame(
            "smax",
            {"env_id": "HeuristicEnemySMAX", "scenario": scenario, **_BATTLE},
            2**20,
        )
        for scenario in ("3m", "2s3z", "3s5z", "5m_vs_6m")
    },
    **{
        f"overcooked_{layout}": KnownGame(
            "overcooked", {"env_id": "overcooked", "layout": layout}, 2**21, ours=ours
        )
        for layout, ours in _LAYOUTS.items()
    },
    "hanabi_2": KnownGame("hanabi", {"env_id": "hanabi", "num_agents": 2}, 2**22),
}


def jaxmarl_presets() -> dict[str, tuple[TrainConfig, dict[str, Any]]]:
    """List, by name, how each game is trained and what its environment is made with."""
    found = {}
    for name, game in GAMES.items():
        kind = KINDS[game.kind]
        ours = dataclasses.replace(
            game.ours or kind.ours, total_env_steps=game.total_env_steps, mapping=game.mapping
        )
        found[name] = (ours, dict(game.env_kwargs))
        theirs = translate(kind, game.total_env_steps)
        found[f"{name}_{THEIRS}"] = (theirs, dict(game.env_kwargs))
    return found


def translate(kind: Kind, total_env_steps: int) -> TrainConfig:
    """Translate the settings of JaxMARL's baseline for a kind of game to ours.

    One network plays all agents, the learning rate falls to 0 over the run where it is annealed,
    shaped rewards fade over the same share of the run, and the critic's values are clipped as in
    OpenAI's baselines, within the same bounds as the policy's ratios.
    """
    told = kind.theirs
    rate = told["LR"]
    fading: dict[str, ScheduleSpec] = {}
    if "REW_SHAPING_HORIZON" in told:
        share = told["REW_SHAPING_HORIZON"] / told["TOTAL_TIMESTEPS"]
        fading["shaped_reward"] = ((0.0, 1.0), (share * total_env_steps, 0.0))
    return TrainConfig(
        total_env_steps=total_env_steps,
        num_envs=told["NUM_ENVS"],
        num_steps=told["NUM_STEPS"],
        mapping="shared",
        default_policy=PolicySpec(network=kind.network),
        default_ppo=PPOConfig(
            learning_rate=Linear(rate, 0.0) if told["ANNEAL_LR"] else rate,
            num_epochs=told["UPDATE_EPOCHS"],
            num_minibatches=told["NUM_MINIBATCHES"],
            gamma=told["GAMMA"],
            gae_lambda=told["GAE_LAMBDA"],
            clip_eps=told["CLIP_EPS"],
            value_clip="ppo2",
            value_clip_eps=told["CLIP_EPS"],
            value_coef=told["VF_COEF"],
            entropy_coef=told["ENT_COEF"],
            max_grad_norm=told["MAX_GRAD_NORM"],
            bptt_length=kind.bptt_length,
        ),
        env_schedules=fading,
        stagger_starts=False,
    )
