"""Rules of each kind of JaxMARL environment that JaxMARL's interface does not state.

JaxMARL returns one `done` and says neither whether it is the game's own end or the time limit, nor
who may act, nor how long an episode can be. The classes here state it, and correct
kinds of environments that break JaxMARL's own interface.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.adapters.incoming.jaxmarl_drawing import draw_battle, draw_kitchen, draw_particles

_SOUP = 20.0  # what a delivery pays in both versions of Overcooked


class GameRules:
    """Default rules of a game: everyone acts, every action is legal, an end is the game's own.

    Args:
        game: a JaxMARL environment.
    """

    max_actors: int | None = None  # None: as many as there are agents
    idle_action: int = 0  # what is played for an agent that does not act
    has_shaped_reward: bool = False
    knows_time: bool = True  # whether `time_is_up` is more than a guess

    def __init__(self, game: Any) -> None:
        self.game = game

    def horizon(self) -> int | None:
        """Return the maximum length of an episode in steps, or None without a bound."""
        return None

    def time_is_up(self, before: Any, action: Any, after: Any) -> jax.Array:
        """Return whether an episode that ends now was cut off by a time limit, `[]` bool.

        Args:
            before: JaxMARL's state before the step.
            action: each agent's own, `[]` or `[C]` int or `[n]` float.
            after: the state after it.
        """
        return jnp.bool_(False)

    def acting(self, state: Any) -> jax.Array:
        """Return whose action counts at the next step, `[A]` bool."""
        return jnp.ones(len(self.game.agents), bool)

    def legal_actions(self, state: Any) -> list[jax.Array] | None:
        """Return which of each agent's own actions are legal, `[n]` bool; None where all are."""
        return None

    def world_state(self, state: Any) -> jax.Array | None:
        """Return the state for a centralised critic, `[G]`, or None."""
        return None

    def observations(self, seen: Any) -> list[Any]:
        """List what each agent sees: an array or a tree of arrays."""
        return [seen[agent] for agent in self.game.agents]

    def actions(self, action: list[jax.Array]) -> Any:
        """Turn the actions, one for each agent, into the form that `step_env` takes."""
        return dict(zip(self.game.agents, action, strict=True))

    def rewards(self, reward: Any) -> list[jax.Array]:
        """List what each agent earned, `[]` float each."""
        return [reward[agent] for agent in self.game.agents]

    def render(self, state: Any) -> str | None:
        """Draw a state on the host; None where there is no picture."""
        del state
        return None

    def metrics(self, before: Any, after: Any, reward: jax.Array) -> dict[str, jax.Array]:
        """Measure a step, with `[A]` float for each metric; a trainer sums them over lives.

        `reward` is `[A]` float.
        """
        return {}


class TimeLimited(GameRules):
    """An environment that nothing but its time limit ends."""

    def time_is_up(self, before: Any, action: Any, after: Any) -> jax.Array:
        """Count every end as one by the time limit."""
        return jnp.bool_(True)


class MPE(TimeLimited):
    """Particle environments."""

    def horizon(self) -> int:
        """Return `max_steps` plus 1, since JaxMARL compares the clock before the step."""
        return self.game.max_steps + 1

    def render(self, state: Any) -> str:
        """Draw where everybody is."""
        positions, radii = np.asarray(state.p_pos), np.asarray(self.game.rad)
        return draw_particles(positions, radii, self.game.agents, int(state.step))


