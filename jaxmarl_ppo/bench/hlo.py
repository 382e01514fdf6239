"""Analysis of compiled programs as XLA prints them: loops, launches and bytes moved."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

# Operations launched one by one. The others are bookkeeping, or part of a fusion.
KERNELS = {
    *("fusion", "custom-call", "copy", "copy-start", "sort", "convolution", "dot", "scatter"),
    *("gather", "reduce", "reduce-window", "select-and-scatter", "dynamic-slice", "slice"),
    *("dynamic-update-slice", "concatenate", "transpose", "broadcast", "iota", "pad", "reverse"),
    "rng-bit-generator",
}
COLLECTIVES = ("all-reduce", "all-gather", "all-to-all", "reduce-scatter", "collective-permute")
# Operations that touch only a part of their first argument.
_PARTIAL = ("dynamic-slice", "gather", "dynamic-update-slice")
_BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f64": 8}  # other names contain their bits
_SHAPE = re.compile(r"\b(pred|bf16|[a-z]\d+(?:e\d+m\d+\w*)?)\[([\d,]*)\]")
_HEAD = re.compile(r"^(ENTRY )?%?([\w.\-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.\-]+) = (\(.*?\)|\S+) ([a-z][a-z\-]*)\((.*)$")


@dataclass(frozen=True)
class Instruction:
    """A line of a program.

    Attributes:
        name: of its result.
        op: its operation, such as `fusion`.
        size: bytes of its result.
        operands: names of its arguments.
        rest: the text after them.
        is_root: whether its result is that of the computation.
    """

    name: str
    op: str
    size: int
    operands: tuple[str, ...]
    rest: str
    is_root: bool

    def called(self, key: str) -> str:
        """Name the computation that it calls as `body`, `calls` or the like; "" for none."""
        found = re.search(rf"\b{key}=%?([\w.\-]+)", self.rest)
        return found[1] if found else ""

    @property
    def branches(self) -> list[str]:
        """Computations that a condition chooses from."""
        several = re.search(r"branch_computations=\{([^}]*)\}", self.rest)
        if several:
            return [name.strip().lstrip("%") for name in several[1].split(",")]
        two = (self.called("true_computation"), self.called("false_computation"))
        return [name for name in two if name]

    @property
    def scope(self) -> str:
        """Names of its place in the source."""
        found = re.search(r'op_name="([^"]*)"', self.rest)
        return found[1] if found else ""


@dataclass(frozen=True)
class WhileLoop:
    """A loop of a program.

    Attributes:
        scope: names of its place in the source.
        trip_count: how often its body runs; None where known only at run time.
        body: the launches of one pass.
    """

    scope: str
    trip_count: int | None
    body: "Body"


@dataclass
class Body:
    """Kernels that one pass through a computation launches, without inner loops and branches.

    Attributes:
        name: of the computation.
        launched: of each kernel, names of its place in the source.
        moved: bytes that they read and write.
        collectives: bytes that devices exchange, and number of exchanges, by kind.
        loops: inner loops.
        branches: for every condition, the launches of each branch.
    """

    name: str
    launched: list[str] = field(default_factory=list)
    moved: int = 0
    collectives: dict[str, tuple[int, int]] = field(default_factory=dict)
    loops: list[WhileLoop] = field(default_factory=list)
    branches: list[list["Body"]] = field(default_factory=list)

    @property
    def kernels(self) -> int:
        """Count the kernels that are launched."""
        return len(self.launched)


Program = Mapping[str, list[Instruction]]


def read_program(text: str) -> Body:
    """Read a compiled program, as `compiled.as_text()` gives it."""
    program: dict[str, list[Instruction]] = {}
    entry, current = "", None
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head:
            current = program.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif line.startswith("}"):
            current = None
        elif current is not None and (found := _LINE.match(line)):
            root, name, shape, op, rest = found.groups()
            inner, behind = _split_at_closing(rest)
            operands = tuple(re.findall(r"%([\w.\-]+)", inner)) or tuple(inner.split(", "))
            current.append(Instruction(name, op, _size(shape), operands, behind, bool(root)))
    return _body(program, entry)


def _body(program: Program, name: str) -> Body:
    found = Body(name)
    sizes = {line.name: line.size for line in program[name]}
    for line in program[name]:
        kind = line.op.removesuffix("-start")
        if line.op == "while":
            inner = _body(program, line.called("body"))
            found.loops.append(WhileLoop(line.scope, _trip_count(program, line), inner))
        elif line.op == "conditional":
            found.branches.append([_body(program, branch) for branch in line.branches])
        elif line.op in ("call", "async-start"):
            inner = _body(program, line.called("to_apply") or line.called("calls"))
            found.launched, found.moved = found.launched + inner.launched, found.moved + inner.moved
            found.loops += inner.loops
            found.branches += inner.branches
        elif kind in COLLECTIVES and not line.op.endswith("-done"):
            count, size = found.collectives.get(kind, (0, 0))
            found.collectives[kind] = (count + 1, size + line.size)
        elif line.op in KERNELS:
            found.launched.append(line.scope)
            found.moved += _moved(program, line, sizes)
    return found


def _trip_count(program: Program, loop: Instruction) -> int | None:
    """Read how often a loop runs: from the compiler's note, or from its counter's bound."""
    noted = re.search(r'known_trip_count"?:\{"n":"(\d+)"', loop.rest)
    if noted:
        return int(noted[1])
    condition = {line.name: line for line in program.get(loop.called("condition"), [])}
    for line in condition.values():
        if line.is_root and line.op == "compare" and "direction=LT" in line.rest:
            last = condition.get(line.operands[1])
            if last is not None and last.op == "constant" and last.operands[0].isdigit():
                return int(last.operands[0])
    return None


def _moved(program: Program, line: Instruction, sizes: Mapping[str, int]) -> int:
    """Count the bytes that a kernel reads and writes; for a slice, only those of the slice."""
    if line.op == "dynamic-slice":
        return 2 * line.size
    if line.op == "dynamic-update-slice":
        return 2 * sizes.get(line.operands[1], 0)
    if line.op != "fusion":
        return line.size + sum(sizes.get(name, 0) for name in line.operands)
    return _moved_by_fusion(program.get(line.called("calls"), []))


def _moved_by_fusion(inner: list[Instruction]) -> int:
    """Count the bytes that a fusion reads and writes."""
    own = {each.name: each for each in inner}

    def origin(name: str) -> str:
        while name in own and own[name].op == "bitcast":
            name = own[name].operands[0]
        return name

    def read(argument: Instruction) -> int:
        users = [
            each
            for each in inner
            if each.op != "bitcast" and argument.name in map(origin, each.operands)
        ]
        parts = [
            0 if each.op == "dynamic-update-slice" else each.size
            for each in users
            if each.op in _PARTIAL and origin(each.operands[0]) == argument.name
        ]
        return min(argument.size, sum(parts)) if len(parts) == len(users) else argument.size

    def written(name: str) -> int:
        result = own.get(origin(name))
        if result is None or result.op != "dynamic-update-slice":
            return 0 if result is None else result.size
        return own[result.operands[1]].size if result.operands[1] in own else 0

    root = next((each for each in inner if each.is_root), None)
    results = () if root is None else root.operands if root.op == "tuple" else (root.name,)
    arguments = [each for each in inner if each.op == "parameter"]
    return sum(map(read, arguments)) + sum(map(written, results))


def _size(shape: str) -> int:
    """Count the bytes of a shape, or of all in a tuple."""
    return sum(
        _item(kind) * math.prod(map(int, dims.split(","))) if dims else _item(kind)
        for kind, dims in _SHAPE.findall(shape)
    )


def _item(kind: str) -> int:
    if kind in _BYTES:
        return _BYTES[kind]
    return max(1, int(re.findall(r"\d+", kind)[0]) // 8)


def _split_at_closing(text: str) -> tuple[str, str]:
    """Split after the matching closing parenthesis."""
    depth = 1
    for position, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[:position], text[position + 1 :]
    return text, ""
