"""Kinds of values that RLlib's settings take, checked before anything is made of them."""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from typing import Any

from jaxmarl_ppo.config.rllib.findings import show
from jaxmarl_ppo.config.rllib.reading import entry, module_specs

_TOO_LARGE = 1e30  # for a number that is no mistake: its sums and ratios stay finite
_Check = tuple[str, Callable[[Any], bool]]  # what is valid, and whether a value is


def _is_number(value: Any) -> bool:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return False
    return abs(value) < _TOO_LARGE or value in (math.inf, -math.inf)


def _is_whole(value: Any) -> bool:
    return _is_number(value) and math.isfinite(value) and value == int(value)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _is_schedule(value: Any) -> bool:
    pairs = _is_list(value) and value and all(_is_list(point) for point in value)
    return bool(pairs) and all(len(point) == 2 and all(map(_is_number, point)) for point in value)


def _is_settings(value: Any) -> bool:
    return value is None or isinstance(value, Mapping) or callable(getattr(value, "to_dict", None))


def _is_model(value: Any) -> bool:
    table = value is None or isinstance(value, Mapping)
    return table or (dataclasses.is_dataclass(value) and not isinstance(value, type))


def _is_module(value: Any) -> bool:
    specs = module_specs(value)
    if isinstance(specs, Mapping):
        return all(_is_module(spec) for spec in specs.values())
    plain = isinstance(value, str | bytes | int | float | Sequence | Set)
    if specs is not None and not plain:
        return _is_module(specs)  # one for all
    return not plain and _is_model(
        entry(value, "model_config") or entry(value, "model_config_dict")
    )


def _is_policies(value: Any) -> bool:
    names = isinstance(value, Collection) and not isinstance(value, str | bytes)
    return bool(names and value) and all(isinstance(name, str) and name for name in value)


_COUNT: _Check = (
    "a whole number from 0 to 2147483647",
    lambda value: _is_whole(value) and 0 <= value < 2**31,
)
_WHOLE: _Check = ("a whole number", _is_whole)
_SWITCH: _Check = ("True or False", lambda value: isinstance(value, bool))
_WORD: _Check = ("a word", lambda value: isinstance(value, str))
_SCHEDULE: _Check = ("a list of pairs [step, value]", _is_schedule)
_EITHER: _Check = (
    "a number or a list of pairs [step, value]; of a search space, pick one value first",
    lambda value: _is_schedule(value) if _is_list(value) else _is_number(value),
)
_TABLE: _Check = (
    "a table of settings by policy",
    lambda value: isinstance(value, Mapping) and all(map(_is_settings, value.values())),
)
_NUMBER: _Check = ("a number; of a search space, pick one value first", _is_number)
_KINDS: dict[str, _Check] = {
    **dict.fromkeys(("lr", "entropy_coeff"), _EITHER),
    **dict.fromkeys(("lr_schedule", "entropy_coeff_schedule"), _SCHEDULE),
    **dict.fromkeys(("num_epochs", "seed", "lstm_cell_size", "max_seq_len"), _WHOLE),
    **dict.fromkeys(("num_learners", "num_env_runners", "num_envs_per_env_runner"), _COUNT),
    **dict.fromkeys(("use_kl_loss", "enable_rl_module_and_learner"), _SWITCH),
    **dict.fromkeys(("use_lstm", "vf_share_layers"), _SWITCH),
    **dict.fromkeys(("lstm_use_prev_action", "lstm_use_prev_reward"), _SWITCH),
    **dict.fromkeys(("count_steps_by", "grad_clip_by", "observation_filter"), _WORD),
    "algorithm_config_overrides_per_module": _TABLE,
    "_model_config": ("a dict or a DefaultModelConfig", _is_model),
    "model": ("a dict or a DefaultModelConfig", _is_model),
    "_rl_module_spec": ("an RLModuleSpec, a MultiRLModuleSpec or a dict of theirs", _is_module),
    **dict.fromkeys(("gamma", "lambda", "clip_param", "vf_clip_param", "vf_loss_coeff"), _NUMBER),
    **dict.fromkeys(("kl_coeff", "kl_target", "grad_clip", "train_batch_size"), _NUMBER),
    **dict.fromkeys(("minibatch_size", "_train_batch_size_per_learner"), _NUMBER),
    "rollout_fragment_length": (
        "a whole number or 'auto'",
        lambda value: value == "auto" or _is_whole(value),
    ),
    "policies": ("a list of policies, or a table by policy", _is_policies),
    "policies_to_train": (
        "a list of policies or a function",
        lambda value: callable(value) or _is_policies(value) or value == [],
    ),
    **dict.fromkeys(
        ("fcnet_hiddens", "head_fcnet_hiddens"),
        (
            "a list of whole numbers",
            lambda value: _is_list(value) and all(map(_is_whole, value)),
        ),
    ),
}
# Settings that may also be None.
_MAY_BE_NONE = {
    "_rl_module_spec",
    "lr_schedule",
    "entropy_coeff_schedule",
    "grad_clip",
    "vf_clip_param",
    "minibatch_size",
    "num_learners",
    "_train_batch_size_per_learner",
    "policies_to_train",
    "seed",
    "algorithm_config_overrides_per_module",
}


def check_kinds(values: Mapping[str, Any], known: Collection[str], prefix: str = "") -> None:
    """Reject settings whose values are of another kind than RLlib's.

    Args:
        values: settings by RLlib's names.
        known: names that are settings here; others are reported elsewhere.
        prefix: prefix of names in messages, such as `model.`.

    Raises:
        ValueError: For the first of them.
    """
    for key, value in values.items():
        if key not in known or key not in _KINDS or (value is None and key in _MAY_BE_NONE):
            continue
        valid, accepts = _KINDS[key]
        if not accepts(value):
            raise ValueError(f"{prefix}{key.lstrip('_')} must be {valid}, got {show(value)}")