class SMAX(GameRules):
    """Battles, both teams learning or one of them scripted.

    A unit that is dead does nothing, but its team goes on earning for it. So its agent waits, with
    nothing but the idle action legal, until the battle is over.
    """

    idle_action = 4  # stop

    def horizon(self) -> int:
        """Return `max_steps` plus 1, since JaxMARL compares the clock before the step."""
        return self.game.max_steps + 1

    def time_is_up(self, before: Any, action: Any, after: Any) -> jax.Array:
        """Return whether neither side has won, so that both have living units."""
        alive = self._battle(after).unit_alive
        return alive[: self.game.num_allies].any() & alive[self.game.num_allies :].any()

    def acting(self, state: Any) -> jax.Array:
        """Return which units live, `[A]` bool."""
        return self._battle(state).unit_alive[: len(self.game.agents)]

    def legal_actions(self, state: Any) -> list[jax.Array] | None:
        """Allow targets in range and free ways; with continuous actions there is no mask."""
        if self.game.action_type != "discrete":
            return None
        legal = self.game.get_avail_actions(state)
        return [legal[agent] for agent in self.game.agents]

    def world_state(self, state: Any) -> jax.Array:
        """Return health, position, cooldown and kind of every unit, `[G]`."""
        return self.game.get_world_state(state)

    def metrics(self, before: Any, after: Any, reward: jax.Array) -> dict[str, jax.Array]:
        """Measure `won`: the other team is dead and the own team is not."""
        alive = self._battle(after).unit_alive
        allies, enemies = alive[: self.game.num_allies].any(), alive[self.game.num_allies :].any()
        is_ally = jnp.arange(len(self.game.agents)) < self.game.num_allies
        won = jnp.where(is_ally, allies & ~enemies, enemies & ~allies)
        return {"won": won.astype(jnp.float32)}

    def _battle(self, state: Any) -> Any:
        """Find the battle in a state, where a script's own memory may stand beside it."""
        return getattr(state, "state", state)

    def render(self, state: Any) -> str:
        """Draw the battle."""
        world = getattr(self.game, "_env", self.game)
        return draw_battle(
            self._battle(state),
            float(world.map_width),
            float(world.map_height),
            np.asarray(world.unit_type_health),
        )


class Overcooked(TimeLimited):
    """Both versions of Overcooked, which nothing but the time limit ends."""

    has_shaped_reward = True

    def horizon(self) -> int:
        """Return `max_steps`, since JaxMARL compares the clock after advancing it."""
        return self.game.max_steps

    def metrics(self, before: Any, after: Any, reward: jax.Array) -> dict[str, jax.Array]:
        """Measure the `deliveries` of the complete kitchen."""
        return {"deliveries": jnp.maximum(reward, 0.0) / _SOUP}

    def render(self, state: Any) -> str:
        """Draw the kitchen."""
        return draw_kitchen(state, self.game.agent_view_size - 1, self.game.agents)


class Hanabi(GameRules):
    """One player moves at a time; a game ends by its own rules only."""

    max_actors = 1

    @property
    def idle_action(self) -> int:  # pyright: ignore[reportIncompatibleVariableOverride]
        """Return the number of the last action, which waits."""
        return int(self.game.num_moves) - 1

    def acting(self, state: Any) -> jax.Array:
        """Return which agent has the seat whose turn it is, `[A]` bool."""
        moves = state.cur_player_idx > 0
        # The released 0.2.0 deals out the seats; JaxMARL's repository, which bears that number too,
        # seats everybody in order.
        seat_order = getattr(state, "seat_order", None)
        return moves if seat_order is None else moves[jnp.argsort(seat_order)]

    def legal_actions(self, state: Any) -> list[jax.Array]:
        """Let those who wait only wait."""
        legal = self.game.get_legal_moves(state)
        return [legal[agent] for agent in self.game.agents]


class SwitchRiddle(GameRules):
    """Prisoners of whom one is in the room.

    The others act too, because their memories count the days, but nothing is all that they can do.
    """

    def horizon(self) -> int:
        """Return the number of days."""
        return self.game.max_steps

    def time_is_up(self, before: Any, action: Any, after: Any) -> jax.Array:
        """Return whether the episode ends without an announcement."""
        told = jnp.stack(action)[before.agent_in_room] == self.game.game_actions["TELL"]
        return ~told

    def legal_actions(self, state: Any) -> list[jax.Array]:
        """Allow every action in the room, and outside it only the one that does nothing."""
        num_actions = len(self.game.game_actions)
        inside = jnp.arange(self.game.num_agents) == state.agent_in_room  # [A]
        nothing = jnp.arange(num_actions) == self.game.game_actions["NOTHING"]
        return list(inside[:, None] | nothing)


class InnerAndOuter(TimeLimited):
    """Several short games, one after the other, are one episode."""

    def horizon(self) -> int:
        """Count the steps of all the short games."""
        return self.game.num_inner_steps * self.game.num_outer_steps


