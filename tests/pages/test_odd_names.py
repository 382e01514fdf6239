"""Names from files on pages: words, whatever is in them. None can become an element or a script."""

import re
from importlib import resources

import pytest
from page_data import read_page
from probe_envs import Reach

from jaxmarl_ppo.pages import page, play_page, play_server, replay_page, report
from jaxmarl_ppo.pages.page import describe_env, make_page
from jaxmarl_ppo.pages.report import describe_group, describe_runs, report_page
from jaxmarl_ppo.runs.lineage import Event

NAMES = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "</title><svg onload=alert(1)>",
    "-->\"' onfocus=alert(1) autofocus ",
    "{title}{policy}&lt;\u2028",
)
PAGES = {
    "report": report.STATIC,
    "replay": replay_page.STATIC,
    "play": play_server.STATIC,
    "play from a file": play_page.STATIC,
}
# By which words would be read as HTML or as a script.
READS_WORDS = re.compile(
    r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|createContextualFragment|srcdoc"
    r"|\beval\b|\bFunction\(|javascript:|setHTML|parseHTML|setTimeout\(\s*[\"'`]|text/html"
)


def check(made, names):
    """The data come back whole, and no name is anywhere else but in the escaped title."""
    html = made.html
    for name in names:
        assert name not in html
    assert html.count("<script") == html.count("</script") == 2  # the data, and our own
    text, titles = re.subn(r"<title>[^<>]*</title>", "", html.partition("<script>")[0])
    assert titles == 1
    assert "alert(1)" not in text
    return read_page(html)


@pytest.mark.parametrize("name", PAGES)
@pytest.mark.parametrize("odd", NAMES)
def test_names_on_a_page_are_data(name, odd):
    class Odd(Reach):
        agents = (odd,)
        action_names = (odd,)

    made = make_page(odd, "", PAGES[name], {"title": odd, **describe_env(Odd())})
    data = check(made, [odd])
    assert data["title"] == odd
    assert data["agents"][0]["name"] == odd
    assert data["actions"] == [odd]


def test_names_in_a_report_are_data():
    env, agent, policy, member, path = NAMES
    entry = {
        "env_steps": 8,
        "agents": {agent: {"return_mean": 1.0}},
        "policies": {policy: {"loss": 1.0}},
        "league": {
            "players": [policy],
            "win_rate": [[0.5]],
            "games": [[3]],
            "elo": {policy: 1000.0},
        },
        "seconds": {path: 1.0},
        "wall_s": 1.0,
    }
    record = {"env": {"name": env, "params": {path: agent}}, "config": {"policies": {policy: {}}}}
    made = report_page(describe_runs([member], [record], [([entry], [entry])]))
    data = check(made, NAMES)
    (run,) = data["runs"]
    assert (data["title"], run["name"]) == (env, member)
    assert f"agents/{agent}/return_mean" in run["series"]
    assert run["config"][f"env.params.{path}"] == agent
    events = [
        Event(0, 0, member, None, None, None, {}, {path: 1.0}),
        Event(4, 1, member, member, 0.0, 1.0, {path: 1.0}, {path: 2.0}, policy),
    ]
    together = [entry], []
    group = describe_group(together, [member], [record], [([entry], [])], events)
    assert check(report_page(group), NAMES)["lineage"]["rows"][0][1] == member


def test_a_notebook_shows_a_page_in_a_frame_that_names_cannot_leave():
    shown = make_page(NAMES[1], "", PAGES["report"], {"title": NAMES[1]})._repr_html_()
    assert shown.count("<") == 2  # the frame, and its end
    assert 'sandbox="allow-scripts"' in shown


def test_no_script_reads_words_as_html():
    folder = resources.files(page.__package__) / "static"
    scripts = {file.name: file.read_text("utf-8") for file in folder.iterdir()}
    assert {"base.js", "report.js", "replay.js", "play.js", "table.js"} <= scripts.keys()
    for name, script in scripts.items():
        assert not READS_WORDS.search(script), name
        # The one picture that is parsed has all removed that is no drawing.
        assert script.count("DOMParser") == (name == "base.js"), name
        # What an attribute is called is written in the scripts, and is no handler.
        assert not re.search(r"setAttribute\(\s*[\"'`](on|srcdoc|href)", script), name
