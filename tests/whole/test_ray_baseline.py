"""The plain-Python twins that RLlib steps, step for step against the environments themselves."""

import dataclasses
import json
import os
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shuttle_oracle import jobs_of, mixed, trace

import jaxmarl_envs

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"
sys.path.insert(0, str(SCRIPTS))
import compare_ray  # noqa: E402
from ray_baseline.crypto_twin import CryptoTwin  # noqa: E402
from ray_baseline.noise import Noise  # noqa: E402
from ray_baseline.noise_twin import MAX_STEPS, NoiseTwin  # noqa: E402
from ray_baseline.our_side import make_run, train  # noqa: E402
from ray_baseline.picture import draw  # noqa: E402
from ray_baseline.processes import run_side  # noqa: E402
from ray_baseline.report import SIDES, comparison_table, print_report  # noqa: E402
from ray_baseline.scenarios import SCENARIOS, Measure, OurSettings  # noqa: E402
from ray_baseline.shuttle_grid_twin import ShuttleGridTwin  # noqa: E402
from ray_baseline.summary import curve, machine, ratios, summarise  # noqa: E402
from ray_baseline.tic_tac_toe_twin import TicTacToeTwin  # noqa: E402
from ray_baseline.tuning import (  # noqa: E402
    RECORD,
    candidates,
    changed,
    choose,
    enter,
    fastest,
    read_record,
)

TWINS = {"tic_tac_toe": TicTacToeTwin, "crypto": CryptoTwin, "shuttle_grid": ShuttleGridTwin}


def same_observation(twin, features, action_mask, agent_mask):
    """Whether a twin shows what the environment shows, `[A, D]`, `[A, N]` and `[A]`."""
    for agent, width in enumerate(twin.feature_widths):
        # XLA's quotients of integers may be off in the last bit.
        # Not by `np.testing`, which at every step would take most of the time.
        shown = np.asarray(twin.features(agent))
        assert shown.shape == (width,)
        assert (abs(shown - features[agent, :width]) <= 1e-6).all()
        assert not features[agent, width:].any()
        assert np.array_equal(twin.action_mask(agent), action_mask[agent])
    assert list(twin.acting()) == np.flatnonzero(agent_mask).tolist()


def same_episode(twin, first, actions, later):
    """Replay an episode's actions on a twin that stands at its start; returns the steps.

    `later` holds what the environment said after each action:
    `(obs, reward, terminated, truncated)` with a leading axis of steps.
    """
    same_observation(twin, first.features, first.action_mask, first.agent_mask)
    obs, rewards, terminated, truncated = later
    for t, action in enumerate(actions):
        reward = twin.step(action.tolist())
        assert np.array_equal(reward, rewards[t])
        same_observation(twin, obs.features[t], obs.action_mask[t], obs.agent_mask[t])
        assert twin.over == bool(terminated[t].all() or truncated[t].all())
        assert twin.over == (not obs.alive[t].any())
        if twin.over:
            assert twin.truncated == bool(truncated[t].all())
            return t + 1
    raise AssertionError("the episode did not end")


def play(name, actions, key):
    """Episodes of an environment with the given actions `[B, T, A]`, on the host."""
    env, params = jaxmarl_envs.make(name)

    def episode(key, actions):
        first, start = env.reset_env(key, params)

        def time_step(state, action):
            obs, state, reward, terminated, truncated, _ = env.step_env(key, state, action, params)
            return state, (obs, reward, terminated, truncated)

        return first, start, jax.lax.scan(time_step, start, actions)[1]

    keys = jax.random.split(key, len(actions))
    return jax.device_get(jax.jit(jax.vmap(episode))(keys, jnp.asarray(actions)))


def row(tree, b):
    return jax.tree.map(lambda x: x[b], tree)


