#!/usr/bin/env bash
# mctx 0.0.71: where most actions are illegal, the noise at a root of `muzero_policy` has no effect.
#
# A share of Dirichlet noise is mixed into the root's prior, so that a search also visits moves that the
# network thinks little of. AlphaZero draws it over the legal moves. `muzero_policy` draws it over all
# actions and takes the illegal ones, `invalid_actions`, out afterwards. So of a quarter of the prior,
# only what fell on legal actions is left: with 4 legal ones out of 362, about a hundredth of it. Games
# whose actions are numbered as a whole, such as chess or Go, play without exploration whenever few
# moves are legal, and nothing says so. One would expect illegal actions to make no difference. Visits
# of four legal actions, the first with a prior of 0.999, all of equal value, 64 searches of 50
# simulations, Python 3.11:
#
#     4 actions, 4 legal: first 83%, the others 17%
#     64 actions, 4 legal: first 100%, the others 0%
#     362 actions, 4 legal: first 100%, the others 0%
set -euo pipefail
place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
python3 -m venv "$place/venv"
"$place/venv/bin/python" -m pip install --quiet --disable-pip-version-check \
    mctx==0.0.71 jax==0.10.2 jaxlib==0.10.2
cat >"$place/try.py" <<'PY'
import jax
import jax.numpy as jnp
import mctx

SEARCHES, LEGAL = 64, 4
zeros = jnp.zeros(SEARCHES)
for actions in (4, 64, 362):
    illegal = jnp.broadcast_to(jnp.arange(actions) >= LEGAL, (SEARCHES, actions))
    logits = jnp.where(illegal, -1e9, jnp.where(jnp.arange(actions) == 0, 8.0, 0.0))

    def step(params, key, action, embedding):
        told = mctx.RecurrentFnOutput(reward=zeros, discount=zeros, prior_logits=logits, value=zeros)
        return told, embedding

    root = mctx.RootFnOutput(prior_logits=logits, value=zeros, embedding=zeros)
    search = mctx.muzero_policy(None, jax.random.key(0), root, step, 50, invalid_actions=illegal)
    first = 100 * float(search.action_weights[:, 0].mean())
    print(f"{actions} actions, {LEGAL} legal: first {first:.0f}%, the others {100 - first:.0f}%")
PY
found=$(cd "$place" && JAX_PLATFORMS=cpu venv/bin/python -W ignore try.py)
expected="4 actions, 4 legal: first 83%, the others 17%
64 actions, 4 legal: first 100%, the others 0%
362 actions, 4 legal: first 100%, the others 0%"
echo "$found"
[ "$found" = "$expected" ] || { echo "the behaviour has changed; seen before: $expected" >&2; exit 1; }
