"""Every adapter beside the library that it brings in, number by number."""

import copy
import re

import gymnasium
import host_envs
import jax
import numpy as np
import pytest
import rllib_envs
from gymnasium import spaces
from jumanji_games import GAMES as JUMANJI
from plan_envs import KINDS, Plan, bring_in

import jaxmarl_envs
from jaxmarl_envs import check_against_original, make
from jaxmarl_envs.adapters.incoming import pettingzoo_games
from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_envs.adapters.incoming.gymnasium_spaces import read_spaces
from jaxmarl_envs.adapters.incoming.pettingzoo import from_pettingzoo
from jaxmarl_envs.adapters.incoming.pettingzoo_games import ParallelGame
from jaxmarl_envs.adapters.incoming.pgx import Pgx
from jaxmarl_envs.adapters.incoming.rllib import from_rllib_env
from jaxmarl_envs.adapters.incoming.rllib_game import MultiAgentGame
from jaxmarl_envs.adapters.incoming.slot_game import SlotGame
from jaxmarl_envs.adapters.incoming.slot_row import SlotRow
from jaxmarl_envs.check import EnvContractError
from jaxmarl_envs.lockstep import LockstepReport, Original, Reported
from jaxmarl_envs.lockstep.spaces import action_of
from jaxmarl_ppo.cli import check_env as command

pytestmark = pytest.mark.filterwarnings(
    "ignore:.*is stepped in Python",
    "ignore:.*does not do the same for the same seed",
    "ignore::DeprecationWarning",
)
HERE = {"num_workers": 0}


def expect_ends(report, ends):
    """Check that every episode has been played to its end, and how lives ended."""
    seen = {"terminated": report.num_terminated, "truncated": report.num_truncated}
    assert {kind for kind, count in seen.items() if count} == set(ends.split(" and "))
    assert report.num_numbers > 4 * report.num_steps > 0


# ---- Compiled libraries --------------------------------------------------------------------------

LIMITED = "truncated"
TERMINATED = "terminated"
BOTH = "terminated and truncated"
COMPILED = {
    "gymnax": (
        ("CartPole-v1", {"num_agents": 3}, BOTH),
        ("Pendulum-v1", {"num_agents": 2}, LIMITED),
        ("FrozenLake-misc", {"num_agents": 4}, BOTH),
        ("StatelessCartPole", {}, BOTH),
        ("Swimmer-misc", {"num_agents": 2, "num_urchins": 1}, LIMITED),
    ),
    "jaxmarl": (
        ("switch_riddle", {"num_agents": 4}, TERMINATED),
        ("MPE_simple_spread_v3", {}, LIMITED),
        ("MPE_simple_world_comm_v3", {"max_steps": 5}, LIMITED),
        ("HeuristicEnemySMAX", {"scenario": "3m", "max_steps": 14}, BOTH),
        ("SMAX", {"scenario": "5m_vs_6m", "max_steps": 20}, LIMITED),
        ("overcooked", {"layout": "coord_ring", "max_steps": 30, "shaped_reward": 1}, LIMITED),
        ("hanabi", {"num_agents": 3, "shuffle_player_order": True}, TERMINATED),
        ("storm_2p", {"num_inner_steps": 20}, LIMITED),
        ("coin_game", {"num_inner_steps": 4, "num_outer_steps": 3}, LIMITED),
    ),
    "jumanji": tuple(
        (name, options, BOTH if name in ("Connector-v3", "LevelBasedForaging-v0") else TERMINATED)
        for name, options in JUMANJI.items()
    ),
    "pgx": (
        ("tic_tac_toe", {}, TERMINATED),
        ("kuhn_poker", {}, TERMINATED),
        ("connect_four", {"horizon": 16, "planes": True}, BOTH),
        ("leduc_holdem", {}, TERMINATED),
    ),
}
QUICK = {"CartPole-v1", "FrozenLake-misc", "switch_riddle", "tic_tac_toe", "kuhn_poker"}


def compiled_cases():
    for library, games in COMPILED.items():
        for env_id, options, ends in games:
            marks = [] if env_id in QUICK else [pytest.mark.rare]
            yield pytest.param(library, env_id, options, ends, marks=marks, id=env_id)


@pytest.mark.parametrize(("library", "env_id", "options", "ends"), list(compiled_cases()))
def test_a_compiled_environment_is_its_library_s_own(library, env_id, options, ends):
    pytest.importorskip(library)
    env, params = make(library, env_id=env_id, **options)
    if library == "gymnax":
        params = params.replace(max_steps_in_episode=16)
    report = check_against_original(env, params, num_episodes=6, key=jax.random.key(3))
    assert report.num_episodes == 6
    expect_ends(report, ends)
    if library == "gymnax" and env.num_agents > 2:
        assert report.num_early > 0


