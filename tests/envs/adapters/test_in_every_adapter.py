"""What holds of environments in plain Python of every kind."""

import itertools
import random
import re
import warnings

import gymnasium
import jax
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from plan_envs import KINDS, InTurn, Multi, Parallel, Plan, Single, bring_in

from jaxmarl_envs import check_env, make
from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_envs.adapters.incoming.host_episodes import SeparateEpisodes
from jaxmarl_envs.adapters.incoming.host_pool import ForgottenEpisodeWarning
from jaxmarl_envs.adapters.incoming.host_steps import Steps
from jaxmarl_envs.adapters.incoming.host_worker import UnrepeatableEnvironmentWarning
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_envs.adapters.incoming.slot_game import (
    CoarseObservationWarning,
    LostRewardWarning,
    ObservationOutsideSpaceWarning,
)
from jaxmarl_envs.adapters.incoming.unused_masks import UnusedMaskWarning
from jaxmarl_envs.check import EnvContractError
from jaxmarl_ppo import LSTM, PolicySpec, PPOConfig, TrainConfig, Trainer, make_learner
from jaxmarl_ppo.evaluation.evaluate import evaluate_policies
from jaxmarl_ppo.runs.log import read_entries

pytestmark = pytest.mark.filterwarnings(
    "ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning"
)
EVERY_KIND = pytest.mark.parametrize("kind", KINDS)


def play(env, num_steps, seed=3):
    """`(outcome, alive)` of every step of one game, by itself, to the end of its episode."""
    game = env.pool.make_game()
    frame = game.reset(seed)
    for _ in range(num_steps):
        action = env._actions.pack(env._actions.pick(np.zeros(frame.action_mask.shape), True))
        _, outcome, frame = game.step(np.asarray(action))
        yield type(outcome)(*(x.copy() for x in outcome)), frame.alive.copy()
        if not frame.alive.any():
            return


# ---- Action masks --------------------------------------------------------------------------------


class Hinting(Plan):
    """Has an info, by name."""

    hint = ("legal_moves", [0])

    def tell(self, agent, time):
        return dict([self.hint])


@EVERY_KIND
@pytest.mark.parametrize(
    ("key", "value", "is_told"),
    [
        ("legal_moves", [0], True),
        ("availableActions", np.array([1, 0]), True),
        ("action_masks", (1, 0), True),
        ("action_mask", np.array([1, 0]), False),
        ("legal_moves", 2, False),
        ("legal_moves", np.float32(2), False),
        ("masked_cells", [0], False),
    ],
)
def test_an_info_that_is_called_like_a_mask_and_is_none_is_told(kind, key, value, is_told):
    class Told(Hinting):
        hint = (key, value)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        bring_in(kind, Told)
    told = [str(x.message) for x in caught if isinstance(x.message, UnusedMaskWarning)]
    assert len(told) == is_told
    assert all(re.search(rf"info\['{key}'\], .*action_mask", text) for text in told)


@EVERY_KIND
def test_a_part_of_observations_that_is_called_like_a_mask_and_is_none_is_told(kind):
    class Nested(Plan):
        space = spaces.Dict(
            board=spaces.Dict(x=Plan.space, action_mask=spaces.MultiBinary(2)),
            valid_moves=spaces.MultiBinary(3),  # of two actions
        )

        def see(self, agent, time):
            board = {"x": super().see(agent, time), "action_mask": np.array([1, 0], np.int8)}
            return {"board": board, "valid_moves": np.ones(3, np.int8)}

    with pytest.warns(UnusedMaskWarning, match=r"has observation\['board'\]\['action_mask'\], "):
        bring_in(kind, Nested)


def test_a_method_that_is_called_like_a_mask_is_told_also_within_a_wrapper():
    class Maskable(Single):
        def action_masks(self):
            return [1, 0]

    def make_wrapped():
        return gymnasium.Wrapper(Maskable(Plan()))

    with pytest.warns(UnusedMaskWarning, match=r"has action_masks\(\), which may be"):
        from_gymnasium(make_wrapped, num_workers=0)


