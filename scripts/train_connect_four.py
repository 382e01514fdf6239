"""Connect four of pgx: trains in a league, then plays others, and a solver checks its moves.

    python scripts/train_connect_four.py --seeds 0 1 --json benchmarks/learning-connect_four.json

One policy plays both seats against itself and its own earlier versions. Who moves first is drawn
for every game. Prints for each seed how often it wins against a random and a look-ahead player,
with sampled and with greedy actions; how many of its moves, in games against itself, keep the
game-theoretic value of the position; and how it fares when it begins against perfect play. The
solver is in the extra `test`.
"""

import argparse
import dataclasses
import json
import math
import shlex
import sys
import tempfile
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from connect_four_truth import against_perfect_play, right_moves
from flax import linen as nn

import jaxmarl_envs
from jaxmarl_envs.core import Observation
from jaxmarl_envs.tic_tac_toe import winning_lines
from jaxmarl_ppo import (
    Linear,
    Matchups,
    PolicySpec,
    PPOConfig,
    Snapshots,
    TrainConfig,
    Trainer,
    use_cpu_cores,
)
from jaxmarl_ppo.deploy import Policy
from jaxmarl_ppo.evaluation import play_episodes
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.hardware import describe_hardware
from jaxmarl_ppo.networks.layers import dense
from jaxmarl_ppo.policies.scripted import make_random_script
from jaxmarl_ppo.types import Population

ROWS, COLS = 6, 7
CHECKED_GAMES = 64
LINES = winning_lines(ROWS, COLS, 4)  # [L, 4]: cells, row by row from the top


class Windows(nn.Module):
    """One dense layer for every 4 x 4 window of the board, which holds ten lines, then another.

    The same weights look for threats everywhere, as a convolution's would, and as matrix products
    they take a CPU far less time.
    """

    num_outputs: int = 0  # filled in by the trainer
    channels: int = 32
    hidden_size: int = 128

    @nn.compact
    def __call__(self, hidden: Any, planes: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """`[..., 6, 7, 2]` to logits `[..., num_outputs]` and value `[...]`."""
        rows, cols = ROWS - 3, COLS - 3
        shifted = [
            planes[..., row : row + rows, col : col + cols, :]
            for row in range(4)
            for col in range(4)
        ]
        windows = jnp.concatenate(shifted, axis=-1)  # [..., 3, 4, 32]
        x = nn.relu(dense(self.channels, math.sqrt(2))(windows))
        x = x.reshape(*x.shape[:-3], -1)
        x = nn.relu(dense(self.hidden_size, math.sqrt(2))(x))
        return hidden, dense(self.num_outputs, 0.01)(x), dense(1, 1.0)(x)[..., 0]


CONFIG = TrainConfig(
    total_env_steps=20_000_000,
    num_envs=256,
    num_steps=32,
    mapping=Matchups(
        (
            {"player_0": "main", "player_1": "main"},
            {"player_0": "main", "player_1": "past"},
        ),
        weights=(0.7, 0.3),
    ),
    policies={"past": Snapshots("main", size=8, add_every=200)},
    default_policy=PolicySpec(network=Windows()),
    default_ppo=PPOConfig(
        learning_rate=Linear(1e-3, 1e-5),
        entropy_coef=Linear(0.2, 0.03),
        num_epochs=2,
        gamma=1.0,
        gae_lambda=0.9,
    ),
)


def look_ahead(state: Any, obs: Observation, params: Any, key: jax.Array) -> jax.Array:
    """Win if that can be done at once, else stop the other from it, else play at random.

    Returns:
        `[A]` int: a column for each player.
    """
    del state, params
    stones = obs.features.reshape(-1, ROWS * COLS, 2) > 0  # [A, cells, {own, the other's}]
    height = stones.any(-1).reshape(-1, ROWS, COLS).sum(1)  # [A, cols]
    landing = (ROWS - 1 - height) * COLS + jnp.arange(COLS)  # [A, cols]: negative where full
    dropped = landing[..., None] == jnp.arange(ROWS * COLS)  # [A, cols, cells]
    boards = stones.swapaxes(1, 2)[:, :, None] | dropped[:, None]  # [A, 2, cols, cells]
    wins = boards[..., LINES].all(-1).any(-1)  # [A, 2, cols]
    preference = jax.random.uniform(key, obs.action_mask.shape) + 4 * wins[:, 0] + 2 * wins[:, 1]
    return jnp.argmax(jnp.where(obs.action_mask, preference, -1.0), axis=-1)


def win_rates(
    learner: Learner, population: Population, episodes: int, greedy: bool, seed: int
) -> dict[str, dict[str, float]]:
    """How the policy does against players that it has never met, half of the games in each slot."""
    opponents = {
        "random": make_random_script(learner.env, learner.env_params),
        "look_ahead": look_ahead,
    }
    players = learner.players.with_scripts(opponents)
    learner = dataclasses.replace(learner, players=players)
    own_slot = np.arange(episodes) % 2
    rates = {}
    for index, name in enumerate(opponents):
        chosen = np.full((episodes, 2), players.names.index(name))
        chosen[np.arange(episodes), own_slot] = players.names.index("main")
        key = jax.random.fold_in(jax.random.key(seed), index)
        totals = play_episodes(learner, population, episodes, key, greedy, players=chosen)
        rates[name] = {
            outcome: float(np.asarray(counts)[np.arange(episodes), own_slot].mean())
            for outcome, counts in totals.metrics.items()
        }
    return rates


def train_and_evaluate(config: TrainConfig, episodes: int) -> dict[str, Any]:
    """One seed."""
    env, params = jaxmarl_envs.make("pgx", env_id="connect_four", planes=True)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(env, params, config, Path(folder) / "run", progress=False)
        result = trainer.train()
    rates = {
        acting: win_rates(trainer.learner, result.population, episodes, greedy, config.seed)
        for acting, greedy in (("sample", False), ("greedy", True))
    }
    policy = Policy.of(trainer.learner, result.population, "main")
    return {
        "seed": config.seed,
        "env_steps": result.env_steps,
        "wall_s_with_compilation": round(result.history[-1]["wall_s"], 1),
        "episodes": episodes,
        **rates,
        "right_moves": right_moves(policy, CHECKED_GAMES, jax.random.key(config.seed)),
        "first_against_perfect_play": against_perfect_play(policy),
    }


def main() -> None:
    """Train some seeds and print a line for each."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--total-env-steps", type=int, default=CONFIG.total_env_steps)
    parser.add_argument("--episodes", type=int, default=2048, help="against each opponent")
    parser.add_argument("--json", type=Path)
    args = parser.parse_args()
    runs: list[dict[str, Any]] = []
    record = {
        "command": shlex.join(["python", "scripts/train_connect_four.py", *sys.argv[1:]]),
        "hardware": describe_hardware(),
        "runs": runs,
    }
    for seed in args.seeds:
        config = dataclasses.replace(CONFIG, seed=seed, total_env_steps=args.total_env_steps)
        runs.append(train_and_evaluate(config, args.episodes))
        print(json.dumps(runs[-1]), flush=True)
        if args.json:
            args.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