def test_tic_tac_toe_equals_its_twin_over_ten_thousand_steps():
    rng = np.random.default_rng(0)
    # Permutations are legal games to the end; every fourth game has moves on taken cells too.
    actions = rng.permuted(np.tile(np.arange(9), (2000, 1)), axis=1)
    actions[::4] = rng.integers(0, 9, actions[::4].shape)
    actions = np.stack([actions, actions], axis=-1)
    actions[:, 0::2, 1] = actions[:, 1::2, 0] = 4  # of those who wait, which counts for nothing
    first, _, later = play("tic_tac_toe", actions, jax.random.key(0))
    twin = TicTacToeTwin()
    steps, lengths = 0, set()
    for b in range(len(actions)):
        twin.reset(rng)
        length = same_episode(twin, row(first, b), actions[b], row(later, b))
        steps, lengths = steps + length, lengths | {length}
    assert steps >= 10_000
    assert lengths == set(range(2, 10))


def test_crypto_equals_its_twin_over_ten_thousand_steps():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 4, (400, 25, 3))
    first, start, later = play("crypto", actions, jax.random.key(1))
    twin = CryptoTwin()
    steps, secrets = 0, set()
    for b in range(len(actions)):
        secret = int(start.goal[b].argmax()), int(start.secret[b].argmax())
        twin.set_state(*secret)
        steps += same_episode(twin, row(first, b), actions[b], row(later, b))
        secrets.add(secret)
    assert steps == 10_000
    assert len(secrets) == 4


@pytest.mark.rare
def test_shuttle_grid_equals_its_twin_over_ten_thousand_steps():
    env, _ = jaxmarl_envs.make("shuttle_grid")
    steps = delivered = waits = 0
    for seed in range(40):
        key = jax.random.key(seed)
        (first, start), (actions, obs, states, *later) = jax.device_get(trace(env, mixed, key, 256))
        jobs = [[_cells(job) for job in of_shuttle] for of_shuttle in jobs_of(env, key, 16)]
        twin = ShuttleGridTwin(lambda i, k, jobs=jobs: jobs[i][k])
        twin.set_state(start.cell.tolist())
        steps += same_episode(twin, first, actions, (obs, *later[:3]))
        assert twin.num_delivered == states.num_delivered[-1].tolist()
        delivered += sum(twin.num_delivered)
        waits = max(waits, states.wait.max())
    assert steps >= 10_000
    assert delivered > 400
    assert waits > 8


def _cells(job):
    return tuple(row * 8 + col for row, col in job)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_spaces_of_its_environment(name):
    twin, scenario = TWINS[name](), SCENARIOS[name]
    env, params = jaxmarl_envs.make(name)
    assert twin.agents == env.agents
    assert (env.horizon(params), env.max_actors) == (
        scenario.episode_steps,
        scenario.max_actors or len(env.agents),
    )
    for agent, width in zip(env.agents, twin.feature_widths, strict=True):
        space = env.observation_space(agent, params)
        assert (width,) == space.shape
        assert twin.bounds == (space.low, space.high)
        assert env.action_space(agent, params).n == twin.num_actions


def test_the_twins_draw_starts_and_jobs_uniformly():
    rng = np.random.default_rng(0)
    crypto, shuttles = CryptoTwin(), ShuttleGridTwin()
    secrets, cells, jobs = [], [], []
    for _ in range(4000):
        crypto.reset(rng)
        secrets.append(2 * crypto.goal + crypto.key)
        shuttles.reset(rng)
        assert len(set(shuttles.at)) == 6
        cells += shuttles.at
        jobs += shuttles.jobs
    assert even(secrets, range(4))
    assert even(cells, range(48))
    storage, port = zip(*jobs, strict=True)
    assert even(storage, [cell for cell in range(48) if cell not in (3, 44)])
    assert even(port, (3, 44))


def even(draws, values):
    """Whether every value was drawn within five standard errors of equally often."""
    draws = np.array(draws)
    expected = len(draws) / len(values)
    counts = [(draws == value).sum() for value in values]
    assert sum(counts) == len(draws)
    return all(abs(count - expected) < 5 * expected**0.5 for count in counts)