class Storm(InnerAndOuter):
    """Spatial matrix games of any number of agents, whose rewards are one array.

    An agent sees its own window, what it holds and whether it may interact, and for each other
    agent, in the order of the slots, whether that one may interact and what it shows.
    """

    def observations(self, seen: Any) -> list[Any]:
        """Split by agent all windows `[A, ...]` and a table `[5, A]` of what all hold and show."""
        windows, table = seen["observations"], seen["inventory"]
        shown = [jnp.delete(table[2:], i, axis=1) for i in range(len(self.game.agents))]
        return [
            (window, jnp.concatenate([table[:3, i], shown[i].T.ravel()]))
            for i, window in enumerate(windows)
        ]

    def rewards(self, reward: Any) -> list[jax.Array]:
        """List the rewards by slot, from an array `[A]`."""
        return list(reward)


class StormOfTwo(Storm):
    """The game for two players takes a tuple of actions and returns tuples."""

    def observations(self, seen: Any) -> list[Any]:
        """List what the two agents see, by slot, from a tuple."""
        return list(seen)

    def actions(self, action: list[jax.Array]) -> Any:
        """Turn the actions into a tuple, by slot."""
        return tuple(action)


class StormGrid(Storm):
    """The game on a grid of any size shows windows only."""

    def observations(self, seen: Any) -> list[Any]:
        """List the windows of all agents, by slot."""
        return list(seen)


class JaxNav(GameRules):
    """Robots on their ways, which share a part of their rewards.

    A robot that has crashed, or vanished at its goal, does nothing any more but earns its share.
    """

    def horizon(self) -> int:
        """Return `max_steps`, since JaxMARL compares the clock after advancing it."""
        return self.game.max_steps

    def time_is_up(self, before: Any, action: Any, after: Any) -> jax.Array:
        """Return whether some robot has neither arrived nor crashed."""
        return ~(before.done | after.goal_reached | after.move_term).all()

    def acting(self, state: Any) -> jax.Array:
        """Return which robots can move, `[A]` bool."""
        return ~(state.done | state.move_term)

    def metrics(self, before: Any, after: Any, reward: jax.Array) -> dict[str, jax.Array]:
        """Measure who `arrived` and who `crashed` at this step."""
        return {
            "arrived": (after.goal_reached & ~before.goal_reached).astype(jnp.float32),
            "crashed": (after.move_term & ~before.move_term).astype(jnp.float32),
        }


class MABrax(GameRules):
    """Robots whose joints belong to several agents; it needs `jaxmarl[mabrax]`."""

    def horizon(self) -> int:
        """Return the time limit in environment steps, each of which may be several of Brax's."""
        return -(-self.game.episode_length // self.game.action_repeat)

    def time_is_up(self, before: Any, action: Any, after: Any) -> jax.Array:
        """Return whether Brax itself reports that the time is up, `[]` bool."""
        return after.info["truncation"] > 0


class OtherRules(GameRules):
    """A class that JaxMARL does not have."""

    knows_time = False

    def legal_actions(self, state: Any) -> list[jax.Array] | None:
        """Ask `get_avail_actions`, which JaxMARL's base class has but does not implement."""
        owners = (c for c in type(self.game).__mro__ if "get_avail_actions" in vars(c))
        owner = next(owners, None)
        if owner is None or owner.__name__ == "MultiAgentEnv":
            return None
        legal = self.game.get_avail_actions(state)
        return [legal[agent] for agent in self.game.agents]


_RULES: dict[str, type[GameRules]] = {
    "SimpleMPE": MPE,
    "SMAX": SMAX,
    "EnemySMAX": SMAX,
    "Overcooked": Overcooked,
    "OvercookedV2": Overcooked,
    "HanabiGame": Hanabi,
    "SwitchRiddle": SwitchRiddle,
    "CoinGame": InnerAndOuter,
    "InTheGrid": Storm,
    "InTheGrid_2p": StormOfTwo,
    "InTheMatrix": StormGrid,
    "JaxNav": JaxNav,
    "MABraxEnv": MABrax,
}


def rules_of(game: Any) -> GameRules:
    """Choose the rules of a JaxMARL environment, by its class or the nearest of its bases."""
    names = [cls.__name__ for cls in type(game).__mro__]
    found = next((_RULES[name] for name in names if name in _RULES), OtherRules)
    return found(game)
