"""RLlib's PPO configurations as ours, and RLlib's defaults.

Nothing of Ray is imported: a `PPOConfig` brings its own, and a dict needs none.
"""

import dataclasses
import warnings
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from jaxmarl_ppo.config.mapping import MappingSpec
from jaxmarl_ppo.config.policies import PolicySpec, Scripted
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.rllib.defaults import is_default
from jaxmarl_ppo.config.rllib.findings import Findings, is_named, share_lines
from jaxmarl_ppo.config.rllib.keys import MODEL, TRANSLATED
from jaxmarl_ppo.config.rllib.kinds import check_kinds
from jaxmarl_ppo.config.rllib.policies import (
    RLlibPolicy,
    base_model,
    choose_mapping,
    read_policies,
)
from jaxmarl_ppo.config.rllib.reading import (
    model_table,
    read_config,
    sort_out,
    sort_out_model,
)
from jaxmarl_ppo.config.rllib.stop import read_stop
from jaxmarl_ppo.config.rllib.values import (
    Batch,
    check_grad_clip,
    read_batch,
    read_network,
    read_ppo,
)
from jaxmarl_ppo.config.train import TrainConfig

DecisionsPerStep = float | Mapping[str, float]


class RLlibTranslationWarning(UserWarning):
    """Tells what is not quite the same after a translation."""


@dataclass(frozen=True)
class Translation:
    """A translated configuration.

    Attributes:
        config: ours.
        notes: what is not quite the same, or has no counterpart but does not change what is learnt.
        lost: by key, what changes what is learnt and has no counterpart.
    """

    config: TrainConfig
    notes: tuple[str, ...]
    lost: Mapping[str, str]


def from_rllib_config(
    config: Any,
    *,
    total_env_steps: int | None = None,
    stop: Mapping[str, Any] | None = None,
    mapping: MappingSpec | None = None,
    decisions_per_step: DecisionsPerStep | None = None,
    num_envs: int | None = None,
    ignore: Collection[str] = (),
    strict: bool = True,
) -> TrainConfig:
    """Translate an RLlib PPO configuration.

    What is translated exactly needs no word. What is not quite the same, such as a batch that has
    to be rounded, and settings that only say how RLlib runs are told in one warning. Settings that
    change what is learnt and have no counterpart are rejected in one error that lists them all.

    Args:
        config: a `PPOConfig`, or a dict with any of its keys under their present or former names.
        total_env_steps: how long to train; RLlib's configuration does not say. None for the length
            in `stop`, or without it for 1,000,000.
        stop: Tune's `stop={...}`, such as `{"env_runners/episode_return_mean": 150}`.
        mapping: which policy plays which agent, see `jaxmarl_ppo.policies.mapping`; in the place of
            RLlib's `policy_mapping_fn`. Needed where there are several policies.
        decisions_per_step: decisions that each policy takes per environment step, or a table by
            policy: RLlib counts a minibatch in these. None for 1 each.
        num_envs: parallel environments, instead of RLlib's; the batch of an iteration stays.
        ignore: settings without a counterpart to go without; `*` stands for anything.
        strict: whether settings without a counterpart are an error.

    Raises:
        ValueError: For settings without a counterpart, an invalid value, several policies without a
            mapping, or a name in `ignore` that is no such setting.
    """
    translation = translate_rllib_config(
        config,
        total_env_steps=total_env_steps,
        stop=stop,
        mapping=mapping,
        decisions_per_step=decisions_per_step,
        num_envs=num_envs,
    )
    needless = [
        name for name in ignore if not any(is_named(key, [name]) for key in translation.lost)
    ]
    if needless:
        raise ValueError(
            f"ignore names {', '.join(needless)}; settings without a counterpart are "
            f"{', '.join(translation.lost) or 'none'}"
        )
    lost = translation.lost
    refused = share_lines({key: lost[key] for key in lost if not is_named(key, ignore)})
    if refused and strict:
        raise ValueError(
            f"RLlib's configuration has no counterpart for {', '.join(refused)}:\n"
            + "\n".join(f"- {text}" for texts in refused.values() for text in texts)
            + f"\nTo go without: ignore={tuple(refused)!r}"
        )
    without = [text for texts in share_lines(lost).values() for text in texts]
    notes = [*translation.notes, *(f"without {text}" for text in without)]
    if notes:
        lines = "\n".join(f"- {note}" for note in notes)
        warnings.warn(f"translated from RLlib:\n{lines}", RLlibTranslationWarning, stacklevel=2)
    return translation.config