def test_noise_and_its_twin_have_the_same_lengths_and_distributions():
    twin, rng = NoiseTwin(), np.random.default_rng(0)
    acting, rewards, features = [], [], []
    for _ in range(20):
        twin.reset(rng)
        assert list(twin.acting()) == list(range(6))
        length = 0
        while not twin.over:
            rewards.append(twin.step([0] * 6))
            acting.append(len(twin.acting()))
            features.append(twin.features(3))
            length += 1
        assert length == MAX_STEPS
        assert acting.pop() == 0
    obs, reward, over = play_noise(20 * MAX_STEPS)
    assert over.sum() == 20
    np.testing.assert_array_equal(np.flatnonzero(over) + 1, MAX_STEPS * np.arange(1, 21))
    ours = obs.agent_mask.sum(1)[~over & ~np.roll(over, 1)]
    for theirs, mine, low, high in (
        (np.array(acting), ours, 0, 6),
        (np.array(rewards), reward, 0.0, 1.0),
        (np.array(features), obs.features, -1.0, 1.0),
    ):
        for values in (theirs, mine):
            assert low <= values.min() <= values.max() <= high
        assert abs(theirs.mean() - mine.mean()) < 0.05 * (high - low) / 6
        assert abs(theirs.std() - mine.std()) < 0.05 * (high - low) / 6


def play_noise(num_steps):
    """`(obs, reward, episode_over)` with a leading axis of steps."""
    env = Noise()

    def time_step(carry, key):
        _, state = carry
        obs, state, reward, *_, info = env.step(key, state, jnp.zeros(6, jnp.int32), ())
        return (obs, state), (obs, reward, info["episode_over"])

    start = env.reset(jax.random.key(0), ())
    keys = jax.random.split(jax.random.key(1), num_steps)
    return jax.device_get(jax.jit(lambda: jax.lax.scan(time_step, start, keys)[1])())


def test_noise_keeps_the_contract():
    jaxmarl_envs.check_env(Noise())


# --- the comparison -------------------------------------------------------------------------------


def window(wall_s, env_steps, seconds=2.0, **returns):
    return {
        "wall_s": wall_s,
        "cpu_s": 3.0,
        "seconds": seconds,
        "env_steps": env_steps,
        "decisions": 3 * env_steps,
        "trained_rows": 12 * env_steps,
        "returns": returns,
    }


def run(*windows, memory=100.0, error=None):
    return {"windows": list(windows), "peak_memory_mb": memory, "error": error}


def test_figures_are_medians_without_first_windows_and_spread_over_runs():
    runs = [
        run(window(1, 1), window(2, 1), window(3, 600), window(4, 800)),
        run(window(1, 1), window(2, 1), window(3, 1000, seconds=1.0), memory=300.0),
        run(window(1, 1), window(2, 1), window(3, 1200)),
    ]
    found = summarise(runs, SCENARIOS["noise"])["figures"]
    assert found["env_steps_per_s"] == {"median": 600.0, "least": 350.0, "most": 1000.0}
    assert found["decisions_per_s"]["median"] == 1800.0
    assert found["env_steps_per_core_s"]["median"] == 1000 / 3
    assert found["cores_kept_busy"]["median"] == 1.5
    assert found["trained_rows_per_decision"]["median"] == 4.0
    assert found["peak_memory_mb"] == {"median": 100.0, "least": 100.0, "most": 300.0}
    assert found["sampling_share"] is None


def test_what_a_side_says_of_its_time_is_shown():
    told = {**window(3, 600, seconds=4.0), "sampling_s": 3.0, "learning_s": 1.0}
    found = summarise([run(told)], SCENARIOS["noise"])["figures"]
    assert (found["sampling_share"]["median"], found["learning_share"]["median"]) == (0.75, 0.25)


