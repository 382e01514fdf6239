"""How single values are written on the command line, and shown as defaults."""

import ast
import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from tyro.constructors import PrimitiveConstructorSpec, PrimitiveTypeInfo

from jaxmarl_ppo.config.as_json import mapping_from_json, mapping_to_json
from jaxmarl_ppo.config.mapping import Ensemble, MappingSpec, Matchups
from jaxmarl_ppo.config.schedules import Linear, ScheduleSpec

Dtype = Literal["float32", "bfloat16"]


def _parse_count(args: list[str]) -> int:
    """A whole number, also as 5e6."""
    try:
        return int(args[0])
    except ValueError:
        number = float(args[0])
    if not number.is_integer():
        raise ValueError(f"{args[0]} is not a whole number")
    return int(number)


def _parse_mapping(args: list[str]) -> MappingSpec:
    """`shared`, `per_agent`, `ensemble:K`, AGENT=POLICY,... or the JSON of `mapping_to_json`."""
    text = args[0]
    if text.startswith("{"):
        return mapping_from_json(json.loads(text))
    if "=" not in text:
        return text
    pairs = [pair.partition("=") for pair in text.split(",")]
    return {agent.strip(): policy.strip() for agent, _, policy in pairs}


def show_mapping(mapping: MappingSpec) -> list[str]:
    """The inverse of `_parse_mapping`."""
    if isinstance(mapping, str):
        return [mapping]
    table = isinstance(mapping, Mapping)
    if table and all(isinstance(policy, str) for policy in mapping.values()):
        return [",".join(f"{agent}={policy}" for agent, policy in mapping.items())]
    return [json.dumps(mapping_to_json(mapping))]


Count = Annotated[
    int,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="INT",
        instance_from_str=_parse_count,
        is_instance=lambda x: isinstance(x, int),
        str_from_instance=lambda x: [str(x)],
    ),
]
MappingOption = Annotated[
    Any,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="shared|per_agent|ensemble:K|AGENT=POLICY,...|JSON",
        instance_from_str=_parse_mapping,
        is_instance=lambda x: isinstance(x, str | Mapping | Ensemble | Matchups),
        str_from_instance=show_mapping,
    ),
]


def parse_env_kwargs(pairs: Sequence[str]) -> dict[str, Any]:
    """`KEY=VALUE` as a table; a value that is no Python literal is a string.

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
        try:
            result[key] = ast.literal_eval(text)
        except (ValueError, SyntaxError):
            result[key] = text
    return result


def parse_schedule(text: str) -> Any:
    """A number, `linear:START:END` or a list of points.

    Anything else is left as it is, for the configuration to refuse.
    """
    kind, _, ends = text.partition(":")
    try:
        if kind == "linear":
            start, end = ends.split(":")
            return Linear(float(start), float(end))
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def schedule_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec[Any] | None:
    """How tyro reads and shows a schedule."""
    if info.type != ScheduleSpec:
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="FLOAT|SCHEDULE",
        instance_from_str=lambda args: parse_schedule(args[0]),
        is_instance=lambda x: isinstance(x, int | float | Linear | tuple),
        str_from_instance=_show_schedule,
    )


def _show_schedule(spec: ScheduleSpec) -> list[str]:
    if isinstance(spec, Linear):
        return [f"linear:{spec.start:g}:{spec.end:g}"]
    if isinstance(spec, tuple):
        return [str([list(point) for point in spec])]
    return [f"{spec:g}"]
