"""The plain-Python twins that RLlib steps, tick for tick against the environments themselves."""

import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from shuttle_oracle import jobs_of, mixed, trace

import jaxmarl_envs

SCRIPTS = Path(__file__).resolve().parents[1] / "scripts"
sys.path.insert(0, str(SCRIPTS))
from ray_baseline.crypto_twin import CryptoTwin  # noqa: E402
from ray_baseline.noise import Noise  # noqa: E402
from ray_baseline.noise_twin import MAX_STEPS, NoiseTwin  # noqa: E402
from ray_baseline.shuttle_grid_twin import ShuttleGridTwin  # noqa: E402
from ray_baseline.tic_tac_toe_twin import TicTacToeTwin  # noqa: E402

TWINS = {"tic_tac_toe": TicTacToeTwin, "crypto": CryptoTwin, "shuttle_grid": ShuttleGridTwin}


def same_observation(twin, features, action_mask, agent_mask):
    """Whether a twin shows what the environment shows, `[A, D]`, `[A, N]` and `[A]`."""
    for agent, width in enumerate(twin.feature_widths):
        # XLA's quotients of integers may be off in the last bit.
        np.testing.assert_allclose(twin.features(agent), features[agent, :width], rtol=0, atol=1e-6)
        assert not features[agent, width:].any()
        np.testing.assert_array_equal(twin.action_mask(agent), action_mask[agent])
    assert list(twin.acting()) == np.flatnonzero(agent_mask).tolist()


def same_episode(twin, first, actions, later):
    """Replay an episode's actions on a twin that stands at its start; returns the ticks.

    `later` holds what the environment said after each action:
    `(obs, reward, terminated, truncated)` with a leading axis of ticks.
    """
    same_observation(twin, first.features, first.action_mask, first.agent_mask)
    obs, rewards, terminated, truncated = later
    for t, action in enumerate(actions):
        reward = twin.step(action.tolist())
        np.testing.assert_array_equal(reward, rewards[t])
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

        def tick(state, action):
            obs, state, reward, terminated, truncated, _ = env.step_env(key, state, action, params)
            return state, (obs, reward, terminated, truncated)

        return first, start, jax.lax.scan(tick, start, actions)[1]

    keys = jax.random.split(key, len(actions))
    return jax.device_get(jax.jit(jax.vmap(episode))(keys, jnp.asarray(actions)))


def row(tree, b):
    return jax.tree.map(lambda x: x[b], tree)


def test_tic_tac_toe_equals_its_twin_over_ten_thousand_ticks():
    rng = np.random.default_rng(0)
    # Permutations are legal games to the end; every fourth game has moves on taken cells too.
    actions = rng.permuted(np.tile(np.arange(9), (2000, 1)), axis=1)
    actions[::4] = rng.integers(0, 9, actions[::4].shape)
    actions = np.stack([actions, actions], axis=-1)
    actions[:, 0::2, 1] = actions[:, 1::2, 0] = 4  # of those who wait, which counts for nothing
    first, _, later = play("tic_tac_toe", actions, jax.random.key(0))
    twin = TicTacToeTwin()
    ticks, lengths = 0, set()
    for b in range(len(actions)):
        twin.reset(rng)
        length = same_episode(twin, row(first, b), actions[b], row(later, b))
        ticks, lengths = ticks + length, lengths | {length}
    assert ticks >= 10_000
    assert lengths == set(range(2, 10))


def test_crypto_equals_its_twin_over_ten_thousand_ticks():
    rng = np.random.default_rng(0)
    actions = rng.integers(0, 4, (400, 25, 3))
    first, start, later = play("crypto", actions, jax.random.key(1))
    twin = CryptoTwin()
    ticks, secrets = 0, set()
    for b in range(len(actions)):
        secret = int(start.goal[b].argmax()), int(start.secret[b].argmax())
        twin.set_state(*secret)
        ticks += same_episode(twin, row(first, b), actions[b], row(later, b))
        secrets.add(secret)
    assert ticks == 10_000
    assert len(secrets) == 4


def test_shuttle_grid_equals_its_twin_over_ten_thousand_ticks():
    env, _ = jaxmarl_envs.make("shuttle_grid")
    ticks = delivered = waits = 0
    for seed in range(40):
        key = jax.random.key(seed)
        (first, start), (actions, obs, states, *later) = jax.device_get(trace(env, mixed, key, 256))
        jobs = [[_cells(job) for job in of_shuttle] for of_shuttle in jobs_of(env, key, 16)]
        twin = ShuttleGridTwin(lambda i, k, jobs=jobs: jobs[i][k])
        twin.set_state(start.cell.tolist())
        ticks += same_episode(twin, first, actions, (obs, *later[:3]))
        assert twin.num_delivered == states.num_delivered[-1].tolist()
        delivered += sum(twin.num_delivered)
        waits = max(waits, states.wait.max())
    assert ticks >= 10_000
    assert delivered > 400
    assert waits > 8


def _cells(job):
    return tuple(row * 8 + col for row, col in job)


@pytest.mark.parametrize("name", TWINS)
def test_a_twin_has_the_spaces_of_its_environment(name):
    twin = TWINS[name]()
    env, params = jaxmarl_envs.make(name)
    assert twin.agents == env.agents
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
    """`(obs, reward, episode_over)` with a leading axis of ticks."""
    env = Noise()

    def tick(carry, key):
        _, state = carry
        obs, state, reward, *_, info = env.step(key, state, jnp.zeros(6, jnp.int32), ())
        return (obs, state), (obs, reward, info["episode_over"])

    start = env.reset(jax.random.key(0), ())
    keys = jax.random.split(jax.random.key(1), num_steps)
    return jax.device_get(jax.jit(lambda: jax.lax.scan(tick, start, keys)[1])())


def test_noise_keeps_the_contract():
    jaxmarl_envs.check_env(Noise())


def test_twins_import_neither_ray_nor_jax():
    twins = ("tic_tac_toe", "crypto", "shuttle_grid", "noise")
    imports = "".join(f"import ray_baseline.{name}_twin\n" for name in twins)
    code = f"{imports}import sys\nprint([m for m in ('ray', 'jax', 'torch') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=SCRIPTS, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
