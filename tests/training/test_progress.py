"""What is shown while training runs, in a terminal, a notebook and a pipe."""

import copy
import io

import pytest
from rich.console import Console

from jaxmarl_ppo.training import display, progress

ENTRY = {
    "agents": {
        "x": {"episodes": 3, "return_mean": 0.5, "return_min": -1.0, "return_max": 1.0,
              "length_mean": 7.0, "win": 0.75},
        "o": {"episodes": 0},
    },
    "policies": {"shared": {"episodes": 3, "decisions": 9, "entropy": 1.25, "kl": 0.004}},
}  # fmt: skip


def console(**kwargs):
    return Console(file=io.StringIO(), width=100, **kwargs)


def test_plain_progress_is_sparing_but_has_the_first_and_the_last():
    now = [0.0]
    out = console()
    shown = progress.PlainProgress(out, 1000, ("x", "o"), ("shared",), clock=lambda: now[0])
    with shown:
        for done in range(100, 1001, 100):
            now[0] += 1.0
            shown.advance(done, 100.0)
            shown.show_entry(ENTRY)
    lines = out.file.getvalue().splitlines()
    assert [line.split("/")[0].strip() for line in lines] == ["100", "600", "1,000"]
    assert len({line.index("env-steps") for line in lines}) == 1
    assert "return x +0.500 o -" in lines[0]
    assert "left  0:09" in lines[0]


def test_live_progress_shows_tables():
    out = console(force_terminal=True)
    shown = display.LiveProgress(out, 1000, "title of it")
    shown.set_phase("compiling")
    with shown:
        shown.advance(500, 250.0)
        shown.show_entry(ENTRY)
        page = console()
        page.print(shown.render())
    text = page.file.getvalue()
    for word in (
        "title of it",
        "compiling",
        "50%",
        "500/1k",
        "250/s",
        "left 0:02",
        "0.750",
        "1.25",
    ):
        assert word in text, word


def test_the_stage_of_a_curriculum_is_shown():
    entry = {**ENTRY, "curriculum": {"stage": 1.5}}
    plain, drawn = console(), console()
    with progress.PlainProgress(plain, 1000, ("x", "o"), ("shared",)) as shown:
        shown.show_entry(entry)
    assert "  stage 1.5  return x" in plain.file.getvalue()
    with display.LiveProgress(console(force_terminal=True), 1000, "title of it") as live:
        live.show_entry(entry)
        drawn.print(live.render())
    assert "stage 1.5" in drawn.file.getvalue()


def test_entropy_before_clipping_is_shown_as_entropy():
    policies = {"shared": {"entropy_before_clipping": 0.75}}
    shown = console()
    shown.print(display.policy_table(policies))
    assert "0.75" in shown.file.getvalue()
    out = console()
    plain = progress.PlainProgress(out, 1000, ("x", "o"), ("shared",))
    with plain:
        plain.advance(1000, 100.0)
        plain.show_entry({**ENTRY, "policies": policies})
    assert "entropy 0.750" in out.file.getvalue()


LONG = {
    "agents": {
        f"agent_{k}": {"episodes": 12_345, "return_mean": 0.5, "return_min": -1.0,
                       "return_max": 1.0, "length_mean": 107.5, "win": 0.75, "draw": 0.1,
                       "loss": 0.15}
        for k in range(3)
    },
    "policies": {
        "shared": {"entropy": 1.234, "kl": 1.23e-05, "clip_fraction": 0.0123, "value_loss": 0.0123,
                   "explained_variance": 0.456, "learning_rate": 1.23e-05}
    },
}  # fmt: skip


