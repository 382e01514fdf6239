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
    refusal,
    show,
    whole_number,
)
from jaxmarl_ppo.config.networks import check_network
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.schedules import Scheduled
from jaxmarl_ppo.types import PyTree

OpponentDraw = Literal["uniform", "latest", "prioritised"]
RANDOM = "random"
# Of pools that do not lie on the device as a whole, unless they say otherwise.
EXCHANGES_PER_SNAPSHOT = 8
EXCHANGE_EVERY = 10
# Of one environment: `(state, obs, params, key)` to an action for every slot, as the environment
# takes it: `[A]` int, `[A, N]` float within the bounds, or an `Action`.
ScriptFn = Callable[[PyTree, Observation, PyTree, jax.Array], Any]


def _check_load(name: str, load: Any) -> str:
    if isinstance(load, os.PathLike):
        load = os.fspath(load)
    if not isinstance(load, str) or not load:
        raise refusal(name, "RUN_DIR:POLICY or RUN_DIR, of a finished run", load)
    return load


def _check_script(name: str, script: Any) -> Any:
    if not (isinstance(script, str) and script) and not callable(script):
        raise refusal(name, f"{RANDOM!r}, the name of a baseline or a function", script)
    return script


@dataclass(frozen=True)
class PolicySpec:
    """A policy that is a network: how it looks at the world and how it is trained.

    Attributes:
        network: kind of network by its name in `NETWORKS` of `networks/actor_critic.py`, such as
            `"mlp"` and `"lstm"`; a module of that file with its own sizes; or any flax module that
            is called like them.
        continuous: how numbers between bounds are distributed: `"squashed"`, a Gaussian mapped
            between the bounds by tanh; `"beta"`, a Beta distribution (Chou et al. 2017); or
            `"clipped"`, a Gaussian whose draws are clipped to the bounds, as other libraries have
            it, whose logged entropy is that before clipping. None for `"squashed"`.
        prev_action: append the agent's previous action to its features.
        prev_reward: append what the agent earned since its previous action.
        append_agent_id: append the slot's one-hot, so that a shared policy can tell agents apart.
        normalise_observations: by running mean and variance of the policy's own decisions.
        normalise_rewards: by the running standard deviation of the discounted return, clipped to
            +-10.
        central_critic: the critic also sees what all agents see, or the `state` of the observation
            if the environment offers one (MAPPO, Yu et al. 2022); needs a separate critic. The
            actor does not.
        ppo: the policy's own hyper-parameters; None for those of the run.
        imitate: play to learn from besides rewards: the name of one of the environment's
            `baselines`, or a function as in `Scripted`. In every situation of the policy's own play
            it is asked what it would do there, and the loss gets a term
            `-imitate_coef log pi(that)`; nothing where it names no legal action.
        imitate_coef: weight of that term; a schedule like `learning_rate`; to be given exactly with
            `imitate`. `Linear(1.0, 0.0)` begins as imitation and ends as plain PPO.
        trainable: False for a policy that keeps the parameters it starts with.
        load: start from a finished run, `RUN_DIR:POLICY`, or `RUN_DIR` for its policy of the same
            name; None for fresh parameters.
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
    """A policy that is a pool of frozen snapshots of another one.

    It starts with one entry, the parameters that its origin starts from. Once the pool is full the
    oldest entry makes way; one that a running life plays is not drawn any more, and replaced when
    that life has ended.

    With `on_device` all snapshots are files in the run's folder, and so many of them play. In turn
    each of those makes way, either for a new snapshot or for one that is drawn among all others by
    `draw`; among those that play opponents are drawn evenly. This is `Trainer`'s work: compiled
    functions by themselves have the pool of those on the device.

    Attributes:
        of: the policy that snapshots are taken of.
        size: entries that the pool can hold, at least 2: one plays while another is replaced. None
            for no bound, with `on_device`.
        add_every: iterations from one snapshot to the next; None to go by `add_at_win_rate`.
        add_at_win_rate: take one when the policy's score (a win counts 1, a draw 1/2) against all
            snapshots of the run, since the last was taken and over at least 100 games, reaches
            this.
        draw: `"uniform"`, `"latest"`, or `"prioritised"`: the more often an entry beats the
            opponents that it is drawn against, the more often it is drawn (prioritised fictitious
            self-play, Vinyals et al. 2019).
        priority: exponent of the priority.
        on_device: how many of the entries lie on the device at a time, at least 2; None for all.
        exchange_every: iterations from one exchange of an entry on the device to the next, with
            `on_device`; at most half of `add_every`, so that there are more exchanges than new
            snapshots. None for an eighth of `add_every`, or 10 with `add_at_win_rate`, by which
            snapshots are then at least twice that far apart.
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
    """A policy that is not learnt.

    Attributes:
        script: `"random"` (uniform over the legal actions, or within the bounds), the name of one
            of the environment's `baselines`, or a pure function `(state, obs, params, key)` of one
            environment that returns an action for every slot; only those of the slots that it
            plays are used.
    """

    script: Annotated[str | ScriptFn, _check_script]

    def __post_init__(self) -> None:
        check_fields(self)
