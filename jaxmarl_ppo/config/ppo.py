"""Hyper-parameters of one policy's updates."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args

from jaxmarl_ppo.config.annotations import field_hints, without_none
from jaxmarl_ppo.config.checks import (
    Count,
    Fraction,
    NotNegative,
    Positive,
    check_fields,
    choice,
    show,
)
from jaxmarl_ppo.config.schedules import (
    Scheduled,
    ScheduledFraction,
    ScheduledPositive,
    ScheduleRule,
)

ValueClip = Literal["off", "ppo2", "squared_error"]
KLControl = Literal["off", "early_stop", "penalty"]
Magnet = Literal["off", "average"]
ADAM_EPS = 1e-5
# Of optax, as they are called there: what makes a transformation of a learning rate alone.
# These treat every weight by itself, so they may see all weights of a policy in one row.
ELEMENTWISE = ("adam", "adabelief", "adamw", "lion", "nadam", "radam", "rmsprop", "sgd")
# The others depend on the shapes of weights.
OPTIMISERS = (*ELEMENTWISE, "adafactor", "lamb", "lars", "muon")


def _check_discount_by(name: str, value: Any) -> str:
    # Environment steps had another name when older configurations were written.
    return choice("decision", "step")(name, "step" if value == "tick" else value)


DiscountBy = Annotated[Literal["decision", "step"], _check_discount_by]


def _check_optimiser(name: str, value: Any) -> str | Callable[..., Any]:
    if callable(value) or (isinstance(value, str) and value in OPTIMISERS):
        return value
    raise ValueError(
        f"unknown {name} {show(value)}; valid: {', '.join(OPTIMISERS)}, or a function from a "
        "learning rate to an optax.GradientTransformation"
    )


@dataclass(frozen=True)
class PPOConfig:
    """Hyper-parameters of one policy's updates.

    Attributes:
        learning_rate: learning rate of the optimiser; a constant, `Linear(start, end)` or
            `((step, value), ...)`.
        num_epochs: passes over a rollout's decisions.
        num_minibatches: optimiser steps per pass.
        gamma: discount factor, per decision or per environment step (`discount_by`); or a schedule.
        gae_lambda: decay of the advantage trace per decision; or a schedule.
        clip_eps: the ratio is clipped to `1 +- clip_eps`; or a schedule.
        value_clip: `"off"`; `"ppo2"`, keep the value within `value_clip_eps` of the old one;
            `"squared_error"`, cap the squared error at `value_clip_eps`.
        value_clip_eps: see `value_clip`; to be given exactly if that is not `"off"`.
        value_coef: weight of the value loss (half the squared error); or a schedule.
        entropy_coef: weight of the entropy bonus; a schedule like `learning_rate`.
        max_grad_norm: global norm at which gradients are clipped, or None.
        kl_control: `"off"`; `"early_stop"`, a policy's steps of an iteration end when a minibatch's
            KL divergence exceeds 1.5 `target_kl`; `"penalty"`, a KL term whose weight adapts
            towards `target_kl`.
        target_kl: see `kl_control`; to be given exactly if that is not `"off"`.
        initial_kl_coef: first weight of the KL penalty.
        magnet: `"off"`; `"average"`, a term `magnet_coef` KL(policy || magnet), exact over all
            actions, draws the policy towards the average of its own weights over the iterations so
            far (magnetic mirror descent, Sokota et al. 2023). A network with memory is asked from
            the memory that the policy had. To draw it towards uniform play raise `entropy_coef`:
            KL(policy || uniform) is the entropy but for its sign and a constant.
        magnet_coef: weight of that term; a schedule like `learning_rate`; to be given exactly if
            `magnet` is not `"off"`.
        magnet_rate: weight of the newest iteration in the average, from 0 (the policy that training
            began with) to 1 (that of the iteration before); likewise.
        normalise_advantages: to zero mean and unit variance over the policy's decisions.
        discount_by: `"decision"`: one factor gamma from one decision of an agent to its next;
            `"step"`: one per environment step that passed (semi-Markov).
        bptt_length: decisions per chunk of backpropagation through time; None for 16, or for a
            network without memory.
        optimiser: `"adam"`, another one of optax by its name, or a function from a learning rate to
            an `optax.GradientTransformation`; gradients are clipped before it. `"adafactor"`,
            `"lamb"`, `"lars"`, `"muon"` and functions see a policy's weights in their own shapes.
            `"muon"` updates kernels of hidden layers, and Adam everything else.
        adam_eps: epsilon of Adam.
    """

    learning_rate: Scheduled = 5e-4
    num_epochs: Count = 4
    num_minibatches: Count = 4
    gamma: ScheduledFraction = 0.99
    gae_lambda: ScheduledFraction = 0.95
    clip_eps: ScheduledPositive = 0.2
    value_clip: ValueClip = "off"
    value_clip_eps: Positive | None = None
    value_coef: Scheduled = 0.5
    entropy_coef: Scheduled = 0.01
    max_grad_norm: Positive | None = 0.5
    kl_control: KLControl = "off"
    target_kl: Positive | None = None
    initial_kl_coef: NotNegative | None = None
    magnet: Magnet = "off"
    magnet_coef: Scheduled | None = None
    magnet_rate: Fraction | None = None
    normalise_advantages: bool = True
    discount_by: DiscountBy = "decision"
    bptt_length: Count | None = None
    optimiser: Annotated[str | Callable[..., Any], _check_optimiser] = "adam"
    adam_eps: Positive = ADAM_EPS

    def __post_init__(self) -> None:
        check_fields(self)
        if self.optimiser != "adam" and self.adam_eps != ADAM_EPS:
            raise ValueError(
                f"adam_eps={self.adam_eps} has no effect with optimiser={show(self.optimiser)}; "
                "use 'adam' or drop adam_eps"
            )
        if self.kl_control != "off" and self.num_epochs * self.num_minibatches == 1:
            raise ValueError(
                f"kl_control={self.kl_control!r} has no effect on a single step per iteration, "
                "before which the KL divergence is 0; raise num_epochs or num_minibatches"
            )
        self._check_pair("magnet_coef", "magnet", ("average",))
        self._check_pair("magnet_rate", "magnet", ("average",))
        if self.magnet_coef == 0:
            raise ValueError("magnet_coef=0 has no effect; give a positive number or magnet='off'")
        if self.magnet_rate == 1 and self.num_epochs * self.num_minibatches == 1:
            raise ValueError(
                "magnet_rate=1 has no effect on a single step per iteration, before which policy "
                "and magnet are the same; lower it, or raise num_epochs or num_minibatches"
            )
        self._check_pair("value_clip_eps", "value_clip", ("ppo2", "squared_error"))
        self._check_pair("target_kl", "kl_control", ("early_stop", "penalty"))
        if self.initial_kl_coef is not None and self.kl_control != "penalty":
            raise ValueError(
                f"initial_kl_coef={self.initial_kl_coef} has no effect with "
                f"kl_control={self.kl_control!r}; set kl_control='penalty' or drop it"
            )

    def _check_pair(self, number: str, switch: str, needs: tuple[str, ...]) -> None:
        """Reject a number without its switch, and a switch without its number."""
        value, mode = getattr(self, number), getattr(self, switch)
        if mode in needs and value is None:
            raise ValueError(f"{switch}={mode!r} needs {number}; give a number")
        if mode not in needs and value is not None:
            raise ValueError(
                f"{number}={value} has no effect with {switch}={mode!r}; "
                f"set {switch} to one of {', '.join(needs)}, or drop {number}"
            )


# Fields that take a schedule.
SCHEDULED = tuple(
    name
    for name, hint in field_hints(PPOConfig).items()
    if any(isinstance(part, ScheduleRule) for part in get_args(without_none(hint)[1]))
)
