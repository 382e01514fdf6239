"""Training results of the distributions of continuous actions, on four tasks over several seeds.

    python benchmarks/continuous_actions.py

trains each task with `PolicySpec(continuous="squashed")`, `"beta"` and `"clipped"` and evaluates
sampled and greedy play. The results of every seed enter benchmarks/continuous-actions-cpu.json in
place of earlier ones of the same task, distribution and seed.
`python benchmarks/continuous_actions.py pendulum --families beta` repeats a part of it. `--table`
prints the recorded results as the table of docs/learning.md.

    git worktree add ../before 2c2d43c
    PYTHONPATH=../before:../before/envs python benchmarks/continuous_actions.py --before

measures the package in that checkout, whose one distribution was a squashed Gaussian with the
entropy before squashing. Its results are recorded as the distribution "before".
"""

import argparse
import dataclasses
import importlib.metadata
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
from whole_runs import command_and_hardware, enter_run, train_whole

import jaxmarl_envs
from jaxmarl_envs.core import MultiAgentEnv
from jaxmarl_ppo import (
    MLP,
    Linear,
    PolicySpec,
    PPOConfig,
    TrainConfig,
    Trainer,
    make_learner,
    use_cpu_cores,
)
from jaxmarl_ppo.config.as_json import config_to_dict
from jaxmarl_ppo.evaluation import evaluate_policies
from jaxmarl_ppo.evaluation.cross_play import with_baselines
from jaxmarl_ppo.evaluation.episodes import play_episodes
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.types import Population

RECORD = Path(__file__).resolve().parent / "continuous-actions-cpu.json"
FAMILIES = ("squashed", "beta", "clipped")
BEFORE, UNIFORM = "before", "uniform"
EPISODES = 1024
ACTING = {"sample": "sampled", "greedy": "greedy"}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "distrax", "gymnax", "jaxmarl")
WHAT = (
    "Final policies of every seed on fresh episodes. result: the mean over agents and episodes of "
    "the return, in crypto of the return of bob and alice; result_se: its standard error over "
    "episodes. before: the squashed Gaussian of commit 2c2d43c, whose entropy was that before "
    "squashing. uniform: random play between the bounds."
)


@dataclass(frozen=True)
class Task:
    """An environment and the configuration of all distributions on it.

    Attributes:
        make: returns the environment and its parameters.
        config: the configuration but for the distribution and the seeds.
        agents: whose return is the result; empty for all.
        value: the greatest mean result against opponents that play best, if there are any.
    """

    make: Callable[[], tuple[MultiAgentEnv, Any]]
    config: TrainConfig
    agents: tuple[str, ...] = ()
    value: float = np.inf


def _named(name: str, **kwargs: Any) -> Callable[[], tuple[MultiAgentEnv, Any]]:
    return lambda: jaxmarl_envs.make(name, **kwargs)


def _controlling(steps: int, gamma: float, entropy_coef: float) -> TrainConfig:
    """Scale observations and rewards; one agent, episodes of hundreds of steps."""
    return TrainConfig(
        total_env_steps=steps,
        num_envs=64,
        num_steps=128,
        default_policy=PolicySpec(normalise_observations=True, normalise_rewards=True),
        default_ppo=PPOConfig(
            learning_rate=Linear(1e-3, 1e-5),
            gamma=gamma,
            num_epochs=10,
            num_minibatches=8,
            entropy_coef=entropy_coef,
        ),
    )


_SPREADING = TrainConfig(
    total_env_steps=600_000,
    num_envs=32,
    num_steps=128,
    default_policy=PolicySpec(network=MLP(separate_critic=True), normalise_rewards=True),
    default_ppo=PPOConfig(learning_rate=Linear(1e-3, 0.0), gamma=0.95, entropy_coef=0.005),
)
_TALKING = TrainConfig(
    total_env_steps=800_000,
    num_envs=256,
    num_steps=50,
    mapping={"eve_0": "eve", "bob_0": "good", "alice_0": "good"},
    default_policy=PolicySpec(network=MLP(hidden_sizes=(64, 64), activation="relu")),
    default_ppo=PPOConfig(
        learning_rate=Linear(2e-3, 1e-4),
        entropy_coef=Linear(0.06, 0.003),
        gamma=0.7,
        gae_lambda=0.9,
    ),
)
TASKS = {
    "pendulum": Task(
        _named("gymnax", env_id="Pendulum-v1", num_agents=1), _controlling(500_000, 0.95, 0.0)
    ),
    "mountain_car": Task(
        _named("gymnax", env_id="MountainCarContinuous-v0", num_agents=1),
        _controlling(500_000, 0.995, 0.02),
    ),
    "spread": Task(
        _named("jaxmarl", env_id="MPE_simple_spread_v3", action_type="Continuous"), _SPREADING
    ),
    # Eve errs by at most .5 at each of 25 steps if she always says (.5, .5, 0, 0). Bob does so at
    # the first step only, if he and alice have a code.
    "crypto": Task(
        _named("crypto", continuous_actions=True), _TALKING, ("bob_0", "alice_0"), value=12.0
    ),
}


