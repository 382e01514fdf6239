"""Replays of episodes: pictures, probabilities, values and suggested actions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.actions import ActionLayout
from jaxmarl_envs.drawing.lives import draw_lives
from jaxmarl_envs.threefry import fold_in, split
from jaxmarl_envs.user_code import host_errors
from jaxmarl_ppo.devices.compilation import options_of_once
from jaxmarl_ppo.evaluation.episodes import EpisodesState, Play, make_play
from jaxmarl_ppo.learner.learner import Learner
from jaxmarl_ppo.policies.agent_interface import AgentInterface
from jaxmarl_ppo.policies.ask import ask
from jaxmarl_ppo.rollout.noise import draw_noise
from jaxmarl_ppo.types import Population, PyTree

LONGEST, SURPRISING = "longest", "most surprising"


@dataclass(frozen=True, eq=False)
class Replay:
    """Holds one episode of `T` steps, in NumPy's arrays; observations are from before the step.

    Attributes:
        interest: why it was chosen, such as `best for x`, `worst for x`, `longest` and `most
            surprising`; empty where it was not chosen.
        drawings: `T + 1` pictures as SVG, from before the first step to after the last one.
        players: the player of each slot, as an index into `names`; -1 for none.
        names: present names of the players.
        remembers: which of them have memory.
        alive: which slots held an agent.
        acts: which slots had to act.
        is_first: the decision is the first of a life, so memory is empty.
        layout: of actions.
        action: as the environment took it.
        action_mask: legal actions.
        probs: of the options of all choices, laid out like masks; NaN where no network decided;
            None where actions are numbers alone.
        entropy: of the action distribution in nats, NaN where no network decided.
        log_prob: of the choices, NaN where no network decided, or the agent has none.
        value: the critic's, NaN where no network decided.
        reward: earned at the step.
        terminated: the life ended at the step.
        truncated: the life was cut off at the step.
        best: the actions that a solver finds best; None where there is none, or where actions are
            more than one choice.
        suggested: actions of the environment's scripted policies, by name.
        reference: the scripted policy that decisions are compared with; None where there is none.
    """

    interest: tuple[str, ...]
    drawings: tuple[str, ...]
    names: tuple[str, ...]
    remembers: tuple[bool, ...]
    players: np.ndarray  # [T, A] int
    alive: np.ndarray  # [T, A] bool
    acts: np.ndarray  # [T, A] bool
    is_first: np.ndarray  # [T, A] bool
    layout: ActionLayout
    action: Any  # [T, A, ...]
    action_mask: np.ndarray  # [T, A, W] bool
    probs: np.ndarray | None  # [T, A, options]
    entropy: np.ndarray  # [T, A]
    log_prob: np.ndarray  # [T, A]
    value: np.ndarray  # [T, A]
    reward: np.ndarray  # [T, A]
    terminated: np.ndarray  # [T, A] bool
    truncated: np.ndarray  # [T, A] bool
    best: np.ndarray | None  # [T, A, W] bool
    suggested: Mapping[str, Any]  # [T, A, ...] each
    reference: str | None

    @property
    def num_steps(self) -> int:
        """Steps of the episode, `T`."""
        return len(self.acts)


@host_errors()
def replay_episodes(
    learner: Learner,
    population: Population,
    episodes: int,
    key: jax.Array,
    greedy: bool = False,
    *,
    players: np.ndarray | None = None,
    subjects: np.ndarray | None = None,
    num_candidates: int | None = None,
    max_steps: int = 1_000,
) -> list[Replay]:
    """Play episodes and keep replays of the most interesting ones.

    The best and the worst are by one agent's return, named where agents' returns differ. The most
    surprising is the one with the least likely actions of networks on average. Properties that all
    candidates share are no reason to choose one.

    Args:
        learner: of the environment and the players.
        population: the players.
        episodes: number to keep.
        key: of all random numbers; the same key gives the episodes of `play_episodes`.
        greedy: networks take the most likely actions instead of samples.
        players: as for `play_episodes`.
        subjects: `[num_candidates]` int, the slots whose returns rank candidates; None for the
            first slot.
        num_candidates: number to play; None to play those that are kept, in order.
        max_steps: step limit in an environment without a horizon.

    Raises:
        ValueError: As `play_episodes`.
    """
    count = max(episodes, num_candidates or episodes)
    play = make_play(learner, population, count, key, greedy, None, players, max_steps)
    begin, advance = (
        jax.jit(function, compiler_options=options_of_once()) for function in (Play.begin, _advance)
    )
    now, steps = begin(play), []
    while bool(play.continues(now)):
        now, time_step = advance(play, now)
        steps.append(jax.device_get(time_step))
    lengths = np.sum([time_step["valid"] for time_step in steps], axis=0)
    names = learner.players.names_now(population.league)
    chosen = dict.fromkeys(range(episodes), ())
    if num_candidates is not None:
        subjects = np.zeros(count, int) if subjects is None else subjects
        name = _subject_name(learner, names, steps, subjects)
        measures = _measure(learner.players.layout, steps, lengths, subjects, name)
        chosen = _choose(measures, count, episodes)
    return [
        _make_replay(learner, names, steps[: lengths[e]], e, interest)
        for e, interest in chosen.items()
    ]


def _advance(play: Play, now: EpisodesState) -> tuple[EpisodesState, dict[str, Any]]:
    """Play a step and gather its record, `[E, A, ...]`."""
    after, act_output, step_output = play.advance(now)
    state, obs, env = now.state, now.state.obs, play.learner.env
    answers = ask_everybody(play, now)
    time_step = {
        "valid": ~now.totals.finished,
        "env_state": state.env_state,
        "features": obs.features,
        "action_mask": obs.action_mask,
        "alive": obs.alive,
        "acts": obs.agent_mask,
        "is_first": state.is_first & obs.alive,
        "player": jnp.where(obs.alive, state.player, -1),
        "action": act_output.env_action,
        "reward": step_output.reward,
        "terminated": step_output.terminated,
        "truncated": step_output.truncated & ~step_output.terminated,
        "last_seen": step_output.info["final_observation"],
        "suggested": _suggestions(play, now),
        **answers,
    }
    if not env.steps_on_host:
        # Stepped again, since finished episodes are reset in the continued state.
        keys = draw_noise(play.players, (play.num_episodes,), _key_of_step(now)).env
        step = jax.vmap(env.step_env, in_axes=(0, 0, 0, None))
        own = jax.vmap(split)(keys)[:, 0]
        time_step["next_state"] = step(
            own, state.env_state, act_output.env_action, play.env_params
        )[1]
    return after, time_step


def _key_of_step(now: EpisodesState) -> jax.Array:
    return fold_in(now.key, now.totals.num_steps)


def ask_everybody(play: Play, now: EpisodesState) -> dict[str, jax.Array]:
    """Compute all outputs of all networks, `[E, A, ...]`; NaN where none decides."""
    state = now.state
    mask = state.obs.action_mask
    none = jnp.full(state.obs.alive.shape, jnp.nan)
    num_options = sum(play.players.layout.counts)
    probs = jnp.full((*mask.shape[:-1], num_options), jnp.nan)
    found = {"probs": probs, "entropy": none, "value": none}
    for group, stack, hidden in zip(
        play.players.policy_groups, play.population.policy_groups, state.hidden, strict=True
    ):
        response = ask(group, stack, hidden, state, state.obs, state.obs.agent_mask)
        distribution, outputs = group.network.distribution, response.outputs
        own = {
            "entropy": distribution.entropy(outputs, response.action_mask),
            "value": response.value,
        }
        if num_options:
            own["probs"] = _option_probs(group.interface, outputs, response.action_mask)
        slots = np.array(group.interface.slots)
        for name, x in own.items():
            asked = response.asked.reshape(response.asked.shape + (1,) * (x.ndim - 2))
            found[name] = found[name].at[:, slots].set(jnp.where(asked, x, found[name][:, slots]))
    if not num_options:
        del found["probs"]
    return found


def _option_probs(interface: AgentInterface, outputs: jax.Array, mask: jax.Array) -> jax.Array:
    """Compute the probabilities of the options of all choices, as the environment lays them out.

    Of the outputs and masks `[E, S, ...]` of a policy group, `[E, S, options]`.
    """
    own = list(zip(*map(interface.split_mask, (outputs, mask)), strict=True))
    parts = []
    for choice, count in enumerate(interface.layout.counts):
        if choice < len(own):
            logits, legal = own[choice]
            probs = jax.nn.softmax(jnp.where(legal, logits, -jnp.inf))
        else:
            probs = jnp.ones((*mask.shape[:-1], 1))  # as the mask of a lacking choice says
        rest = [(0, 0)] * (probs.ndim - 1) + [(0, count - probs.shape[-1])]
        parts.append(jnp.pad(probs, rest))
    return jnp.concatenate(parts, axis=-1) if len(parts) > 1 else parts[0]


def _suggestions(play: Play, now: EpisodesState) -> dict[str, Any]:
    """Compute the actions of the environment's scripted policies, `[E, A, ...]` each."""
    keys = split(_key_of_step(now), play.num_episodes)
    return {
        name: jax.vmap(script, in_axes=(0, 0, None, 0))(
            now.state.env_state, now.state.obs, play.env_params, keys
        )
        for name, script in play.learner.env.baselines.items()
    }