@EVERY_KIND
@pytest.mark.parametrize(
    ("own", "other", "is_told", "legal"),
    [
        (np.array([1, 0], np.int8), np.array([0, 1], np.int8), True, [1, 0]),
        (np.array([1, 1], np.int8), np.array([0, 1], np.int8), True, [1, 1]),
        (np.array([1, 0], np.int8), [1, 0, 1], True, [1, 0]),
        (np.array([1, 0], np.int8), [True, False], False, [1, 0]),
        (None, [0, 1], False, [0, 1]),
    ],
)
def test_a_mask_in_an_observation_comes_first_and_another_one_is_told(
    kind, own, other, is_told, legal
):
    class Both(Plan):
        space = spaces.Dict(observation=Plan.space, action_mask=spaces.MultiBinary(2))

        def see(self, agent, time):
            return {"observation": super().see(agent, time), "action_mask": own}

        def tell(self, agent, time):
            return {"action_mask": other}

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        env = bring_in(kind, Both)
    told = [str(x.message) for x in caught if isinstance(x.message, UnusedMaskWarning)]
    assert len(told) == is_told
    words = r"agent 'a.*' of .* has an info\['action_mask'\] that does not say the same as"
    assert all(re.match(words, text) for text in told)
    assert env.pool.make_game().reset(3).action_mask[0].tolist() == legal


# ---- Which slot is whose -------------------------------------------------------------------------


class OwnLetter(Plan):
    """Agents observe the codes of their names, and are paid them."""

    def see(self, agent, time):
        return np.array([ord(agent)], np.float32)

    def pay(self, agent, time):
        return ord(agent)


@pytest.mark.parametrize("kind", ["parallel", "rllib"])
def test_slots_are_the_same_agents_in_every_object_whatever_order_it_lists_them_in(kind):
    orders = itertools.cycle([["a", "b"], ["b", "a"]])

    def shuffled():
        plan = OwnLetter()
        plan.agents = next(orders)
        return plan

    env = bring_in(kind, shuffled)
    letters = [ord(agent) for agent in env.agents]
    for _ in range(2):
        np.testing.assert_array_equal(env.pool.make_game().reset(3).features[:, 0], letters)
        np.testing.assert_array_equal(next(play(env, 1))[0].reward, letters)


def test_agents_of_a_set_are_in_the_order_of_their_names():
    class OfASet(Parallel):
        def __init__(self):
            super().__init__(Plan())
            self.possible_agents = {"b", "a", "d", "c"}

    assert from_pettingzoo(OfASet, num_workers=0).agents == ("a", "b", "c", "d")


def test_objects_with_other_agents_are_refused():
    names = iter(["ab", "ac"])

    def another():
        plan = Plan()
        plan.agents = tuple(next(names))
        return plan

    with pytest.raises(ValueError, match="agents a, b, and another one a, c; all must have"):
        bring_in("parallel", another)


# ---- How long an episode lasts -------------------------------------------------------------------


class Long(Plan):
    length = 1_200

    def pay(self, agent, time):
        return 5.0 if time == self.length else 0.0


@EVERY_KIND
def test_an_episode_without_a_horizon_plays_to_its_own_end(kind):
    env = bring_in(kind, Long)
    assert env.horizon(()) is None
    steps = list(play(env, 5_000))
    assert len(steps) == Long.length * (2 if kind == "aec" else 1)
    assert sum(outcome.reward[0] for outcome, _ in steps) == 5.0
    assert not any(outcome.truncated.any() for outcome, _ in steps)
    assert sum(outcome.terminated[0] for outcome, _ in steps) == 1


def test_a_longer_episode_than_is_remembered_goes_on_and_begins_anew_where_it_cannot():
    env = bring_in("rllib", Long)
    pool, capacity = env.pool, env.layout.capacity
    assert capacity == 1_000
    seeds, past = np.array([4]), np.zeros((1, capacity, 2), np.int32)
    pool.reset(seeds)
    nothing = np.zeros((1, 2), np.int32)
    for time in range(1_100):
        final, *_ = pool.step(Steps(seeds, np.array([time]), past, nothing))
    assert final.features[0, 0, 0] == 1_100
    pool.close()
    with pytest.warns(ForgottenEpisodeWarning, match=r"1,100 steps begins anew.* 1,000 of its"):
        final, *_ = pool.step(Steps(seeds, np.array([1_100]), past, nothing))
    assert final.features[0, 0, 0] == 1


