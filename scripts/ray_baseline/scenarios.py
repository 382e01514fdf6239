"""Scenarios of the comparison: four workloads, the same for all sides, and each side's settings.

All sides share the game, the policy mapping, the networks, the passes over the data, the rows of a
minibatch and the constants of PPO. Each side has its own number of parallel environments and length
of a rollout; `compare_ray.py --tune` searches for better ones for RLlib.
"""

from dataclasses import dataclass

from ray_baseline.crypto_twin import MAX_STEPS as CRYPTO_STEPS
from ray_baseline.noise_twin import MAX_STEPS as NOISE_STEPS
from ray_baseline.shuttle_grid_twin import MAX_STEPS as SHUTTLE_STEPS
from ray_baseline.tic_tac_toe_twin import NUM_CELLS

Tables = tuple[dict[str, str], ...]


@dataclass(frozen=True)
class OurSettings:
    """Ours to choose.

    Attributes:
        num_envs: parallel environments.
        num_steps: steps per rollout.
        num_minibatches: per pass; with the policies' share of a rollout it sets the rows of a
            minibatch, which are the scenario's.
        micro_batch_rows: as `TrainConfig.micro_batch_rows`.
    """

    num_envs: int
    num_steps: int
    num_minibatches: int
    micro_batch_rows: int | None = None


@dataclass(frozen=True)
class RllibSettings:
    """RLlib's to choose.

    Attributes:
        num_envs: environments per runner (`num_envs_per_env_runner`).
        num_runners: processes that play (`num_env_runners`); 0 for the one that learns.
        batch_steps: environment steps of an iteration (`train_batch_size_per_learner`).
        batch_mode: `truncate_episodes` or `complete_episodes`.
        all_observe: every agent observes and decides at every step, and the environment ignores who
            is busy.
        torch_threads: of the process that learns.
        num_learners: processes that learn (`num_learners`); 0 for the one that plans.
        api_stack: `new`, or `former`: without RLModules, learners and connectors.
    """

    num_envs: int
    num_runners: int
    batch_steps: int
    batch_mode: str = "truncate_episodes"
    all_observe: bool = False
    torch_threads: int = 2
    num_learners: int = 0
    api_stack: str = "new"


@dataclass(frozen=True)
class Measure:
    """Measure of performance: a constant plus a weighted sum of mean episode returns.

    Attributes:
        label: what it is.
        returns_of: policies or agents, with the factor that their mean return counts with.
        constant: what is added.
        target: a value to be reached; None to only follow it.
    """

    label: str
    returns_of: dict[str, float]
    constant: float = 0.0
    target: float | None = None


@dataclass(frozen=True)
class Scenario:
    """One workload.

    Attributes:
        game: the environment, and the twin of the same name.
        agents: of the game.
        episode_steps: the most steps of an episode.
        ours: settings of this package on its own environment.
        twins: those on the twin that RLlib steps.
        rllib: RLlib's settings, where `tuning.json` has no faster ones.
        max_actors: the most agents that act at one step; None for all.
        tables: who plays whom: one is drawn for every episode, with `weights`. Empty for policies
            `<agent>_0` to `<agent>_2`, of which each agent draws one.
        frozen: policies that are not trained.
        action_mask: whether RLlib's network masks illegal actions.
        measures: of how good the agents are; none where there is nothing to learn.
        smoothing: episodes that RLlib takes its means over, about an iteration's.
        minibatch_rows: decisions of a policy in a minibatch.
    """

    game: str
    title: str
    agents: tuple[str, ...]
    episode_steps: int
    ours: OurSettings
    twins: OurSettings
    rllib: RllibSettings
    minibatch_rows: int
    hidden_sizes: tuple[int, ...] = (64, 64)
    lstm_size: int | None = None
    max_actors: int | None = None
    tables: Tables = ()
    weights: tuple[float, ...] = ()
    frozen: tuple[str, ...] = ()
    action_mask: bool = False
    measures: tuple[Measure, ...] = ()
    smoothing: int = 32
    num_epochs: int = 4
    learning_rate: float = 1e-3
    entropy_coef: float = 0.01
    gamma: float = 0.99
    gae_lambda: float = 0.95
    sequence_length: int = 16  # decisions that gradients flow through, with an LSTM


