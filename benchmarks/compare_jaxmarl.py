"""JaxMARL's own IPPO and this trainer on JaxMARL's environments: same machine, same budget.

    python benchmarks/compare_jaxmarl.py mpe_spread smax_3m --checkout ../JaxMARL

trains both in turn, seed by seed, on one core, and enters each run into benchmarks/jaxmarl-cpu.json
in place of an earlier one of the same game, trainer and seed. A game is the name of a preset of the
environment `jaxmarl`. There are three runs for each seed:

    ours            this trainer with its preset, such as `smax_3m`
    ours_at_theirs  this trainer with JaxMARL's hyper-parameters, the preset `smax_3m_theirs`
    theirs          JaxMARL's baseline by its own code, out of a checkout of github.com/FLAIROx/
                    JaxMARL; it needs `pip install 'jaxmarl[algs]'`

Afterwards the policies of all play fresh episodes in the same evaluation, without shaped rewards,
with sampled actions and from the same seed. `--table` prints what has been recorded so far.

    python benchmarks/compare_jaxmarl.py mpe_spread --sides ours_at_theirs --time-limits-end

takes every end for the game's own in ours too, as JaxMARL's baseline does, and records nothing.
"""

import argparse
import dataclasses
import fnmatch
import importlib.metadata
import json
import math
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.jaxmarl import JaxMARL, JaxMARLParams, JaxMARLState
from jaxmarl_envs.core import StepResult
from jaxmarl_ppo import Matchups, PolicySpec, TrainConfig, Trainer, make_learner, preset
from jaxmarl_ppo.config.jaxmarl_presets import GAMES, KINDS, THEIRS, KnownGame
from jaxmarl_ppo.evaluation import cross_play, evaluate_policies
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.machine.hardware import describe_hardware
from jaxmarl_ppo.types import PolicyStack, Population

sys.path.insert(0, str(Path(__file__).resolve().parent))
import jaxmarl_baseline
from jaxmarl_baseline import put_policy, take_policy
from whole_runs import Stopwatch, commit_of, enter_run, train_whole

RECORD = Path(__file__).resolve().parent / "jaxmarl-cpu.json"
EPISODES = 1024
MOST_LISTED = 4  # results of a cell; of more, their mean is shown
SIDES = ("ours", "ours_at_theirs", "theirs")
# What counts in each kind of game: of an agent in an episode, the mean over agents.
MEASURES = {"mpe": "return", "smax": "won", "overcooked": "return", "hanabi": "return"}
PACKAGES = ("jax", "jaxlib", "flax", "optax", "jaxmarl", "distrax")
WHAT = (
    "JaxMARL's own IPPO, by its own code, and this trainer: the same environments, as many "
    "environment steps, one core of the same machine, in turn seed by seed. Policies of the last "
    "iteration played fresh episodes in one evaluation, sampled, without shaped rewards. "
    "cpu_seconds are the core's work while training, without compilation; where other programs "
    "share the core, seconds are longer."
)


@dataclasses.dataclass(frozen=True)
class Team:
    """Policies that were trained together.

    Attributes:
        mapping: which of them plays each agent.
        policies: what each is, and its parameters.
    """

    mapping: Mapping[str, str]
    policies: Mapping[str, tuple[PolicySpec, PolicyStack]]


class EndsForGood(JaxMARL):
    """An environment whose time limit counts as the game's own end."""

    def step_env(
        self, key: jax.Array, state: JaxMARLState, action: jax.Array, params: JaxMARLParams
    ) -> StepResult[JaxMARLState]:
        """Step JaxMARL's game, and terminate where it truncates."""
        step = super().step_env(key, state, action, params)
        obs, state, reward, terminated, truncated, info = step
        return obs, state, reward, terminated | truncated, jnp.zeros_like(truncated), info


def run_ours(
    game: KnownGame, config: TrainConfig, time_limits_end: bool = False
) -> tuple[dict[str, Any], Team]:
    """Train with this trainer, on `EndsForGood` if time limits end games.

    Returns:
        What the run took, and its policies.
    """
    env, params = jaxmarl_envs.make("jaxmarl", **game.env_kwargs)
    if time_limits_end:
        env = EndsForGood(**game.env_kwargs)
    watch = Stopwatch()
    with tempfile.TemporaryDirectory() as folder:
        trainer = Trainer(
            env, params, config, Path(folder) / "run", callbacks=[watch], progress=False
        )
        began = time.perf_counter()
        result = train_whole(trainer)
        ended, cpu_ended = time.perf_counter(), time.process_time()
    took = {
        "env_steps": result.env_steps,
        "seconds": {"compiling": watch.at - began, "training": ended - watch.at},
        "cpu_seconds": cpu_ended - watch.cpu_at,
    }
    return took, team_of(trainer.learner, result.population, config)


