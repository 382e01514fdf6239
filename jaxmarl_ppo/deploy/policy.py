"""A trained policy outside its run, for acting and export.

>>> bob = Policy.load("runs/secret", agent="bob_0")
>>> hidden = bob.initial_hidden(len(observation))
>>> action, hidden = bob.act(observation, hidden)
>>> bob.export("bob.jaxexport")
>>> bob.export_onnx("bob.onnx")
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as nn
from numpy.typing import ArrayLike

from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_envs.observations import flatten
from jaxmarl_envs.spaces import Box, Discrete, MultiDiscrete, Space
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.deploy.calling import AgentShape, Signature
from jaxmarl_ppo.deploy.exported import ExportedPolicy
from jaxmarl_ppo.deploy.forms import Form
from jaxmarl_ppo.deploy.jax_export import PLATFORMS, export_policy
from jaxmarl_ppo.deploy.network_actor import NetworkActor
from jaxmarl_ppo.deploy.onnx_file import OnnxCheck, export_onnx
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.agent_interface import AgentInterface
from jaxmarl_ppo.policies.population_file import load_player
from jaxmarl_ppo.policies.snapshot_files import find_snapshot, parse_name
from jaxmarl_ppo.runs.run_folder import load_run
from jaxmarl_ppo.types import PolicyStack, Population, PyTree


@dataclass(frozen=True, eq=False, repr=False)
class Policy(NetworkActor):
    """One policy of a run, with its parameters and normalisers; `load` or `of` make it.

    Attributes:
        signature: its inputs and outputs.
        network: network of this policy alone.
        interface: its agent encoding: how the environment's observations become inputs, and outputs
            actions.
        bounds: lower and upper bounds of continuous actions, `[slots, N]` each.
        params: its parameters and normalisers.
        observation_parts: parts of each agent's own observation that its features consist of.
        own_action: the environment's function of an agent's name and action, see `unflatten`.
    """

    own_action: Callable[[str, Any], Any]

    @classmethod
    def load(
        cls,
        run_dir: str | Path,
        policy: str | None = None,
        agent: str | None = None,
        *,
        env: MultiAgentEnv | str | None = None,
        env_params: PyTree | None = None,
        network: nn.Module | None = None,
        config: TrainConfig | None = None,
        allow_imports: Sequence[str] = (),
    ) -> "Policy":
        """Load one policy of a finished run.

        Args:
            run_dir: the run's folder.
            policy: its name, `past@it150` for the snapshot taken after 150 iterations; None where
                there is only one, or where only one plays `agent`.
            agent: the agent to play, whose widths inputs and outputs then have; None for all that
                it can play.
            env: as `load_run` needs it, like all that follow.
            env_params: see `load_run`.
            network: see `load_run`.
            config: see `load_run`.
            allow_imports: see `load_run`.

        Raises:
            ValueError: If there is no such run, policy or agent, or there are several policies to
                choose from.
        """
        run = load_run(
            run_dir,
            env=env,
            env_params=env_params,
            network=network,
            config=config,
            allow_imports=allow_imports,
        )
        path = find_snapshot(Path(run_dir), policy or "")
        parsed = parse_name(policy or "")
        if policy is None or path is None or parsed is None:
            return cls.of(run.learner, run.population, policy, agent)
        # In the place of another snapshot, from which it differs only in its parameters.
        found = cls.of(run.learner, run.population, f"{parsed[0]}@0", agent)
        own = load_player(path, policy, jax.tree.map(lambda x: x[0], found.params))
        signature = dataclasses.replace(found.signature, policy=policy)
        params = jax.tree.map(lambda x: x[None], own)
        return dataclasses.replace(found, signature=signature, params=params)

    @classmethod
    def of(
        cls,
        learner: Learner,
        population: Population,
        policy: str | None = None,
        agent: str | None = None,
    ) -> "Policy":
        """Take one policy from memory, such as from `TrainResult.population`; see `load`."""
        env, players = learner.env, learner.players
        slot = None if agent is None else env.agent_index(agent)
        player = _find_player(learner, population, policy, slot)
        index, group = next(
            (index, group)
            for index, group in enumerate(players.policy_groups)
            if player in group.players
        )
        policy_index = player - group.first_player
        # Outside its run it may act where TF32 is missing; it then uses float32.
        trained_in = group.network.matmul_precision
        acts_in = "float32" if trained_in == "tf32" else trained_in
        network = dataclasses.replace(group.network, num_members=1, matmul_precision=acts_in)
        interface = group.interface
        slots = _slots(learner, player) if slot is None else (slot,)
        low, high = interface.layout.bounds
        bounds = low[:, : interface.num_numbers], high[:, : interface.num_numbers]
        hidden = jax.tree.leaves(jax.eval_shape(lambda: network.initial_hidden((1,))))
        agents = {env.agents[slot]: _agent_shape(learner, interface, slot) for slot in slots}
        widths = [agent.feature_shape for agent in agents.values()]
        signature = Signature(
            policy=players.names_now(population.league)[player],
            env=env.name,
            agent_shapes=agents,
            feature_shape=tuple(max(sizes) for sizes in zip(*widths, strict=True)),
            asks_agent=_asks_agent(interface, list(agents.values()), bounds),
            prev_action=interface.prev_action,
            prev_reward=interface.prev_reward,
            hidden=tuple(jax.ShapeDtypeStruct(x.shape[1:], x.dtype) for x in hidden),
        )
        own = slice(policy_index, policy_index + 1)
        stack = jax.tree.map(lambda x: jnp.asarray(x[own]), population.policy_groups[index])
        parts = {agent: env.observation_parts(agent, learner.env_params) for agent in agents}
        return cls(signature, network, interface, bounds, stack, parts, env.own_action)

    def flatten(self, observation: Any, agent: str | None = None) -> np.ndarray:
        """Write one observation, as the environment itself returns it, as `act` takes it.

        The parts of a dictionary or tuple follow each other in a vector, categories become one-hot
        vectors, and bytes of an image become numbers from 0 to 1. An action mask in a dictionary is
        left out. Observations of an environment of this library stay as they are.

        Args:
            observation: of one agent, without a batch.
            agent: its name; None where all agents have the same observation space.

        Returns:
            Features of the agent's own shape, float32.

        Raises:
            ValueError: If the agent is unknown or has to be given, or the observation is not of its
                space.
        """
        if agent is None and len(set(self.observation_parts.values())) > 1:
            raise ValueError(
                f"the agents of policy {self.signature.policy!r} have different observations: "
                f"pass agent=, one of {', '.join(self.agents)}"
            )
        agent = self._agent(agent)
        vector = flatten(self.observation_parts[agent], observation)
        return vector.reshape(self.signature.agent_shapes[agent].feature_shape)

    def unflatten(self, action: Any, agent: str | None = None) -> Any:
        """Write one action of `act` as the environment itself takes it.

        Choices are counted from the `start` of their space, and actions have the form of their
        space, such as a dictionary. An action of a group (`jaxmarl_envs.Joined`) becomes a
        dictionary of its members' actions by name. Other actions stay as they are.

        Args:
            action: of one agent, without a batch.
            agent: its name; None where the policy plays one agent.

        Raises:
            ValueError: If the agent is unknown or has to be given, or the action is not of its
                space.
        """
        if agent is None and len(self.agents) > 1:
            raise ValueError(
                f"policy {self.signature.policy!r} plays several agents: pass agent=, one of "
                f"{', '.join(self.agents)}"
            )
        return self.own_action(self._agent(agent), action)

    def _agent(self, agent: str | None) -> str:
        agent = self.agents[0] if agent is None else agent
        if agent not in self.agents:
            raise ValueError(
                f"policy {self.signature.policy!r} does not play agent {agent!r}; it plays "
                f"{', '.join(self.agents)}"
            )
        return agent

    def value(
        self,
        observation: ArrayLike,
        hidden: tuple[Any, ...] | list[Any],
        *,
        agent: str | ArrayLike | None = None,
        prev_action: Any = None,
        prev_reward: ArrayLike | None = None,
        reset: ArrayLike | None = None,
    ) -> jax.Array:
        """Return the discounted return that the critic expects at a decision, `[...]`.

        Arguments are those of `act`; memory does not advance. It was trained at decisions only.

        Raises:
            ValueError: As `act`, or if the critic sees more than the policy is given.
        """
        if self.interface.joint_width:
            raise ValueError(
                f"policy {self.signature.policy!r} has a centralised critic, which sees what all "
                "agents see; it can act, but has no value of one observation"
            )
        given, held, agent_shape = self._given(
            observation, hidden, None, agent, prev_action, prev_reward, reset
        )
        return self._value(self.params, given, held, agent_shape)

    @functools.cached_property
    def _value(self) -> Any:
        return jax.jit(self._value_batch, static_argnames=("agent_shape",))

    def _value_batch(
        self,
        params: PolicyStack,
        given: dict[str, jax.Array],
        hidden: tuple[jax.Array, ...],
        agent_shape: AgentShape | None,
    ) -> jax.Array:
        inputs, flat, batch_shape = self._flatten(given, hidden, agent_shape)
        return self.in_rewards(params, self.forward(params, inputs, flat)[2]).reshape(batch_shape)

    def export(
        self,
        path: str | Path,
        platforms: Sequence[str] = PLATFORMS,
        batch: str | int = "b",
    ) -> ExportedPolicy:
        """Write the policy into one file that acts with JAX alone; see `exported.load_exported`.

        Before writing, the programs are read back, and must give the same actions on random inputs,
        greedy and sampled.

        Args:
            path: a new file.
            platforms: that it must run on: `"cpu"`, `"cuda"`, `"rocm"`, `"tpu"`.
            batch: name of a variable number of rows, or a fixed number of rows.

        Returns:
            The exported policy, read back.

        Raises:
            ValueError: If the file exists, the platform or batch is unknown, or the programs act
                differently.
        """
        return export_policy(self, path, platforms, batch)

    def export_onnx(self, path: str | Path) -> OnnxCheck:
        """Write one step of the policy as an ONNX file, for any number of rows (extra `onnx`).

        Inputs are those of `signature.inputs`, and `hidden_0` and so on. Outputs are the most
        likely action (`action`, or `choices` and `numbers`), `probabilities` of all options,
        parameters of the distribution of numbers (`mean` and `std`, or `alpha` and `beta`), `value`
        in units of reward unless the critic is centralised, and `next_hidden_0` and so on.
        Normalisers are in the file. Its metadata has the JSON `jaxmarl_ppo`, which describes
        inputs, agents, their observations and actions.

        Before writing, ONNX Runtime evaluates it on 1,000 random inputs; the results must agree.

        Args:
            path: a new file.

        Returns:
            The greatest differences found.

        Raises:
            ValueError: If the file exists, the packages `onnx` or `onnxruntime` are missing, the
                network uses an operation that is not known, or results differ.
        """
        return export_onnx(self, path)


def _find_player(
    learner: Learner, population: Population, policy: str | None, slot: int | None
) -> int:
    """Find the player of a name, or the only one."""
    players = learner.players
    empty, snapshots = set(), set()
    for pool, state in zip(players.pools, population.league.pools, strict=True):
        entries = range(players.num_players)[pool.players]
        snapshots |= set(entries)
        empty |= set(entries[int(state.count) :])
    networks = [player for player in range(players.first_script) if player not in empty]
    able = [player for player in networks if slot is None or slot in _slots(learner, player)]
    if policy is None:
        chosen = [player for player in able if player not in snapshots]
    else:
        chosen = [
            player for player in able if player == players.find_now(policy, population.league)
        ]
    if len(chosen) == 1:
        return chosen[0]
    plays = "" if slot is None else f" that plays agent {learner.env.agents[slot]!r}"
    called = players.names_now(population.league)
    names = ", ".join(called[player] for player in able) or "none"
    if policy is None:
        raise ValueError(f"name the policy{plays}, since there is not just one; valid: {names}")
    raise ValueError(f"unknown policy {policy!r}{plays}; valid: {names}")


def _slots(learner: Learner, player: int) -> tuple[int, ...]:
    """List the slots that mappings give a policy, its snapshots or its origin."""
    players = learner.players
    policies = {players.policy_of[player]}
    for pool in players.pools:
        entries = range(players.num_players)[pool.players]
        if player == pool.origin or player in entries:
            policies |= {pool.policy, players.policy_of[pool.origin]}
    candidates = enumerate(players.mapping.candidates)
    return tuple(slot for slot, drawn in candidates if policies & set(drawn))


def _agent_shape(learner: Learner, interface: AgentInterface, slot: int) -> AgentShape:
    env, env_params = learner.env, learner.env_params
    agent, shape = env.agents[slot], interface.feature_shape
    space = env.observation_space(agent, env_params)
    own = (space.size,) if len(shape) == 1 else shape
    if len(space.shape) == len(shape):
        own = tuple(space.shape)
    return AgentShape(slot, own, form_of(env.action_space(agent, env_params)))


def form_of(space: Space) -> Form:
    """Return the form of an action space's elements."""
    if isinstance(space, Discrete):
        return Form("choice", (space.n,))
    if isinstance(space, MultiDiscrete):
        return Form("choices", tuple(space.nvec))
    if isinstance(space, Box):
        return Form("numbers", tuple(space.shape))
    return Form("tuple", parts=tuple(map(form_of, space.spaces)))


def _asks_agent(
    interface: AgentInterface, agent_shapes: list[AgentShape], bounds: tuple[np.ndarray, np.ndarray]
) -> bool:
    """Return whether the agents differ in anything that the policy depends on."""
    slots = [agent_shape.slot for agent_shape in agent_shapes]
    alike = all(agent_shape[1:] == agent_shapes[0][1:] for agent_shape in agent_shapes)
    same_bounds = all((bound[slots] == bound[slots[0]]).all() for bound in bounds)
    return len(agent_shapes) > 1 and (interface.agent_id or not alike or not same_bounds)
