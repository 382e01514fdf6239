#!/usr/bin/env bash
# flax 0.12.8: the state of an RNN after a sequence of length 0 has seen all of the padding.
#
# `nn.RNN(..., return_carry=True)` with `seq_lengths` returns the state after each sequence's last
# element, and ignores what comes after it, as padding. That of an empty sequence would be the initial
# state. Instead the state is read at index `length - 1`, which is -1 for an empty sequence, and so the
# one after the last padding. Empty sequences are common where agents do not act in every block of
# steps. `flax.nnx.RNN` does the same. For each length, whether the state is the initial one, and
# whether it changes with what is written into the padding, Python 3.11:
#
#     length 0: initial state False, depends on padding True
#     length 2: initial state False, depends on padding False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    flax==0.12.8 jax==0.10.2 jaxlib==0.10.2 numpy==2.4.6
cat >"$place/try.py" <<'PY'
import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

lengths = jnp.array([0, 2])
rnn = nn.RNN(nn.GRUCell(features=3), return_carry=True)
first, second = jax.random.normal(jax.random.key(0), (2, 2, 5, 4))  # [sequence, step, feature] each
padding = jnp.arange(5)[:, None] >= lengths[:, None, None]
second = jnp.where(padding, second, first)  # the same sequences, padded with other numbers
initial = jnp.full((2, 3), 0.5)
variables = rnn.init(jax.random.key(1), first)
state, other = (
    rnn.apply(variables, x, initial_carry=initial, seq_lengths=lengths)[0] for x in (first, second)
)
for index, length in enumerate(lengths.tolist()):
    print(
        f"length {length}: initial state {np.allclose(state[index], initial[index])}, "
        f"depends on padding {not np.allclose(state[index], other[index])}"
    )
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="length 0: initial state False, depends on padding True
length 2: initial state False, depends on padding False"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