def train_and_evaluate(task: Task, family: str, seed: int) -> dict[str, Any]:
    """Train one seed; return its results and its learning curve."""
    env, params = task.make()
    policy = with_family(task.config.default_policy, family)
    config = dataclasses.replace(task.config, default_policy=policy, seed=seed, num_devices=1)
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(env, params, config, Path(folder) / "run", progress=False)
        result = train_whole(trainer)
    return {
        "seed": seed,
        "env_steps": result.env_steps,
        "wall_s": result.history[-1]["wall_s"],
        "sample": evaluate(task, trainer.learner, result.population, greedy=False),
        "greedy": evaluate(task, trainer.learner, result.population, greedy=True),
        "curve": _curve(task, result.history),
    }


def with_family(spec: Any, family: str) -> PolicySpec:
    """Set the distribution; the package before had one, and no option for it."""
    return spec if family == BEFORE else dataclasses.replace(spec, continuous=family)


def evaluate(task: Task, learner: Learner, population: Population, greedy: bool) -> dict[str, Any]:
    """Play fresh episodes, and return the result with every agent's means."""
    report = evaluate_policies(learner, population, EPISODES, greedy=greedy)
    agents = {
        name: {key: value for key, value in found.items() if isinstance(value, float)}
        for name, found in report["agents"].items()
    }
    counted = [agents[name] for name in task.agents or agents]
    return {
        "result": float(np.mean([agent["return_mean"] for agent in counted])),
        # Agents of a team earn the same, so the mean over them is no more certain than one's.
        "result_se": max(agent["return_se"] for agent in counted),
        "agents": agents,
    }


def play_uniformly(task: Task) -> dict[str, Any]:
    """Evaluate random play between the bounds."""
    env, params = task.make()
    config = dataclasses.replace(task.config, num_envs=4, num_steps=4)
    learner = with_baselines(make_learner(env, params, config))
    population = jax.jit(learner.init)(jax.random.key(0)).population
    players = np.full(env.num_agents, learner.players.names.index("random"))
    totals = play_episodes(learner, population, EPISODES, jax.random.key(0), players=players)
    slots = [env.agent_index(agent) for agent in task.agents or env.agents]
    returns = np.asarray(totals.returns, np.float64)[:, slots].mean(1)
    se = returns.std(ddof=1) / len(returns) ** 0.5
    return {"seed": 0, "sample": {"result": float(returns.mean()), "result_se": float(se)}}


