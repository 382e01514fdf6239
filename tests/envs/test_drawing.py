"""Pictures of states: sound SVG, true to the state, for those who see it and those who do not."""

import re
from xml.etree import ElementTree

import jax
import numpy as np
import pytest

import jaxmarl_envs
from jaxmarl_envs.drawing.lives import draw_lives
from jaxmarl_envs.drawing.svg import (
    DARK,
    LIGHT,
    Canvas,
    agent_colour,
    agent_sign,
    fixed_colours,
)
from jaxmarl_envs.shuttle_grid.routes import UNREACHABLE

SVG = "{http://www.w3.org/2000/svg}"


def play(name, actions, params=None, seed=1, **kwargs):
    """Play so many random steps, or given actions; return the environment, picture and state."""
    env, default = jaxmarl_envs.make(name, **kwargs)
    params = default if params is None else params
    obs, state = env.reset(jax.random.key(seed), params)
    random = isinstance(actions, int)
    action = None
    for t in range(actions) if random else actions:
        key = jax.random.key(t if random else 0)
        if not random:
            action = np.asarray(t)
        else:
            noise = jax.random.uniform(key, obs.action_mask.shape)
            action = env.action_layout(params).pick(noise, obs.action_mask)
        obs, state, *_ = env.step_env(key, state, action, params)
    return env, env.render(jax.device_get(state), params, action), state


def parts(svg):
    root = ElementTree.fromstring(svg)
    assert root.tag == f"{SVG}svg"
    assert root.get("role") == "img"
    return root


def title(svg):
    return parts(svg).find(f"{SVG}title").text


DRAWN = {
    "tic_tac_toe": {},
    "tic_tac_toe-5": {"size": (4, 5), "k": 4},
    "shuttle_grid": {},
    "crypto": {},
    "crypto-continuous": {"continuous_actions": True},
    "asymmetric_play": {},
    "asymmetric_play-repeat": {"mode": "repeat"},
    "grouped": {"env": "crypto", "groups": {"good": ["bob_0", "alice_0"]}},
    "joined": {"env": "crypto", "groups": {"good": ["bob_0", "alice_0"]}},
    "jaxmarl-mpe": {"env_id": "MPE_simple_spread_v3"},
    "jaxmarl-smax": {"env_id": "HeuristicEnemySMAX", "scenario": "3m"},
    "jaxmarl-overcooked": {"env_id": "overcooked"},
}


@pytest.mark.parametrize("name", DRAWN)
@pytest.mark.parametrize("steps", [0, 6])
def test_every_picture_is_sound(name, steps):
    _, svg, _ = play(name.partition("-")[0], steps, **DRAWN[name])
    root = parts(svg)
    width, height = (float(x) for x in root.get("viewBox").split()[2:])
    for element in root.iter():
        for letter, most in (("x", width), ("cx", width), ("y", height), ("cy", height)):
            if element.get(letter) is not None:
                assert 0 <= float(element.get(letter)) <= most, ElementTree.tostring(element)
    # Nothing to load, nothing that runs.
    assert "script" not in svg
    assert "href" not in svg
    assert set(re.findall(r"var\(--([a-z]+)\)", svg)) <= LIGHT.keys()
    plain = fixed_colours(svg, DARK)
    parts(plain)
    assert "var(" not in plain
    assert DARK["field"] in plain


def test_the_board_shows_stones_the_last_move_and_the_winner():

    env, svg, state = play("tic_tac_toe", [])
    assert title(svg) == "Board after 0 moves, x to move; x: none; o: none"
    for move, words in zip(
        [[0, 0], [0, 4], [1, 0], [0, 8], [2, 0]],
        [
            "1 moves, o to move; x: a1; o: none",
            "2 moves, x to move; x: a1; o: b2",
            "3 moves, o to move; x: a1, b1; o: b2",
            "4 moves, x to move; x: a1, b1; o: b2, c3",
            "5 moves, x has won; x: a1, b1, c1; o: b2, c3",
        ],
        strict=True,
    ):
        _, state, *_ = env.step_env(jax.random.key(0), state, np.array(move), env.default_params)
        svg = env.render(jax.device_get(state), None, np.array(move))
        assert title(svg) == f"Board after {words}"
        framed = [r for r in parts(svg).iter(f"{SVG}rect") if "stroke" in r.get("style")]
        assert len(framed) == 1
    circles = list(parts(svg).iter(f"{SVG}circle"))
    assert [(float(c.get("cx")), float(c.get("cy"))) for c in circles] == [(72, 72), (112, 112)]
    assert len(list(parts(svg).iter(f"{SVG}path"))) == 2 * 3 + 1  # crosses, and the line


