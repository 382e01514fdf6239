"""`Learner`: `init` makes a `TrainState`, and `train_step` advances it by one iteration.

Both can be jitted, and vmapped over seeds. Nothing here touches the host.
"""

from dataclasses import dataclass

import jax
import jax.numpy as jnp

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.threefry import split
from jaxmarl_ppo.learner import league_results
from jaxmarl_ppo.learner import metrics as metrics_lib
from jaxmarl_ppo.learner.env_schedules import EnvSchedules
from jaxmarl_ppo.learner.metrics import Metrics
from jaxmarl_ppo.ops.collectives import split_key
from jaxmarl_ppo.policies.players import Players
from jaxmarl_ppo.ppo.group_learner import PolicyGroupLearner, UpdateReport
from jaxmarl_ppo.rollout.episode_stats import begin_running
from jaxmarl_ppo.rollout.faults import find_fault
from jaxmarl_ppo.rollout.rollout import Rollout, rollout
from jaxmarl_ppo.rollout.start import init_rollout_state, stagger_episodes
from jaxmarl_ppo.types import (
    PerEnv,
    PolicyStack,
    Population,
    PyTree,
    RolloutState,
    Running,
    TrainState,
)


@dataclass(frozen=True, eq=False)
class LoadedPolicy:
    """A policy of a finished run, loaded as initial parameters."""

    policy_group: int
    policy_index: int
    policy: PolicyStack  # of that index alone


