"""Kuhn poker and Leduc hold'em against plain rules, and their exact values against figures."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_envs.poker import ACTIONS, InformationTable, KuhnPoker, LeducHoldem, State

GAMES = {"kuhn": KuhnPoker, "leduc": LeducHoldem}


@pytest.fixture(scope="module", params=list(GAMES))
def game(request):
    env = GAMES[request.param]()
    step = jax.vmap(env.step_env, in_axes=(None, 0, 0, None))
    return SimpleNamespace(
        name=request.param,
        env=env,
        step=jax.jit(lambda state, action: step(jax.random.key(0), state, action, None)),
        observe=jax.jit(jax.vmap(env.observe)),
        table=InformationTable(env),
    )


@pytest.fixture(scope="module")
def kuhn():
    return InformationTable(KuhnPoker())


@pytest.fixture(scope="module")
def leduc():
    return InformationTable(LeducHoldem())


# ---- Plain rules, written down apart from the environment's --------------------------------------


class Plain:
    """One game in plain Python, by the rules as papers state them."""

    def __init__(self, name, cards):
        self.cards, self.raises = cards, {"kuhn": [1], "leduc": [2, 4]}[name]
        self.most = {"kuhn": 1, "leduc": 2}[name]
        self.pot, self.round, self.bets = [1, 1], 0, ""
        self.turn, self.result = 0, None

    def legal(self):
        owes = self.pot[self.turn] < self.pot[1 - self.turn]
        return [owes, True, self.bets.count("r") < self.most]

    def act(self, action):
        me, other = self.turn, 1 - self.turn
        if action == "fold":
            self.finish(other)
            return
        was_raised = self.pot[me] < self.pot[other]
        self.pot[me] = self.pot[other]
        self.bets += action[0]
        self.turn = other
        if action == "raise":
            self.pot[me] += self.raises[self.round]
        elif was_raised or self.bets == "cc":
            self.round, self.bets, self.turn = self.round + 1, "", 0
            if self.round == len(self.raises):
                self.showdown()

    def showdown(self):
        first, second, *public = self.cards
        pairs = [card in public for card in (first, second)]
        if pairs[0] != pairs[1]:
            self.finish(pairs.index(True))
        elif first == second:
            self.result = [0, 0]
        else:
            self.finish(int(second > first))

    def finish(self, winner):
        won = self.pot[1 - winner]
        self.result = [won, -won] if winner == 0 else [-won, won]


def all_games(name, cards):
    """Every sequence of actions on a deal, with the players' legal actions and the result."""
    found = []

    def walk(actions, masks):
        game = Plain(name, cards)
        for action in actions:
            game.act(ACTIONS[action])
        if game.result is not None:
            found.append((actions, masks, game.result))
            return
        legal = game.legal()
        for action in np.flatnonzero(legal):
            walk([*actions, int(action)], [*masks, (game.turn, legal)])

    walk([], [])
    return found


def test_every_game_goes_as_the_rules_say(game):
    """All deals, all ways to bet: who may do what, who is to act, and what is won."""
    deals = {tuple(deal) for deal in game.env.rules.deals.tolist()}
    games = [(deal, *played) for deal in sorted(deals) for played in all_games(game.name, deal)]
    assert len(games) == {"kuhn": 6 * 5, "leduc": 24 * 49}[game.name]
    longest = max(len(actions) for _, actions, _, _ in games)
    assert longest == game.env.horizon(None)
    state = State(jnp.array([deal for deal, *_ in games]), jnp.zeros(len(games), jnp.int32))
    earned = np.zeros((len(games), 2))
    for time_step in range(longest):
        obs = jax.device_get(game.observe(state))
        action = np.zeros((len(games), 2), np.int32)
        for row, (_, actions, masks, _) in enumerate(games):
            going = time_step < len(actions)
            assert obs.alive[row].tolist() == [going] * 2
            if going:
                turn, legal = masks[time_step]
                assert obs.agent_mask[row].tolist() == [turn == 0, turn == 1]
                assert obs.action_mask[row, turn].tolist() == legal
                assert obs.action_mask[row, 1 - turn].all()
                action[row] = 2 - actions[time_step]  # of the one who waits, something else
                action[row, turn] = actions[time_step]
        _, state, reward, terminated, truncated, _ = jax.device_get(game.step(state, action))
        ends = np.array([len(actions) == time_step + 1 for _, actions, _, _ in games])
        np.testing.assert_array_equal(terminated, np.stack([ends, ends], 1))
        assert not truncated.any()
        assert not reward[~ends].any()
        earned += reward
    np.testing.assert_array_equal(earned, [result for *_, result in games])


