"""The algorithm as pure functions: `init` makes a `TrainState`, `train_step` advances it.

Both can be jitted, and vmapped over seeds. Nothing here touches the host.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.threefry import split
from jaxmarl_ppo.learner import league_results as league_lib
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.ops.collectives import split_key
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.ppo.bank_learner import BankLearner, Lesson
from jaxmarl_ppo.rollout.faults import find_fault
from jaxmarl_ppo.rollout.rollout import Rollout, init_slots, rollout
from jaxmarl_ppo.rollout.start import stagger_episodes
from jaxmarl_ppo.types import (
    BankState,
    EpisodeStats,
    FrozenBank,
    Games,
    League,
    Policies,
    Population,
    PyTree,
    Slots,
    TrainState,
)


@dataclass(frozen=True, eq=False)
class LoadedPlayer:
    """What a policy starts from instead of fresh parameters."""

    bank: int
    row: int
    policy: Policies  # of that row


@dataclass(frozen=True, eq=False)
class Learner:
    """Everything static about a run; `make_learner` builds one from a configuration.

    Attributes:
        env: the environment.
        env_params: its parameters.
        players: who can hold a slot.
        banks: how each bank of `players` is trained; None for one in which nothing is.
        num_envs: `E`, on all devices together.
        num_devices: how many of them there are to be, see `parallel`.
        num_steps: `T`.
        stagger_starts: begin the first episodes at different phases.
        rated: whether results between players are kept.
        loaded: where policies start from, unless it is from fresh parameters.
    """

    env: MultiAgentEnv
    env_params: PyTree
    players: Players
    banks: tuple[BankLearner | None, ...]
    num_envs: int
    num_devices: int
    num_steps: int
    stagger_starts: bool
    rated: bool
    loaded: tuple[LoadedPlayer, ...] = ()

    def init(self, key: jax.Array) -> TrainState:
        """Fresh parameters and fresh episodes."""
        key, key_policies, key_envs, key_stagger = split(key, 4)
        population = self.init_population(key_policies)
        league = population.league
        slots = init_slots(self.env, self.env_params, self.players, league, key_envs, self.num_envs)
        counted = jnp.ones(slots.fresh.shape, bool)
        if self.stagger_starts:
            slots, counted = stagger_episodes(self.env, self.env_params, slots, key_stagger)
        state = TrainState(
            banks=tuple(
                FrozenBank(stack) if bank is None else bank.init(stack, slots)
                for bank, stack in zip(self.banks, population.banks, strict=True)
            ),
            league=league,
            games=league_lib.init_games(counted),
            slots=slots,
            episode_stats=self._init_episode_stats(slots, counted),
            env_params=self.env_params,
            key=key,
            iteration=jnp.zeros((), jnp.int32),
        )
        # Leaves that share a buffer could not be donated.
        return jax.tree.map(jnp.copy, state)

    def init_population(self, key: jax.Array) -> Population:
        """What every bank starts from; snapshots are those of their origin."""
        keys = split(key, len(self.banks))
        stacks = [seats.bank.init(key) for seats, key in zip(self.players.banks, keys, strict=True)]
        for player in self.loaded:
            stacks[player.bank] = jax.tree.map(
                lambda x, y, row=player.row: x.at[row].set(y), stacks[player.bank], player.policy
            )
        for pool in self.players.pools:
            rows = slice(pool.first_row, pool.first_row + pool.spec.size)
            stacks[pool.bank] = jax.tree.map(
                lambda x, rows=rows, row=pool.origin_row: x.at[rows].set(x[row]),
                stacks[pool.bank],
            )
        league = league_lib.init_league(self.players.num_players, self.players.pools)
        return Population(tuple(stacks), league)

    def train_step(
        self, state: TrainState, axis_name: str | None = None
    ) -> tuple[TrainState, Metrics]:
        """One iteration: rollout, advantages and update of every bank, league, metrics.

        With `axis_name`, of an axis over devices, `state` holds this device's environments; what
        is learnt and measured is the same on all.
        """
        key, own_keys = split_key(state.key, 1 + len(self.banks), axis_name)
        slots, record = self.play(state, own_keys[0])
        fault = find_fault(record.faults, record.bootstrap_value, state.iteration, axis_name)
        usable = ~fault.found
        banks, lessons = self.learn(state, slots, record, usable, own_keys[1:], axis_name)
        league, games, banks = self._update_league(state, banks, slots, record, usable, axis_name)
        metrics = metrics_lib.measure(
            self.players, self.banks, record, lessons, league, fault, axis_name
        )
        return state.replace(
            banks=banks,
            league=league,
            games=games,
            slots=slots,
            episode_stats=record.followed.running,
            key=key,
            iteration=state.iteration + 1,
        ), metrics

    def train_steps(
        self,
        state: TrainState,
        num_iterations: jax.Array,
        metrics: Metrics | None = None,
        axis_name: str | None = None,
    ) -> tuple[TrainState, Metrics]:
        """Several iterations, their number known at run time only; the first fault ends them.

        Args:
            state: where to start.
            num_iterations: `()` int.
            metrics: of earlier iterations, to which these are added one by one; so the sum does not
                depend on how iterations are spread over calls.
            axis_name: as in `train_step`.
        """
        if metrics is None:
            metrics = metrics_lib.empty(self.players, state.episode_stats, state.league)
        last = state.iteration + num_iterations

        def goes_on(carry: tuple[TrainState, Metrics]) -> jax.Array:
            return (carry[0].iteration < last) & ~carry[1].fault.found

        def body(carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = self.train_step(carry[0], axis_name)
            return state, metrics_lib.merge(carry[1], metrics)

        return jax.lax.while_loop(goes_on, body, (state, metrics))

    def play(self, state: TrainState, key: jax.Array) -> tuple[Slots, Rollout]:
        """The first half of `train_step`: a rollout, and the slots to go on from."""
        return rollout(
            self.env,
            state.env_params,
            self.players,
            state.population,
            state.slots,
            state.episode_stats,
            key,
            self.num_steps,
        )

    def learn(
        self,
        state: TrainState,
        slots: Slots,
        record: Rollout,
        usable: jax.Array,
        keys: jax.Array,
        axis_name: str | None = None,
    ) -> tuple[tuple[BankState | FrozenBank, ...], tuple[Lesson | None, ...]]:
        """The second half: advantages and update of every bank, unless the rollout is unusable.

        `keys` are one for each bank.
        """
        env_steps = state.iteration.astype(jnp.float32) * (self.num_envs * self.num_steps)
        learnt: list[BankState | FrozenBank] = []
        lessons: list[Lesson | None] = []
        for index, (bank, before) in enumerate(zip(self.banks, state.banks, strict=True)):
            if bank is None or not isinstance(before, BankState):
                learnt.append(before)
                lessons.append(None)
                continue
            _, plays = bank.seats.rows(slots.player)
            acts_next = bank.seats.encoder.own(slots.obs.agent_mask) & plays
            after, lesson = bank.learn(
                before, record, index, acts_next, usable, env_steps, keys[index], axis_name
            )
            learnt.append(after)
            lessons.append(lesson)
        return tuple(learnt), tuple(lessons)

    def _update_league(
        self,
        state: TrainState,
        banks: tuple[BankState | FrozenBank, ...],
        slots: Slots,
        record: Rollout,
        usable: jax.Array,
        axis_name: str | None,
    ) -> tuple[League, Games, tuple[BankState | FrozenBank, ...]]:
        if not self.rated:
            return state.league, state.games, banks
        pools, outcomes = self.players.pools, record.outcomes
        games, played = league_lib.track_games(state.games, outcomes)
        over, iteration = outcomes.episode_over, state.iteration + 1
        league = league_lib.record_results(state.league, pools, played, over, axis_name)
        # A slot that has died keeps its last player until it is born again, by another draw.
        playing = jnp.where(slots.obs.alive, slots.player, -1)
        updated = league_lib.add_snapshots(league, pools, banks, playing, iteration, axis_name)
        league, banks = jax.tree.map(
            lambda new, old: jnp.where(usable, new, old), updated, (state.league, banks)
        )
        return league, games, banks

    def _init_episode_stats(self, slots: Slots, counted: jax.Array) -> EpisodeStats:
        keys = split(jax.random.key(0), self.num_envs)
        action = slots.last_action
        step = jax.eval_shape(self.env.step_batch, keys, slots.env_state, action, self.env_params)
        zeros = jnp.zeros(slots.fresh.shape)
        return EpisodeStats(
            returns=zeros,
            lengths=jnp.zeros(slots.fresh.shape, jnp.int32),
            extras=dict.fromkeys(step[-1].get("metrics", {}), zeros),
            counted=counted,
        )