def _subject_name(
    learner: Learner,
    names: tuple[str, ...],
    steps: Sequence[Mapping[str, Any]],
    subjects: np.ndarray,
) -> str:
    """Name the agent whose returns count, or its player where the agent varies."""
    if len(set(subjects.tolist())) == 1:
        return learner.env.agents[subjects[0]]
    players = set(steps[0]["player"][np.arange(len(subjects)), subjects].tolist())
    return names[players.pop()] if len(players) == 1 else "the run"


def _measure(
    layout: ActionLayout,
    steps: Sequence[Mapping[str, Any]],
    lengths: np.ndarray,
    subjects: np.ndarray,
    name: str,
) -> dict[str, np.ndarray]:
    """Measure episodes by every criterion of interest, `[E]` each."""
    valid = np.array([time_step["valid"] for time_step in steps])  # [T, E]
    returns = sum(
        np.where(time_step["valid"][:, None], time_step["reward"], 0.0) for time_step in steps
    )
    returns = np.asarray(returns)  # [E, A]
    own = returns[np.arange(len(subjects)), subjects]
    whose = "" if np.ptp(returns, axis=1).max() == 0 else f" for {name}"
    surprise = np.array([_surprise(layout, time_step) for time_step in steps])  # [T, E, A]
    surprise = np.where(valid[..., None], surprise, np.nan)
    counts = np.maximum(np.isfinite(surprise).sum((0, 2)), 1)
    surprise = np.nansum(surprise, axis=(0, 2)) / counts
    return {f"best{whose}": own, f"worst{whose}": -own, LONGEST: lengths, SURPRISING: surprise}