def test_a_forbidden_action_counts_as_a_call(game):
    start = State(jnp.asarray(game.env.rules.deals[:1]), jnp.zeros(1, jnp.int32))
    after = [game.step(start, np.full((1, 2), a, np.int32))[1] for a in (0, 1)]  # nothing to pay
    assert int(after[0].node[0]) == int(after[1].node[0])


def test_deals_are_even(game):
    keys = jax.random.split(jax.random.key(0), 6000)
    _, state = jax.jit(jax.vmap(game.env.reset_env, in_axes=(0, None)))(keys, None)
    _, counts = np.unique(np.asarray(state.cards), axis=0, return_counts=True)
    expected = game.table.chance * len(keys)
    assert len(counts) == len(expected)
    assert (np.abs(counts - expected) < 5 * np.sqrt(expected)).all()


# ---- Information states --------------------------------------------------------------------------


def test_an_observation_is_an_information_state(game):
    """As many that differ as there are, whatever the other's card and the hidden public one are."""
    table = game.table
    assert table.num_info_states == {"kuhn": 12, "leduc": 288}[game.name]
    seen = {}
    for node in np.flatnonzero(~game.env.rules.betting.over):
        state = State(jnp.asarray(table.deals), jnp.full(len(table.deals), node, jnp.int32))
        mover = game.env.rules.betting.mover[node]
        for features, info in zip(
            np.asarray(game.observe(state).features)[:, mover], table.info[node], strict=True
        ):
            assert seen.setdefault(features.tobytes(), info) == info
    assert sorted(seen.values()) == list(range(table.num_info_states))


def test_the_table_shows_its_information_states(game):
    table, states = game.table, game.table.states()
    obs = game.observe(states)
    rows = np.arange(table.num_info_states)
    assert np.asarray(obs.agent_mask)[rows, table.mover].all()
    np.testing.assert_array_equal(np.asarray(obs.action_mask)[rows, table.mover], table.action_mask)
    deal = [(table.deals == cards).all(1).argmax() for cards in np.asarray(states.cards)]
    np.testing.assert_array_equal(table.info[table.node, deal], rows)


def test_a_critic_may_see_all_cards(game):
    obs, state = game.env.reset_env(jax.random.key(3), None)
    ranks, shown = 3, np.asarray(state.cards)
    np.testing.assert_array_equal(
        np.asarray(obs.state)[: ranks * len(shown)], np.eye(ranks)[shown].ravel()
    )


# ---- Values --------------------------------------------------------------------------------------


def test_known_values_of_uniform_play(kuhn, leduc):
    """NashConv 11/12 and 4.7472, as in OpenSpiel."""
    assert kuhn.exploitability(kuhn.uniform_policy()) == pytest.approx(11 / 24, abs=1e-12)
    assert leduc.exploitability(leduc.uniform_policy()) == pytest.approx(4.747222 / 2, abs=1e-5)


def kuhn_equilibrium(table, alpha):
    """The family of Kuhn 1950: the first player bets J with alpha, K with 3 alpha."""
    third, policy = 1 / 3, np.zeros((12, 3))
    bets = {  # by history (calls and raises so far), a row for J, Q and K
        "": [alpha, 0, 3 * alpha],
        "c": [third, 0, 1],
        "r": [0, third, 1],  # to call
        "cr": [0, alpha + third, 1],  # to call
    }
    histories = ["".join("cr"[int(np.argmax(x))] for x in table.env.rules.betting.history[n, 0]
                         if x.any()) for n in table.node]  # fmt: skip
    cards = np.asarray(table.states().cards)[np.arange(12), table.mover]
    for row, (history, card) in enumerate(zip(histories, cards, strict=True)):
        p = bets[history][card]
        policy[row] = [1 - p, p, 0] if history.endswith("r") else [0, 1 - p, p]
    return policy