def test_what_a_state_remembers_holds_every_option():
    class Wide(Plan):
        actions = spaces.Discrete(300)

        def begin(self, seed):
            self.played = [0, 0]

        def act(self, actions):
            self.played.append(actions["a"])

        def see(self, agent, time):
            return np.array(self.played[-2:-1], np.float32)

    env = bring_in("parallel", Wide)
    _, state = env.reset_env(jax.random.key(0), ())
    assert state.past.dtype == np.uint16
    _, state, *_ = env.step_env(jax.random.key(0), state, np.array([299, 1]), ())
    env.close()  # so that the step is played again
    obs, *_ = env.step_env(jax.random.key(0), state, np.array([5, 1]), ())
    assert obs.features[0].tolist() == [299.0]
    # As they are when they are played the first time.
    episodes = SeparateEpisodes(lambda time, capacity: None)
    asked = episodes.find(np.array([7]), np.array([1]), np.asarray(state.past)[None])
    ((_, past),) = asked.replays.values()
    assert past.dtype == np.int32
    assert past.tolist() == [[299, 1]]


def test_a_limit_that_an_environment_declares_is_its_horizon():
    limited = gymnasium.wrappers.TimeLimit
    env = from_gymnasium(lambda: limited(Single(Long()), 70), num_workers=0)
    assert env.horizon(()) == env.layout.capacity == 70
    assert [bool(outcome.truncated[0]) for outcome, _ in play(env, 100)].index(True) == 69
    assert make("gymnasium", env_id="CartPole-v1", num_workers=0)[0].horizon(()) == 500
    for bring, kind in ((from_pettingzoo, Parallel), (from_rllib_env, Multi)):

        def declaring(kind=kind):
            env = kind(Long())
            env.spec = gymnasium.envs.registration.EnvSpec("Long-v0", max_episode_steps=5_000)
            return env

        env = bring(declaring, num_workers=0)
        assert env.horizon(()) == env.layout.capacity == 5_000
        # What the user says takes precedence.
        assert bring(declaring, num_workers=0, horizon=20).horizon(()) == 20


class EndsEarly(Plan):
    """`b` ends by the game's rules before the limit at step 5, at which the others end."""

    def ends(self, agent):
        return 2 if agent == "b" else self.length

    def pay(self, agent, time):
        return 1.0 if time <= self.ends(agent) else None


@EVERY_KIND
@pytest.mark.parametrize(
    ("reading", "truncated"), [("truncates", True), ("terminates", False), (None, False)]
)
def test_an_end_at_the_limit_is_what_the_user_says(kind, reading, truncated):
    last = len(list(play(bring_in(kind, EndsEarly), 20)))
    env = bring_in(kind, EndsEarly, horizon=last, at_time_limit=reading)
    *before, (outcome, _) = play(env, 20)
    assert len(before) == last - 1
    assert not any(earlier.truncated.any() for earlier, _ in before)
    assert outcome.truncated[0] == truncated
    assert outcome.terminated[0] == (not truncated)
    # An episode that is cut there ends likewise, by itself as a truncation.
    cut = bring_in(kind, EndsEarly, horizon=last - 1, at_time_limit=reading)
    *_, (outcome, _) = play(cut, 20)
    assert outcome.truncated[0] == (reading != "terminates")
    assert outcome.terminated[0] == (reading == "terminates")


@EVERY_KIND
def test_a_reading_of_the_limit_needs_one(kind):
    with pytest.raises(ValueError, match="at_time_limit='truncates' has no effect: no limit is"):
        bring_in(kind, Plan, at_time_limit="truncates")
    with pytest.raises(ValueError, match="at_time_limit='ends': valid choices are truncates, ter"):
        bring_in(kind, Plan, horizon=3, at_time_limit="ends")


# ---- What agents observe -------------------------------------------------------------------------

SYMBOLS = {
    "below": (spaces.Discrete(4), -1),
    "beyond": (spaces.Discrete(4), 4),
    "before the start": (spaces.Discrete(3, start=2), 1),
    "several": (spaces.MultiDiscrete([3, 3]), np.array([0, -1])),
    "of the next choice": (spaces.MultiDiscrete([3, 3]), np.array([3, 0])),
    "bits": (spaces.MultiBinary(2), np.array([0, 2], np.int8)),
    "inside": (
        spaces.Dict({"x": spaces.Tuple([spaces.Discrete(2), spaces.Box(0.0, 1.0, (1,))])}),
        {"x": (-1, np.zeros(1, np.float32))},
    ),
}


