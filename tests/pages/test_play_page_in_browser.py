"""The page that needs no server: the same game, the same players, the same moves."""

import jax
import numpy as np
import pytest

pytest.importorskip("selenium")
from browser import (
    complaints,
    expect_readable,
    keep_picture,
    open_browser,
    requests,
    set_scheme,
    set_width,
)
from playing import tables_of
from selenium.webdriver.common.by import By
from selenium.webdriver.support.ui import WebDriverWait

from jaxmarl_ppo.evaluation.replay import ask_everybody
from jaxmarl_ppo.networks.actor_critic import GRU, LSTM, MLP, MinGRU
from jaxmarl_ppo.pages.game_table import play_step
from jaxmarl_ppo.pages.play_page import play_page

EVIL = "</script><img src=x onerror=document.title='owned'>"
# Enough of them for a thousand positions on the first board.
GAMES = {
    "tic_tac_toe": 180,
    "memory": 20,
    "gru": 4,
    "min_gru": 4,
    "large": 4,
    "connect_four": 4,
    "pgx": 4,
}
MADE = {
    "tic_tac_toe": ("tic_tac_toe", {}, MLP(hidden_sizes=(32, 32))),
    "memory": ("tic_tac_toe", {}, LSTM(hidden_sizes=(8,), lstm_size=8)),
    "gru": ("tic_tac_toe", {}, GRU(hidden_sizes=(8,), gru_size=8)),
    "min_gru": ("tic_tac_toe", {}, MinGRU(hidden_sizes=(8,), gru_size=8)),
    "large": ("tic_tac_toe", {"size": 5, "k": 4}, MLP(hidden_sizes=(8,))),
    "connect_four": ("pgx", {"env_id": "connect_four"}, MLP(hidden_sizes=(8,))),
    "pgx": ("pgx", {"env_id": "tic_tac_toe"}, MLP(hidden_sizes=(8,))),
}


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder, found = tmp_path_factory.mktemp("pages"), {}
    for name, (env, kwargs, network) in MADE.items():
        table = tables_of(env, network=network, **kwargs)()
        path = folder / f"{name}.html"
        play_page(table, EVIL).save(path)
        found[name] = table, path
    return found


@pytest.fixture(scope="module")
def driver():
    browser = open_browser()
    browser.set_script_timeout(300)
    yield browser
    browser.quit()


def show(driver, path):
    requests(driver), complaints(driver)
    set_width(driver, 1280)
    driver.get(path.as_uri())
    WebDriverWait(driver, 60).until(
        lambda d: d.find_elements(By.CSS_SELECTOR, "#picture svg") or error(d)
    )
    return driver


def error(driver):
    return driver.find_element(By.ID, "error").text


def status(driver):
    return driver.find_element(By.ID, "status").text


def play_game(table, key):
    """Play a game among policies, as the page is to play it."""
    play = table.play.replace(key=key)
    now, moves = begin(play), []
    while True:
        probs = np.asarray(ask(play, now)["probs"][0])
        num_agents = table.env.num_agents
        nobody = np.zeros(num_agents, np.int32), np.zeros(num_agents, bool)
        now, action, reward, over, _ = step(play, now, *nobody)
        moves.append((np.asarray(action[0]).tolist(), probs))
        if bool(over[0]):
            return moves, np.asarray(reward[0]).tolist()


begin = jax.jit(lambda play: play.begin())
ask, step = jax.jit(ask_everybody), jax.jit(play_step)

PLAY = """
const found = [];
for (const key of arguments[0]) {
  beginGame(newArray("uint32", [2], Uint32Array.from(key)));
  table.persons = [];
  const moves = [];
  while (!table.end) {
    const probs = numbers(table.programs.ask(table.now)[0]);
    moves.push([step({}), probs.map((p) => (Number.isFinite(p) ? p : -1))]);
  }
  found.push([moves, table.earned]);
}
return found;
"""