def test_a_target_is_reached_only_if_every_run_reaches_it():
    measure = Measure("score", {"p3": -0.5, "p4": -0.5}, target=0.5)
    scenario = dataclasses.replace(SCENARIOS["tic_tac_toe"], measures=(measure,))
    slow = run(window(5, 10, p3=0.0, p4=0.2), window(9, 20, p3=-0.4, p4=-0.8))
    fast = run(window(1, 1, p3=-0.9), window(3, 3, p3=-0.5, p4=-0.5, x=1.0))
    never = run(window(3, 1, p3=0.5, p4=0.5))
    assert curve(slow["windows"], measure) == [[5, 10, -0.1], [9, 30, 0.6]]
    assert curve(fast["windows"], measure) == [[3, 4, 0.5]]
    found = summarise([slow, fast], scenario)["figures"]
    assert found["seconds_to score"] == {"median": 6.0, "least": 3, "most": 9}
    assert found["steps_to score"] == {"median": 17.0, "least": 4, "most": 30}
    assert found["last score"]["median"] == pytest.approx(0.55)
    found = summarise([slow, never], scenario)["figures"]
    assert (found["seconds_to score"], found["steps_to score"]) == (None, None)


def test_bobs_accuracy_is_what_eve_and_bob_earn_together():
    accuracy, earned = SCENARIOS["crypto"].measures
    rng, twin = np.random.default_rng(0), CryptoTwin()
    twin.reset(rng)
    right, rewards = [], []
    while not twin.over:
        actions = rng.integers(0, 4, 3).tolist()
        right.append(actions[1] == twin.goal)
        rewards.append(twin.step(actions))
    returns = dict(zip(twin.agents, np.sum(rewards, 0), strict=True))
    assert 0 < sum(right) < len(right)
    assert curve([window(1, 25, **returns)], accuracy)[0][2] == pytest.approx(np.mean(right))
    assert curve([window(1, 25, **returns)], earned)[0][2] == returns["alice_0"]


CRYPTO = {"eve_0": -20.0, "bob_0": 18.0, "alice_0": 18.0}


def test_a_side_that_failed_is_a_row_of_the_table(tmp_path):
    ours = summarise([run(window(1, 500), window(9, 500, **CRYPTO))], SCENARIOS["crypto"])
    theirs = summarise([run(memory=None, error="IndexError: 48")], SCENARIOS["crypto"])
    compared = {side: ratios(ours, theirs) for side in ("ours", "twins")}
    found = {"ours": ours, "twins": ours, "rllib": theirs, "ratios": compared}
    assert set(found["ratios"]["ours"].values()) == {None}
    cells = [list(column.cells) for column in comparison_table("crypto", found).columns]
    assert ["RLlib failed" in cells[0][-1], cells[1][-1]] == [True, "IndexError: 48"]
    assert [cells[1][0], cells[2][0], cells[3][0]] == ["250", "250", "-"]
    picture = tmp_path / "curves.png"
    draw({"scenarios": {"crypto": found}, "machine": machine_of(1)}, picture)
    assert picture.read_bytes().startswith(b"\x89PNG")


def machine_of(cores):
    about = {"processor": "abacus", "date": "2026-01-02", "python": "3"}
    return {"cores": cores, **about, "versions": {"jax": "0"}}


def test_ratios_say_how_many_times_better_ours_is():
    fast = summarise([run(window(2, 400, **CRYPTO), memory=50.0)], SCENARIOS["crypto"])
    slow = summarise([run(window(8, 1600, 32.0, **CRYPTO), memory=200.0)], SCENARIOS["crypto"])
    found = ratios(fast, slow)
    costs = {"peak_memory_mb", "seconds_to bob's accuracy", "steps_to bob's accuracy"}
    assert costs <= set(found)
    assert {found.pop(name) for name in costs} == {4.0}
    assert found.pop("env_steps_per_core_s") == 0.25
    assert set(found.values()) == {4.0}