def run_theirs(game: KnownGame, checkout: Path, seed: int) -> tuple[dict[str, Any], Team]:
    """Train with JaxMARL's baseline; returns what `run_ours` does."""
    # What cannot be evaluated afterwards is not trained for an hour first.
    env, params = jaxmarl_envs.make("jaxmarl", **game.env_kwargs)
    jax.eval_shape(env.reset, jax.random.key(0), params)
    trained = jaxmarl_baseline.train(checkout, game, seed)
    took = {
        "env_steps": trained.env_steps,
        "seconds": dict(trained.seconds),
        "cpu_seconds": trained.cpu_seconds,
    }
    learner, population = jaxmarl_baseline.as_players(trained, game)
    return took, _team(learner, population, "shared", PolicySpec(network=trained.network))


def team_of(learner: Learner, population: Population, config: TrainConfig) -> Team:
    """Take the policies out of a run of ours whose mapping is fixed."""
    return _team(learner, population, config.mapping, config.default_policy)


def _team(learner: Learner, population: Population, mapping: Any, spec: PolicySpec) -> Team:
    """Take the policies out of a learner whose mapping is fixed."""
    of_agent = {agent: _policy_of(agent, mapping) for agent in learner.env.agents}
    names = dict.fromkeys(of_agent.values())
    taken = {name: (spec, take_policy(learner, population, name)) for name in names}
    return Team(of_agent, taken)


def _policy_of(agent: str, mapping: Any) -> str:
    if mapping == "shared":
        return "shared"
    if mapping == "per_agent":
        return agent
    return next(policy for name, policy in mapping.items() if fnmatch.fnmatch(agent, name))


def evaluate(game: KnownGame, team: Team, seed: int, episodes: int = EPISODES) -> dict[str, Any]:
    """Play fresh episodes of the environment, without shaped rewards.

    Returns:
        `{"result", "result_se", "agents"}`: the mean of what counts over agents and episodes, its
        standard error, None where it is not over returns, and what is known of each agent.
    """
    learner, population = _at_table(game, {"": team})
    report = evaluate_policies(learner, population, episodes, seed)
    agents = report["agents"].values()
    measure = MEASURES[game.kind]
    key = f"{measure}_mean" if measure == "return" else measure
    result = sum(agent[key] for agent in agents) / len(agents)
    if measure == "return":  # agents that earn the same make one number of an episode
        se = max(agent["return_se"] for agent in agents)
    else:
        se = math.sqrt(result * (1 - result) / episodes)
    return {"result": result, "result_se": se, "agents": report["agents"]}


def play_off(
    game: KnownGame, teams: Mapping[str, Team], seed: int, episodes: int
) -> dict[str, Any]:
    """Play the predators of every team against the prey of every team; see `cross_play`."""
    learner, population = _at_table(game, teams)
    hunters = [agent for agent in learner.env.agents if agent.startswith("adversary")]
    return cross_play(learner, population, episodes, seed, row_agents=hunters, baselines=False)


def _at_table(game: KnownGame, teams: Mapping[str, Team]) -> tuple[Learner, Population]:
    """Return a learner and a population that hold the policies of all teams, by prefixed names."""
    env, params = jaxmarl_envs.make("jaxmarl", **game.env_kwargs)
    tables = [
        {agent: prefix + policy for agent, policy in team.mapping.items()}
        for prefix, team in teams.items()
    ]
    found = {
        prefix + name: policy
        for prefix, team in teams.items()
        for name, policy in team.policies.items()
    }
    config = TrainConfig(
        num_envs=4,
        num_steps=4,
        mapping=Matchups(tuple(tables)) if len(tables) > 1 else tables[0],
        policies={name: spec for name, (spec, _) in found.items()},
    )
    learner = make_learner(env, params, config)
    population = jax.jit(learner.init)(jax.random.key(0)).population
    for name, (_, policy) in found.items():
        population = put_policy(learner, population, name, policy)
    return learner, population