@dataclass(frozen=True, eq=False)
class Learner:
    """The static part of a run; `make_learner` builds one from a configuration.

    Attributes:
        env: the environment.
        env_params: its parameters.
        players: players that can control a slot.
        group_learners: learners of the policy groups that have a trained policy.
        num_envs: number of environments on all devices together, `E`.
        num_devices: number of devices, see `devices.sharding`.
        num_steps: environment steps per rollout, `T`.
        rollout_unroll: how many of them an iteration of the compiled loop has.
        stagger_starts: begin the first episodes at different phases.
        rated: whether results between players are kept.
        loaded: initial policies that are loaded; all others start from new parameters.
        env_schedules: schedules of environment parameters during training; None without any.
    """

    env: MultiAgentEnv
    env_params: PyTree
    players: Players
    group_learners: tuple[PolicyGroupLearner, ...]
    num_envs: int
    num_devices: int
    num_steps: int
    rollout_unroll: int
    stagger_starts: bool
    rated: bool
    loaded: tuple[LoadedPolicy, ...] = ()
    env_schedules: EnvSchedules | None = None

    def init(self, key: jax.Array) -> TrainState:
        """Make the initial state of a run: fresh or loaded parameters, fresh episodes."""
        key, key_policies, key_envs, key_stagger = split(key, 4)
        population = self.init_population(key_policies)
        env_params = self._params_after(self.env_params, jnp.zeros((), jnp.int32))
        rollout_state = init_rollout_state(
            self.env, env_params, self.players, population.league, key_envs, self.num_envs
        )
        counted = jnp.ones(rollout_state.is_first.shape, bool)
        if self.stagger_starts:
            rollout_state, counted = stagger_episodes(
                self.env, env_params, self.players.layout, rollout_state, key_stagger
            )
        begun = [
            t.init(population.policy_groups[t.index], rollout_state) for t in self.group_learners
        ]
        state = TrainState(
            population=population,
            training=tuple(training for training, _ in begun),
            per_env=PerEnv(
                rollout=rollout_state,
                running=self._begin_running(rollout_state, counted),
                games=league_results.no_games(counted),
                policy_groups=tuple(carry for _, carry in begun),
            ),
            env_params=self.env_params,
            key=key,
            iteration=jnp.zeros((), jnp.int32),
        )
        # Leaves that share a buffer could not be donated.
        return jax.tree.map(jnp.copy, state)

    def init_population(self, key: jax.Array) -> Population:
        """Make the initial players of a run; snapshots are copies of their origins.

        Members start from loaded parameters where there are any, others from fresh ones.
        """
        keys = split(key, len(self.players.policy_groups))
        stacks = [
            group.network.init(key)
            for group, key in zip(self.players.policy_groups, keys, strict=True)
        ]
        for loaded in self.loaded:
            stacks[loaded.policy_group] = jax.tree.map(
                lambda x, y, policy_index=loaded.policy_index: x.at[policy_index].set(y),
                stacks[loaded.policy_group],
                loaded.policy,
            )
        # Entries that are not in use yet are never drawn; they hold something of the right shape.
        # After loading, so that the first snapshot has the initial parameters of its origin.
        for pool in self.players.pools:
            entries = slice(pool.first_index, pool.first_index + pool.spec.num_places)
            stacks[pool.policy_group] = jax.tree.map(
                lambda x, entries=entries, origin=pool.origin_index: x.at[entries].set(x[origin]),
                stacks[pool.policy_group],
            )
        league = league_results.init_league(self.players.num_players, self.players.pools)
        return Population(tuple(stacks), league)

    def train_step(
        self, state: TrainState, axis_name: str | None = None
    ) -> tuple[TrainState, Metrics]:
        """Run one iteration: rollout, credit and update of every policy group, league, metrics.

        With `axis_name`, of an axis over devices, `state` holds this device's environments;
        parameters and metrics are the same on all.
        """
        key, own_keys = split_key(state.key, 1 + len(self.players.policy_groups), axis_name)
        after, played = self.play(state, own_keys[0])
        # Checked before the update: one non-finite number can spoil a policy.
        fault = find_fault(played.faults, played.last_fault, state.iteration, axis_name)
        usable = ~fault.found
        learnt, reports = self.learn(state, after, played, usable, own_keys[1:], axis_name)
        # After the update, so that a snapshot has the newest parameters.
        learnt = self._update_league(state, learnt, after, played, usable, axis_name)
        league = learnt.population.league
        metrics = metrics_lib.measure(
            self.players, self.group_learners, played, reports, league, fault, axis_name
        )
        per_env = learnt.per_env.replace(rollout=after, running=played.tracker.running)
        return learnt.replace(per_env=per_env, key=key, iteration=state.iteration + 1), metrics

    def train_steps(
        self,
        state: TrainState,
        num_iterations: jax.Array,
        metrics: Metrics | None = None,
        axis_name: str | None = None,
    ) -> tuple[TrainState, Metrics]:
        """Run several iterations, as many as given at run time; the first fault ends them.

        Args:
            state: where to start.
            num_iterations: `()` int.
            metrics: of earlier iterations. New ones are added one by one, so the sum does not
                depend on how iterations are spread over calls.
            axis_name: as in `train_step`.
        """
        if metrics is None:
            lives = state.per_env.running.lives
            metrics = metrics_lib.empty(self.players, lives, state.population.league)
        last = state.iteration + num_iterations

        def continues(carry: tuple[TrainState, Metrics]) -> jax.Array:
            return (carry[0].iteration < last) & ~carry[1].fault.found

        def body(carry: tuple[TrainState, Metrics]) -> tuple[TrainState, Metrics]:
            state, metrics = self.train_step(carry[0], axis_name)
            return state, metrics_lib.merge(carry[1], metrics)

        return jax.lax.while_loop(continues, body, (state, metrics))

    def averaged(self, state: TrainState) -> Population:
        """Return the players to evaluate and save: averages of parameters where there are any."""
        stacks = list(state.population.policy_groups)
        for group_learner, training in zip(self.group_learners, state.training, strict=True):
            if training.average is not None:
                index = group_learner.index
                stacks[index] = group_learner.averaged(stacks[index], training)
        return state.population.replace(policy_groups=tuple(stacks))

    def play(self, state: TrainState, key: jax.Array) -> tuple[RolloutState, Rollout]:
        """Play a rollout, the first half of `train_step`; return it with the state after it."""
        return rollout(
            self.env,
            # The state's own are arguments of the compiled program, not constants in it.
            self._params_after(state.env_params, state.iteration),
            self.players,
            state.population,
            state.per_env.rollout,
            state.per_env.running,
            key,
            self.num_steps,
            self.rollout_unroll,
        )

    def learn(
        self,
        state: TrainState,
        after: RolloutState,
        played: Rollout,
        usable: jax.Array,
        keys: jax.Array,
        axis_name: str | None = None,
    ) -> tuple[TrainState, tuple[UpdateReport, ...]]:
        """Train all policy groups with a trained member on a rollout.

        This is the second half of `train_step`.

        Args:
            state: from before the rollout.
            after: the state that the rollout ended in.
            played: the rollout.
            usable: `()` bool, False to skip the update.
            keys: one for each policy group.
            axis_name: as in `train_step`.

        Returns:
            The state after the update, and every policy group learner's report.
        """
        env_steps = self._env_steps(state.iteration)
        stacks = list(state.population.policy_groups)
        learnt = []
        for group_learner, training, carry in zip(
            self.group_learners, state.training, state.per_env.policy_groups, strict=True
        ):
            index = group_learner.index
            with jax.named_scope(group_learner.scope):
                group = group_learner.learn(
                    stacks[index], training, carry, played, after, usable, env_steps, keys[index],
                    axis_name,
                )  # fmt: skip
            stacks[index] = group.stack
            learnt.append(group)
        state = state.replace(
            population=state.population.replace(policy_groups=tuple(stacks)),
            training=tuple(group.training for group in learnt),
            per_env=state.per_env.replace(policy_groups=tuple(group.carry for group in learnt)),
        )
        return state, tuple(group.report for group in learnt)

    def _update_league(
        self,
        before: TrainState,
        state: TrainState,
        after: RolloutState,
        played: Rollout,
        usable: jax.Array,
        axis_name: str | None,
    ) -> TrainState:
        """Add the results of a rollout to the league, and take the snapshots that are due."""
        # No draw and no log entry depends on results, so no game is followed.
        if not self.rated:
            return state
        pools, outcomes = self.players.pools, played.outcomes
        running, games = league_results.track_games(state.per_env.games, outcomes)
        league = league_results.record_results(
            state.population.league, pools, games, outcomes.episode_over, axis_name
        )
        # A slot that has died keeps its last player until the draw at its next birth.
        playing = jnp.where(after.obs.alive, after.player, -1)
        league, stacks = league_results.add_snapshots(
            league, pools, state.population.policy_groups, playing, state.iteration + 1, axis_name
        )
        # After a fault the run ends with the state of the last sound iteration.
        population = jax.tree.map(
            lambda new, old: jnp.where(usable, new, old),
            Population(stacks, league),
            before.population,
        )
        return state.replace(population=population, per_env=state.per_env.replace(games=running))

    def _params_after(self, env_params: PyTree, iteration: jax.Array) -> PyTree:
        """Return the environment's parameters after so many iterations."""
        if self.env_schedules is None:
            return env_params
        return self.env_schedules.at(env_params, self._env_steps(iteration))

    def _env_steps(self, iteration: jax.Array) -> jax.Array:
        # In floats, since long runs have more environment steps than a 32-bit integer holds.
        return iteration.astype(jnp.float32) * (self.num_envs * self.num_steps)

    def _begin_running(self, state: RolloutState, counted: jax.Array) -> Running:
        # The shapes of a step show which metrics an environment has.
        keys = split(jax.random.key(0), self.num_envs)
        step = jax.eval_shape(
            self.env.step_batch, keys, state.env_state, state.last_action, self.env_params
        )
        return begin_running(counted, step[-1].get("metrics", {}))