@EVERY_KIND
@pytest.mark.parametrize("name", SYMBOLS)
def test_a_symbol_of_no_space_is_told_with_agent_and_value(kind, name):
    own, value = SYMBOLS[name]
    own.seed(0)
    legal = own.sample()

    class Straying(Plan):
        space = own

        def see(self, agent, time):
            return value if time == 3 and agent == "a" else legal

    shown = re.escape(" ".join(repr(value).split()))
    words = f"agent 'a(gent)?' observes {shown}: .*observation space .*"
    with pytest.raises(ValueError, match=words):
        list(play(bring_in(kind, Straying), 20))


REFUSED = {
    "text": (spaces.Text(5), "has a Text, which cannot be observed"),
    "one of": (spaces.OneOf([spaces.Discrete(2), spaces.Discrete(3)]), "has a OneOf, which"),
    "inside": (spaces.Dict({"x": spaces.Tuple([spaces.Text(2)])}), "has a Text, which"),
    "nothing": (spaces.Box(0.0, 1.0, (3, 0)), r"Box\(\[\], .* is empty; .* a constant"),
    "no parts": (spaces.Tuple([]), r"Tuple\(\) is empty"),
    "a number": (spaces.Discrete(2**62), r"Discrete\(.*\) has 4,611,.*,904 categories, .* a Box"),
    "two numbers": (spaces.MultiDiscrete([2**62, 2**62]), r"has 9,223,372,036,854,775,808 cat"),
    "a number inside": (spaces.Dict(x=spaces.Discrete(10_000_001)), r"has 10,000,001 categories"),
}


@EVERY_KIND
@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_array_of_numbers_is_refused_by_name(kind, name):
    own, words = REFUSED[name]
    each = spaces.Dict({"a": own, "b": own}) if kind == "rllib" else own
    plan = type("Odd", (Plan,), {"space": each})
    with pytest.raises(ValueError, match=f"agent 'a(gent)?': the observation space .*{words}"):
        bring_in(kind, plan)


@pytest.mark.parametrize("shape", [(27, 5), (2, 2, 2, 2), (5, 5, 3)])
def test_advice_on_observations_of_several_axes_works(shape):
    class Axes(Plan):
        space = spaces.Box(0.0, 1.0, shape)

        def see(self, agent, time):
            return np.ones(shape, np.float32)

    def learner(env, network):
        spec = PolicySpec(network=network)
        return make_learner(env, (), TrainConfig(num_envs=2, num_steps=4, default_policy=spec))

    env = bring_in("rllib", Axes)
    with pytest.raises(ValueError, match="make the environment with flatten=True") as refused:
        learner(env, "mlp")
    assert ("use network 'cnn', or" in str(refused.value)) == (len(shape) == 3)
    if len(shape) == 3:
        learner(env, "cnn")
    else:
        with pytest.raises(ValueError, match=r"needs planes .* make the environment with flatten="):
            learner(env, "cnn")
    learner(bring_in("rllib", Axes, flatten=True), "mlp")


NO_NUMBERS = {
    "rows of unequal length": [[1.0], [1.0, 2.0]],
    "a text": np.array(["much"]),
    "an object": np.array(["much"], object),
    "complex": np.array([1j]),
}


@EVERY_KIND
@pytest.mark.parametrize("name", NO_NUMBERS)
def test_an_observation_without_numbers_is_told_with_agent_and_value(kind, name):
    class Odd(Plan):
        def see(self, agent, time):
            return NO_NUMBERS[name] if time == 3 else np.zeros(1, np.float32)

    shown = re.escape(" ".join(repr(NO_NUMBERS[name]).split()))
    with pytest.raises(ValueError, match=f"'a(gent)?' observes {shown}: no array of numbers"):
        bring_in(kind, Odd)


UNTRAINABLE = {
    "observation": ("see", np.array([np.nan], np.float32), "observes nan"),
    "reward": ("pay", np.inf, "earns inf"),
    "mask": ("tell", {"action_mask": np.zeros(2, np.int8)}, "acts"),
}