def compare(
    names: Sequence[str],
    seeds: Sequence[int],
    sides: Sequence[str],
    checkout: Path | None,
    env_steps: int | None = None,
    record: Path | None = RECORD,
    time_limits_end: bool = False,
) -> None:
    """Train and evaluate, seed by seed and side by side, and enter every run into the record.

    Args:
        names: of games.
        seeds: of the runs.
        sides: members of `SIDES`.
        checkout: of JaxMARL; None where its baseline does not take part.
        env_steps: a budget other than the game's.
        record: the file; None for none.
        time_limits_end: whether ours takes every end for the game's own.

    Raises:
        ValueError: sides did not train for equally many environment steps.
    """
    for name in names:
        game = GAMES[name]
        if env_steps is not None:
            game = dataclasses.replace(game, total_env_steps=env_steps)
        for seed in seeds:
            teams: dict[str, Team] = {}
            for side in sides:
                if side == "theirs" and name in jaxmarl_baseline.FAILS:
                    print(f"{name}: no baseline: {jaxmarl_baseline.FAILS[name]}", flush=True)
                    continue
                run, teams[side] = _one_run(name, game, side, seed, checkout, time_limits_end)
                if run["env_steps"] != game.total_env_steps:
                    raise ValueError(
                        f"{name}: {side} trained for {run['env_steps']} environment steps and not "
                        f"for {game.total_env_steps}; a budget must be whole iterations of all"
                    )
                if record is not None:
                    enter(record, run)
                print(_line(run), flush=True)
            if name == "mpe_tag":
                prefixed = {f"{side}/": team for side, team in teams.items()}
                found = play_off(game, prefixed, seed, EPISODES)
                run = {"game": name, "side": "play_off", "seed": seed, "found": found}
                if record is not None:
                    enter(record, run)
                print(json.dumps(found), flush=True)


def _one_run(
    name: str, game: KnownGame, side: str, seed: int, checkout: Path | None, time_limits_end: bool
) -> tuple[dict[str, Any], Team]:
    """Train one side for one seed and evaluate it."""
    kind = KINDS[game.kind]
    load = os.getloadavg()[0]
    if side == "theirs":
        assert checkout is not None
        took, team = run_theirs(game, checkout, seed)
        source = f"baselines/IPPO/config/{kind.file}.yaml, JaxMARL at {commit_of(checkout)}"
    else:
        variant = name if side == "ours" else f"{name}_{THEIRS}"
        config = dataclasses.replace(
            preset("jaxmarl", variant).config,
            seed=seed,
            total_env_steps=game.total_env_steps,
            num_devices=1,
        )
        took, team = run_ours(game, config, time_limits_end)
        source = f"preset {variant}"
    training = took["seconds"]["training"]
    run = {
        "game": name,
        "side": side,
        "seed": seed,
        "env": dict(game.env_kwargs),
        "hyperparameters": source,
        **took,
        "env_steps_per_s": took["env_steps"] / training,
        "env_steps_per_cpu_s": took["env_steps"] / took["cpu_seconds"],
        "episodes": EPISODES,
        "acting": "sample",
        **evaluate(game, team, seed),
        "load_before": load,
        "date": datetime.now(UTC).date().isoformat(),
        "command": f"python benchmarks/compare_jaxmarl.py {name} --checkout ../JaxMARL "
        f"--seeds {seed} --sides {side}",
        "hardware": describe_hardware(),
        "versions": {package: importlib.metadata.version(package) for package in PACKAGES},
    }
    return run, team


def enter(path: Path, run: Mapping[str, Any]) -> None:
    """Enter a run into a record, in place of one of the same game, side and seed."""

    def key(run: Mapping[str, Any]) -> tuple[Any, ...]:
        return list(GAMES).index(run["game"]), run["side"], run["seed"]

    enter_run(path, _rounded(run), key, what=WHAT)


def _rounded(value: Any) -> Any:
    """Round all numbers in a tree of plain data to five digits."""
    if isinstance(value, Mapping):
        return {key: _rounded(child) for key, child in value.items()}
    if isinstance(value, list | tuple):
        return [_rounded(child) for child in value]
    return float(f"{value:.5g}") if isinstance(value, float) else value