@pytest.mark.parametrize("name", MADE)
def test_the_page_plays_the_same_moves(driver, pages, name):
    table, path = pages[name]
    show(driver, path)
    assert error(driver) == ""
    keys = jax.random.split(jax.random.key(5), GAMES[name])
    words = np.asarray(jax.random.key_data(keys)).tolist()
    found = driver.execute_script(PLAY, words)
    num_positions = 0
    for key, (moves, earned) in zip(keys, found, strict=True):
        wanted, reward = play_game(table, key)
        assert [move[0] for move in moves] == [move[0] for move in wanted]
        for (_, probs), (_, want) in zip(moves, wanted, strict=True):
            np.testing.assert_allclose(
                probs, np.where(np.isfinite(want), want, -1).ravel(), atol=1e-5
            )
        assert earned == reward
        num_positions += len(moves)
    if name == "tic_tac_toe":
        assert num_positions >= 1000


def play_out(driver):
    while "Your move" in status(driver):
        places = driver.find_elements(By.CSS_SELECTOR, "#picture .legal")
        places[-1].click()
    return status(driver)


@pytest.mark.parametrize("name", MADE)
def test_a_game_by_clicks_without_a_network(driver, pages, name):
    _, path = pages[name]
    show(driver, path)
    first, second, both = driver.find_elements(By.CSS_SELECTOR, "#sides input")
    assert first.is_selected()
    assert "trained policy" in driver.find_element(By.ID, "agents").text
    driver.find_element(By.ID, "hint").click()
    shares = [words.text for words in driver.find_elements(By.CSS_SELECTOR, "#picture .share")]
    assert sum(int(share.split()[0]) for share in shares) == pytest.approx(100, abs=len(shares))
    assert "its policy expects" in driver.find_element(By.ID, "agents").text
    assert play_out(driver) in ("You have won.", "You have lost.", "A draw.")
    driver.find_element(By.ID, "undo").click()
    assert "Your move" in status(driver)
    second.click()
    driver.find_element(By.ID, "begin").click()
    assert "Your move" in status(driver)
    play_out(driver)
    keep_picture(driver, f"page-{name}")
    both.click()
    driver.find_element(By.ID, "begin").click()
    for _ in range(60):
        places = driver.find_elements(By.CSS_SELECTOR, "#picture .legal")
        if not places:
            break
        places[0].click()
    assert status(driver) == "The game is over."
    assert [url for url in requests(driver) if url != path.as_uri()] == []
    assert complaints(driver) == []
    assert driver.title == EVIL


def test_the_winning_line_is_drawn(driver, pages):
    show(driver, pages["connect_four"][1])
    driver.find_element(By.CSS_SELECTOR, '#sides input[value="0,1"]').click()
    driver.find_element(By.ID, "begin").click()
    for column in (3, 2, 3, 2, 3, 2):
        driver.find_element(By.CSS_SELECTOR, f'#picture [data-action="{column}"]').click()
        assert not driver.find_elements(By.CSS_SELECTOR, "#picture .won")
    driver.find_element(By.CSS_SELECTOR, '#picture [data-action="3"]').click()
    line = driver.find_element(By.CSS_SELECTOR, "#picture .won")
    # Four in the fourth column, from its foot.
    assert line.get_attribute("d") == "M152 112L152 232"
    signs = driver.find_elements(By.CSS_SELECTOR, "#agents .agent > .row > svg")
    assert [len(sign.find_elements(By.TAG_NAME, "circle")) for sign in signs] == [0, 1]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_everywhere_by_everybody(driver, pages, scheme):
    set_scheme(driver, scheme)
    show(driver, pages["connect_four"][1])
    expect_readable(driver, f"page-{scheme}")


def test_a_page_that_computes_something_else_does_not_play(driver, pages, tmp_path):
    table, _ = pages["tic_tac_toe"]
    path = tmp_path / "wrong.html"
    play_page(table, "wrong").save(path)
    page = path.read_text()
    # As if this browser had another hyperbolic tangent; the page's policy knows the script's sum.
    driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": "Math.tanh = (x) => x"}
    )
    assert "Math.tanh" in page
    driver.get(path.as_uri())
    WebDriverWait(driver, 60).until(error)
    assert "does not compute what was trained" in error(driver)
    assert not driver.find_elements(By.CSS_SELECTOR, "#picture svg")


def test_what_has_no_board_is_refused():
    with pytest.raises(ValueError, match="has no board"):
        play_page(tables_of("shuttle_grid", max_steps=4)(), "")