@EVERY_KIND
@pytest.mark.parametrize("name", UNTRAINABLE)
def test_what_training_would_stop_at_is_rejected_before_anything_is_compiled(kind, name):
    call, value, words = UNTRAINABLE[name]
    own = getattr(Plan, call)

    class Odd(Plan):
        pass

    setattr(Odd, call, lambda self, agent, time: value if time == 3 else own(self, agent, time))
    with pytest.raises(ValueError, match=rf"'a(gent)?' {words} at step \d of the episode of seed"):
        bring_in(kind, Odd)


@pytest.mark.parametrize("kind", ["gymnasium", "parallel"])
def test_what_is_observed_at_a_termination_of_everybody_may_be_anything(kind):
    class Ending(Plan):
        def see(self, agent, time):
            return np.array([np.nan if time == self.length else time], np.float32)

    env = bring_in(kind, Ending)
    config = TrainConfig(total_env_steps=40, num_envs=2, num_steps=20)
    Trainer(env, (), config, progress=False).train()


RETURNED = {
    "four values": (
        "gymnasium",
        "step",
        lambda found: found[:4],
        r"step returns .* \(observation,",
    ),
    "no info": ("gymnasium", "reset", lambda found: found[0], r"reset returns .* \(observation, i"),
    "four of all": ("parallel", "step", lambda found: found[:4], r"step returns .* \(observation,"),
    "lists": ("parallel", "step", lambda found: (found[0], [1.0], *found[2:]), r"agent: \[1\.0\]"),
    "no infos": ("parallel", "reset", lambda found: (found[0], None), "infos .* by agent: None"),
}


@pytest.mark.parametrize("name", RETURNED)
def test_what_reset_and_step_must_return_is_told(name):
    kind, call, change, words = RETURNED[name]
    bring, make_kind = KINDS[kind]

    def changed():
        env = make_kind(Plan())
        own = getattr(env, call)
        setattr(env, call, lambda *args, **options: change(own(*args, **options)))
        return env

    with pytest.raises(ValueError, match=words):
        bring(changed, num_workers=0)


@pytest.mark.parametrize("kind", ["gymnasium", "parallel"])
def test_an_environment_that_takes_no_seed_is_told(kind):
    class Seedless(Single if kind == "gymnasium" else Parallel):
        def reset(self):
            return super().reset()

    with pytest.raises(ValueError, match=r"reset of .* takes \(\); expected \(seed=None, options="):
        KINDS[kind][0](lambda: Seedless(Plan()), num_workers=0)


def test_an_episode_without_agents_is_told():
    class Nobody(Plan):
        def start(self, seed):
            super().start(seed)
            self.alive = []
            return {}, {}

    with pytest.raises(ValueError, match="reset with seed 2000000001 begins an episode without"):
        bring_in("parallel", Nobody)


@pytest.mark.parametrize("kind", ["gymnasium", "parallel", "rllib"])
def test_infos_of_any_form_are_taken(kind):
    class Chatty(Plan):
        def tell(self, agent, time):
            return ["won", [1, 2], None, 3][time % 4]

    assert len(list(play(bring_in(kind, Chatty), 20))) == 5


# ---- What agents earn ----------------------------------------------------------------------------


class Late(Plan):
    def ends(self, agent):
        return 2 if agent == "b" else 5

    def pay(self, agent, time):
        return {"a": 1.0, "b": 0.5 if time in (2, 4) else 0.0}[agent]


# PettingZoo's conversion to AEC has no rewards of who is gone.
@pytest.mark.parametrize("kind", ["parallel", "rllib"])
def test_a_reward_after_the_end_of_a_life_is_told_with_agent_and_step(kind):

    with pytest.warns(
        LostRewardWarning, match=r"agent 'b' is paid 0.5 at step 4 .* of seed 2"
    ) as told:
        env = bring_in(kind, Late)
    assert [w.category for w in told].count(LostRewardWarning) == 1
    steps = list(play(env, 20))
    rewards = np.array([outcome.reward for outcome, _ in steps])
    assert rewards[:, 0].tolist() == [1.0] * 5
    assert rewards[:, 1].tolist() == [0.0, 0.5, 0.0, 0.0, 0.0]