@pytest.mark.parametrize("alpha", [0.0, 0.2, 1 / 3])
def test_kuhns_equilibria_cannot_be_exploited(kuhn, alpha):
    policy = kuhn_equilibrium(kuhn, alpha)
    assert kuhn.exploitability(policy) == pytest.approx(0, abs=1e-12)
    assert kuhn.expected_value(policy, policy) == pytest.approx(-1 / 18, abs=1e-12)
    assert kuhn.best_response_value(policy, "first") == pytest.approx(-1 / 18, abs=1e-12)


def test_beyond_the_family_kuhn_can_be_exploited(kuhn):
    assert kuhn.exploitability(kuhn_equilibrium(kuhn, 0.2) * [1, 1, 1]) < 1e-12
    bluffs = kuhn_equilibrium(kuhn, 0.2)
    raises = np.flatnonzero((kuhn.node == 0) & (bluffs[:, 2] > 0))[0]  # a jack
    bluffs[raises] = [0, 0, 1]
    assert kuhn.exploitability(bluffs) > 0.05


def random_policy(table, seed):
    weights = np.random.default_rng(seed).exponential(size=table.action_mask.shape)
    weights = weights * table.action_mask
    return weights / weights.sum(1, keepdims=True)


def test_a_best_response_is_better_than_every_other_answer(game):
    table, policy = game.table, random_policy(game.table, 0)
    for seed in range(1, 4):
        other = random_policy(table, seed)
        assert table.expected_value(other, policy) < table.best_response_value(policy, "first")
        assert -table.expected_value(policy, other) < table.best_response_value(policy, "second")


def test_kuhns_best_responses_by_trying_all_pure_policies(kuhn):
    policy = random_policy(kuhn, 5)
    for slot, seat in enumerate(("first", "second")):
        own = np.flatnonzero(kuhn.mover == slot)
        values = []
        for bits in range(2 ** len(own)):
            pure = kuhn.uniform_policy()
            for place, row in enumerate(own):
                action = np.flatnonzero(kuhn.action_mask[row])[bits >> place & 1]
                pure[row] = np.eye(3)[action]
            pair = (pure, policy) if slot == 0 else (policy, pure)
            values.append((1 - 2 * slot) * kuhn.expected_value(*pair))
        assert max(values) == pytest.approx(kuhn.best_response_value(policy, seat), abs=1e-12)


def test_expected_value_is_that_of_played_games(leduc):
    """By sampling: uniform play against itself."""
    env = leduc.env
    step = jax.jit(jax.vmap(env.step_env, in_axes=(0, 0, 0, None)))
    keys = jax.random.split(jax.random.key(0), 20_000)
    obs, state = jax.jit(jax.vmap(env.reset_env, in_axes=(0, None)))(keys, None)
    earned, rng = 0.0, np.random.default_rng(0)
    for _ in range(env.horizon(None)):
        action = np.argmax(np.asarray(obs.action_mask) * rng.random(obs.action_mask.shape), -1)
        obs, state, reward, *_ = step(keys, state, action, None)
        earned = earned + np.asarray(reward)[:, 0]
    uniform = leduc.uniform_policy()
    error = earned.std() / np.sqrt(len(keys))
    assert abs(earned.mean() - leduc.expected_value(uniform, uniform)) < 4 * error


def test_what_is_no_policy_is_refused(kuhn):
    with pytest.raises(ValueError, match=r"policy of shape \(2, 3\): must be \(12, 3\)"):
        kuhn.exploitability(np.ones((2, 3)))
    with pytest.raises(ValueError, match="illegal actions the probability"):
        kuhn.exploitability(np.full((12, 3), 1 / 3))
    with pytest.raises(ValueError, match="seat='third': valid choices: first, second"):
        kuhn.best_response_value(kuhn.uniform_policy(), "third")


def test_a_table_is_drawn_as_it_lies():
    env = LeducHoldem()
    betting = env.rules.betting
    node = betting.child[betting.child[0, 2], 1]  # a raise that is called
    words = env.render(State(np.array([0, 2, 1]), np.int32(node)))
    assert "first has J; second has K; public card Q; pot 6" in words
    assert "round 1: raise, call; first to act" in words
    folded = env.render(State(np.array([0, 2, 1]), np.int32(betting.child[betting.child[0, 2], 0])))
    assert "pot 4; round 1: raise; over, second folded" in folded
    assert "public card Q" not in folded