# ---- Plain Python --------------------------------------------------------------------------------

# Level-Based Foraging with food that one can load alone, that needs all, and with short sight; two
# warehouses. Foraging that was reset before may go another way, so each episode has a new object.
GYMNASIUM = (
    ("CartPole-v1", {}, TERMINATED),
    ("CartPole-v1", {"max_episode_steps": 15}, BOTH),
    ("CartPole-v1", {"horizon": 15}, BOTH),
    ("Taxi-v3", {"max_episode_steps": 9}, LIMITED),
    ("Blackjack-v1", {}, TERMINATED),
    ("Pendulum-v1", {"max_episode_steps": 9}, LIMITED),
    ("lbforaging:Foraging-5x5-2p-2f-v3", {}, TERMINATED),
    ("lbforaging:Foraging-8x8-3p-2f-coop-v3", {"max_episode_steps": 9}, LIMITED),
    ("lbforaging:Foraging-2s-8x8-2p-2f-v3", {"at_time_limit": "truncates"}, LIMITED),
    ("rware:rware-tiny-2ag-v2", {"max_steps": 40}, TERMINATED),
    ("rware:rware-small-4ag-easy-v2", {"max_steps": 20}, TERMINATED),
)


@pytest.mark.parametrize(("env_id", "options", "ends"), GYMNASIUM)
def test_an_environment_of_gymnasium_is_the_raw_one(env_id, options, ends):
    if ":" in env_id:
        pytest.importorskip(env_id.partition(":")[0])
    env, _ = make("gymnasium", env_id=env_id, **HERE, **options)
    expect_ends(check_against_original(env, num_episodes=6), ends)


PETTINGZOO = (
    ("mpe2.simple_spread_v3", {"max_cycles": 7, "continuous_actions": True}, LIMITED),
    ("mpe2.simple_crypto_v3", {"max_cycles": 7}, LIMITED),
    ("mpe2.simple_speaker_listener_v4", {"max_cycles": 7, "api": "aec"}, LIMITED),
    ("classic/tictactoe_v3", {}, TERMINATED),
    ("classic/connect_four_v3", {}, TERMINATED),
    ("classic/rps_v2", {}, LIMITED),
)


@pytest.mark.parametrize(("env_id", "options", "ends"), PETTINGZOO)
def test_an_environment_of_pettingzoo_is_the_raw_one(env_id, options, ends):
    env, _ = make("pettingzoo", env_id=env_id, **HERE, **options)
    expect_ends(check_against_original(env, num_episodes=3), ends)


@pytest.mark.parametrize("make_fn", [host_envs.Leavers, host_envs.Rounds])
def test_agents_that_come_and_go_are_the_raw_ones(make_fn):
    report = check_against_original(from_pettingzoo(make_fn, **HERE), num_episodes=3)
    assert report.num_early > 0
    expect_ends(report, BOTH)


@pytest.mark.parametrize("make_fn", [host_envs.Camera, host_envs.Dozing])
def test_images_and_waiting_agents_are_the_raw_ones(make_fn):
    report = check_against_original(from_pettingzoo(make_fn, horizon=6, **HERE), num_episodes=3)
    expect_ends(report, LIMITED)


RLLIB = (
    (rllib_envs.Shuttles, TERMINATED),
    (rllib_envs.Duel, TERMINATED),
    (rllib_envs.Former, BOTH),
    (rllib_envs.Gamblers, TERMINATED),
)


@pytest.mark.parametrize(("make_fn", "ends"), RLLIB)
def test_a_class_of_rllib_s_is_the_raw_one(make_fn, ends):
    expect_ends(check_against_original(from_rllib_env(make_fn, **HERE), num_episodes=4), ends)


@pytest.mark.parametrize("max_agents", [2, 3, {"car": 2, "bike": 1}])
def test_ids_that_go_on_for_ever_are_the_raw_ones(max_agents):
    env = from_rllib_env(rllib_envs.Spawning, max_agents=max_agents, **HERE)
    report = check_against_original(env, num_episodes=3)
    assert report.num_early == 3 * 2
    expect_ends(report, TERMINATED)


class Hybrid(Plan):
    """Observations and actions of many parts, an image among them."""

    space = spaces.Dict(
        {
            "picture": spaces.Box(0, 255, (2, 3), np.uint8),
            "place": spaces.Tuple((spaces.Discrete(3, start=-1), spaces.MultiDiscrete([2, 3]))),
            "bits": spaces.MultiBinary(2),
        }
    )
    actions = spaces.Tuple(
        (
            spaces.Discrete(3, start=2),
            spaces.Dict({"steer": spaces.Box(-2, 2, (2,)), "kind": spaces.MultiDiscrete([2, 4])}),
        )
    )

    def begin(self, seed):
        self.played = [0.0] * 6
        self.own_space = copy.deepcopy(self.space)
        self.own_space.seed(seed)

    def act(self, actions):
        number, rest = actions["a"] if isinstance(actions, dict) else actions
        self.played = [number, *rest["steer"], *rest["kind"]]

    def see(self, agent, time):
        return self.own_space.sample()

    def pay(self, agent, time):
        return float(np.dot(self.played, [1, 0.1, 0.01, 10, 100, 0][: len(self.played)]))


