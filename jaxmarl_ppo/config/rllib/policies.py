"""Policies of RLlib's configuration: who they are, and in what each differs from the rest."""

from collections.abc import Callable, Collection, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any

from jaxmarl_ppo.config.mapping import Ensemble, MappingFunction, MappingSpec, Matchups
from jaxmarl_ppo.config.rllib.defaults import is_default
from jaxmarl_ppo.config.rllib.findings import Findings, show
from jaxmarl_ppo.config.rllib.keys import MODEL, TRANSLATED
from jaxmarl_ppo.config.rllib.reading import changes, entry, model_table, module_specs

# Settings that a policy can have of its own.
OWN_KEYS = {
    "lambda",
    "gamma",
    "lr",
    "lr_schedule",
    "clip_param",
    "vf_clip_param",
    "vf_loss_coeff",
    "entropy_coeff",
    "entropy_coeff_schedule",
    "use_kl_loss",
    "kl_coeff",
    "kl_target",
    "grad_clip",
    "grad_clip_by",
    "num_epochs",
    "minibatch_size",
    "model",
    "observation_filter",
}
_LEARNING = (
    "PPOTorchPolicy",
    "PPOTFPolicy",
    "PPOTF1Policy",
    "PPOTF2Policy",
    "PPOTorchRLModule",
    "DefaultPPOTorchRLModule",
    "ActionMaskingTorchRLModule",  # masks are part of every observation here
)
_RANDOM = ("RandomPolicy", "RandomRLModule")
_MAPPING_NEEDED = """\
policy_mapping_fn is Python code that RLlib calls for every agent of every episode, and cannot be \
translated; say with mapping= who plays whom among {names}: a table such as {table}, in which a \
list of policies is drawn from, Matchups of several tables, or any other mapping of \
jaxmarl_ppo.policies.mapping"""


@dataclass
class RLlibPolicy:
    """A policy of RLlib's configuration.

    Attributes:
        settings: in what its configuration differs from everybody's, `model` included.
        is_random: plays at random and is not trained.
        trainable: whether RLlib would train it.
    """

    settings: dict[str, Any] = field(default_factory=dict)
    is_random: bool = False
    trainable: bool = True


def base_model(values: Mapping[str, Any], findings: Findings) -> dict[str, Any]:
    """Collect the network settings of all policies that have none of their own."""
    old, new = model_table(values["model"]), model_table(values["_model_config"])
    spec = values["_rl_module_spec"]
    if spec is not None and not _is_multi(spec):
        module = _module_settings(spec, "rl_module_spec", findings)
        if module.is_random:
            findings.lose(
                "rl_module_spec.module_class", entry(spec, "module_class"), "nothing to train"
            )
        new |= module.settings.get("model", {})
    ignored = [key for key in old if key in MODEL and not is_default(old[key], MODEL[key])]
    reads_model = "_enable_new_api_stack" in values  # the first versions of that stack did
    if ignored and values["enable_rl_module_and_learner"] and not reads_model:
        findings.note(
            f"model: {', '.join(ignored)} is honoured here; RLlib's new API stack ignores `model` "
            "and reads rl_module(model_config=...) alone"
        )
    return {**MODEL, **old, **new}


def read_policies(values: Mapping[str, Any], findings: Findings) -> dict[str, RLlibPolicy]:
    """Read all policies, by name."""
    given, modules = values["policies"], _modules(values, findings)
    if modules and is_default(given, TRANSLATED["policies"]):
        given = dict.fromkeys(modules)
    given = sorted(given) if isinstance(given, Set) else given
    specs = given if isinstance(given, Mapping) else dict.fromkeys(given)
    overrides = dict(values["algorithm_config_overrides_per_module"] or {})
    for name in sorted({*modules, *overrides} - set(specs)):
        findings.lose(f"policies.{name}", overrides.get(name), "there is no such policy")
    trained = _trained(values["policies_to_train"], list(specs), findings)
    policies = {}
    for name, spec in specs.items():
        policy = _policy_settings(spec, name, values, findings)
        _override(policy, overrides.get(name), name, values, findings)
        if name in modules:
            policy.is_random |= modules[name].is_random
            _merge(policy.settings, modules[name].settings)
        for key in [key for key in policy.settings if key not in OWN_KEYS]:
            value = policy.settings.pop(key)
            if not is_default(value, values.get(key)):
                findings.lose(f"policies.{name}.{key}", value, "not a setting of one policy")
        policy.trainable = name in trained
        policies[name] = policy
    return policies