def recorded(here, name="crypto"):
    """What `compare` finds of one scenario, tuned on two cores."""
    side = summarise([run(window(1, 500), window(9, 500, **CRYPTO))], SCENARIOS[name])
    found = {
        **dict.fromkeys(("ours", "twins", "rllib"), side),
        "ratios": dict.fromkeys(("ours", "twins"), ratios(side, side)),
        "settings": {"ours": {"num_envs": 5}, "rllib": changed(name, {"num_envs": 77})},
        "tuned_on": machine_of(2),
    }
    result = {"machine": here, "not_the_same": [], "scenarios": {name: found}}
    return {"format": compare_ray.FORMAT, **result}


def test_a_single_core_is_said_as_such(capsys):
    print_report(recorded(machine_of(1)))
    shown = " ".join(capsys.readouterr().out.split())
    assert "1 core of abacus, 2026-01-02" in shown
    assert "gain nothing here" in shown
    assert "fastest on 2 cores of abacus" in shown
    assert "another machine" in shown
    print_report(recorded(machine_of(2)))
    shown = capsys.readouterr().out
    assert "2 cores of abacus" in shown
    assert "gain nothing" not in shown
    assert "another machine" not in shown


def child(code):
    """A command that runs `code`, in which `asked` is the request."""
    return (sys.executable, "-c", f"import json, sys\nasked = json.loads(sys.argv[1])\n{code}")


def test_a_side_reports_what_it_recorded_and_its_memory():
    code = """
import time
ballast = b"x" * 100_000_000
with open(asked["record"], "w") as record:
    record.write(json.dumps(asked["rllib"]) + "\\n" + '{"half')
time.sleep(1.5)
"""
    found = run_side("rllib", "crypto", 30.0, rllib={"num_envs": 3}, command=child(code))
    assert found["windows"] == [{"num_envs": 3}]
    assert found["error"] is None
    assert 100 < found["peak_memory_mb"] < 1000


def test_a_side_that_fails_says_why():
    code = "import atexit\natexit.register(print, 1, file=sys.stderr)\nraise IndexError(48)"
    found = run_side("rllib", "crypto", 30.0, command=child(code))
    assert found["error"] == "IndexError: 48"
    assert found["windows"] == []


def test_a_side_that_overruns_is_killed_with_all_that_it_started(tmp_path, monkeypatch):
    monkeypatch.setattr("ray_baseline.processes.GRACE_S", 0.5)
    pids = tmp_path / "pids"
    code = f"""
import os, subprocess, time
grandchild = subprocess.Popen(["sleep", "600"], process_group=0)
open({str(pids)!r}, "w").write(f"{{os.getpid()}} {{grandchild.pid}}")
time.sleep(600)
"""
    found = run_side("rllib", "crypto", 2.0, command=child(code))
    assert found["error"] == "killed after 2 s"
    time.sleep(0.2)
    for pid in pids.read_text().split():
        assert not is_running(pid)


def is_running(pid):
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] != "Z"


def test_our_side_trains_every_scenario_as_it_says():
    for name, scenario in SCENARIOS.items():
        env, _, config = make_run(scenario, seed=3)
        assert env.agents == scenario.agents
        assert (config.seed, config.default_ppo.num_epochs) == (3, 4)
        assert (config.default_policy.network.memory_size or None) == scenario.lstm_size, name
        assert tuple(config.default_policy.network.hidden_sizes) == scenario.hidden_sizes


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_our_side_trains_a_window(name):
    scenario = dataclasses.replace(
        SCENARIOS[name], ours=OurSettings(num_envs=8, num_steps=64, num_minibatches=1)
    )
    found = next(train(scenario, seed=0))
    assert found["env_steps"] == 8 * 64
    assert 0 < found["trained_rows"] <= 4 * found["decisions"]
    assert all(np.isfinite(value) for value in found["returns"].values())
    assert found["optimiser_steps"] > 0