def _curve(task: Task, history: Sequence[Mapping[str, Any]]) -> list[list[float]]:
    """List environment steps and the mean return of finished episodes, of about 25 entries."""
    points = []
    for entry in history[:: max(1, len(history) // 25)]:
        found = [entry["agents"][name] for name in task.agents or entry["agents"]]
        means = [agent["return_mean"] for agent in found if "return_mean" in agent]
        if means:
            points.append([entry["env_steps"], round(float(np.mean(means)), 3)])
    return points


def record(task: str, family: str, run: Mapping[str, Any]) -> None:
    """Enter a seed's results into the record, in place of earlier ones."""
    config = config_to_dict(TASKS[task].config)
    about = {
        "task": task,
        "family": family,
        **rounded(run),
        "episodes": EPISODES,
        "config": {name: config[name] for name in ("num_envs", "num_steps", "default_policy")}
        | {"ppo": config["default_ppo"], "mapping": config["mapping"]},
        **command_and_hardware(__file__),
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
    }
    order = (*FAMILIES, BEFORE, UNIFORM)

    def key(run: Mapping[str, Any]) -> tuple[int, int, int]:
        return list(TASKS).index(run["task"]), order.index(run["family"]), run["seed"]

    enter_run(RECORD, about, key, what=WHAT)


def rounded(value: Any) -> Any:
    """Round all numbers in a tree of plain data to five digits."""
    if isinstance(value, Mapping):
        return {key: rounded(part) for key, part in value.items()}
    if isinstance(value, list):
        return [rounded(part) for part in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def make_table(runs: Sequence[Mapping[str, Any]]) -> str:
    """Make a table of means and standard errors, over seeds or, of uniform play, over episodes.

    Its last rows are means over tasks, each task scaled to 0 for uniform play and 1 for the best
    distribution. Results above the value of a game, which show weak opponents, count as that value.
    """
    columns = (*FAMILIES, BEFORE, UNIFORM)
    lines = [f"| task | play | {' | '.join(columns)} |", "| --- " * 7 + "|"]
    found = {(task, of): _results(runs, task, of) for task in TASKS for of in columns}
    for task in TASKS:
        for acting, play in ACTING.items():
            cells = [_cell(found[task, of][acting]) for of in columns]
            lines.append(f"| `{task}` | {play} | {' | '.join(cells)} |")
    for acting, play in ACTING.items():
        means = np.array(
            [
                [
                    min(np.mean([r for r, _ in found[name, of][acting]]), task.value)
                    for of in columns
                ]
                for name, task in TASKS.items()
            ]
        )  # [tasks, columns]
        lowest, best = means[:, -1:], means[:, : len(FAMILIES)].max(1, keepdims=True)
        scaled = ((means - lowest) / (best - lowest)).mean(0)
        lines.append(f"| all, scaled | {play} | {' | '.join(f'{x:.3f}' for x in scaled)} |")
    return "\n".join(lines)


def _results(
    runs: Sequence[Mapping[str, Any]], task: str, family: str
) -> dict[str, list[tuple[float, float]]]:
    """List every seed's result and its standard error, by way of acting."""
    own = [run for run in runs if (run["task"], run["family"]) == (task, family)]
    # Uniform play has no policy that could be greedy.
    plays = {acting: "sample" if family == UNIFORM else acting for acting in ACTING}
    return {
        acting: [(run[play]["result"], run[play]["result_se"]) for run in own]
        for acting, play in plays.items()
    }


def _cell(results: Sequence[tuple[float, float]]) -> str:
    if not results:
        return ""
    means = np.array([result for result, _ in results])
    se = results[0][1] if len(means) == 1 else means.std(ddof=1) / len(means) ** 0.5
    return f"{round(float(means.mean()), 2) + 0.0:.2f} ± {se:.2f}"


def main() -> None:
    """Train tasks with distributions, or print what is recorded."""
    use_cpu_cores()
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("tasks", nargs="*", metavar="TASK", help=f"of {', '.join(TASKS)}")
    parser.add_argument("--families", nargs="+", choices=(*FAMILIES, UNIFORM))
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2], help="one after another")
    parser.add_argument("--before", action="store_true", help="the package has one distribution")
    parser.add_argument("--no-record", action="store_true", help="print results only")
    parser.add_argument("--table", action="store_true", help="print what is recorded")
    args = parser.parse_args()
    if args.before and hasattr(PolicySpec, "continuous"):
        parser.error("--before needs the earlier package first in PYTHONPATH")
    for name in args.tasks:
        if name not in TASKS:
            parser.error(f"unknown task {name!r}; valid: {', '.join(TASKS)}")
    if args.table:
        runs = json.loads(RECORD.read_text())["runs"]
        print(make_table(runs))
        return
    families = (BEFORE,) if args.before else args.families or (*FAMILIES, UNIFORM)
    for name in args.tasks or TASKS:
        for family in families:
            for seed in (0,) if family == UNIFORM else args.seeds:
                if family == UNIFORM:
                    run = play_uniformly(TASKS[name])
                else:
                    run = train_and_evaluate(TASKS[name], family, seed)
                results = {k: round(run[k]["result"], 2) for k in ("sample", "greedy") if k in run}
                print(name, family, seed, results, flush=True)
                if not args.no_record:
                    record(name, family, run)


if __name__ == "__main__":
    main()
