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
    """Hyper-parameters of a policy's updates.

    Attributes:
        learning_rate: learning rate of the optimiser; a constant, `Linear(start, end)` or `((step,
            value), ...)`.
        num_epochs: passes over the transitions of a rollout.
        num_minibatches: minibatches per pass, one optimiser step each.
        gamma: discount factor, per transition or per environment step (`discount_by`); or a
            schedule.
        gae_lambda: GAE lambda (generalised advantage estimation), per transition; or a schedule.
        clip_eps: clipping range: the probability ratio is clipped to `1 +- clip_eps`; or a
            schedule.
        value_clip: clipping of the value loss: `"off"`; `"ppo2"`, which keeps the value within
            `value_clip_eps` of the old one; or `"squared_error"`, which caps the squared error at
            `value_clip_eps`.
        value_clip_eps: range of `value_clip`; required unless that is `"off"`, and an error
            otherwise.
        value_coef: weight of the value loss (half the squared error); or a schedule.
        entropy_coef: weight of the entropy bonus; or a schedule.
        max_grad_norm: global norm at which gradients are clipped; None for no clipping.
        kl_control: use of the KL divergence from the old policy: `"off"`; `"early_stop"`, which
            ends a policy's update of an iteration when the divergence of a minibatch exceeds 1.5
            `target_kl`; or `"penalty"`, a KL term whose weight adapts towards `target_kl`.
        target_kl: target of `kl_control`; required unless that is `"off"`, and an error otherwise.
        initial_kl_coef: initial weight of the KL penalty.
        magnet: penalty that pulls the policy towards an average of its own weights over past
            iterations: `"off"`, or `"average"`, which adds `magnet_coef` KL(policy || magnet),
            summed over all actions, to the loss (magnetic mirror descent, Sokota et al. 2023). A
            recurrent magnet starts from the recurrent state that the policy had. There is no magnet
            towards uniform play, because KL(policy || uniform) is the negative entropy plus a
            constant: raise `entropy_coef` for that.
        magnet_coef: weight of the magnet's term; or a schedule; required with `magnet`, and an
            error without it.
        magnet_rate: weight of the newest iteration in the magnet's average, from 0 (the initial
            policy throughout) to 1 (the policy of the previous iteration); required with `magnet`,
            and an error without it.
        log_barrier_coef: weight of a log barrier, KL(uniform || policy) over the legal options of
            every choice (Agarwal et al. 2021, "On the theory of policy gradient methods"); or a
            schedule; None for none. Its gradient on a logit is the difference between the option's
            probability and the uniform one. So it does not vanish for improbable options, as that
            of the entropy bonus does, and options that have become improbable can return.
        ema_decay: decay, per iteration, of an exponential moving average of the policy's parameters
            (Polyak averaging). The average starts at the initial parameters. It is evaluated,
            returned and saved in place of the newest parameters, which play and are updated in
            training as ever. None for none.
        normalise_advantages: standardise advantages to zero mean and unit variance, over the
            policy's transitions of an iteration.
        discount_by: unit of `gamma`: `"decision"` for one factor from one action of an agent to its
            next; `"step"` for one per environment step that passed (semi-Markov).
        bptt_length: transitions per chunk of backpropagation through time; None for 16, or for a
            network without recurrent layers.
        optimiser: name of an optax optimiser, or a function from a learning rate to an
            `optax.GradientTransformation`. Gradients are clipped before it. `"adafactor"`,
            `"lamb"`, `"lars"`, `"muon"` and functions get a policy's weights in the network's own
            shapes, all others as one flat vector. `"muon"` updates the kernels of hidden layers,
            and Adam everything else.
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
    log_barrier_coef: Scheduled | None = None
    ema_decay: Fraction | None = None
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
        if self.log_barrier_coef == 0:
            raise ValueError("log_barrier_coef=0 has no effect; give a positive number or None")
        if self.ema_decay in (0, 1):
            effect = "evaluates the newest" if self.ema_decay == 0 else "keeps the initial"
            raise ValueError(
                f"ema_decay={self.ema_decay} {effect} parameters; give a number between 0 and 1, "
                "or None"
            )
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
