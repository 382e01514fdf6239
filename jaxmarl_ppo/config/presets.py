"""Configurations that train the shipped scenarios well."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jaxmarl_ppo.config.jaxmarl_presets import jaxmarl_presets
from jaxmarl_ppo.config.jumanji_presets import JUMANJI_PRESETS
from jaxmarl_ppo.config.mapping import Ensemble, Matchups
from jaxmarl_ppo.config.policies import PolicySpec, Snapshots
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import Linear
from jaxmarl_ppo.config.train import AnyPolicy, TrainConfig
from jaxmarl_ppo.networks.actor_critic import LSTM, MLP


@dataclass(frozen=True)
class Preset:
    """Arguments of an environment, and the configuration to train on it."""

    config: TrainConfig
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)


# Variants of every environment: the defaults of RLlib 2.60's PPO, and what learns from few steps.
FOR_ALL = RLLIB, SLOW_ENV = "rllib", "slow_env"
# Small rollouts, many optimiser steps on each, and inputs and rewards of a known scale, so that one
# learning rate suits most environments. docs/learning.md has what each of these brings.
_SLOW_ENV = TrainConfig(
    total_env_steps=200_000,
    num_envs=16,
    num_steps=64,
    default_policy=PolicySpec(normalise_observations=True, normalise_rewards=True),
    default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), num_epochs=8, num_minibatches=8),
)
_TIC_TAC_TOE_PPO = PPOConfig(
    learning_rate=Linear(2e-3, 0.0), entropy_coef=0.6, num_epochs=2, gamma=1.0, gae_lambda=0.9
)
_CRYPTO_PPO = PPOConfig(
    learning_rate=Linear(2e-3, 1e-4), entropy_coef=Linear(0.06, 0.003), gamma=0.7, gae_lambda=0.9
)
_CRYPTO_NETWORK = MLP(hidden_sizes=(64, 64), activation="relu")


def _imperfect_information(
    num_steps: int, ema_decay: float, **schedules: tuple[tuple[float, float], ...] | float
) -> Preset:
    """Make the preset of a game of imperfect information for two.

    The critic sees what both players see, which leaves only their actions to chance in what it
    compares with. A magnet that moves slowly holds large steps back. A log barrier keeps bluffs
    alive that do not win at present, but would if nobody expected them. Both it and the entropy
    bonus fall to what biases play little. The noise that remains is averaged out of the parameters.

    Args:
        num_steps: environment steps in all.
        ema_decay: of the average of the parameters.
        schedules: of hyper-parameters: points of a share of all steps, and a value; or constants.
    """
    network = MLP(hidden_sizes=(128, 128), activation="relu", separate_critic=True)
    scheduled: dict[str, Any] = {
        name: points
        if isinstance(points, int | float)
        else tuple((round(share * num_steps), value) for share, value in points)
        for name, points in schedules.items()
    }
    return Preset(
        TrainConfig(
            total_env_steps=num_steps,
            num_envs=2048,
            num_steps=16,
            mapping="shared",
            default_policy=PolicySpec(network=network, central_critic=True, normalise_rewards=True),
            default_ppo=PPOConfig(
                num_epochs=1,
                gamma=1.0,
                gae_lambda=0.9,
                max_grad_norm=None,
                magnet="average",
                magnet_rate=0.02,
                ema_decay=ema_decay,
                **scheduled,
            ),
        )
    )


PRESETS: dict[str, Preset] = {
    # Perfect play needs moves against mistakes that a good opponent never makes. Strong entropy
    # keeps those lines in play; the greedy policy is what is perfect, not its samples.
    "tic_tac_toe": Preset(
        TrainConfig(
            total_env_steps=16_000_000,
            num_envs=512,
            num_steps=32,
            mapping="shared",
            default_policy=PolicySpec(network=MLP(hidden_sizes=(128, 128))),
            default_ppo=_TIC_TAC_TOE_PPO,
        )
    ),
    # A policy of its own for each seat, which in a fifth of the games meets a past version of the
    # other's. Each learns from half of the moves, so there are more than twice as many. Snapshots
    # are so far apart that the pool spans the whole run: early ones make the mistakes that a policy
    # must have met to be perfect.
    "tic_tac_toe/league": Preset(
        TrainConfig(
            total_env_steps=24_000_000,
            num_envs=512,
            num_steps=32,
            mapping=Matchups(
                ({"x": "p1", "o": "p2"}, {"x": "p3", "o": "p2"}, {"x": "p1", "o": "p4"}),
                weights=(0.6, 0.2, 0.2),
            ),
            policies={
                "p3": Snapshots("p1", size=8, add_every=150),
                "p4": Snapshots("p2", size=8, add_every=150),
            },
            default_policy=PolicySpec(network=MLP(hidden_sizes=(128, 128))),
            default_ppo=dataclasses.replace(_TIC_TAC_TOE_PPO, entropy_coef=0.5),
        )
    ),
    # Bob reads [key, message] and alice [goal, key]: one function can be both cipher and decipher,
    # so sharing it lets them agree on a code before eve has learnt to read along. Too little
    # entropy, and they settle on plain text, which gains nothing once eve reads it too. An
    # utterance is answered one step later and nothing reaches further, so the horizon is short:
    # alice's signal has weight gamma lambda, and each further step would add eve's coin flips.
    "crypto": Preset(
        TrainConfig(
            total_env_steps=3_000_000,
            num_envs=256,
            num_steps=50,
            mapping={"eve_0": "eve", "bob_0": "good", "alice_0": "good"},
            default_policy=PolicySpec(network=_CRYPTO_NETWORK),
            default_ppo=_CRYPTO_PPO,
        )
    ),
    # Three policies for every agent, drawn anew for each episode. Nobody shares a network, so they
    # have to find a code that all pairs of bob and alice can use.
    "crypto/ensemble": Preset(
        TrainConfig(
            total_env_steps=3_000_000,
            num_envs=256,
            num_steps=50,
            mapping=Ensemble(3),
            default_policy=PolicySpec(network=_CRYPTO_NETWORK),
            default_ppo=dataclasses.replace(_CRYPTO_PPO, entropy_coef=0.01, num_epochs=15),
        )
    ),
    # Only idle shuttles decide, after 2 to 7 steps or more: discounting goes by steps. Progress
    # as a reward tells within a few steps what a choice was worth, so a short trace and little
    # entropy do.
    "shuttle_grid": Preset(
        TrainConfig(
            total_env_steps=16_000_000,
            num_envs=128,
            num_steps=64,
            mapping="shared",
            default_policy=PolicySpec(network=LSTM(hidden_sizes=(128,), lstm_size=64)),
            default_ppo=PPOConfig(
                learning_rate=Linear(2e-3, 0.0),
                entropy_coef=Linear(0.01, 0.0),
                num_epochs=2,
                num_minibatches=8,
                gamma=0.97,
                gae_lambda=0.8,
                discount_by="step",
                bptt_length=16,
            ),
        ),
        env_kwargs={"reward": "progress", "full_view": True, "half_turn": True},
    ),
    # Alice's entropy stays up, or she settles on what bob fails at now; his comes down, since a
    # sure bob is what leaves her nothing but longer tasks. She slows down at the end, which leaves
    # him the time to learn what she found last.
    "asymmetric_play": Preset(
        TrainConfig(
            total_env_steps=4_000_000,
            num_envs=256,
            num_steps=64,
            mapping="per_agent",
            default_ppo=PPOConfig(learning_rate=Linear(1e-3, 3e-4), entropy_coef=Linear(0.1, 0.01)),
            policies={
                "alice": PolicySpec(
                    ppo=PPOConfig(learning_rate=Linear(1e-3, 1e-4), entropy_coef=Linear(0.05, 0.02))
                )
            },
        )
    ),
    # Without a magnet play goes round in circles. It and the entropy are weak enough at the end to
    # leave little bias, and the learning rate falls to 0 since the policy of the last iteration is
    # what counts.
    "kuhn_poker": Preset(
        TrainConfig(
            total_env_steps=30_000_000,
            num_envs=4096,
            num_steps=8,
            mapping="shared",
            default_policy=PolicySpec(network=MLP(hidden_sizes=(64, 64))),
            default_ppo=PPOConfig(
                learning_rate=Linear(1e-3, 0.0),
                entropy_coef=((0.0, 0.2), (15e6, 0.05), (30e6, 0.005)),
                num_epochs=1,
                gamma=1.0,
                gae_lambda=1.0,
                magnet="average",
                magnet_coef=0.4,
                magnet_rate=0.05,
            ),
        )
    ),
    "leduc_holdem": _imperfect_information(
        200_000_000,
        ema_decay=0.997,
        learning_rate=((0.0, 3e-3), (0.25, 3e-3), (0.5, 1e-3), (1.0, 0.0)),
        entropy_coef=((0.0, 0.3), (0.25, 0.05), (0.6, 0.01), (1.0, 0.005)),
        log_barrier_coef=((0.0, 0.02), (0.4, 0.02), (1.0, 0.004)),
        magnet_coef=((0.0, 1.0), (0.5, 1.0), (1.0, 4.0)),
    ),
    "phantom_tic_tac_toe": _imperfect_information(
        90_000_000,
        ema_decay=0.995,
        learning_rate=((0.0, 3e-3), (0.3, 3e-3), (0.6, 1e-3), (1.0, 0.0)),
        entropy_coef=((0.0, 0.3), (0.3, 0.05), (0.7, 0.01)),
        log_barrier_coef=((0.0, 0.02), (0.5, 0.02), (1.0, 0.005)),
        magnet_coef=1.0,
    ),
    # Four games of CartPole side by side; small rollouts, as episodes soon get long.
    "gymnax": Preset(
        TrainConfig(
            total_env_steps=600_000,
            num_envs=64,
            num_steps=64,
            default_ppo=PPOConfig(learning_rate=Linear(3e-3, 1e-4)),
        ),
        env_kwargs={"env_id": "CartPole-v1", "num_agents": 4},
    ),
    "gymnax/craftax_classic": Preset(
        TrainConfig(
            total_env_steps=20 * 2**20,
            num_envs=128,
            num_steps=64,
            default_policy=PolicySpec(network=MLP(hidden_sizes=(128, 128), separate_critic=True)),
            default_ppo=PPOConfig(
                learning_rate=Linear(1e-3, 0.0), gae_lambda=0.8, entropy_coef=0.01, num_epochs=2
            ),
        ),
        env_kwargs={"env_id": "Craftax-Classic-Symbolic-v1"},
    ),
    **{f"jaxmarl/{name}": Preset(*found) for name, found in jaxmarl_presets().items()},
    **{f"jumanji/{name}": Preset(*found) for name, found in JUMANJI_PRESETS.items()},
}


def preset(env: str, variant: str | None = None) -> Preset:
    """Look up the preset of an environment, or a variant of it such as `league`.

    `TrainConfig()` where an environment has none. Every environment has two variants: `rllib`, the
    defaults of RLlib 2.60's PPO, and `slow_env`, which learns from few environment steps.

    Raises:
        ValueError: For an unknown variant.
    """
    if variant is None:
        return PRESETS.get(env, Preset(TrainConfig()))
    if variant == RLLIB:
        from jaxmarl_ppo.config.rllib.translate import rllib_ppo_defaults

        return dataclasses.replace(preset(env), config=rllib_ppo_defaults())
    if variant == SLOW_ENV:
        return dataclasses.replace(preset(env), config=_SLOW_ENV)
    if f"{env}/{variant}" not in PRESETS:
        known = [name.partition("/")[2] for name in PRESETS if name.startswith(f"{env}/")]
        valid = ", ".join([*known, *FOR_ALL])
        raise ValueError(f"environment {env!r} has no preset {variant!r}; valid: {valid}")
    return PRESETS[f"{env}/{variant}"]


def variants() -> list[tuple[str, str]]:
    """List environments and the variants of their presets."""
    return [(env, variant) for env, slash, variant in (n.partition("/") for n in PRESETS) if slash]


def follow(known: AnyPolicy, base: TrainConfig, config: TrainConfig) -> AnyPolicy:
    """Change a single policy of `base` in what `config` changes about all policies.

    Snapshots of a shorter or longer run lie as much closer or further apart.
    """

    def changes(new: Any, old: Any) -> dict[str, Any]:
        names = [f.name for f in dataclasses.fields(new)]
        names = [name for name in names if getattr(new, name) != getattr(old, name)]
        return {name: getattr(new, name) for name in names}

    if isinstance(known, Snapshots) and known.add_every is not None:
        every = round(known.add_every * config.num_iterations / base.num_iterations)
        return dataclasses.replace(known, add_every=max(1, every))
    if not isinstance(known, PolicySpec):
        return known
    own_ppo = known.ppo and dataclasses.replace(
        known.ppo, **changes(config.default_ppo, base.default_ppo)
    )
    changed = {**changes(config.default_policy, base.default_policy), "ppo": own_ppo}
    return dataclasses.replace(known, **changed)
