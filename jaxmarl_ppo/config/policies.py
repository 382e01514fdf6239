"""Policy specifications: a network, a pool of snapshots of another policy, or a scripted policy."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import jax
from flax import linen as nn

from jaxmarl_envs.core import Observation
from jaxmarl_ppo.config.checks import (
    MAX_INT,
    Count,
    PolicyName,
    Positive,
    check_fields,
    rejection,
    show,
    whole_number,
)
from jaxmarl_ppo.config.networks import check_network
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import Scheduled
from jaxmarl_ppo.types import PyTree

OpponentDraw = Literal["uniform", "latest", "prioritised"]
RANDOM = "random"
# Defaults for pools of which only a part is on the device.
EXCHANGES_PER_SNAPSHOT = 8
EXCHANGE_EVERY = 10
# Of one environment: `(state, obs, params, key)` to an action for every slot, as the environment
# takes it: `[A]` int, `[A, N]` float within the bounds, or an `Action`.
ScriptFn = Callable[[PyTree, Observation, PyTree, jax.Array], Any]


def _check_load(name: str, load: Any) -> str:
    if isinstance(load, os.PathLike):
        load = os.fspath(load)
    if not isinstance(load, str) or not load:
        raise rejection(name, "RUN_DIR:POLICY or RUN_DIR, of a finished run", load)
    return load


def _check_script(name: str, script: Any) -> Any:
    if not (isinstance(script, str) and script) and not callable(script):
        raise rejection(name, f"{RANDOM!r}, the name of a baseline or a function", script)
    return script


@dataclass(frozen=True)
class PolicySpec:
    """Configuration of a policy that is a network: inputs, network and training.

    Attributes:
        network: kind of network: a name in `NETWORKS` of `networks/actor_critic.py`, such as
            `"mlp"` and `"lstm"`; a module of that file with sizes of its own; or any flax module
            with the same call.
        continuous: distribution of continuous actions (numbers): `"squashed"`, a Gaussian mapped
            between the bounds by tanh; `"beta"`, a Beta distribution (Chou et al. 2017); or
            `"clipped"`, a Gaussian whose draws are clipped to the bounds, as in other libraries,
            and whose logged entropy is that before clipping. None for `"squashed"`, or for
            `"clipped"` where a number of the agents lacks a bound.
        prev_action: append the agent's previous action to its features.
        prev_reward: append the reward that the agent received since its previous action.
        append_agent_id: append a one-hot vector of the slot, so that a shared policy can tell
            agents apart.
        normalise_observations: standardise observations by their running mean and variance over the
            policy's own transitions.
        normalise_rewards: divide rewards by the running standard deviation of the discounted
            return, and clip them to +-10.
        central_critic: centralised critic: the critic also observes the features of all agents, or
            the `state` of the observation if the environment provides one (MAPPO, Yu et al. 2022).
            Requires a separate critic. The actor observes its own features only.
        ppo: the policy's own hyper-parameters; None for those of the run.
        imitate: expert to imitate in addition to learning from rewards (DAgger): the name of one of
            the environment's `baselines`, or a function as in `Scripted`. It labels the states that
            the policy visits, and the loss gets the term `-imitate_coef log pi(expert's action)`,
            which is 0 where the expert's action is not legal.
        imitate_coef: weight of the imitation term; or a schedule; required with `imitate`, and an
            error without it. With `Linear(1.0, 0.0)` the run begins as imitation and ends as plain
            PPO.
        trainable: whether the policy is trained; False freezes its parameters.
        load: finished run to start from: `RUN_DIR:POLICY`, or `RUN_DIR` for its policy of the same
            name; None for new parameters.
    """

    network: Annotated[str | nn.Module, check_network] = "mlp"
    continuous: Literal["squashed", "beta", "clipped"] | None = None
    prev_action: bool = False
    prev_reward: bool = False
    append_agent_id: bool = False
    normalise_observations: bool = False
    normalise_rewards: bool = False
    central_critic: bool = False
    ppo: PPOConfig | None = None
    imitate: Annotated[str | ScriptFn, _check_script] | None = None
    imitate_coef: Scheduled | None = None
    trainable: bool = True
    load: Annotated[str, _check_load] | None = None

    def __post_init__(self) -> None:
        check_fields(self)
        if self.ppo is not None and not self.trainable:
            raise ValueError("ppo has no effect on a policy with trainable=False; drop one of them")
        self._check_imitation()

    def _check_imitation(self) -> None:
        """Reject whom to imitate without how much, and the other way round."""
        if self.imitate is None:
            if self.imitate_coef is not None:
                raise ValueError(
                    f"imitate_coef={show(self.imitate_coef)} has no effect without imitate; name "
                    "one of the environment's baselines, or drop it"
                )
            return
        if self.imitate_coef is None:
            raise ValueError(f"imitate={show(self.imitate)} needs imitate_coef; give a number")
        if self.imitate_coef == 0:
            raise ValueError(
                "imitate_coef=0 has no effect; give a positive number, or drop it and imitate"
            )
        if self.imitate == RANDOM:
            raise ValueError(
                f"imitate={RANDOM!r} would draw towards uniform play, which is what entropy_coef "
                "does; raise that, or name one of the environment's baselines"
            )
        if not self.trainable:
            raise ValueError(
                "imitate has no effect on a policy with trainable=False; drop one of them"
            )


@dataclass(frozen=True)
class Snapshots:
    """Configuration of a pool of frozen snapshots of another policy.

    The pool starts with one snapshot, the initial parameters of its origin. A full pool replaces
    its oldest snapshot. If that one controls an agent, it is no longer drawn, and is replaced when
    the agent's life has ended.

    With `on_device`, all snapshots are files in the run's folder, and only that many of them play.
    These are exchanged in turn, either for a new snapshot or for one that `draw` chooses among all
    others; opponents are drawn uniformly among those that play. `Trainer` does this: the compiled
    functions themselves only know the snapshots on the device.

    Attributes:
        of: name of the policy that snapshots are taken of, the origin.
        size: number of snapshots that the pool can hold, at least 2: one plays while another is
            replaced. None for no limit, which requires `on_device`.
        add_every: iterations between snapshots; None to add them by `add_at_win_rate`.
        add_at_win_rate: add a snapshot when the origin's score (a win counts 1, a draw 1/2) reaches
            this value, against all snapshots of the run, since the last one was added and over at
            least 100 games.
        draw: how a snapshot is drawn: `"uniform"`, `"latest"`, or `"prioritised"`, which draws a
            snapshot more often the more often it beats the opponents that it meets (prioritised
            fictitious self-play, Vinyals et al. 2019).
        priority: exponent of the priority.
        on_device: number of snapshots that are on the device at a time, at least 2; None for all.
        exchange_every: iterations between exchanges of a snapshot on the device, with `on_device`;
            at most half of `add_every`, so that there are more exchanges than new snapshots. None
            for an eighth of `add_every`, or for 10 with `add_at_win_rate`, where snapshots are then
            at least twice that far apart.
    """

    of: PolicyName
    size: Annotated[int, whole_number(2, MAX_INT)] | None = 8
    add_every: Count | None = None
    add_at_win_rate: Positive | None = None
    draw: OpponentDraw = "uniform"
    priority: Positive | None = None
    on_device: Annotated[int, whole_number(2, MAX_INT)] | None = None
    exchange_every: Count | None = None

    def __post_init__(self) -> None:
        check_fields(self, "of snapshots")
        if (self.add_every is None) == (self.add_at_win_rate is None):
            raise ValueError(
                "snapshots need either add_every or add_at_win_rate, got "
                f"add_every={self.add_every} and add_at_win_rate={self.add_at_win_rate}"
            )
        if self.add_at_win_rate is not None and self.add_at_win_rate >= 1.0:
            raise ValueError(
                f"add_at_win_rate must lie between 0 and 1, got {self.add_at_win_rate}"
            )
        if self.priority is not None and self.draw != "prioritised":
            raise ValueError(
                f"priority={self.priority} has no effect with draw={self.draw!r}; "
                "set draw='prioritised' or drop it"
            )
        self._check_on_device()

    @property
    def num_places(self) -> int:
        """Entries that lie on the device."""
        places = self.size if self.on_device is None else self.on_device
        assert places is not None  # an unbounded pool has `on_device`
        return places

    @property
    def exchange_interval(self) -> int:
        """Iterations from one exchange to the next, with `on_device`."""
        if self.exchange_every is not None:
            return self.exchange_every
        if self.add_every is not None:
            return max(1, self.add_every // EXCHANGES_PER_SNAPSHOT)
        return EXCHANGE_EVERY

    def _check_on_device(self) -> None:
        """Reject what does not go with where entries lie."""
        if self.on_device is None:
            if self.size is None:
                raise ValueError(
                    "size=None, no bound, needs on_device: what is to lie on the device"
                )
            if self.exchange_every is not None:
                raise ValueError(
                    f"exchange_every={self.exchange_every} has no effect without on_device; "
                    "drop it or set on_device"
                )
            return
        if self.size is not None and self.on_device >= self.size:
            raise ValueError(
                f"on_device={self.on_device} has no effect on a pool of size={self.size}, all of "
                "which it holds; drop it or make it smaller"
            )
        if self.draw == "latest":
            raise ValueError(
                f"on_device={self.on_device} has no effect with draw='latest', by which only the "
                "newest snapshot plays; drop it and set size=2"
            )
        if self.add_every is not None and 2 * self.exchange_interval > self.add_every:
            raise ValueError(
                "with on_device an entry is exchanged at least twice as often as one is added, got "
                f"add_every={self.add_every} and exchange_every={self.exchange_interval}; valid: "
                "an add_every of 2 or more, and an exchange_every of at most half of it"
            )


@dataclass(frozen=True)
class Scripted:
    """Configuration of a scripted policy, which is not trained.

    Attributes:
        script: `"random"` (uniform over the legal actions, or between the bounds), the name of one
            of the environment's `baselines`, or a pure function `(state, obs, params, key)` of one
            environment that returns an action for every slot. Only the actions of slots that the
            policy controls are used.
    """

    script: Annotated[str | ScriptFn, _check_script]

    def __post_init__(self) -> None:
        check_fields(self)