@pytest.mark.parametrize("kind", KINDS)
def test_products_of_spaces_are_the_raw_ones(kind):
    report = check_against_original(bring_in(kind, Hybrid), num_episodes=2)
    assert report.num_numbers > 10 * report.num_decisions > 0


OPENSPIEL = (
    ("kuhn_poker", {}),
    ("leduc_poker", {"players": 3, "suit_isomorphism": True}),
    ("backgammon", {}),
    ("tic_tac_toe", {}),
    ("connect_four", {"flatten": True}),
    ("phantom_ttt", {}),
    ("phantom_ttt", {"tensor": "observation"}),
    ("goofspiel", {"num_cards": 4, "imp_info": True}),
    ("markov_soccer", {}),
    ("coop_box_pushing", {"horizon": 12}),
    ("hanabi", {"players": 3}),
    ("laser_tag", {"horizon": 15}),
    ("negotiation", {}),
    ("2048", {"horizon": 20}),
    ("othello", {}),
)


@pytest.mark.parametrize(("name", "options"), OPENSPIEL)
def test_a_game_of_openspiel_is_the_raw_one(name, options):
    """Chance before, between and after moves; joint moves, also of players without any; rewards on
    the way; movers that do not alternate; one player; a game that draws itself; boards.
    """
    pytest.importorskip("pyspiel")
    env, _ = make("openspiel", env_id=name, **HERE, **options)
    report = check_against_original(env, num_episodes=2)
    expect_ends(report, LIMITED if "horizon" in options else TERMINATED)


# ---- A difference is found -----------------------------------------------------------------------


def paid_twice(monkeypatch):
    numbers = pettingzoo_games.numbers
    monkeypatch.setattr(pettingzoo_games, "numbers", lambda paid: 2 * np.asarray(numbers(paid)))


def patched_row(change):
    def patch(monkeypatch):
        show = SlotRow.show

        def changed(self, *args, **kwargs):
            show(self, *args, **kwargs)
            change(self)

        monkeypatch.setattr(SlotRow, "show", changed)

    return patch


def see_otherwise(row):
    row._features += np.float32(0.01)


def unmask(row):
    row._legal[:] = row._exists


def played_otherwise(monkeypatch):
    own = SlotGame._own_all
    monkeypatch.setattr(SlotGame, "_own_all", lambda *args: [min(1, x) for x in own(*args)])


def patched_play(change):
    def patch(monkeypatch):
        play = ParallelGame._play

        def changed(self, action, outcome):
            play(self, action, outcome)
            change(self, outcome)

        monkeypatch.setattr(ParallelGame, "_play", changed)

    return patch


def swap(game, outcome):
    swapped = outcome.truncated.copy(), outcome.terminated.copy()
    outcome.terminated[:], outcome.truncated[:] = swapped


def act_all(game, outcome):
    game._acting = game._alive | (np.arange(len(game.names)) == 2)


def end_early(game, outcome):
    if game._time == 3:
        outcome.truncated[:] = game._alive
        game._alive = game._acting = np.zeros_like(game._alive)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (paid_twice, "the sum of rewards so far is"),
        (patched_row(see_otherwise), "the observation"),
        (patched_row(unmask), "the action mask"),
        (played_otherwise, "the sum of rewards so far is"),
        (patched_play(swap), "the end of its life is truncated, but terminated in the original"),
        (patched_play(act_all), "who acts is"),
        (patched_play(end_early), "the end of its life is truncated, but None in the original"),
    ],
)
def test_a_fault_of_an_adapter_is_found(monkeypatch, fault, message):
    env = from_pettingzoo(host_envs.Leavers, **HERE)
    fault(monkeypatch)
    with pytest.raises(EnvContractError, match=message) as caught:
        check_against_original(env)
    assert re.match(r"environment '.*', episode \d, step \d", str(caught.value))


def test_a_fault_of_a_compiled_adapter_is_found(monkeypatch):
    env, params = make("pgx", env_id="kuhn_poker")
    step = Pgx.step_env

    def negated(self, *args):
        obs, state, reward, *rest = step(self, *args)
        return obs, state, -reward, *rest

    monkeypatch.setattr(Pgx, "step_env", negated)
    with pytest.raises(EnvContractError, match="the sum of rewards so far"):
        check_against_original(env, params)


