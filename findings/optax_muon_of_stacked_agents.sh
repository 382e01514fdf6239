#!/usr/bin/env bash
# optax 0.2.8: Muon takes the stacked biases of several agents for one matrix, and no kernel for any.
#
# Weights of agents that share none are kept in one tree with an axis of agents in front, and one
# optimiser updates it: for Adam that is the same as one optimiser per agent. By default
# `contrib.muon` makes updates orthogonal that have two axes, and gives all others to Adam. Kernels
# now have three, so that Muon never sees one. Biases have two: their update is made orthogonal
# across agents, so that it depends on what the others have done. Nothing warns, and training goes
# on. `jax.vmap` of the update, or `muon_weight_dimension_numbers`, is right. The update of the
# first of three agents, Python 3.11:
#
#     one tree, kernel: as alone False, depends on the others' gradients False
#     one tree, bias: as alone False, depends on the others' gradients True
#     vmap, kernel: as alone True, depends on the others' gradients False
#     vmap, bias: as alone True, depends on the others' gradients False
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    optax==0.2.8 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import optax

optimiser = optax.contrib.muon(0.1)
shapes = {"kernel": (8, 8), "bias": (8,)}


def draw(seed):
    keys = jax.random.split(jax.random.key(seed))
    return {name: jax.random.normal(key, shapes[name]) for name, key in zip(shapes, keys)}


def update(grads, params):
    return optimiser.update(grads, optimiser.init(params), params)[0]


def stack(trees):
    return jax.tree.map(lambda *leaves: jnp.stack(leaves), *trees)


params = [draw(seed) for seed in range(3)]
grads = [draw(seed) for seed in range(3, 6)]
others = [grads[0], draw(6), draw(7)]
alone = update(grads[0], params[0])
for way, step in {"one tree": update, "vmap": jax.vmap(update)}.items():
    updates, again = (step(stack(trees), stack(params)) for trees in (grads, others))
    for name in shapes:
        same = jnp.allclose(updates[name][0], alone[name], atol=1e-3)
        depends = not jnp.allclose(updates[name][0], again[name][0], atol=1e-3)
        print(f"{way}, {name}: as alone {same}, depends on the others' gradients {depends}")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="one tree, kernel: as alone False, depends on the others' gradients False
one tree, bias: as alone False, depends on the others' gradients True
vmap, kernel: as alone True, depends on the others' gradients False
vmap, bias: as alone True, depends on the others' gradients False"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