def choose_mapping(
    names: Sequence[str], mapping: MappingSpec | None, only_default: bool, findings: Findings
) -> tuple[MappingSpec, set[str]]:
    """Choose who plays whom, and find which of RLlib's policies have a part in it.

    Args:
        names: RLlib's policies.
        mapping: the user's choice.
        only_default: whether RLlib's configuration names no policies of its own.
        findings: what there is to tell.

    Raises:
        ValueError: For several policies without a mapping, or a mapping to unknown policies.
    """
    if mapping is None and only_default:
        return "shared", set(names)
    if mapping is None and len(names) == 1:
        return {"*": names[0]}, set(names)
    if mapping is None:
        table = "{" + ", ".join(f"'agent_{i}': {n!r}" for i, n in enumerate(names[:2])) + "}"
        raise ValueError(_MAPPING_NEEDED.format(names=", ".join(names), table=table))
    named = _named(mapping)
    if only_default or named is None:
        return mapping, set(names)
    if named - set(names):
        raise ValueError(
            f"mapping= names {', '.join(sorted(named - set(names)))}; the policies of RLlib's "
            f"configuration are {', '.join(names)}"
        )
    for name in names:
        if name not in named:
            findings.note(f"policies.{name}: no agent is ever played by it; left out")
    return mapping, named


def _named(mapping: MappingSpec) -> set[str] | None:
    """List the policies of a mapping; None where they depend on the agents."""
    if isinstance(mapping, MappingFunction):
        return set(mapping.policies)
    if isinstance(mapping, Matchups):
        return {name for table in mapping.tables for name in table.values()}
    if isinstance(mapping, str | Ensemble):
        return None
    choices = [[choice] if isinstance(choice, str) else choice for choice in mapping.values()]
    return {name for choice in choices for name in choice}


def _modules(values: Mapping[str, Any], findings: Findings) -> dict[str, RLlibPolicy]:
    """Read the settings of single policies in a `MultiRLModuleSpec`."""
    spec = values["_rl_module_spec"]
    if spec is None or not _is_multi(spec):
        return {}
    for key, stock in (
        ("multi_rl_module_class", "MultiRLModule"),
        ("marl_module_class", "MultiAgentRLModule"),
    ):
        cls = entry(spec, key)
        if cls is not None and getattr(cls, "__name__", cls) != stock:
            findings.lose(f"rl_module_spec.{key}", cls, "policies share no code here")
    modules = module_specs(spec)
    if not isinstance(modules, Mapping):  # one for all
        modules = dict.fromkeys(values["policies"], modules)
    return {
        name: _module_settings(module, f"rl_module_spec.{name}", findings)
        for name, module in modules.items()
    }


def _is_multi(spec: Any) -> bool:
    return module_specs(spec) is not None


def _module_settings(spec: Any, where: str, findings: Findings) -> RLlibPolicy:
    """Read an `RLModuleSpec`."""
    policy = RLlibPolicy()
    policy.is_random = _is_random(entry(spec, "module_class"), f"{where}.module_class", findings)
    for key in ("catalog_class", "load_state_path", "inference_only", "learner_only"):
        if entry(spec, key):
            findings.lose(f"{where}.{key}", entry(spec, key), _SPEC_HINTS.get(key, ""))
    model = model_table(entry(spec, "model_config") or entry(spec, "model_config_dict"))
    if model:
        policy.settings["model"] = model
    return policy


_SPEC_HINTS = {
    "load_state_path": "to start from a run of this library: PolicySpec(load=RUN_DIR)",
    "inference_only": "a policy that is not trained: PolicySpec(trainable=False)",
}