def _choose(
    measures: Mapping[str, np.ndarray], count: int, episodes: int
) -> dict[int, tuple[str, ...]]:
    """Choose the candidates to keep, with reasons."""
    chosen: dict[int, tuple[str, ...]] = {}
    for name, measure in measures.items():
        best = int(np.argmax(measure))
        if measure[best] > measure.min():
            chosen[best] = (*chosen.get(best, ()), name)
    for e in range(count):
        chosen.setdefault(e, ())
    return dict(list(chosen.items())[:episodes])


def _surprise(layout: ActionLayout, time_step: Mapping[str, Any]) -> np.ndarray:
    """Compute how unlikely the choices were, `[E, A]` in nats; NaN where no network chose."""
    acts = time_step["acts"]
    if "probs" not in time_step:
        return np.full(acts.shape, np.nan)
    choices, _ = layout.split(time_step["action"])
    columns = choices + np.array(layout.starts[:-1])
    taken = np.take_along_axis(time_step["probs"], columns, -1)
    surprise = -np.log(np.maximum(taken, 1e-30)).sum(-1)
    has_choices = np.array([len(own.counts) > 0 for own in layout.factors])
    return np.where(acts & has_choices, surprise, np.nan)


def _make_replay(
    learner: Learner,
    names: tuple[str, ...],
    steps: Sequence[Mapping[str, Any]],
    e: int,
    interest: tuple[str, ...],
) -> Replay:
    """Assemble the steps of one episode, and draw them."""

    def stacked(name: str) -> np.ndarray:
        return np.array([time_step[name][e] for time_step in steps])

    layout = learner.players.layout
    best = [_best_actions(learner, time_step["env_state"], e) for time_step in steps]
    no_best = best[0] is None or not layout.is_choice
    probs = stacked("probs") if "probs" in steps[0] else None
    return Replay(
        interest=interest,
        drawings=tuple(_draw(learner, steps, e)),
        names=names,
        remembers=_remembers(learner),
        players=stacked("player"),
        alive=stacked("alive"),
        acts=stacked("acts"),
        is_first=stacked("is_first"),
        layout=layout,
        action=_stacked([time_step["action"] for time_step in steps], e),
        action_mask=stacked("action_mask"),
        probs=probs,
        entropy=stacked("entropy"),
        log_prob=-np.array([_surprise(layout, time_step)[e] for time_step in steps]),
        value=stacked("value"),
        reward=stacked("reward"),
        terminated=stacked("terminated"),
        truncated=stacked("truncated"),
        best=None if no_best else np.array(best),
        suggested={
            name: _stacked([time_step["suggested"][name] for time_step in steps], e)
            for name in steps[0]["suggested"]
        },
        reference=learner.env.reference,
    )


