"""Workload of a benchmark: environment, network, policy mapping and sizes."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.networks.actor_critic import NETWORKS
from jaxmarl_ppo.networks.precision import MatmulPrecision
from jaxmarl_ppo.types import PyTree


@dataclass(frozen=True)
class Workload:
    """Describes what is to be measured.

    Attributes:
        env: name of the environment, as `jaxmarl_envs.make` takes it.
        env_kwargs: its arguments.
        network: kind of network, as `PolicySpec.network`.
        network_kwargs: fields of the network other than its defaults.
        mapping: which policy plays which agent, as `TrainConfig.mapping`.
        num_envs: parallel environments.
        num_steps: steps per rollout.
        num_epochs: passes over a rollout.
        num_minibatches: optimiser steps per pass.
        micro_batch_rows: as `TrainConfig.micro_batch_rows`.
        matmul_precision: as `TrainConfig.matmul_precision`.
        fused_gradients: as `TrainConfig.fused_gradients`.
        fused_acting: as `TrainConfig.fused_acting`.
        rollout_unroll: as `TrainConfig.rollout_unroll`.
        num_devices: as `TrainConfig.num_devices`.
    """

    env: str = "crypto"
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    network: str = "mlp"
    network_kwargs: Mapping[str, Any] = field(default_factory=dict)
    mapping: str = "shared"
    num_envs: int = 256
    num_steps: int = 128
    num_epochs: int = 4
    num_minibatches: int = 4
    micro_batch_rows: int | None = None
    matmul_precision: MatmulPrecision = "float32"
    fused_gradients: bool = False
    fused_acting: bool = False
    rollout_unroll: int = 1
    num_devices: int | None = None

    def make(self) -> tuple[MultiAgentEnv, PyTree, TrainConfig]:
        """Make the environment, its parameters and the configuration of a run.

        Raises:
            ValueError: If something is unknown, or the options are inconsistent.
        """
        if self.network not in NETWORKS:
            raise ValueError(f"unknown network {self.network!r}; valid: {', '.join(NETWORKS)}")
        # JSON knows no tuples, and modules take no lists.
        network_kwargs: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value
            for name, value in self.network_kwargs.items()
        }
        env, env_params = jaxmarl_envs.make(self.env, **self.env_kwargs)
        config = TrainConfig(
            num_envs=self.num_envs,
            num_steps=self.num_steps,
            mapping=self.mapping,
            default_policy=PolicySpec(network=NETWORKS[self.network](**network_kwargs)),
            default_ppo=PPOConfig(num_epochs=self.num_epochs, num_minibatches=self.num_minibatches),
            micro_batch_rows=self.micro_batch_rows,
            matmul_precision=self.matmul_precision,
            fused_gradients=self.fused_gradients,
            fused_acting=self.fused_acting,
            rollout_unroll=self.rollout_unroll,
            num_devices=self.num_devices,
        )
        return env, env_params, config
