"""How single values are written on the command line, and shown as defaults."""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from jaxmarl_ppo.cli.session import reader
from jaxmarl_ppo.config.as_json import mapping_from_json, mapping_to_json
from jaxmarl_ppo.config.checks import refuse_repeated, show
from jaxmarl_ppo.config.mapping import MappingSpec
from jaxmarl_ppo.config.schedules import Linear, ScheduleSpec

Dtype = Literal["float32", "bfloat16"]
NetworkKind = Literal["mlp", "lstm", "gru", "min_gru", "cnn"]


def parse_mapping(text: str) -> MappingSpec:
    """Read `shared`, `per_agent`, `ensemble:K`, AGENT=POLICY,... or JSON of `mapping_to_json`.

    Raises:
        ValueError: an agent without a policy, or one that is named twice.
    """
    if text.startswith("{"):
        try:
            data = json.loads(text, object_pairs_hook=_table)
        except json.JSONDecodeError as error:
            raise ValueError(f"{show(text)} is not JSON: {error}") from None
        except RecursionError:
            raise ValueError(f"{show(text)} is nested too deeply") from None
        return mapping_from_json(data)
    if "=" not in text:
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    return _table([(agent.strip(), policy.strip()) for agent, _, policy in pairs])


def _table(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    refuse_repeated("the table", [key for key, _ in pairs])
    return dict(pairs)


def show_mapping(mapping: MappingSpec) -> str:
    """Write a mapping as `parse_mapping` reads it."""
    if isinstance(mapping, str):
        return mapping
    table = isinstance(mapping, Mapping)
    if table and all(isinstance(policy, str) for policy in mapping.values()):
        return ",".join(f"{agent}={policy}" for agent, policy in mapping.items())
    return json.dumps(mapping_to_json(mapping))


MappingOption = Annotated[
    Any,
    reader(parse_mapping, "shared|per_agent|ensemble:K|AGENT=POLICY,...|JSON", show_mapping),
]


def parse_env_kwargs(pairs: Sequence[str]) -> dict[str, Any]:
    """Read `KEY=VALUE` into a table; a value that is no Python literal is a string.

    Raises:
        ValueError: no `=`, or a key given twice.
    """
    result: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise ValueError(f"--env-kwargs takes KEY=VALUE, got {pair!r}")
        if key in result:
            raise ValueError(f"--env-kwargs gives {key!r} twice")
        result[key] = _literal(text)
    return result


def _literal(text: str) -> Any:
    """Read a Python literal; anything else is left as it is."""
    try:
        return ast.literal_eval(text)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return text


def parse_schedule(text: str) -> Any:
    """Read a number, `linear:START:END` or a list of points.

    Anything else is left as it is, for the configuration to refuse.
    """
    kind, _, ends = text.partition(":")
    if kind != "linear":
        return _literal(text)
    try:
        start, end = ends.split(":")
        return Linear(float(start), float(end))
    except ValueError:
        return text


def show_schedule(spec: ScheduleSpec) -> str:
    """Write a schedule as `parse_schedule` reads it."""
    if isinstance(spec, Linear):
        return f"linear:{spec.start:g}:{spec.end:g}"
    if isinstance(spec, tuple):
        return str([list(point) for point in spec])
    return f"{spec:g}"


ScheduleOption = Annotated[Any, reader(parse_schedule, "FLOAT|SCHEDULE", show_schedule)]
OptionalSchedule = Annotated[
    Any, reader(parse_schedule, "FLOAT|SCHEDULE", show_schedule, optional=True)
]