@pytest.mark.parametrize("seed", [0, 1])
def test_a_player_of_pgx_has_the_same_stones_in_every_game(seed):
    """Whoever begins; pgx draws by colours, which change."""
    moves = [[column, column] for column in (3, 2, 3, 2, 3, 2, 3)]
    env, svg, state = play("pgx", moves, seed=seed, env_id="connect_four")
    winner = 1 - int(state.current_player)
    (line,) = [p for p in parts(svg).iter(f"{SVG}path") if "stroke:var(--ink)" in p.get("style")]
    assert line.get("d") == "M152 112L152 232"
    framed = [r for r in parts(svg).iter(f"{SVG}rect") if "stroke" in r.get("style")]
    assert [(r.get("x"), r.get("y")) for r in framed] == [("133", "93")]
    rings = list(parts(svg).iter(f"{SVG}circle"))
    assert {ring.get("cx") for ring in rings} == {"152" if winner == 1 else "112"}
    assert env.sign("player_1").count("<circle") == 1


def test_perfect_moves_are_those_of_the_solver():
    """X in a corner, o to move: only the middle draws. Larger boards have no solver."""
    env, _, state = play("tic_tac_toe", [[0, 0]])
    assert np.nonzero(env.best_actions(state)[1])[0].tolist() == [4]
    env, _, state = play("tic_tac_toe", [])
    assert env.best_actions(state)[0].all()  # every first move draws
    env, _, state = play("tic_tac_toe", [], size=5, k=4)
    assert env.best_actions(state) is None
    env, _, state = play("crypto", [])
    assert env.best_actions(state) is None


def test_the_talk_shows_words_and_guesses():
    _, svg, state = play("crypto", [[1, 0, 3]])
    goal, secret = (int(np.argmax(x)) for x in (state.goal, state.secret))
    eve, bob = ("right" if goal == guess else "wrong" for guess in (1, 0))
    assert title(svg) == (
        f"Step 1: goal {goal}, key {secret}; alice said 3; "
        f"bob guessed 0, {bob}; eve guessed 1, {eve}"
    )
    assert svg.count("\u2713") == 1
    assert svg.count("\u2717") == 1
    _, svg, _ = play("crypto", [np.zeros((3, 4))], continuous_actions=True)
    assert "alice said silence" in title(svg)


def test_the_hall_shows_where_everybody_is_and_goes():
    env, svg, state = play("shuttle_grid", 40)
    words = title(svg)
    assert words.startswith(f"step 40, {int(state.num_delivered.sum())} delivered; ")
    for i in range(env.num_agents):
        row, col = divmod(int(state.cell[i]), env.guidepath.num_cols)
        to = divmod(int(state.target[i]), env.guidepath.num_cols)
        load = "with a load" if state.loaded[i] else "empty"
        assert f"shuttle {i} at {row},{col} {load}, to {to[0]},{to[1]}" in words
    # The ways of the streets: as many arrows as exits, and one for everybody on the way.
    heads = [p for p in parts(svg).iter(f"{SVG}path") if p.get("style") == "fill:var(--edge)"]
    assert len(heads) == (env.guidepath.exits >= 0).sum()


def test_the_hall_tells_whose_target_a_cell_is_and_what_signs_mean():
    env, svg, state = play("shuttle_grid", 40)
    said = [t.text for t in parts(svg).iter(f"{SVG}text")]
    for i in range(env.num_agents):
        assert said.count(str(i)) >= 2, "the shuttle and its target"
    meanings = ("idle", "busy", "loaded", "steps of handling", "port", "load that 0 fetches")
    assert set(meanings) <= set(said)
    assert said.count("P") == len(env.guidepath.port_cells) + 1
    # Of who may choose now, every way is there to be shown; else nothing is.
    ways = {
        (int(g.get("data-slot")), int(g.get("data-shows")))
        for g in parts(svg).iter(f"{SVG}g")
        if g.get("visibility") == "hidden"
    }
    mask = np.asarray(env.exit_times(state) < UNREACHABLE) & np.asarray(state.busy == 0)[:, None]
    assert ways == {(int(i), int(axis) + 1) for i, axis in zip(*np.nonzero(mask), strict=True)}


def test_targets_of_several_shuttles_on_one_cell_are_beside_each_other():
    env, params = jaxmarl_envs.make("shuttle_grid")
    _, state = env.reset(jax.random.key(1), params)
    svg = env.render(jax.device_get(state.replace(storage=np.full(6, 20, np.int32))))
    places = {
        (rect.get("x"), rect.get("y"))
        for rect in parts(svg).iter(f"{SVG}rect")
        if rect.get("width") == "12" and "fill:var(--field)" not in rect.get("style")
    }
    # Six on the cell, and in the legend two and the frame of a cell that is held.
    assert len(places) == 6 + 3


def test_the_rooms_show_whose_turn_it_is_and_what_is_to_be_done():
    env, svg, _ = play("asymmetric_play", [])
    assert "alice's turn; A at row" in title(svg)
    state = env.reset(jax.random.key(0))[1].replace(
        world=np.int32(env.rooms.world(0, 0, [True, False, False, False, False])),
        goal=np.int32(env.rooms.world(0, 1, [False, False, True, False, False])),
        bobs_turn=np.bool_(True),
    )
    svg = env.render(jax.device_get(state))
    assert "bob's turn; B at row 1, column 1; doors open: 1; lamps lit: 0" in title(svg)
    said = [t.text for t in parts(svg).iter(f"{SVG}text")]
    assert "shut" in said
    assert "light" in said
    assert {"door, shut", "lamp, dark", "bob's task", "waits", "A"} <= set(said)
    for move in range(5):
        assert f'<g data-slot="1" data-shows="{move}" visibility="hidden">' in svg
    done = env.render(jax.device_get(state.replace(goal=state.world, over=np.bool_(True))))
    assert "bob is done" in title(done)


