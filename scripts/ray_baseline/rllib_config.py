"""A scenario as a configuration of RLlib's PPO, for torch and either of its API stacks."""

# pyright: reportMissingImports=false

import random
from collections.abc import Callable
from typing import Any

from ray.rllib.algorithms.ppo import PPOConfig
from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig
from ray.rllib.core.rl_module.multi_rl_module import MultiRLModuleSpec
from ray.rllib.core.rl_module.rl_module import RLModuleSpec
from ray.rllib.examples.rl_modules.classes.action_masking_rlm import ActionMaskingTorchRLModule

from ray_baseline.rllib_env import TwinEnv, env_config, spaces
from ray_baseline.rllib_former import NoteReturns, policy_specs
from ray_baseline.scenarios import Scenario

DECISIONS = "num_decisions"
ENSEMBLE = 3


def make_config(scenario: Scenario, seed: int) -> PPOConfig:
    """Everything that RLlib is told."""
    settings = scenario.rllib
    policies, mapping = _policies(scenario)
    is_new = settings.api_stack == "new"
    config = PPOConfig()
    config.api_stack(enable_rl_module_and_learner=is_new, enable_env_runner_and_connector_v2=is_new)
    config.environment(
        TwinEnv,
        env_config=env_config(scenario, settings.all_observe),
        disable_env_checking=True,
    )
    config.framework("torch")
    config.multi_agent(
        policies=set(policies) if is_new else policy_specs(scenario, policies),
        policy_mapping_fn=mapping,
        policies_to_train=[name for name in policies if name not in scenario.frozen],
    )
    config.env_runners(
        num_env_runners=settings.num_runners,
        num_envs_per_env_runner=settings.num_envs,
        batch_mode=settings.batch_mode,
        rollout_fragment_length="auto",
    )
    config.learners(num_learners=settings.num_learners)
    config.reporting(metrics_num_episodes_for_smoothing=scenario.smoothing)
    config.debugging(seed=seed, log_level="ERROR")
    config.training(**_constants(scenario))
    if is_new:
        config.training(train_batch_size_per_learner=settings.batch_steps)
        config.callbacks(on_sample_end=_count_decisions)
        config.rl_module(rl_module_spec=_modules(scenario, policies))
    else:
        config.training(train_batch_size=settings.batch_steps)
        config.callbacks(NoteReturns)
    return config


def _constants(scenario: Scenario) -> dict[str, Any]:
    """PPO's constants, those of the other side."""
    return {
        "lr": scenario.learning_rate,
        "gamma": scenario.gamma,
        "lambda_": scenario.gae_lambda,
        "minibatch_size": scenario.minibatch_rows,
        "num_epochs": scenario.num_epochs,
        "use_kl_loss": False,
        "kl_coeff": 0.0,
        "clip_param": 0.2,
        "vf_loss_coeff": 0.25,  # of the squared error; the other side halves that and takes 0.5
        "vf_clip_param": float("inf"),
        "entropy_coeff": scenario.entropy_coef,
        "grad_clip": 0.5,
        "grad_clip_by": "global_norm",
    }


def _modules(scenario: Scenario, policies: dict[str, str]) -> MultiRLModuleSpec:
    """The network of every policy; each is as wide as its agent's observation."""
    model = DefaultModelConfig(
        fcnet_hiddens=list(scenario.hidden_sizes),
        fcnet_activation="tanh",
        vf_share_layers=True,
        use_lstm=scenario.lstm_size is not None,
        lstm_cell_size=scenario.lstm_size or 1,
        max_seq_len=scenario.sequence_length,
    )
    specs = {
        name: RLModuleSpec(
            observation_space=observation_space,
            action_space=action_space,
            model_config=vars(model) if scenario.action_mask else model,
            module_class=ActionMaskingTorchRLModule if scenario.action_mask else None,
        )
        for name, (observation_space, action_space) in spaces(scenario, policies).items()
    }
    return MultiRLModuleSpec(rl_module_specs=specs)


def _policies(scenario: Scenario) -> tuple[dict[str, str], Callable[..., str]]:
    """`{policy: an agent that it can play}`, and who plays an agent in an episode."""
    if not scenario.tables:
        names = {f"{agent}_{k}": agent for agent in scenario.agents for k in range(ENSEMBLE)}

        def draw_member(agent: str, episode: Any, **_: Any) -> str:
            return f"{agent}_{random.Random(f'{_id_of(episode)}{agent}').randrange(ENSEMBLE)}"

        return names, draw_member
    tables, weights = scenario.tables, scenario.weights
    names = {policy: agent for table in tables for agent, policy in table.items()}

    def draw_table(agent: str, episode: Any, **_: Any) -> str:
        # Asked for one agent at a time: the episode's name makes all answers those of one draw.
        return random.Random(_id_of(episode)).choices(tables, weights)[0][agent]

    return names, draw_table


def _id_of(episode: Any) -> Any:
    """An episode's name, which the former API stack has under another one."""
    return episode.id_ if hasattr(episode, "id_") else episode.episode_id


def _count_decisions(*, metrics_logger: Any, samples: list[Any], **_: Any) -> None:
    count = sum(len(agent) for episode in samples for agent in episode.agent_episodes.values())
    metrics_logger.log_value(DECISIONS, count, reduce="sum")