@pytest.mark.parametrize("width", [50, 60, 80, 120])
def test_live_progress_leaves_out_what_there_is_no_room_for(width):
    """Nothing is cut: no number without its last digits, and returns are always there."""
    now = [0.0]
    out = Console(file=io.StringIO(), width=width, color_system=None, legacy_windows=False)
    shown = display.LiveProgress(out, 16_000_000, "title", clock=lambda: now[0])
    with shown:
        shown.set_phase("compiling")
        now[0] = 30.0
        shown.set_phase("training")
        now[0] = 90.0
        for k in range(30):
            shown.advance(400_000 * k, 123_456.0)
            entry = copy.deepcopy(LONG)
            entry["agents"]["agent_0"]["return_mean"] = k / 10
            shown.show_entry(entry)
        shown.show_evaluation({"env_steps": 8_000_000, "agents": {"x": {"return_mean": 0.25}}})
        shown.show_checkpoint()
        now[0] = 122.0
        page = Console(file=io.StringIO(), width=width, color_system=None)
        page.print(shown.render())
    lines = page.file.getvalue().splitlines()
    assert max(len(line) for line in lines) <= width
    text = "\n".join(lines)
    assert "…" not in text
    assert "+2.900" in text
    assert "1.23" in text
    assert "72%" in text
    assert "evaluated at 8M: x +0.250" in text.replace("\n", " ")
    assert "training 75%" in " ".join(text.split())
    assert "saved 0:32 ago" in " ".join(text.split())
    if width >= 80:
        assert "▁▂▃▃▄▅▆▆▇█" in text
        assert "left 0:36" in text


def test_trends_are_short_and_true():
    assert display.trend([]) == ""
    assert display.trend([1.0, 1.0]) == "▁▁"
    assert display.trend([0.0, float("nan"), 7.0]) == "▁█"
    assert display.trend(list(range(1000))) == "▁▂▃▃▄▅▆▆▇█"
    assert display.trend(list(range(1000))[::-1]) == "█▇▆▆▅▄▃▃▂▁"


def test_a_file_gets_a_line_of_every_evaluation():
    out = console()
    with progress.PlainProgress(out, 1000, ("x", "o"), ("shared",)) as shown:
        shown.show_evaluation({"env_steps": 500, "agents": {"x": {"return_mean": 0.25}, "o": {}}})
    assert out.file.getvalue() == "evaluated at 500: x +0.250\n"


@pytest.mark.parametrize(
    ("function", "value", "text"),
    [
        (progress.count_text, 512, "512"),
        (progress.count_text, 81_920, "81.9k"),
        (progress.count_text, 999_999, "1000k"),
        (progress.count_text, 1_015_808, "1.02M"),
        (progress.count_text, 2.5e12, "2.5T"),
        (progress.count_text, 1e15, "1P"),
        (progress.rate_text, 0.0, "-/s"),
        (progress.time_text, 3723.4, "1:02:03"),
        (progress.time_text, 59.7, "1:00"),
        (progress.time_text, None, "-:--"),
    ],
)
def test_short_numbers(function, value, text):
    assert function(value) == text


def test_where_time_went_in_training_is_told_once_it_is_known():
    now = [0.0]
    shown = display.LiveProgress(console(force_terminal=True), 1000, "t", clock=lambda: now[0])
    with shown:
        shown.set_phase("training")
        now[0] = 70.0
        for entry, wanted in (
            (ENTRY, "training 100%"),
            (
                {**ENTRY, "rollout_share": 0.333},
                "training 100% (rollout 33%, update 67%)",
            ),
        ):
            shown.show_entry(entry)
            page = console(color_system=None)
            page.print(shown.render())
            assert [line.strip() for line in page.file.getvalue().splitlines()].count(wanted) == 1


def test_a_notebook_shows_the_tables_in_one_place_and_not_too_often():
    now, pages = [0.0], []
    shown = display.NotebookProgress(pages.append, 1000, "<b>t</b>", clock=lambda: now[0])
    with shown:
        shown.set_phase("training")
        for done in range(100):
            now[0] += 0.1
            shown.advance(10 * done, 100.0)
        assert 3 <= len(pages) <= 2 + 10.0 / display.NOTEBOOK_INTERVAL_S
        shown.show_entry(ENTRY)
    last = pages[-1]
    assert last.startswith("<pre")
    assert last.endswith("</pre>")
    assert "<b>" not in last  # a name is no HTML
    for word in ("&lt;b&gt;t", "99%", "0.500", "1.25"):
        assert word in last, word


def test_a_notebook_is_recognised(monkeypatch):
    pages = []
    monkeypatch.setattr(display, "_notebook_display", lambda: pages.append)
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    shown = display.make_progress(True, "title", 1000, ("x",), ("shared",))
    assert isinstance(shown, display.NotebookProgress)
    assert "title" in pages[0]