def test_others_are_shown_as_a_table_of_their_slots():
    _, svg, _ = play("flex_agents", 3)
    assert svg is None
    env, params = jaxmarl_envs.make("round_robin")
    obs, _ = env.reset(jax.random.key(0), params)
    svg = draw_lives(env.agents, obs.alive, obs.agent_mask, obs.features, "step 0")
    does = ["acts" if acts else "waits" for acts in obs.agent_mask]
    words = ", ".join(f"{name} {how}" for name, how in zip(env.agents, does, strict=True))
    assert title(svg) == f"step 0; {words}"
    draw_lives(("a",), np.array([False]), np.array([False]), np.full((1, 3), np.nan), "x")


def test_no_word_is_read_as_markup():
    canvas = Canvas(10, 10)
    canvas.text(5, 5, "</text><script>alert(1)</script>")
    canvas.agent(0, 5, 5, 3, "<b>")
    svg = canvas.to_svg("<script>&")
    assert "<script" not in svg
    assert title(svg) == "<script>&"


def contrast(first, second):
    """Of two colours, by WCAG 2.2."""

    def luminance(colour):
        channels = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        return linear @ [0.2126, 0.7152, 0.0722]

    high, low = sorted((luminance(first), luminance(second)), reverse=True)
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("colours", [LIGHT, DARK], ids=["light", "dark"])
def test_everything_stands_out(colours):
    """Text by 4.5 to 1 and signs by 3 to 1, on the page and on fields."""
    assert LIGHT.keys() == DARK.keys()
    for ground in ("paper", "field"):
        for name in ("ink", "faint", "good", "bad"):
            assert contrast(colours[name], colours[ground]) >= 4.5, (name, ground)
        for index in range(6):
            name = agent_colour(index)
            assert contrast(colours[name], colours[ground]) >= 3, (name, ground)


def test_no_two_agents_look_alike():
    """Of more than there are colours and shapes, and the number is in the sign as well."""
    bare, numbered = set(), set()
    for index in range(36):
        canvas = Canvas(20, 20)
        canvas.agent(index, 10, 10, 5)
        bare.add(canvas.to_svg(""))
        sign = agent_sign(index)
        numbered.add(sign)
        assert [t.text for t in ElementTree.fromstring(sign).iter(f"{SVG}text")] == [str(index)]
    assert len(bare) == len(numbered) == 36


def test_signs_are_those_of_the_pictures():
    env, _ = jaxmarl_envs.make("tic_tac_toe")
    assert env.sign("x").count("<path") == 2
    assert "<circle" not in env.sign("x")
    assert env.sign("o").count("<circle") == 1
    env, _ = jaxmarl_envs.make("crypto")
    assert ">E</text>" in env.sign("eve_0")
    with pytest.raises(ValueError, match="unknown agent 'carol'"):
        env.sign("carol")
    grouped, _ = jaxmarl_envs.make("grouped", env="crypto", groups={"good": ["bob_0", "alice_0"]})
    assert grouped.sign("alice_0") == env.sign("alice_0")


def test_agents_differ_by_shape_as_well():
    shapes = set()
    for index in range(6):
        canvas = Canvas(20, 20)
        canvas.agent(index, 10, 10, 5)
        shapes.add(re.sub(r'style="[^"]*"', "", canvas.to_svg("").split("\n")[2]))
    assert len(shapes) == 6


def test_a_kitchen_is_what_its_state_says():
    _, svg, state = play("jaxmarl", 0, env_id="overcooked")
    assert title(svg) == "Step 0: agent_0 holds nothing; agent_1 holds nothing"
    game = state.game.replace(agent_inv=np.array([9, 5]), step=np.int32(7))
    picture = jaxmarl_envs.make("jaxmarl", env_id="overcooked")[0].render(
        jax.device_get(state.replace(game=game))
    )
    assert title(picture) == "Step 7: agent_0 holds soup; agent_1 holds plate"
    words = [text.text for text in parts(picture).iter(f"{SVG}text")]
    assert {"pot", "0 of 3", "onions", "plates", "serve"} <= set(words)


def test_those_who_have_fallen_are_not_drawn():
    _, svg, state = play("jaxmarl", 0, env_id="HeuristicEnemySMAX", scenario="3m")
    assert title(svg) == "Step 0: 3 of ours, 3 of theirs"
    battle = state.game.state.replace(unit_alive=np.array([True, False, True, False, False, True]))
    fallen = state.replace(game=state.game.replace(state=battle))
    env, _ = jaxmarl_envs.make("jaxmarl", env_id="HeuristicEnemySMAX", scenario="3m")
    assert title(env.render(jax.device_get(fallen))) == "Step 0: 2 of ours, 1 of theirs"