def _stacked(actions: Sequence[Any], e: int) -> Any:
    """Stack actions `[E, A, ...]` of several steps, in one environment, to `[T, A, ...]`."""
    return jax.tree.map(lambda *x: np.array([own[e] for own in x]), *actions)


def _remembers(learner: Learner) -> tuple[bool, ...]:
    found = [False] * learner.players.num_players
    for group in learner.players.policy_groups:
        for player in group.players:
            found[player] = group.network.is_recurrent
    return tuple(found)


def _best_actions(learner: Learner, env_state: PyTree, e: int) -> np.ndarray | None:
    own = jax.tree.map(lambda x: x[e], env_state)
    return learner.env.best_actions(own, learner.env_params)


def _draw(learner: Learner, steps: Sequence[Mapping[str, Any]], e: int) -> list[str]:
    """Draw every state, by the environment itself or as a table of its slots."""
    env, env_params = learner.env, learner.env_params
    drawings: list[str] = []
    draws_itself = not env.steps_on_host
    for t in range(len(steps) + 1):
        last_action = jax.tree.map(lambda x: x[e], steps[t - 1]["action"]) if t else None
        at_end = t == len(steps)
        if draws_itself:
            states = steps[t - 1]["next_state"] if at_end else steps[t]["env_state"]
            state = jax.tree.map(lambda x: x[e], states)
            drawing = env.render(state, env_params, last_action)
            if drawing is not None:
                drawings.append(drawing)
                continue
            draws_itself = False
        if at_end:
            seen = jax.tree.map(lambda x: x[e], steps[t - 1]["last_seen"])
            now = (seen.alive, seen.agent_mask, seen.features)
        else:
            now = tuple(steps[t][name][e] for name in ("alive", "acts", "features"))
        drawings.append(draw_lives(env.agents, *now, caption=f"step {t}"))
    return drawings