def test_without_ray_the_comparison_says_what_to_install(tmp_path):
    (tmp_path / "ray.py").write_text("raise ModuleNotFoundError('no ray', name='ray')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    command = [sys.executable, str(SCRIPTS / "compare_ray.py"), "--quick"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
    assert done.returncode == 1
    advice = "pip install './envs[ray]' in a clone of the repository"
    assert done.stderr == f"error: 'ray' is not installed: {advice}\n"


def test_recorded_results_can_be_shown_from_any_folder(tmp_path):
    result = recorded(machine_of(7))
    path = tmp_path / "result.json"
    path.write_text(json.dumps(result))
    command = [sys.executable, str(SCRIPTS / "compare_ray.py"), "--show", "result.json"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert "1.0 x" in done.stdout
    assert "7 cores of abacus" in done.stdout
    assert "crypto, RLlib: num_envs 77" in done.stdout
    path.write_text(json.dumps({**result, "format": 1}))
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1
    assert done.stderr.startswith("error: result.json: not recorded by this version")


def test_workloads_are_entered_into_one_record(tmp_path, capsys):
    first, second, whole = (tmp_path / name for name in ("crypto", "noise", "whole"))
    first.write_text(json.dumps(recorded(machine_of(2))))
    second.write_text(json.dumps(recorded({**machine_of(2), "date": "2026-03-04"}, "noise")))
    for path in (second, first):
        compare_ray.main(["--show", str(path), "--json", str(whole)])
    entered = json.loads(whole.read_text())
    assert list(entered["scenarios"]) == ["crypto", "noise"]
    assert entered["scenarios"]["noise"] == json.loads(second.read_text())["scenarios"]["noise"]
    assert "noise, RLlib: num_envs 77" in capsys.readouterr().out
    second.write_text(json.dumps(recorded(machine_of(8), "noise")))
    with pytest.raises(ValueError, match="recorded on 2 cores of abacus"):
        compare_ray.main(["--show", str(second), "--json", str(whole)])
    assert json.loads(whole.read_text()) == entered


def test_all_sides_train_in_turn_and_share_the_time(monkeypatch):
    asked = []

    def fake_side(side, name, seconds, seed, rllib):
        asked.append((side, seed, seconds, rllib))
        return run(window(1, 100, **CRYPTO))

    monkeypatch.setattr(compare_ray, "run_side", fake_side)
    tuned = {"env_steps_per_s": 1.0, "error": None, "settings": {"num_envs": 77}}
    tuning = tried_on(machine_of(2), crypto=[tuned])
    found = compare_ray.compare(["crypto"], 2, 100.0, 5, tuning)["scenarios"]["crypto"]
    assert [row[:2] for row in asked] == [(s, k) for k in (5, 6) for s in SIDES]
    assert asked[0][2] == pytest.approx(10.0, rel=0.1)
    assert all(row[3] == {"num_envs": 77} for row in asked)
    assert set(found["ratios"]) == {"ours", "twins", "slow_env"}
    assert found["settings"]["twins"] == vars(SCENARIOS["crypto"].twins)
    assert found["settings"]["rllib"]["num_envs"] == 77
    assert found["tuned_on"] == machine_of(2)


def test_the_fastest_settings_are_those_that_did_not_fail():
    rows = [
        {"settings": {"num_envs": k}, "env_steps_per_s": rate, "error": error}
        for k, (rate, error) in enumerate([(5.0, None), (9.0, None), (20.0, "boom"), (None, None)])
    ]
    failed = [{"settings": {}, "env_steps_per_s": None, "error": "boom"}]
    tuning = {"scenarios": {"crypto": rows, "noise": failed}}
    assert fastest(tuning) == {"crypto": {"num_envs": 1}}
    assert changed("crypto", fastest(tuning)["crypto"])["num_envs"] == 1


@pytest.mark.parametrize("cores", [1, 2, 16])
def test_all_candidates_are_settings_of_their_scenario(cores):
    for name in SCENARIOS:
        tried = [changed(name, changes) for changes in candidates(name, cores)]
        for settings in tried:
            assert settings["batch_steps"] >= SCENARIOS[name].minibatch_rows
        assert {s["api_stack"] for s in tried} == {"new", "former"}
        assert {s["num_learners"] for s in tried} == {0, 1}
        assert max(s["num_runners"] for s in tried) == max(cores, 2)
        assert len({tuple(s.values()) for s in tried}) == len(tried)


def tried_on(machine, **scenarios):
    return {"machine": machine, "scenarios": scenarios}


def test_settings_are_those_of_the_machine_or_of_one_like_it():
    here, wide = machine_of(2), machine_of(64)
    other = {**here, "processor": "quill", "date": "2026-03-04"}
    record = [tried_on(wide), tried_on(other), tried_on(here)]
    assert choose(record, here) is record[2]
    assert choose(record[:2], here) is record[1]
    assert choose(record, machine_of(8)) is record[1]
    with pytest.raises(ValueError, match="--tune"):
        choose([], here)


def test_what_was_tried_replaces_the_same_on_the_same_machine():
    here, wide = machine_of(2), machine_of(64)
    record = [tried_on(here, crypto=1, noise=2), tried_on(wide, crypto=3)]
    later = {**here, "date": "2027-01-01"}
    assert enter(record, tried_on(later, noise=4)) == [
        tried_on(wide, crypto=3),
        tried_on(later, crypto=1, noise=4),
    ]
    newer = {**later, "versions": {"jax": "1"}}
    assert enter(record, tried_on(newer, noise=4))[1] == tried_on(newer, noise=4)


def test_the_record_that_ships_names_settings_for_every_scenario(tmp_path):
    for tried in read_record(RECORD):
        best = fastest(tried)
        assert set(best) == set(SCENARIOS)
        for name, settings in best.items():
            assert settings.items() <= changed(name, settings).items()
        assert tried["machine"]["versions"]["ray"]
    assert read_record(tmp_path / "none.json") == []
    (tmp_path / "other.json").write_text("[{}]")
    with pytest.raises(ValueError, match=r"other\.json: no record"):
        read_record(tmp_path / "other.json")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("--tune --quick", "--quick has no effect with --tune"),
        ("--tune --json x", "--json has no effect with --tune"),
        ("--quick --minutes 3", "--minutes has no effect with --quick"),
        ("--show x crypto", "NAME has no effect with --show"),
        ("--rounds 0", "--rounds 0: give more than 0"),
        ("chess", "unknown scenario 'chess'; valid: tic_tac_toe, crypto"),
    ],
)
def test_options_without_effect_are_refused(given, said, capsys):
    with pytest.raises(SystemExit) as refused:
        compare_ray.main(given.split())
    assert refused.value.code == 2
    assert said in capsys.readouterr().err