def test_in_turn_a_reward_after_the_end_of_a_life_is_told_too():
    with pytest.warns(LostRewardWarning, match=r"'b' is paid 0.5 at step 6 .* of seed 2") as told:
        env = from_pettingzoo(lambda: InTurn(Late()), num_workers=0)
    assert [w.category for w in told].count(LostRewardWarning) == 1
    steps = [outcome for outcome, _ in play(env, 20)]
    # Two rounds of both, in which b ends as it is paid; then a alone.
    assert [outcome.reward[0] for outcome in steps] == [0, 1, 0, 1, 1, 1, 1]
    assert [outcome.reward[1] for outcome in steps] == [0, 0, 0, 0.5, 0, 0, 0]
    assert [outcome.terminated.tolist() for outcome in steps[2:5]] == [
        [False, False], [False, True], [False, False]
    ]  # fmt: skip
    assert steps[-1].terminated.tolist() == [True, False]


# ---- Trying out ----------------------------------------------------------------------------------


@EVERY_KIND
def test_what_draws_where_nobody_can_seed_is_told(kind):
    class Restless(Plan):
        def see(self, agent, time):
            return np.array([random.SystemRandom().random()], np.float32)

    with pytest.warns(
        UnrepeatableEnvironmentWarning, match="does not do the same for the same seed"
    ):
        env = bring_in(kind, Restless)
    assert not env.pool.make_game().repeats


@EVERY_KIND
def test_what_repeats_on_a_new_object_alone_gets_one_for_every_episode(kind):
    class Counting(Plan):
        count = 0

        def begin(self, seed):
            self.count += 1

        def see(self, agent, time):
            return np.array([self.count], np.float32)

    with pytest.warns(UnrepeatableEnvironmentWarning, match="a new one is made for every episode"):
        env = bring_in(kind, Counting)
    seeds, past = np.array([4]), np.zeros((1, env.layout.capacity, env.num_agents), np.int32)
    for _ in range(3):
        assert env.pool.reset(seeds).features[0, 0].tolist() == [1.0]
    final, *_ = env.pool.step(Steps(seeds, np.array([0]), past, past[:, 0], seeds))
    assert final.features[0, 0].tolist() == [1.0]


def test_in_a_worker_an_environment_s_own_seed_of_the_global_generator_holds():
    class Seeding(Plan):
        def begin(self, seed):
            random.seed(seed)

        def see(self, agent, time):
            return np.array([random.random()], np.float32)

    bring, make_kind = KINDS["parallel"]
    env = bring(lambda: make_kind(Seeding()), num_workers=1)
    seeds, past = np.array([4]), np.zeros((1, env.layout.capacity, env.num_agents), np.int32)
    seen = [env.pool.reset(seeds).features.copy()]
    for time in range(3):
        steps = Steps(seeds, np.array([time]), past, past[:, 0])
        seen.append(env.pool.step(steps)[0].features.copy())
    env.close()
    own = random.Random(4)
    assert np.ravel(seen).tolist() == [np.float32(own.random()) for _ in range(4 * 2)]


@EVERY_KIND
def test_a_replay_that_ends_early_is_told_and_begins_anew(kind):
    class Shrinking(Plan):
        pass

    env = bring_in(kind, Shrinking)
    seeds, past = np.array([4]), np.zeros((1, env.layout.capacity, env.num_agents), np.int32)
    env.pool.reset(seeds)
    for time in range(4):
        env.pool.step(Steps(seeds, np.array([time]), past, past[:, 0], seeds))
    env.pool.close()
    Shrinking.length = 1
    with pytest.warns(
        UnrepeatableEnvironmentWarning, match=r"ended at step \d of 4 and begins anew"
    ):
        env.pool.step(Steps(seeds, np.array([4]), past, past[:, 0], seeds))


@EVERY_KIND
def test_numbers_outside_their_space_are_told_and_no_environment_for_check_env(kind):
    class Far(Plan):
        space = spaces.Box(-100.0, 100.0, (2,), np.float32)

        def see(self, agent, time):
            return np.array([0.0, 1e30 if time == 2 and agent == "a" else 0.0], np.float32)

    words = r"agent 'a(gent)?' observes 1e\+30 at step . .* outside its observation space Box\(-1"
    with pytest.warns(ObservationOutsideSpaceWarning, match=words) as told:
        env = bring_in(kind, Far)
    assert [w.category for w in told].count(ObservationOutsideSpaceWarning) == 1
    with pytest.raises(EnvContractError, match=r"e\+30, expected a value within the bounds"):
        check_env(env, num_steps=4, num_envs=2)


