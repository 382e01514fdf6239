"""A page with a game and its players that needs no server."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.drawing.stones import stone_sign
from jaxmarl_envs.threefry import fold_in
from jaxmarl_ppo.deploy.portable import portable_program
from jaxmarl_ppo.evaluation.episodes import EpisodesState
from jaxmarl_ppo.evaluation.replay import ask_everybody
from jaxmarl_ppo.pages.game_table import Table, play_step
from jaxmarl_ppo.pages.page import Page, describe_env, make_page, read_static

STATIC = ("base.css", "play.css", "base.js", "program.js", "play_local.js", "play.js")
# The page first replays this many games, to check that it computes the same.
NUM_CHECKS = 2


def play_page(table: Table, title: str) -> Page:
    """Make a page for playing a table's game from a file, without a network.

    Args:
        table: of the game and its players.
        title: names the opponent.

    Raises:
        ValueError: If the page cannot draw or compute the game.
    """
    env = table.env
    if jax.eval_shape(env.cells, table.state) is None:
        raise ValueError(
            f"environment {env.name!r} has no board (`cells`) that a page could draw; it can be "
            "played over the server, without --export"
        )
    if not table.layout.is_choice:
        raise ValueError(
            f"agents of environment {env.name!r} have several choices, or numbers, which a page "
            "without a server cannot show; it can be played over the server, without --export"
        )
    data = {
        "title": title,
        **describe_env(env),
        "num_actions": table.layout.width,
        # The page draws every board with these stones.
        "agents": [{"name": x, "sign": stone_sign(i)} for i, x in enumerate(env.agents)],
        "in_a_row": env.stones_in_a_row,
        "players": table.players,
        "programs": {name: portable_program(fn, *x) for name, (fn, x) in _functions(table).items()},
        "checks": [_game(table, number) for number in range(NUM_CHECKS)],
    }
    return make_page(title, read_static("play.html"), STATIC, data)


def _functions(table: Table) -> dict[str, Any]:
    """Return the functions that the page computes, with examples of their arguments."""
    env, play, now = table.env, table.play, table.play.begin()
    num_agents = env.num_agents

    def begin(key: jax.Array) -> EpisodesState:
        return play.replace(key=jax.random.wrap_key_data(key)).begin()

    def look(now: EpisodesState) -> tuple[jax.Array | None, ...]:
        own: Any = jax.tree.map(lambda x: x[0], now.state)
        return env.cells(own.env_state), own.obs.agent_mask, own.obs.action_mask, own.player

    def ask(now: EpisodesState) -> tuple[jax.Array, jax.Array]:
        answers = ask_everybody(play, now)
        return answers["probs"][0], answers["value"][0]

    def step(now: EpisodesState, chosen: jax.Array, by_person: jax.Array) -> tuple[Any, ...]:
        after, action, reward, over, end = play_step(play, now, chosen, by_person)
        cells = env.cells(jax.tree.map(lambda x: x[0], end))
        return after, action[0], reward[0], over[0], cells

    chosen, by_person = jnp.zeros(num_agents, jnp.int32), jnp.zeros(num_agents, bool)
    return {
        "begin": (begin, (jnp.zeros(2, jnp.uint32),)),
        "look": (look, (now,)),
        "ask": (ask, (now,)),
        "tick": (step, (now, chosen, by_person)),
    }


def _game(table: Table, number: int) -> dict[str, Any]:
    """Play a game among policies, and return their actions and all action probabilities."""
    functions = {name: jax.jit(fn) for name, (fn, _) in _functions(table).items()}
    key = jax.random.key_data(fold_in(jax.random.key(0), number))
    now, steps, over = functions["begin"](key), [], False
    slots = range(table.env.num_agents)
    nobody = np.zeros(len(slots), np.int32), np.zeros(len(slots), bool)
    limit = int(table.play.limit)
    while not over and len(steps) < limit:
        probs, _ = jax.device_get(functions["ask"](now))
        now, action, _, over, _ = functions["tick"](now, *nobody)
        known = [float(p) if np.isfinite(p) else None for p in probs.ravel()]
        steps.append({"actions": {str(s): int(action[s]) for s in slots}, "probs": known})
    return {"key": np.asarray(key).tolist(), "steps": steps}
