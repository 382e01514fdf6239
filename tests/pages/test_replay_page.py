"""The page of replays as a file: whole, small, closed to the network and to foreign script."""

import base64
import gzip
import hashlib
import html
import json
import re
from xml.etree import ElementTree

import jax
import numpy as np
import pytest
from documents import ROOT
from hybrid_env_deploy import Hybrid
from page_data import read_page
from PIL import Image
from probe_envs import OpenReach, tiny_learner

import jaxmarl_envs
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.evaluation.replay import replay_episodes
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import MLP
from jaxmarl_ppo.pages.pictures import write_gif, write_svgs
from jaxmarl_ppo.pages.replay_page import page_of, replay_page

EVIL = "</script><script>alert(1)</script><img src=x onerror=alert(2)>"


def make_replays(env, episodes, mapping="per_agent", **kwargs):
    env, params = jaxmarl_envs.make(env, **kwargs)
    config = TrainConfig(
        num_envs=4,
        num_steps=8,
        mapping=mapping,
        default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))),
    )
    learner = make_learner(env, params, config)
    population = jax.jit(learner.init_population)(jax.random.key(1))
    return env, replay_episodes(learner, population, episodes, jax.random.key(0))


def read(path):
    page = path.read_text()
    return page, read_page(page)


@pytest.fixture(scope="module")
def board():
    return make_replays("tic_tac_toe", 3)


@pytest.fixture
def written(board, tmp_path):
    env, replays = board
    path = tmp_path / "watch.html"
    replay_page(replays, env, EVIL, [("run", EVIL)], {"x": 1012.4, EVIL: 3.0}).save(path)
    return read(path)


def test_pictures_come_back_whole(board, written):
    for replay, episode in zip(board[1], written[1]["episodes"], strict=True):
        for drawing, frame in zip(replay.drawings, episode["frames"], strict=True):
            assert "\n".join(episode["lines"][k] for k in frame) == drawing


def test_every_decision_is_told(board, written):
    for replay, episode in zip(board[1], written[1]["episodes"], strict=True):
        assert len(episode["steps"]) == replay.num_steps
        for t, step in enumerate(episode["steps"]):
            for slot, now in enumerate(step):
                assert now["reward"] == replay.reward[t, slot]
                assert now["player"] == replay.players[t, slot]
                assert ("end" in now) == replay.terminated[t, slot]
                assert ("action" in now) == replay.acts[t, slot]
                if "action" not in now:
                    continue
                action = replay.action[t, slot]
                assert now["action"] == action
                assert now["mistake"] == (not replay.best[t, slot, action])
                shares = {k: p for k, p, _ in now["probs"]}
                assert action in shares
                assert list(shares.values())[:-1] == sorted(shares.values(), reverse=True)[:-1]
                for k, share in shares.items():
                    np.testing.assert_allclose(share, replay.probs[t, slot, k], rtol=0.01)


def test_a_bound_that_is_missing_is_null():
    learner = tiny_learner(OpenReach(), None)
    population = jax.jit(learner.init_population)(jax.random.key(1))
    replays = replay_episodes(learner, population, 1, jax.random.key(0))
    data = read_page(replay_page(replays, learner.env, "open").html)
    assert data["layout"]["bounds"] == [[[-1.0, None]], [[0.0, 1.0], [None, None]]]


def test_every_factor_of_a_decision_is_told():
    learner = tiny_learner(Hybrid(), None)
    population = jax.jit(learner.init_population)(jax.random.key(1))
    (replay,) = replay_episodes(learner, population, 1, jax.random.key(0))
    data = read_page(replay_page([replay], learner.env, "hybrid").html)
    assert data["layout"]["starts"] == [0, 4, 7]
    bounds = [[], [[-1.0, 2.0]] * 2, [[0.0, 1.0]] * 2, []]
    assert data["layout"]["bounds"] == bounds
    for t, step in enumerate(data["episodes"][0]["steps"]):
        for slot, (now, counts) in enumerate(zip(step, ([4], [], [3], [2, 3]), strict=True)):
            choices, numbers = (x[t, slot] for x in (replay.action.choices, replay.action.numbers))
            assert [own["taken"] for own in now["choices"]] == choices[: len(counts)].tolist()
            own_numbers = numbers[: len(bounds[slot])]
            np.testing.assert_allclose(now["numbers"], own_numbers, rtol=0.01, atol=1e-6)
            assert now["action"] == [own["taken"] for own in now["choices"]] + now["numbers"]
            for start, own, count in zip((0, 4), now["choices"], counts, strict=False):
                legal = np.nonzero(replay.action_mask[t, slot, start : start + count])[0]
                assert sorted(k for k, _ in own["probs"]) == legal.tolist()
                for option, share in own["probs"]:
                    expected = replay.probs[t, slot, start + option]
                    np.testing.assert_allclose(share, expected, rtol=0.01)
            assert {"value", "entropy"} <= now.keys()
            assert not {"probs", "advice", "scripts", "mistake"} & now.keys()


def test_nothing_is_loaded_and_nothing_foreign_runs(written):
    page, data = written
    assert data["title"] == EVIL  # whole, for the script to show as words
    assert EVIL not in page
    assert "<script>alert" not in page
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")
    scripts = re.findall(r"<script>(.*?)</script>", page, re.DOTALL)
    assert len(scripts) == 1
    digest = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = re.search(r'Content-Security-Policy" content="([^"]*)"', page)[1]
    assert f"script-src 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy


def test_a_shift_of_the_shuttles_is_under_a_megabyte(tmp_path):
    env, replays = make_replays("shuttle_grid", 1, "shared")
    assert replays[0].num_steps == 256
    replay_page(replays, env, "shuttles").save(tmp_path / "watch.html")
    assert (tmp_path / "watch.html").stat().st_size < 1_000_000


def test_a_notebook_shows_the_page_where_it_stands(board):
    env, replays = board
    page = replay_page(replays, env, EVIL)
    shown = page._repr_html_()
    assert shown.startswith("<iframe srcdoc=")
    assert 'sandbox="allow-scripts"' in shown
    source = re.search(r'srcdoc="([^"]*)"', shown)[1]
    assert html.unescape(source) == page.html


def test_pictures_stand_alone(board, tmp_path):
    _, replays = board
    write_svgs(tmp_path / "pictures", replays[0])
    files = sorted((tmp_path / "pictures").iterdir())
    assert len(files) == replays[0].num_steps + 1
    for file in files:
        assert ElementTree.fromstring(file.read_text()).tag.endswith("svg")
        assert "var(" not in file.read_text()
    with pytest.raises(ValueError, match="exists"):
        write_svgs(tmp_path / "pictures", replays[0])


def test_an_animation_has_every_step(board, tmp_path):
    _, replays = board
    write_gif(tmp_path / "game.gif", replays[0])
    with Image.open(tmp_path / "game.gif") as film:
        assert film.n_frames == replays[0].num_steps + 1
        assert film.width == 480
        seen = set()
        for step in range(film.n_frames):
            film.seek(step)
            seen.add(film.convert("RGB").tobytes())
    assert len(seen) == replays[0].num_steps + 1


def test_the_documents_episodes_are_data_of_today(written):
    now = written[1]
    paths = sorted((ROOT / "docs" / "replays").iterdir())
    assert len(paths) == 4
    for path in paths:
        data = json.loads(gzip.decompress(path.read_bytes()))
        assert data.keys() == now.keys(), path
        assert all(each.keys() == now["episodes"][0].keys() for each in data["episodes"]), path
        assert read_page(page_of(data).html) == data