@EVERY_KIND
def test_numbers_that_float32_rounds_are_told(kind):
    class Clock(Plan):
        space = spaces.Box(0, 2**40, (2,), np.int64)
        offset = 2**31

        def see(self, agent, time):
            return np.array([self.offset + time, 2**24], np.int64)

    words = r"agent 'a(gent)?' of environment .* observes 2.14748e\+09, where .* are 256 apart"
    with pytest.warns(CoarseObservationWarning, match=words) as told:
        bring_in(kind, Clock)
    assert [w.category for w in told].count(CoarseObservationWarning) == 1
    Clock.offset = 0
    bring_in(kind, Clock)  # up to 2**24 nothing is rounded


@EVERY_KIND
def test_numbers_that_leave_their_space_later_are_told_once(kind):
    class Later(Plan):
        space = spaces.Box(-100.0, 100.0, (1,), np.float32)
        far = 0.0

        def see(self, agent, time):
            return np.array([self.far], np.float32)

    env = bring_in(kind, Later)
    Later.far = -200.0
    with pytest.warns(ObservationOutsideSpaceWarning, match="observes -200 at step . .* of seed 3"):
        list(play(env, 5))
    list(play(env, 5))  # and once only


def test_numbers_outside_their_space_are_told_of_an_agent_as_it_acts():
    class Ahead(Plan):
        space = spaces.Box(-100.0, 100.0, (1,), np.float32)

        def see(self, agent, time):
            return np.array([200.0 if (agent, time) == ("b", 2) else 0.0], np.float32)

    # It is seen from step 4 on, at which b waits for a.
    with pytest.warns(ObservationOutsideSpaceWarning, match="'b' observes 200 at step 5 ") as told:
        from_pettingzoo(lambda: InTurn(Ahead()), num_workers=0)
    assert [w.category for w in told].count(ObservationOutsideSpaceWarning) == 1


@EVERY_KIND
def test_what_cannot_be_played_is_rejected_before_anything_is_compiled(kind):
    class Lists(Plan):
        def pay(self, agent, time):
            return [1.0, 2.0]

    with pytest.raises(ValueError, match=r"has the reward \[1.0, 2.0\], expected one number"):
        bring_in(kind, Lists)

    class Failing(Plan):
        def act(self, actions):
            raise KeyError("no such lane")

    with pytest.raises(ValueError, match=r"tried out with random actions, raises KeyError: 'no "):
        bring_in(kind, Failing)


# ---- Infos ---------------------------------------------------------------------------------------


class Informing(Plan):
    def tell(self, agent, time):
        own = {
            "speed": 2.0 * time,
            "text": "x",
            "row": np.zeros(3),
            "action_mask": np.ones(2, bool),
        }
        goal = {"goal": np.bool_(time == 3 and agent == "a"), "lead": np.float64(0.5)}
        return {**own, "metrics": goal}


@EVERY_KIND
def test_numbers_in_infos_are_metrics_of_their_agent(kind):
    env = bring_in(kind, Informing)
    assert env.layout.metrics == ("goal", "lead", "speed")
    sums = sum(outcome.metrics for outcome, _ in play(env, 20))
    assert sums.tolist() == [[1.0, 2.5, 30.0], [0.0, 2.5, 30.0]][: env.num_agents]


@EVERY_KIND
def test_an_info_whose_name_logs_use_themselves_is_told(kind):
    class Measuring(Plan):
        def tell(self, agent, time):
            return {"length_mean": 7.0, "speed": 2.0}

    with pytest.warns(UserWarning, match=r"the info 'length_mean' of agent 'a(gent)?' is not rep"):
        env = bring_in(kind, Measuring)
    assert env.layout.metrics == ("speed",)


@pytest.mark.parametrize("mode", AutoresetMode)
def test_numbers_in_the_infos_of_a_vector_are_metrics_of_each_life(mode):
    def make():
        return SyncVectorEnv([lambda: Single(Informing())] * 2, autoreset_mode=mode)

    env = from_gymnasium(make, num_workers=0)
    steps = [outcome for outcome, _ in zip((o for o, _ in play(env, 5)), range(5), strict=False)]
    sums = sum(outcome.metrics for outcome in steps)
    assert sums.tolist() == [[1.0, 2.5, 30.0]] * 2


