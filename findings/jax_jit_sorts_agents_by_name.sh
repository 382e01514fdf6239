#!/usr/bin/env bash
# JAX 0.10.2: a dictionary of agents has another order after `jit`, from the eleventh agent on.
#
# A Python dictionary keeps the order in which it was filled, and a dictionary that goes through a
# compiled function, even one that only returns it, comes back with its keys in alphabetical order:
# `agent_10` stands before `agent_2`, `listener` before `speaker`. Keys still have their own values,
# but `jnp.stack(list(rewards.values()))`, or a `zip` with the list of agents, gives rewards to other
# agents. Up to ten numbered agents nothing changes, so tests on small games pass, and so does the
# same code without `jit`. `OrderedDict` keeps its order. Agents' numbers, by place, Python 3.11:
#
#     10 agents: 0 1 2 3 4 5 6 7 8 9, after jit 0 1 2 3 4 5 6 7 8 9
#     12 agents: 0 1 2 3 4 5 6 7 8 9 10 11, after jit 0 1 10 11 2 3 4 5 6 7 8 9
#     12 agents, OrderedDict: 0 1 2 3 4 5 6 7 8 9 10 11, after jit 0 1 2 3 4 5 6 7 8 9 10 11
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
from collections import OrderedDict

import jax
import jax.numpy as jnp


def numbers(values):
    return " ".join(str(number) for number in jnp.stack(list(values)).tolist())


for kind, num_agents, title in ((dict, 10, ""), (dict, 12, ""), (OrderedDict, 12, ", OrderedDict")):
    rewards = kind((f"agent_{i}", jnp.int32(i)) for i in range(num_agents))
    after = jax.jit(lambda tree: tree)(rewards)
    print(
        f"{num_agents} agents{title}: {numbers(rewards.values())}, "
        f"after jit {numbers(after.values())}"
    )
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="10 agents: 0 1 2 3 4 5 6 7 8 9, after jit 0 1 2 3 4 5 6 7 8 9
12 agents: 0 1 2 3 4 5 6 7 8 9 10 11, after jit 0 1 10 11 2 3 4 5 6 7 8 9
12 agents, OrderedDict: 0 1 2 3 4 5 6 7 8 9 10 11, after jit 0 1 2 3 4 5 6 7 8 9 10 11"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
