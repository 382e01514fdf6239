"""Environments in plain Python: how much of a plain loop's speed is left through the adapter.

    python benchmarks/python_environments.py --json benchmarks/python-environments-cpu.json

Both sides play random legal actions in turn. The plain loop steps one original in this process. The
adapter steps a batch of them with one worker process, and a compiled program draws the actions,
resets what is over, and adds the rewards up. `shuttles` is a class as RLlib has them, of six agents
with masks, and `battle` MAgent2's battle of 162 agents.
"""

import argparse
import functools
import json
import sys
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from jaxmarl_envs.adapters.incoming.host import HostEnv, SlowEnvironmentWarning
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_ppo import use_cpu_cores
from jaxmarl_ppo.bench.stepping import Share, random_play
from jaxmarl_ppo.bench.timing import Timing, time_in_turn
from jaxmarl_ppo.machine.hardware import describe_hardware

sys.path.insert(0, str(Path(__file__).parents[1] / "scripts"))
from ray_baseline.scenarios import SCENARIOS  # pyright: ignore[reportMissingImports]
from ray_baseline.twin_by_agent import TwinByAgent  # pyright: ignore[reportMissingImports]


class Case(NamedTuple):
    """An environment in plain Python."""

    make: Callable[[], Any]
    play: Callable[[Any, int], None]  # a plain loop of so many steps over the original
    bring_in: Callable[..., HostEnv]
    num_steps: int  # of one environment in a round


def make_shuttles() -> TwinByAgent:
    """Make the shuttles as a class for RLlib."""
    return TwinByAgent({"game": "shuttle_grid", "action_mask": True, "all_observe": False})


def play_shuttles(env: Any, num_steps: int) -> None:
    """Play legal actions, resetting what is over."""
    rng = np.random.default_rng(0)
    seen, _ = env.reset(seed=0)
    for _ in range(num_steps):
        actions = {}
        for agent, own in seen.items():
            legal = np.flatnonzero(own["action_mask"])
            actions[agent] = int(legal[int(rng.random() * len(legal))])
        seen, _, terminated, truncated, _ = env.step(actions)
        if terminated["__all__"] or truncated["__all__"]:
            seen, _ = env.reset()


def make_battle() -> Any:
    """Make the battle of 162 agents as PettingZoo's parallel environment."""
    from magent2.environments import battle_v4

    return battle_v4.parallel_env()


def play_battle(env: Any, num_steps: int) -> None:
    """Play random actions, resetting what is over."""
    rng = np.random.default_rng(0)
    env.reset(seed=0)
    for _ in range(num_steps):
        drawn = rng.integers(21, size=len(env.agents)).tolist()
        env.step(dict(zip(env.agents, drawn, strict=True)))
        if not env.agents:
            env.reset()


CASES: dict[str, Case] = {
    "shuttles": Case(
        make_shuttles,
        play_shuttles,
        functools.partial(from_rllib_env, horizon=SCENARIOS["shuttle_grid"].episode_steps),
        num_steps=400,
    ),
    "battle": Case(make_battle, play_battle, from_pettingzoo, num_steps=128),
}


def measure(case: Case, num_envs: int, num_workers: int, repeats: int) -> dict[str, Any]:
    """Time both sides in turn.

    Returns:
        Environment steps per second of each side, and the ratio of the adapter's to the loop's.
    """
    env = case.bring_in(case.make, num_workers=num_workers)
    through = random_play(env, env.default_params, Share(1, num_envs), case.num_steps)
    original = case.make()
    loop_steps = case.num_steps * num_envs
    plain = functools.partial(case.play, original, loop_steps)
    loop_s, through_s = time_in_turn([plain, through], repeats)
    env.close()
    ratios = Timing.of([own / other for own, other in zip(loop_s, through_s, strict=True)])
    return {
        "loop_per_s": Timing.of(loop_s).rate(loop_steps),
        "adapter_per_s": Timing.of(through_s).rate(loop_steps),
        "ratio": {"median": ratios.median, "min": ratios.min, "max": ratios.max},
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Measure what is asked for, print it, and write it where a file is named."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--envs", nargs="+", choices=CASES, default=list(CASES))
    parser.add_argument("--num-envs", type=int, default=8)
    parser.add_argument("--num-workers", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    options = parser.parse_args(arguments)
    warnings.simplefilter("ignore", SlowEnvironmentWarning)
    use_cpu_cores(1)
    sizes = options.num_envs, options.num_workers, options.repeats
    found: dict[str, Any] = {}
    for name in options.envs:
        found[name] = measure(CASES[name], *sizes)
        rates = [found[name][side]["median"] for side in ("loop_per_s", "adapter_per_s")]
        print(
            f"{name}: loop {rates[0]:,.0f}, adapter {rates[1]:,.0f} steps/s, "
            f"ratio {found[name]['ratio']['median']:.3f}",
            flush=True,
        )
    if options.json is not None:
        record = {
            "command": "python benchmarks/python_environments.py",
            "machine": describe_hardware(),
            "num_envs": options.num_envs,
            "num_workers": options.num_workers,
            "repeats": options.repeats,
            "environments": found,
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