def test_metrics_of_infos_reach_log_callbacks_and_evaluation(tmp_path):
    env = bring_in("rllib", Informing)
    config = TrainConfig(total_env_steps=160, num_envs=2, num_steps=20, mapping="per_agent")
    entries = []
    trainer = Trainer(env, (), config, tmp_path / "run", progress=False, callbacks=[entries.append])
    result = trainer.train()
    report = evaluate_policies(trainer.learner, result.population, 4)
    assert report["agents"]["a"]["speed"] == 30.0
    for last in (entries[-1], read_entries(tmp_path / "run" / "metrics.jsonl")[-1]):
        for part in (last["agents"], last["policies"]):
            assert {name: part["a"][name] for name in env.layout.metrics} == {
                "goal": 1.0, "lead": 2.5, "speed": 30.0
            }  # fmt: skip
            assert part["b"]["goal"] == 0.0


def test_a_run_is_resumed_whatever_numbers_an_environment_reports(tmp_path):
    class Changing(Plan):
        names = ("x", "both")

        def tell(self, agent, time):
            return dict.fromkeys(self.names, 1.0)

    config = TrainConfig(total_env_steps=80, num_envs=2, num_steps=20)
    Trainer(bring_in("rllib", Changing), (), config, tmp_path / "run", progress=False).train()
    Changing.names = ("both", "y")
    env = bring_in("rllib", Changing)
    more = Trainer.resume(tmp_path / "run", env=env, total_env_steps=160, progress=False)
    last = more.train().history[-1]["agents"]["a"]
    assert (last["both"], last["y"]) == (5.0, 5.0)
    assert "x" not in last


def test_a_number_that_appears_late_is_told():
    class Late(Plan):
        named = False

        def tell(self, agent, time):
            return {"found": 1} if self.named else {}

    env = bring_in("rllib", Late)
    Late.named = True
    with pytest.warns(UserWarning, match="info 'found' of agent 'a' first appears at step 1 .* is"):
        list(play(env, 20))


# ---- Phases --------------------------------------------------------------------------------------


class Forty(Plan):
    length = 40


@pytest.mark.parametrize("told", [{}, {"horizon": 40}])
@pytest.mark.parametrize("kind", KINDS)
def test_first_episodes_begin_at_different_phases_whatever_is_told(kind, told):
    env = bring_in(kind, Forty, **told)
    length = 80 if kind == "aec" and not told else 40
    assert env.phase_length(()) == length
    config = TrainConfig(total_env_steps=10**6, num_envs=8, num_steps=40, mapping="shared")
    learner = make_learner(env, (), config)
    times = jax.jit(learner.init)(jax.random.key(0)).per_env.rollout.env_state.time
    assert times.tolist() == [length // 8 * i for i in range(8)]


def test_without_any_end_in_sight_episodes_begin_together():
    env = bring_in("rllib", Long)
    assert env.phase_length(()) is None


class Recall:
    """The first of 40 steps shows one of four symbols; half a point is paid for each repetition."""

    possible_agents = ("a",)

    def __init__(self, config=None):
        self.observation_space = spaces.Box(-1.0, 1.0, (3,), np.float32)
        self.action_space = spaces.Discrete(4)

    def reset(self, *, seed=None, options=None):
        self.time, self.symbol = 0, int(np.random.default_rng(seed).integers(4))
        bits = [self.symbol % 2 * 2 - 1, self.symbol // 2 * 2 - 1, 1]
        return {"a": np.array(bits, np.float32)}, {}

    def step(self, actions):
        self.time += 1
        paid = 0.5 * (actions["a"] == self.symbol)
        seen = {"a": np.zeros(3, np.float32)}
        return seen, {"a": paid}, {"__all__": self.time == 40}, {"__all__": False}, {}


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_an_lstm_learns_where_no_horizon_is_said(seed, tmp_path):
    env = from_rllib_env(Recall, num_workers=0)
    spec = PolicySpec(network=LSTM(hidden_sizes=(32,), lstm_size=32))
    ppo = PPOConfig(
        learning_rate=5e-3, entropy_coef=0.005, num_minibatches=4, num_epochs=8, gamma=0.5
    )
    config = TrainConfig(
        seed=seed,
        total_env_steps=30_080,
        num_envs=8,
        num_steps=40,
        default_policy=spec,
        default_ppo=ppo,
    )
    history = Trainer(env, (), config, tmp_path / "run", progress=False).train().history
    assert np.mean([entry["all"]["return_mean"] for entry in history[-5:]]) >= 17.0