def _line(run: Mapping[str, Any]) -> str:
    seconds = run["seconds"]
    return (
        f"{run['game']}, seed {run['seed']}, {run['side']}: {run['result']:.3f} "
        f"(se {run['result_se']:.3f}), {seconds['training']:.0f} s of training, "
        f"{run['cpu_seconds']:.0f} s of the core, {seconds['compiling']:.0f} s of compilation"
    )


def table(path: Path) -> str:
    """Write what a record holds as a table in Markdown, a row for each game."""
    runs = [run for run in json.loads(path.read_text())["runs"] if "result" in run]
    lines = [
        "| game | steps, seeds | ours | ours, their hyper-parameters | JaxMARL's IPPO |",
        "| --- | --- | --- | --- | --- |",
    ]
    for name, game in GAMES.items():
        own = [run for run in runs if run["game"] == name]
        if not own:
            continue
        sides = [[run for run in own if run["side"] == side] for side in SIDES]
        seeds = _seeds(min(filter(None, sides), key=len))
        cells = [_cell(runs) for runs in sides]
        if name in jaxmarl_baseline.FAILS:
            cells[-1] = "does not run"
        measure = {"won": "battles won", "return": "return"}[MEASURES[game.kind]]
        steps = f"{own[0]['env_steps'] / 1e6:.1f} M, {seeds}"
        lines.append(f"| `{name}`, {measure} | {steps} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _seeds(runs: Iterable[Mapping[str, Any]]) -> str:
    """Write the seeds of a side's runs one by one, or as a range where many follow each other."""
    seeds = sorted(run["seed"] for run in runs)
    if len(seeds) > MOST_LISTED and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]} to {seeds[-1]}"
    return ", ".join(map(str, seeds))


def _cell(runs: Sequence[Mapping[str, Any]]) -> str:
    """Write what the runs of a side came to: results, or their mean ± its standard error; costs."""
    if not runs:
        return "not run yet"
    digits = 3 if "won" in next(iter(runs[0]["agents"].values())) else 1
    found = [run["result"] for run in runs]
    results = " / ".join(f"{result:.{digits}f}" for result in found)
    if len(runs) > MOST_LISTED:
        error = statistics.stdev(found) / math.sqrt(len(found))
        seeds = _seeds(runs)
        results = f"{statistics.mean(found):.{digits}f} ± {error:.{digits}f} (seeds {seeds})"
    mean = statistics.mean
    cpu_s = mean([run["cpu_seconds"] for run in runs])
    wall_s = mean([run["seconds"]["training"] for run in runs])
    compiling_s = mean([run["seconds"]["compiling"] for run in runs])
    rate = mean([run["env_steps_per_cpu_s"] for run in runs])
    results += f" (seed {runs[0]['seed']})" if len(runs) == 1 else ""
    return f"{results}; {cpu_s:.0f} s ({wall_s:.0f} + {compiling_s:.0f}), {rate:,.0f}/s"


def main() -> None:
    """Read the command line, keep to one core, and compare."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("games", nargs="*", metavar="GAME", help=f"of {', '.join(GAMES)}")
    parser.add_argument("--checkout", type=Path, help="of JaxMARL, for its baseline")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--sides", nargs="+", choices=SIDES, default=list(SIDES))
    parser.add_argument("--env-steps", type=int, help="another budget; such runs are not recorded")
    parser.add_argument(
        "--time-limits-end", action="store_true", help="as the end of a game; nothing is recorded"
    )
    parser.add_argument("--table", action="store_true", help="print what has been recorded")
    args = parser.parse_args()
    unknown = [name for name in args.games if name not in GAMES]
    if unknown:
        parser.error(f"unknown game {unknown[0]!r}; valid: {', '.join(GAMES)}")
    if args.table:
        print(table(RECORD))
        return
    if not args.games:
        parser.error(f"name a game: {', '.join(GAMES)}")
    if "theirs" in args.sides and args.checkout is None:
        parser.error("--checkout is missing, or `--sides ours ours_at_theirs`")
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    record = RECORD if args.env_steps is None and not args.time_limits_end else None
    told = (args.games, args.seeds, args.sides, args.checkout, args.env_steps, record)
    compare(*told, args.time_limits_end)


if __name__ == "__main__":
    main()
