"""Tunes the costs of the shuttles' `tuned` dispatcher by CMA-ES, on simulated shifts.

    python benchmarks/tune_dispatcher.py --generations 400

writes envs/jaxmarl_envs/shuttle_grid/tuned.json. Candidates of a generation meet the same shifts,
which change from one generation to the next, and are ranked by progress, of which chance makes up
less than of deliveries (Hansen 2016, "The CMA evolution strategy: a tutorial").
"""

import argparse
import json
from pathlib import Path

import cmaes
import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree

import jaxmarl_envs
from jaxmarl_envs.shuttle_grid import ShuttleGrid, evaluate_dispatcher
from jaxmarl_envs.shuttle_grid.tuned import Costs, choose, ways
from jaxmarl_ppo import use_cpu_cores

WEIGHTS = Path(jaxmarl_envs.__file__).parent / "shuttle_grid" / "tuned.json"
HELD = 12.0  # steps, where the search begins: as `blocked_penalty`
SPREAD = Costs(edge=1.0, held=4.0, per_step=1.0)  # of the first generation, in steps
HELD_OUT = 10_000  # seed of the shifts that the result is measured on


def main() -> None:
    """Search, and keep the mean of the last generation."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--generations", type=int, default=400)
    parser.add_argument("--population", type=int, default=24)
    parser.add_argument("--shifts", type=int, default=192, help="of each candidate")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=WEIGHTS)
    args = parser.parse_args()
    env = ShuttleGrid(reward="progress")
    path, params = env.guidepath, env.default_params
    plain = Costs.plain(path, HELD)
    start, unravel = ravel_pytree(plain)
    spread = ravel_pytree(jax.tree.map(lambda x, s: jnp.full_like(x, s), plain, SPREAD))[0]

    def of(vector: jax.Array) -> Costs:
        return unravel(start + spread * vector)

    @jax.jit
    def progress(vectors: jax.Array, key: jax.Array) -> jax.Array:
        """Mean progress of a shift, `[candidates]`."""

        def shift(costs: Costs, table: jax.Array, key: jax.Array) -> jax.Array:
            def step(state, _):
                action = choose(costs, table, state, path)
                _, state, reward = env.step_env(key, state, action, params)[:3]
                return state, reward[0]

            state = env.reset_env(key, params)[1]
            return jax.lax.scan(step, state, None, length=env.max_steps)[1].sum()

        def candidate(vector: jax.Array) -> jax.Array:
            costs = of(vector)
            table = ways(costs, path)
            keys = jax.random.split(key, args.shifts)
            return jax.vmap(shift, in_axes=(None, None, 0))(costs, table, keys).mean()

        return jax.lax.map(candidate, vectors)

    search = cmaes.CMA(np.zeros(start.size), 1.0, seed=args.seed, population_size=args.population)
    for generation in range(args.generations):
        found = np.stack([search.ask() for _ in range(args.population)])
        scores = np.asarray(progress(jnp.asarray(found, jnp.float32), jax.random.key(generation)))
        search.tell([(x, -float(score)) for x, score in zip(found, scores, strict=True)])
        if generation % 20 == 0 or generation == args.generations - 1:
            costs = of(jnp.asarray(search.mean, jnp.float32))
            delivered = measure(env, costs, HELD_OUT, 512)
            print(f"{generation}: progress {scores.mean():.3f}, delivered {delivered}", flush=True)
            args.out.write_text(json.dumps(rounded(costs)) + "\n")
    costs = of(jnp.asarray(search.mean, jnp.float32))
    print(f"delivered on held-out shifts {measure(env, costs, HELD_OUT + 1, 4096)}")


def measure(env: ShuttleGrid, costs: Costs, seed: int, num_shifts: int) -> str:
    """Deliveries per shift, with their standard error."""
    table = ways(costs, env.guidepath)
    found = evaluate_dispatcher(
        env,
        env.default_params,
        lambda state, *_: choose(costs, table, state, env.guidepath),
        jax.random.key(seed),
        num_shifts,
    )
    return f"{found.mean():.3f} ± {found.std() / num_shifts**0.5:.3f}"


def rounded(costs: Costs) -> dict[str, list]:
    """The costs as lists, in hundredths of a step."""
    return {
        name: np.round(np.asarray(getattr(costs, name)), 2).tolist()
        for name in ("edge", "held", "per_step")
    }


if __name__ == "__main__":
    main()
