"""Connect four of pgx: trains in a league, then plays others, and a solver checks its moves.

    python benchmarks/train_connect_four.py --seeds 0 1 2 --json results.json

One policy plays both seats against itself and its own earlier versions. Who moves first is drawn
for every game. Prints for each seed how often it wins against a random and a look-ahead player,
with sampled and with greedy actions; how many of its moves, in games against itself from the empty
board and from random positions, keep the game-theoretic value of the position; and how it fares
when it begins against perfect play. The solver is in the extra `test`.
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
from whole_runs import enter_run, train_whole

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.pgx import Pgx
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
    TrainResult,
    make_learner,
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
RANDOM_MOVES = 6  # before the policy plays on, in further games that are checked
LINES = winning_lines(ROWS, COLS, 4)  # [L, 4]: cells, row by row from the top


class Openings(Pgx):
    """Connect four, half of whose games begin after up to eight random moves.

    Who is sure of its moves plays one game over and over, and knows no other.
    """

    most_moves = 8
    num_openings = 4096

    def __init__(self) -> None:
        super().__init__("connect_four", planes=True)
        keys = jax.random.split(jax.random.key(0), self.num_openings)
        self._openings = jax.jit(jax.vmap(self._open))(keys)

    def _open(self, key: jax.Array) -> Any:
        """Play one to eight random moves; no move where that has ended the game."""
        begin, count, play = jax.random.split(key, 3)
        _, start = super().reset_env(begin, self.default_params)
        last = jax.random.randint(count, (), 1, self.most_moves + 1)

        def move(index: jax.Array, state: Any) -> Any:
            own = jax.random.fold_in(play, index)
            column = jax.random.categorical(own, jnp.where(state.legal_action_mask, 0.0, -jnp.inf))
            later = self._without_view(self.game.step(state, column))
            return jax.tree.map(lambda new, old: jnp.where(index < last, new, old), later, state)

        end = jax.lax.fori_loop(0, self.most_moves, move, start)
        return jax.tree.map(lambda new, old: jnp.where(end.terminated, old, new), end, start)

    def reset_env(self, key: jax.Array, params: Any) -> tuple[Observation, Any]:
        """Begin with an empty board or with one of the openings."""
        begin, choose = jax.random.split(key)
        _, start = super().reset_env(begin, params)
        draw = jax.random.randint(choose, (), 0, 2 * self.num_openings)
        opening = jax.tree.map(lambda x: x[draw % self.num_openings], self._openings)
        late = draw < self.num_openings
        state = jax.tree.map(lambda new, old: jnp.where(late, new, old), opening, start)
        return self.observe(state), state


class Lines(nn.Module):
    """Looks at the 69 lines of four cells before anything is learnt, since a game is about these.

    Of each empty cell it is told how many lines through it hold one, two or three stones of one
    player and none of the other's: a third stone is a threat, and who fills the cell wins. Dense
    layers see the whole board, and one more, the same for all columns, what is to be had where a
    stone would land, and on the two cells above it.
    """

    num_outputs: int = 0  # filled in by the trainer
    hidden_sizes: tuple[int, ...] = (256, 128)
    column_size: int = 32

    @nn.compact
    def __call__(self, hidden: Any, planes: jax.Array) -> tuple[Any, jax.Array, jax.Array]:
        """`[..., 6, 7, 2]` to logits `[..., num_outputs]` and value `[...]`."""
        stones = planes.reshape(*planes.shape[:-3], ROWS * COLS, 2)
        taken = stones.sum(-1)  # [..., cells]
        lines = lines_through(stones)  # [..., cells, 6]
        lines = jnp.where(taken[..., None] > 0, 0.0, lines)
        cells = jnp.concatenate([jnp.minimum(lines, 1.0), 0.3 * lines], axis=-1)
        board = jnp.concatenate([x.reshape(*x.shape[:-2], -1) for x in (stones, cells)], axis=-1)
        for size in self.hidden_sizes:
            board = nn.relu(dense(size, math.sqrt(2))(board))
        height = taken.reshape(*taken.shape[:-1], ROWS, COLS).sum(-2)  # [..., cols]
        next_cells = cells_from(height)[..., None] == jnp.arange(ROWS * COLS)
        next_cells = next_cells.reshape(*height.shape[:-1], -1, ROWS * COLS)
        near = next_cells.astype(cells.dtype) @ cells  # [..., cols * 3, 12]
        near = near.reshape(*height.shape, -1)
        column = jnp.concatenate([near, (height % 2)[..., None]], axis=-1)
        column = (
            dense(self.column_size, 1.0)(column) + dense(self.column_size, 1.0)(board)[..., None, :]
        )
        column = nn.relu(column)
        logits = dense(1, 0.01)(column)[..., 0] + dense(self.num_outputs, 0.01)(board)
        seen = jnp.concatenate([board, column.mean(-2), column.max(-2)], axis=-1)
        return hidden, logits, dense(1, 1.0)(seen)[..., 0]


def cells_from(height: jax.Array) -> jax.Array:
    """Number the next three cells of columns `height [..., cols]`, `[..., cols, 3]` from below.

    Past the top they are negative.
    """
    landing = (ROWS - 1 - height) * COLS + jnp.arange(COLS)
    return landing[..., None] - COLS * jnp.arange(3)


def lines_through(stones: jax.Array) -> jax.Array:
    """Count lines by how many stones of one player alone they hold.

    Args:
        stones: `[..., cells, {own, the other's}]`.

    Returns:
        `[..., cells, 6]`: of all lines through a cell those with 1, 2 and 3 own stones and none of
        the other's, then the other way round.
    """
    through = (LINES[:, :, None] == np.arange(ROWS * COLS)).any(1).astype(np.float32)  # [L, cells]
    own, other = (stones[..., player] @ through.T for player in (0, 1))  # [..., L]
    alone = [
        (mine == count) & (theirs == 0)
        for mine, theirs in ((own, other), (other, own))
        for count in (1, 2, 3)
    ]
    return (jnp.stack(alone, -2).astype(stones.dtype) @ through).swapaxes(-1, -2)


CONFIG = TrainConfig(
    total_env_steps=40_000_000,
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
    default_policy=PolicySpec(network=Lines()),
    default_ppo=PPOConfig(
        learning_rate=Linear(1e-3, 0.0),
        entropy_coef=Linear(0.2, 0.01),
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
    """Measure win rates against players it has never met, half of the games in each slot."""
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


def train(config: TrainConfig) -> tuple[TrainResult, Learner]:
    """Train one seed from many openings; the learner plays games that begin with an empty board."""
    env = Openings()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(env, env.default_params, config, Path(folder) / "run", progress=False)
        result = train_whole(trainer)
    env, params = jaxmarl_envs.make("pgx", env_id="connect_four", planes=True)
    return result, make_learner(env, params, config)


def train_and_evaluate(config: TrainConfig, episodes: int) -> dict[str, Any]:
    """Train one seed, play others, and have a solver check the moves."""
    result, learner = train(config)
    rates = {
        acting: win_rates(learner, result.population, episodes, greedy, config.seed)
        for acting, greedy in (("sample", False), ("greedy", True))
    }
    policy = Policy.of(learner, result.population, "main")
    key = jax.random.key(config.seed)
    return {
        "seed": config.seed,
        "env_steps": result.env_steps,
        "wall_s_with_compilation": round(result.history[-1]["wall_s"], 1),
        "episodes": episodes,
        **rates,
        "right_moves": right_moves(policy, CHECKED_GAMES, key),
        "right_moves_after_random_ones": right_moves(policy, CHECKED_GAMES, key, RANDOM_MOVES),
        "first_against_perfect_play": against_perfect_play(policy),
    }


def main() -> None:
    """Train some seeds and print a line for each."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--total-env-steps", type=int, default=CONFIG.total_env_steps)
    parser.add_argument("--episodes", type=int, default=2048, help="against each opponent")
    parser.add_argument("--json", type=Path, help="a record that runs are entered into")
    args = parser.parse_args()
    command = shlex.join(["python", "benchmarks/train_connect_four.py", *sys.argv[1:]])
    for seed in args.seeds:
        config = dataclasses.replace(CONFIG, seed=seed, total_env_steps=args.total_env_steps)
        run = train_and_evaluate(config, args.episodes)
        print(json.dumps(run), flush=True)
        if args.json:
            run |= {"command": command, "hardware": describe_hardware()}
            enter_run(args.json, run, key=lambda run: run["seed"])


if __name__ == "__main__":
    main()