def translate_rllib_config(
    config: Any,
    *,
    total_env_steps: int | None = None,
    stop: Mapping[str, Any] | None = None,
    mapping: MappingSpec | None = None,
    decisions_per_step: DecisionsPerStep | None = None,
    num_envs: int | None = None,
) -> Translation:
    """Translate an RLlib PPO configuration and report differences instead of rejecting it.

    The arguments are those of `from_rllib_config`.

    Raises:
        ValueError: For an invalid value, or several policies without a mapping.
    """
    findings = Findings()
    values = {**TRANSLATED, **read_config(config)}
    check_kinds(values, TRANSLATED)
    sort_out(values, findings)
    members = read_policies(values, findings)
    only_default = is_default(values["policies"], TRANSLATED["policies"]) and len(members) == 1
    mapping, playing = choose_mapping(list(members), mapping, only_default, findings)
    members = {name: policy for name, policy in members.items() if name in playing}
    rates = _rates(decisions_per_step, members)
    total_rate = None if decisions_per_step is None else sum(rates.values())
    values["model"] = base_model(values, findings)
    check_kinds(values["model"], MODEL, "model.")
    _sort_out_model(values, values["model"], "model", findings)
    batch = read_batch(values, num_envs, total_rate, findings)
    if decisions_per_step is None and batch.minibatch_rows is not None:
        findings.note(
            "decisions_per_step: every policy is taken to decide once per environment step, which "
            "sizes its minibatches"
        )
    policy, ppo, specs = _specs(members, values, batch, rates, total_rate, findings)
    if only_default:
        policy, specs = specs.pop(next(iter(members)), policy), {}
    # Settings that all policies have themselves are not taken from the defaults.
    if set(specs) == set(members):
        policy = PolicySpec()
    trained = [specs.get(name, policy) for name in members]
    if all(spec.ppo for spec in trained if isinstance(spec, PolicySpec) and spec.trainable):
        ppo = PPOConfig()
    ends = {} if stop is None else read_stop(stop, batch.num_envs * batch.num_steps, findings)
    if total_env_steps is not None:
        ends["total_env_steps"] = total_env_steps
    seed = values["seed"]
    return Translation(
        TrainConfig(
            **ends,
            num_envs=batch.num_envs,
            num_steps=batch.num_steps,
            seed=TrainConfig.seed if seed is None else seed,
            mapping=mapping,
            default_policy=policy,
            default_ppo=ppo,
            policies=specs,
        ),
        tuple(findings.notes),
        findings.lost,
    )


def rllib_ppo_defaults() -> TrainConfig:
    """Translate the defaults of RLlib 2.60's PPO."""
    return translate_rllib_config({}).config


def _rates(given: DecisionsPerStep | None, members: Mapping[str, RLlibPolicy]) -> dict[str, float]:
    """Count the decisions of each policy per environment step."""
    if given is None:
        return dict.fromkeys(members, 1.0)
    if not isinstance(given, Mapping):
        given = dict.fromkeys(members, given)
    if set(given) != set(members):
        raise ValueError(
            f"decisions_per_step must name the policies {', '.join(members)}, "
            f"got {', '.join(given)}"
        )
    if not all(rate > 0 for rate in given.values()):
        raise ValueError(f"decisions_per_step must be positive, got {dict(given)}")
    return {name: float(rate) for name, rate in given.items()}


def _specs(
    members: Mapping[str, RLlibPolicy],
    values: Mapping[str, Any],
    batch: Batch,
    rates: Mapping[str, float],
    total_rate: float | None,
    findings: Findings,
) -> tuple[PolicySpec, PPOConfig, dict[str, Any]]:
    """Translate what policies are and how they are trained, and those that differ, by name."""
    first = next((name for name in members if members[name].trainable), next(iter(members)))
    count = batch.num_minibatches(first, rates[first], findings)
    check_grad_clip(values, "grad_clip_by", findings)
    base = (
        PolicySpec(**read_network(values, findings)),
        read_ppo(values, count, total_rate, findings),
    )
    specs = {
        name: _spec(name, member, values, batch, rates[name], total_rate, base, findings)
        for name, member in members.items()
    }
    return *base, {name: spec for name, spec in specs.items() if spec != base[0]}


def _spec(
    name: str,
    member: RLlibPolicy,
    values: Mapping[str, Any],
    batch: Batch,
    rate: float,
    total_rate: float | None,
    base: tuple[PolicySpec, PPOConfig],
    findings: Findings,
) -> PolicySpec | Scripted:
    """Translate one policy, as a change of `base`."""
    if member.is_random:
        return Scripted("random")
    policy, base_ppo = base
    own = {**values, **member.settings}
    own_model = model_table(member.settings.get("model"))
    own["model"] = {**values["model"], **own_model}
    check_kinds(member.settings, TRANSLATED, f"policies.{name}.")
    check_kinds(own_model, MODEL, f"policies.{name}.model.")
    _sort_out_model(own, own_model, f"policies.{name}.model", findings)
    if member.settings:
        policy = PolicySpec(**read_network(own, findings))
    if not member.trainable:
        useless = [key for key in member.settings if key not in ("model", "observation_filter")]
        if useless:
            findings.note(
                f"policies.{name}: {', '.join(useless)} has no effect on a policy that is not "
                "trained"
            )
        return dataclasses.replace(policy, trainable=False)
    if "minibatch_size" in member.settings:
        batch = read_batch(own, batch.num_envs, total_rate, findings)
    if {"grad_clip", "grad_clip_by"} & set(member.settings):
        check_grad_clip(own, f"policies.{name}.grad_clip_by", findings)
    count = batch.num_minibatches(name, rate, findings)
    ppo = read_ppo(own, count, total_rate, findings, name)
    return policy if ppo == base_ppo else dataclasses.replace(policy, ppo=ppo)


def _sort_out_model(
    values: Mapping[str, Any], given: Mapping[str, Any], where: str, findings: Findings
) -> None:
    new_stack = bool(values["enable_rl_module_and_learner"])
    sort_out_model(given, values["model"], where, new_stack, findings)