def test_a_reward_in_another_place_is_found(monkeypatch):
    env = from_rllib_env(rllib_envs.Spawning, max_agents=3, **HERE)
    free = MultiAgentGame._free_slot

    def highest(self, agent, freed):
        lowest = free(self, agent, freed)
        taken = set(self._slots.values())
        return max(slot for slot in range(3) if slot not in taken) if self._slots else lowest

    monkeypatch.setattr(MultiAgentGame, "_free_slot", highest)
    with pytest.raises(EnvContractError, match="who acts is"):
        check_against_original(env)


class Paid(Plan):
    """Agent `a` is paid a step after its life has ended."""

    def ends(self, agent):
        return 3 if agent == "a" else 5

    def pay(self, agent, time):
        return 1.0


def test_a_reward_that_is_lost_is_a_difference():
    with pytest.warns(UserWarning, match="does not live"):
        env = bring_in("rllib", Paid)
    message = "step 4, agent 'a': the sum of rewards so far is 3.0, but 4.0"
    with pytest.raises(EnvContractError, match=message):
        check_against_original(env)


# ---- An original of one's own --------------------------------------------------------------------


class TicTacToe(Original):
    """The game, as anyone would write it in Python."""

    def reset(self, key, seed):
        self.board, self.moves = [" "] * 9, 0
        return self.report()

    def step(self, key, chosen):
        ((mover, (choices, _)),) = chosen.items()
        self.board[int(choices[0])] = mover
        self.moves += 1
        return self.report()

    def report(self):
        mover, other = ("x", "o") if self.moves % 2 == 0 else ("o", "x")
        lines = ("012", "345", "678", "036", "147", "258", "048", "246")
        won = any({self.board[int(cell)] for cell in line} == {other} for line in lines)
        over = won or self.moves == 9
        return Reported(
            observations={},
            acting=[] if over else [mover],
            action_masks={} if over else {mover: np.array([cell == " " for cell in self.board])},
            returns={other: float(won), mover: -float(won)},
            ends={"x": "terminated", "o": "terminated"} if over else {},
            is_over=over,
        )


def test_a_port_can_be_compared_with_what_it_was_ported_from():
    env, _ = make("tic_tac_toe")
    report = check_against_original(env, num_episodes=8, original=TicTacToe())
    assert report.num_episodes == 8

    class Misere(TicTacToe):
        def report(self):
            reported = super().report()
            return reported._replace(
                returns={agent: -paid for agent, paid in reported.returns.items()}
            )

    with pytest.raises(EnvContractError, match="the sum of rewards so far"):
        check_against_original(env, original=Misere())


# ---- Words ---------------------------------------------------------------------------------------


def test_what_has_no_original_is_refused():
    with pytest.raises(ValueError, match="has no original: it is not of another library"):
        check_against_original(make("tic_tac_toe")[0])
    vector = from_gymnasium(
        lambda: gymnasium.make_vec("CartPole-v1", num_envs=2), horizon=5, **HERE
    )
    with pytest.raises(ValueError, match="give one environment of a vector"):
        check_against_original(vector)
    env = from_rllib_env(rllib_envs.Restless, **HERE)
    with pytest.raises(ValueError, match="does not do the same for the same seed and actions"):
        check_against_original(env)
    with pytest.raises(ValueError, match="num_episodes=0, num_steps=None: both must be at least"):
        check_against_original(make("tic_tac_toe")[0], num_episodes=0)


def test_the_command_shows_what_was_compared(capsys):
    args = ["pettingzoo", "--env-kwargs", "env_id=classic/tictactoe_v3", "num_workers=0"]
    assert command.main([*args, "--against-original"]) == 0
    shown = capsys.readouterr().out
    assert "the same as its original, step by step" in shown
    assert re.search(r"4 episodes ended; 8 lives terminated, 0 truncated", shown)
    with pytest.raises(ValueError, match="has no original"):
        command.main(["tic_tac_toe", "--against-original"])


def test_reports_add_up():
    report = LockstepReport(1, 2, 3, 4, 5, 6, 7)
    assert report + LockstepReport() == report
    assert (report + report).num_early == 14
    assert jaxmarl_envs.check_against_original is check_against_original


def test_every_value_of_a_byte_is_an_option():
    space = spaces.Box(0, 255, (2,), np.uint8)
    nothing = np.zeros(0)
    assert action_of(space, (np.array([255, 0]), nothing)).tolist() == [255, 0]
    assert action_of(space, (np.array([256 * 3 + 7]), nothing), joint=True).tolist() == [3, 7]
    signed = spaces.Box(-128, 127, (1,), np.int8)
    assert action_of(signed, (np.array([255]), nothing)).tolist() == [127]
    (agent,) = read_spaces({"a": (spaces.Box(0.0, 1.0, (1,)), space)})
    assert agent.own(np.array([255, 0]), nothing).tolist() == [255, 0]