def _is_random(cls: Any, key: str, findings: Findings) -> bool:
    """Return whether a policy's class plays at random; other classes than PPO's own are lost."""
    name = cls if isinstance(cls, str) else getattr(cls, "__name__", None)
    name = None if name is None else name.rpartition(".")[2]
    if name is not None and name not in (*_LEARNING, *_RANDOM):
        findings.lose(
            key,
            cls,
            "masks need none here; another network: dataclasses.replace(config, "
            "policies={...: PolicySpec(network=...)}), or a script: Scripted(function)",
        )
    return name in _RANDOM


def _policy_settings(
    spec: Any, name: str, values: Mapping[str, Any], findings: Findings
) -> RLlibPolicy:
    """Read a `PolicySpec`, or the equivalent 4-tuple."""
    if spec is None:
        return RLlibPolicy()
    where = f"policies.{name}"
    spec = _spec_table(spec, where)
    policy = RLlibPolicy()
    policy.is_random = _is_random(entry(spec, "policy_class"), f"{where}.policy_class", findings)
    for key in ("observation_space", "action_space"):
        if entry(spec, key) is not None:
            findings.note(f"{where}.{key}: the environment defines it")
    config = entry(spec, "config")
    policy.settings = _own_changes(config, values)
    if policy.settings and values["enable_rl_module_and_learner"]:
        findings.note_policy(
            name,
            f"policies.{{policy}}.config: {', '.join(policy.settings)} is honoured here; "
            "RLlib's new API stack ignores a PolicySpec's config",
        )
    return policy


def _spec_table(spec: Any, where: str) -> Any:
    """Read a tuple that stands for a `PolicySpec` as a table, and leave a `PolicySpec` alone.

    Raises:
        ValueError: If it is neither of them.
    """
    if isinstance(spec, Sequence) and not isinstance(spec, str | bytes) and len(spec) in _TUPLES:
        spec = dict(zip(_TUPLES[len(spec)], spec, strict=True))
    plain = isinstance(spec, str | bytes | int | float | Sequence | Set)
    config = entry(spec, "config")
    settings = isinstance(config, Mapping) or callable(getattr(config, "to_dict", None))
    if plain or not (config is None or settings):
        raise ValueError(
            f"{where} must be a PolicySpec, (policy_class, observation_space, action_space, "
            f"config), (policy_class, config) or None, got {show(spec)}"
        )
    return spec


_TUPLES = {
    2: ("policy_class", "config"),
    4: ("policy_class", "observation_space", "action_space", "config"),
}


def _override(
    policy: RLlibPolicy,
    config: Any,
    name: str,
    values: Mapping[str, Any],
    findings: Findings,
) -> None:
    """Add the settings of `algorithm_config_overrides_per_module`."""
    own = _own_changes(config, values)
    for key in ("gamma", "lambda", "num_epochs", "minibatch_size"):
        if key in own:
            findings.note_policy(
                name,
                f"policies.{{policy}}: its own {key} is honoured here; "
                "RLlib's learner has one for all",
            )
    _merge(policy.settings, own)


def _own_changes(config: Any, values: Mapping[str, Any]) -> dict[str, Any]:
    own = changes(config)
    if "_model_config" in own:
        own["model"] = {**model_table(own.get("model")), **model_table(own.pop("_model_config"))}
    return {
        key: value
        for key, value in own.items()
        if key == "model" or not is_default(value, values.get(key))
    }


def _merge(settings: dict[str, Any], own: Mapping[str, Any]) -> None:
    """Put later settings over earlier ones, those of the network one by one."""
    model = {**settings.get("model", {}), **own.get("model", {})}
    settings.update(own)
    if model:
        settings["model"] = model


def _trained(
    given: Collection[str] | Callable[..., bool] | None, names: list[str], findings: Findings
) -> set[str]:
    """List the policies that RLlib would train."""
    if given is None:
        return set(names)
    if callable(given):
        try:
            return {name for name in names if given(name, None)}
        except Exception:  # it looks at the batch
            findings.lose(
                "policies_to_train", given, "it goes by the batch; list the policies to train"
            )
            return set(names)
    unknown = sorted(set(given) - set(names))
    if unknown:
        raise ValueError(
            f"policies_to_train names {', '.join(unknown)}; the policies are {', '.join(names)}"
        )
    return set(given)