def _alike(agents: tuple[str, ...], policy: str) -> Tables:
    return (dict.fromkeys(agents, policy),)


_SHUTTLES = tuple(f"shuttle_{i}" for i in range(6))
_NOISE_AGENTS = tuple(str(i) for i in range(6))

SCENARIOS = {
    "tic_tac_toe": Scenario(
        game="tic_tac_toe",
        title="tic-tac-toe: action masks, p1 and p2 learn, p3 and p4 stay as they began",
        agents=("x", "o"),
        episode_steps=NUM_CELLS,
        ours=OurSettings(num_envs=1024, num_steps=64, num_minibatches=26),
        twins=OurSettings(num_envs=256, num_steps=64, num_minibatches=6),
        rllib=RllibSettings(num_envs=32, num_runners=2, batch_steps=8192),
        minibatch_rows=1024,
        max_actors=1,
        tables=({"x": "p1", "o": "p2"}, {"x": "p3", "o": "p2"}, {"x": "p1", "o": "p4"}),
        weights=(0.6, 0.2, 0.2),
        frozen=("p3", "p4"),
        action_mask=True,
        measures=(
            Measure("return against the frozen policies", {"p3": -0.5, "p4": -0.5}, target=0.6),
        ),
        smoothing=200,
    ),
    "crypto": Scenario(
        game="crypto",
        title="crypto: an ensemble of three policies for each agent",
        agents=("eve_0", "bob_0", "alice_0"),
        episode_steps=CRYPTO_STEPS,
        ours=OurSettings(num_envs=1024, num_steps=50, num_minibatches=16),
        twins=OurSettings(num_envs=256, num_steps=50, num_minibatches=4),
        rllib=RllibSettings(num_envs=32, num_runners=2, batch_steps=8000),
        minibatch_rows=1024,
        measures=(
            # Eve earns -2 for each of her errors and bob 2 for it, less 2 for each of his own.
            Measure(
                "bob's accuracy",
                {"eve_0": 0.5 / CRYPTO_STEPS, "bob_0": 0.5 / CRYPTO_STEPS},
                constant=1.0,
                target=0.9,
            ),
            Measure("return of bob and alice", {"bob_0": 0.5, "alice_0": 0.5}),
        ),
        smoothing=320,
    ),
    "shuttle_grid": Scenario(
        game="shuttle_grid",
        title="shuttles: one LSTM drives all six, of which only the idle act",
        agents=_SHUTTLES,
        episode_steps=SHUTTLE_STEPS,
        ours=OurSettings(num_envs=64, num_steps=256, num_minibatches=29),
        twins=OurSettings(num_envs=64, num_steps=256, num_minibatches=29),
        rllib=RllibSettings(16, 2, 8192, batch_mode="complete_episodes"),
        minibatch_rows=1024,
        hidden_sizes=(64,),
        lstm_size=64,
        tables=_alike(_SHUTTLES, "shared"),
        weights=(1.0,),
        measures=(Measure("deliveries in 256 ticks", {"shuttle_0": 1.0}, target=6.0),),
        smoothing=32,
    ),
    "noise": Scenario(
        game="noise",
        title="the shape of the shuttles with noise to see and to earn, same LSTM",
        agents=_NOISE_AGENTS,
        episode_steps=NOISE_STEPS,
        ours=OurSettings(num_envs=64, num_steps=256, num_minibatches=48),
        twins=OurSettings(num_envs=64, num_steps=256, num_minibatches=48),
        rllib=RllibSettings(16, 2, 6400, batch_mode="complete_episodes"),
        minibatch_rows=1024,
        hidden_sizes=(64,),
        lstm_size=64,
        tables=_alike(_NOISE_AGENTS, "shared"),
        weights=(1.0,),
    ),
}
