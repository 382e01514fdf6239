"""Asymmetric self-play: Alice sets a task by doing it, then Bob undoes or repeats it.

The game is that of Sukhbaatar, Lin, Kostrikov, Synnaeve, Szlam & Fergus 2018, "Intrinsic Motivation
and Automatic Curricula via Asymmetric Self-Play" (https://arxiv.org/abs/1703.05407), in a world of
rooms, doors and lamps that is akin to the one of its Mazebase experiments.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import struct

from jaxmarl_envs.asymmetric_play.drawing import draw_rooms
from jaxmarl_envs.core import MultiAgentEnv, Observation, StepResult
from jaxmarl_envs.drawing.svg import agent_sign
from jaxmarl_envs.spaces import Box, Discrete

ALICE, BOB = range(2)
UP, DOWN, LEFT, RIGHT, TOGGLE, STOP = range(6)
MODES = ("reverse", "repeat")
MAX_WORLDS = 2048  # the table of shortest paths has the square of it as entries
_MOVES = ((-1, 0), (1, 0), (0, -1), (0, 1))
_NUM_TIMES = 3
_World = tuple[int, ...]  # row, column, what is switched on


@struct.dataclass
class PlayParams:
    """Numeric parameters."""

    max_alice_steps: int | jax.Array  # [] int: steps of Alice's turn at most, at least 1
    max_steps: int | jax.Array  # [] int, `t_max`: steps of both turns together, at least 1
    reward_scale: float | jax.Array = 0.05  # [] float, `c`


@struct.dataclass
class PlayState:
    """One episode; worlds are numbered as in `Rooms`."""

    world: jax.Array  # [] int32: as it is now
    start: jax.Array  # [] int32: as Alice found it
    goal: jax.Array  # [] int32: what Bob is to bring about; in "repeat", until he acts, `world`
    alice_time: jax.Array  # [] int32: steps that Alice took, `t_alice`
    bob_time: jax.Array  # [] int32: steps that Bob took, `t_bob`
    bobs_turn: jax.Array  # [] bool: Alice is done
    over: jax.Array  # [] bool


class Rooms:
    """A row of rooms with doors and lamps: all of its states, and the transition of each action.

    Between two rooms is a wall with a door in its middle row. The switch in the top left corner of
    a room opens and shuts the door on its right, and the switch in the bottom right corner of every
    room turns its lamp on and off. Three rooms of 2 x 2, `+` doors, `d` and `l` switches::

        d.#d.#..
        .l+.l+.l

    A *world* is a position, the open doors and the lit lamps. Worlds are numbered if they can be
    reached from number 0: in the top left corner, with all doors shut and all lamps off. Every
    change can be reversed by another action, so shortest paths are equally long both ways.

    Attributes:
        layout: the picture above.
        positions: `[P, 2]` int, row and column of every place to stand, doors included.
        place: `[S]` int, which of them it is in each world.
        switched: `[S, B]` bool: door open, from left to right, then lamp lit, from left to right.
        next_world: `[S, 6]` int32, after each action; the same world where nothing happens.
        distance: `[S, S]` int16, actions on a shortest path from one to another.
    """

    def __init__(self, num_rooms: int, room_rows: int, room_cols: int) -> None:
        self.layout = _layout(num_rooms, room_rows, room_cols)
        signs = {(r, c): sign for r, line in enumerate(self.layout) for c, sign in enumerate(line)}
        self._places = [position for position, sign in signs.items() if sign != "#"]
        self._doors, self._switches = {}, {}  # position to index in `switched`
        for position in self._places:
            room = position[1] // (room_cols + 1)
            if signs[position] == "+":
                self._doors[position] = room
            elif signs[position] == "d":
                self._switches[position] = room
            elif signs[position] == "l":
                self._switches[position] = num_rooms - 1 + room
        worlds, self.next_world = self._explore((0, 0, *(False,) * (2 * num_rooms - 1)))
        self.positions = np.array(self._places)
        self.place = np.array([self._places.index((r, c)) for r, c, *_ in worlds])
        self.switched = np.array([world[2:] for world in worlds], bool)
        self.distance = shortest_paths(self.next_world)

    @property
    def num_worlds(self) -> int:
        """Count the worlds, `S`."""
        return len(self.place)

    def world(self, row: int, col: int, switched: Sequence[bool]) -> int:
        """Find the number of a world; raise a ValueError if it cannot come about."""
        worlds = np.concatenate([self.positions[self.place], self.switched], axis=1).tolist()
        wanted = [row, col, *switched]
        if wanted not in worlds:
            raise ValueError(f"row={row}, col={col}, switched={switched}: no such world")
        return worlds.index(wanted)

    def draw(
        self,
        world: int,
        goal: int | None,
        walks: tuple[int, str],
        waits: tuple[int, str] | None,
        caption: str,
    ) -> str:
        """Draw a world, who walks in it, and what in it is other than in the world `goal`."""
        doors, lamps = self._split(world)
        wanted = None if goal is None else self._split(goal)
        return draw_rooms(
            self.layout,
            doors,
            lamps,
            walker=(*walks, self._standing(world)),
            waits=waits,
            wanted={} if wanted is None else wanted[0] | wanted[1],
            target=None if goal is None else self._standing(goal),
            caption=caption,
        )

    def _standing(self, world: int) -> tuple[int, int]:
        row, col = self.positions[self.place[world]].tolist()
        return row, col

    def _split(self, world: int) -> tuple[dict[tuple[int, int], bool], dict[tuple[int, int], bool]]:
        """Return which doors are open and which lamps lit in a world, by where they are drawn."""
        switched = self.switched[world].tolist()
        doors = {place: switched[index] for place, index in self._doors.items()}
        lamps = {
            place: switched[index]
            for place, index in self._switches.items()
            if index >= len(self._doors)
        }
        return doors, lamps

    def _explore(self, home: _World) -> tuple[list[_World], np.ndarray]:
        """List all worlds that come about from one, and compute `next_world [S, 6]`."""
        worlds, number, next_world = [home], {home: 0}, []
        for world in worlds:  # which grows meanwhile
            after = [self._act(world, action) for action in range(STOP + 1)]
            for new in after:
                if new not in number:
                    number[new] = len(worlds)
                    worlds.append(new)
            next_world.append([number[new] for new in after])
        return worlds, np.array(next_world, np.int32)

    def _act(self, world: _World, action: int) -> _World:
        row, col, *switched = world
        if action == TOGGLE and (row, col) in self._switches:
            switched[self._switches[row, col]] ^= True
        elif action < TOGGLE:
            to = row + _MOVES[action][0], col + _MOVES[action][1]
            if to in self._places and (to not in self._doors or switched[self._doors[to]]):
                row, col = to
        return row, col, *switched


def _layout(num_rooms: int, room_rows: int, room_cols: int) -> tuple[str, ...]:
    signs = np.full((room_rows, num_rooms * (room_cols + 1) - 1), ".")
    left = np.arange(num_rooms) * (room_cols + 1)
    walls = left[1:] - 1
    signs[:, walls] = "#"
    signs[room_rows // 2, walls] = "+"
    signs[0, left[:-1]] = "d"
    signs[-1, left + room_cols - 1] = "l"
    return tuple("".join(line) for line in signs)


def shortest_paths(next_state: np.ndarray) -> np.ndarray:
    """Compute the lengths of shortest paths between all states, breadth first from all at once.

    Args:
        next_state: `[S, N]` int, the state after each action.

    Returns:
        `[S, S]` int16, from row to column; -1 where no path leads.
    """
    reached = np.eye(len(next_state), dtype=bool)
    distance = np.where(reached, 0, -1).astype(np.int16)
    for length in range(1, len(next_state)):
        found = reached[next_state].any(axis=1) & ~reached
        if not found.any():
            break
        distance[found] = length
        reached |= found
    return distance


class AsymmetricPlay(MultiAgentEnv[PlayState, PlayParams]):
    r"""Asymmetric self-play: Alice acts alone, then Bob has to undo or to repeat what she did.

    **Turns.** An episode begins with Alice in a uniformly drawn world of `Rooms`. Her turn is over
    when she chooses `STOP` or has used `params.max_alice_steps` steps (at the last she still acts).
    With `mode="reverse"` Bob starts in the world that she left and has to restore the one in which
    she started; with `mode="repeat"` he starts in the world in which she started and has to reach
    the one that she left: same place, same doors, same lamps. The episode is over as soon as he has
    done so, at once if there was nothing to do, or when both together have used `params.max_steps`
    steps. Alice stays alive and waits until then, because her reward is only known then.

    **Actions** (discrete): up, down, left, right, toggle the switch here, and, for Alice only,
    `STOP`. Actions that would change nothing are masked; if chosen, they cost a step. `STOP` is
    masked while there is nothing to undo or repeat; if chosen, it ends her turn.

    **Reward**, for both at the last step, with `t` the steps that each used, `STOP` included:

    .. math:: r_{alice} = c \max(0, t_{bob} - t_{alice}), \qquad r_{bob} = -c \, t_{bob}.

    If Bob fails, he has used all remaining steps, so his `t` is `max_steps - t_alice` as in the
    paper, whose gamma is `c = params.reward_scale` here. No shortest path is longer than Alice's,
    so if Bob takes shortest paths she receives exactly 0: the equilibrium (section 2.2 there).

    **End**: both are *terminated*, also at the time limit, because the observation contains the
    time and there are no rewards beyond (Pardo et al. 2018, "Time limits in reinforcement
    learning").

    **Observation** `[2, 2 (P + B) + 3]`, in [0, 1]: for each of two worlds the place as a one-hot
    (`P`) and what is switched on (`B`); Alice observes the world and the one in which she started,
    Bob the world and his goal. Then, for both, Alice's steps as a share of `max_alice_steps`, and
    Bob's steps and the remaining steps as shares of `max_steps`.

    **Metrics**, per episode and the same in both rows: `success` is 1 if Bob is done in time,
    `task_length` the steps that Alice used, and `shortest` the length of a shortest solution.

    Args:
        mode: `"reverse"` or `"repeat"`.
        num_rooms: at least 1.
        room_rows: rows of every room, at least 1.
        room_cols: columns of every room, at least 1, and with `room_rows` at least 2 places.

    Raises:
        ValueError: an argument is out of its range, or there are more than 2,048 worlds.
    """

    name = "asymmetric_play"
    agents = ("alice", "bob")

    def __init__(
        self, mode: str = "reverse", num_rooms: int = 3, room_rows: int = 2, room_cols: int = 2
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode={mode!r}: valid choices: {', '.join(MODES)}")
        _check_sizes(num_rooms, room_rows, room_cols)
        self.mode = mode
        self.rooms = Rooms(num_rooms, room_rows, room_cols)
        one_hot = np.eye(len(self.rooms.positions))[self.rooms.place]
        self._features = np.concatenate([one_hot, self.rooms.switched], axis=1).astype(np.float32)

    @property
    def max_actors(self) -> int:
        """Count who can act at one step: one."""
        return 1

    @property
    def default_params(self) -> PlayParams:
        """Give time for the longest of all shortest paths, and Bob at least twice as much."""
        longest = int(self.rooms.distance.max())
        return PlayParams(max_alice_steps=longest, max_steps=3 * longest)

    def horizon(self, params: PlayParams) -> int | jax.Array:
        """Bound both turns together by `params.max_steps` steps."""
        return params.max_steps

    def observation_space(self, agent: str, params: PlayParams) -> Box:
        """Return the space of two worlds and the time, the same for both."""
        self.agent_index(agent)
        return Box(0.0, 1.0, (2 * self._features.shape[1] + _NUM_TIMES,))

    def action_space(self, agent: str, params: PlayParams) -> Discrete:
        """Return the actions: Bob has four moves and toggling, Alice also stopping."""
        return Discrete((STOP + 1, STOP)[self.agent_index(agent)])

    def reset_env(self, key: jax.Array, params: PlayParams) -> tuple[Observation, PlayState]:
        """Draw the world that Alice finds."""
        world = jax.random.randint(key, (), 0, self.rooms.num_worlds)
        state = PlayState(
            world=world,
            start=world,
            goal=world,
            alice_time=jnp.int32(0),
            bob_time=jnp.int32(0),
            bobs_turn=jnp.bool_(False),
            over=jnp.bool_(False),
        )
        return self._observe(state, params), state

    def step_env(
        self, key: jax.Array, state: PlayState, action: jax.Array, params: PlayParams
    ) -> StepResult[PlayState]:
        """Let the one whose turn it is act; `action` is `[2]` int. What is over stays as it is."""
        del key
        after, hands_over = self._act(state, action, params)
        solved = after.bobs_turn & (after.world == after.goal)
        time_is_up = after.alice_time + after.bob_time >= params.max_steps
        ended = ~state.over & after.bobs_turn & (solved | time_is_up)
        after = replace(after, over=ended)
        state = jax.tree.map(lambda x, y: jnp.where(state.over, x, y), state, after)

        t_alice, t_bob = state.alice_time, state.bob_time
        earned = params.reward_scale * jnp.stack([jnp.maximum(t_bob - t_alice, 0), -t_bob])
        shortest = jnp.asarray(self.rooms.distance)[state.world, state.goal]
        metrics = {
            "success": ended & solved,
            "task_length": jnp.where(ended, t_alice, 0),
            "shortest": jnp.where(hands_over, shortest, 0),
        }
        metrics = {name: _for_both(value.astype(jnp.float32)) for name, value in metrics.items()}
        terminated = _for_both(ended)
        reward = jnp.where(terminated, earned, 0.0)
        obs = self._observe(state, params)
        return obs, state, reward, terminated, jnp.zeros(2, bool), {"metrics": metrics}

    @property
    def action_names(self) -> tuple[str, ...]:
        """Name the six actions."""
        return ("up", "down", "left", "right", "toggle", "stop")

    def render(
        self, state: PlayState, params: PlayParams | None = None, last_action: Any = None
    ) -> str:
        """Draw the rooms, the walking agent, and differences from the goal."""
        del params, last_action
        bobs_turn, time = bool(state.bobs_turn), int(state.alice_time) + int(state.bob_time)
        # Alice is free to choose what to leave: only Bob has a task.
        goal = int(state.goal) if bobs_turn else None
        slot = BOB if bobs_turn else ALICE
        walks, other = ((slot, self.agents[slot][0].upper()) for slot in (slot, 1 - slot))
        waits = None if bool(state.over) else other
        caption = f"step {time}, {self.agents[slot]}'s turn"
        if bool(state.over):
            solved = int(state.world) == int(state.goal)
            caption = f"step {time}, bob {'is done' if solved else 'was too late'}"
        return self.rooms.draw(int(state.world), goal, walks, waits, caption)

    def sign(self, agent: str) -> str:
        """Return an agent's sign with its letter."""
        return agent_sign(self.agent_index(agent), agent[0].upper())

    def _act(
        self, state: PlayState, action: jax.Array, params: PlayParams
    ) -> tuple[PlayState, jax.Array]:
        """Compute the state after an action of a running episode, and whether Alice's turn ends."""
        alices = ~state.bobs_turn
        chosen = jnp.where(alices, action[ALICE], action[BOB])
        world = jnp.asarray(self.rooms.next_world)[state.world, chosen]
        alice_time = state.alice_time + alices
        no_time = alice_time >= jnp.minimum(params.max_alice_steps, params.max_steps)
        hands_over = alices & ((chosen == STOP) | no_time)
        goal = state.goal
        if self.mode == "repeat":
            goal = jnp.where(alices, world, goal)
            world = jnp.where(hands_over, state.start, world)
        after = replace(
            state,
            world=world,
            goal=goal,
            alice_time=alice_time,
            bob_time=state.bob_time + state.bobs_turn,
            bobs_turn=state.bobs_turn | hands_over,
        )
        return after, hands_over

    def _observe(self, state: PlayState, params: PlayParams) -> Observation:
        other = jnp.stack([state.start, state.goal])  # [A]
        worlds = jnp.stack([_for_both(state.world), other], axis=1)  # [A, 2]
        pictures = jnp.asarray(self._features)[worlds].reshape(self.num_agents, -1)
        times = jnp.stack(
            [
                state.alice_time / params.max_alice_steps,
                state.bob_time / params.max_steps,
                (params.max_steps - state.alice_time - state.bob_time) / params.max_steps,
            ]
        )
        times = jnp.broadcast_to(times, (self.num_agents, _NUM_TIMES))
        alive = _for_both(~state.over)
        changes = jnp.asarray(self.rooms.next_world)[state.world] != state.world  # [N]
        is_alice = jnp.arange(self.num_agents) == ALICE
        can_stop = is_alice[:, None] & (state.world != state.start)
        return Observation(
            features=jnp.concatenate([pictures, times], axis=1),
            action_mask=jnp.where(jnp.arange(STOP + 1) == STOP, can_stop, changes),
            alive=alive,
            agent_mask=alive & (is_alice != state.bobs_turn),
        )


def _for_both(value: jax.Array) -> jax.Array:
    """Repeat a scalar for each agent, `[A]`."""
    return jnp.broadcast_to(value, (2,))


def _check_sizes(num_rooms: int, room_rows: int, room_cols: int) -> None:
    sizes = {"num_rooms": num_rooms, "room_rows": room_rows, "room_cols": room_cols}
    for name, size in sizes.items():
        if not isinstance(size, int | np.integer) or isinstance(size, bool) or size < 1:
            raise ValueError(f"{name}={size!r}: must be an integer of at least 1")
    if room_rows * room_cols < 2:
        raise ValueError("room_rows=1, room_cols=1: two switches need at least 2 places")
    # The doors behind whoever stands in a room or a door are open; all other switches are free.
    cells, lit = room_rows * room_cols, 2 ** int(num_rooms)
    num_worlds = lit * (cells * (lit - 1) + lit // 2 - 1)
    if num_worlds > MAX_WORLDS:
        raise ValueError(
            f"num_rooms={num_rooms}, room_rows={room_rows}, room_cols={room_cols}: choose fewer or "
            f"smaller rooms; these make {num_worlds:,} worlds, more than {MAX_WORLDS:,}"
        )