def test_tuning_enters_its_findings(tmp_path, monkeypatch, capsys):
    asked = []

    def fake_side(side, name, seconds, seed, rllib):
        asked.append((side, name, rllib))
        return run(window(1, 100 if rllib.get("api_stack") == "former" else 50))

    monkeypatch.setattr(compare_ray, "run_side", fake_side)
    monkeypatch.setattr(compare_ray, "import_extra", lambda module, extra: None)
    path = tmp_path / "tuning.json"
    compare_ray.main(["--tune", "crypto", "--tuning", str(path)])
    assert asked == [("rllib", "crypto", c) for c in candidates("crypto", machine()["cores"])]
    assert fastest(choose(read_record(path), machine()))["crypto"]["api_stack"] == "former"
    assert "former" in capsys.readouterr().out


def test_the_machine_is_described():
    found = machine()
    assert 1 <= found["cores"] <= os.cpu_count()
    assert found["processor"]
    assert found["versions"]["jax"] == jax.__version__


def test_twins_import_neither_ray_nor_jax():
    twins = ("tic_tac_toe", "crypto", "shuttle_grid", "noise")
    imports = "".join(f"import ray_baseline.{name}_twin\n" for name in twins)
    code = f"{imports}import sys\nprint([m for m in ('ray', 'jax', 'torch') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
