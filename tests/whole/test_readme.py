"""The documents' Python code runs as it stands."""

import re

import jax
import numpy as np
import pytest
from command_line import status_of
from documents import ROOT, run_blocks
from run_folders import leave_run

import jaxmarl_envs
import jaxmarl_ppo
from jaxmarl_envs import registry
from jaxmarl_ppo import MLP, PolicySpec, TrainConfig, make_learner
from jaxmarl_ppo.config.rllib.translate import RLlibTranslationWarning
from jaxmarl_ppo.evaluation import trajectories
from jaxmarl_ppo.learner import build

README = ROOT / "README.md"


def test_policies_are_made_as_the_document_says():
    specs = run_blocks(ROOT / "docs" / "policies.md")["specs"]
    config = TrainConfig(mapping={"*": list(specs)}, policies=specs)
    assert config.policies["past"].of == "thinker"
    own = TrainConfig(num_envs=2, num_steps=4, default_policy=specs["fading"])
    learner = make_learner(*jaxmarl_envs.make("crypto"), own)
    assert learner.players.policy_groups[0].network.is_linear


def test_episodes_are_kept_as_the_document_says(tmp_path, monkeypatch):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=2, k=2)
    network = MLP(hidden_sizes=(4,))
    config = TrainConfig(num_envs=2, num_steps=8, default_policy=PolicySpec(network=network))
    leave_run(tmp_path / "runs" / "secret", make_learner(env, params, config), config)
    monkeypatch.chdir(tmp_path)
    namespace = run_blocks(ROOT / "docs" / "watching.md")
    agents = namespace["report"]["agents"]
    assert namespace["returns"].mean(0) == pytest.approx(
        [a["return_mean"] for a in agents.values()]
    )
    assert 0 < namespace["surprise"] < 2
    text = (ROOT / "docs" / "watching.md").read_text()
    with np.load("games.npz") as file:
        assert all(f"`{name}`" in text for name in file.files)
        assert file["format"] in trajectories.FORMATS


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
def test_recipes_run_and_their_tables_are_read(tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime")
    pytest.importorskip("gymnasium")
    pytest.importorskip("optuna")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "choose_num_devices", lambda *_: 1)
    namespace = run_blocks(ROOT / "docs" / "recipes.md")
    assert set(namespace["league"].history[-1]["league"]["elo"]) >= {"p1", "p2"}
    assert np.shape(namespace["payoffs"]["win_rate"]["mean"]) > (2, 2)
    assert namespace["best"].values.keys() == namespace["space"].keys()
    stages = [entry["curriculum"]["stage"] for entry in namespace["remembers"].history]
    assert stages == sorted(stages)
    assert len(namespace["seeds"].members) == 8
    files = ["--picture", "curve.pdf", "--csv", "curves.csv", "--summary", "summary.csv"]
    assert status_of("report", "runs/seeds", *files) == 0
    assert (tmp_path / "curve.pdf").read_bytes().startswith(b"%PDF")
    pandas = pytest.importorskip("pandas")
    curves = pandas.read_csv("curves.csv").query("metric == 'agents/x/return_mean'")
    table = curves.pivot_table("value", "env_steps", "seed")
    assert table.shape == (8, 8)
    assert table.loc[4096, 0] == pytest.approx(
        namespace["seeds"].members[0].history[-1]["agents"]["x"]["return_mean"]
    )


def test_the_curriculum_of_a_file_is_read_as_the_document_shows_it(tmp_path):
    text = (ROOT / "docs" / "policies.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", text, flags=re.DOTALL)
    path = tmp_path / "cue.toml"
    path.write_text(block)
    command = re.search(r"# jaxmarl-ppo (.*) --config", block)
    assert command is not None
    assert status_of(*command[1].split(), "--config", str(path), "--dry-run") == 0
    assert "jaxmarl_envs.toy:RememberCue" in command[1]


@pytest.mark.rare
@pytest.mark.filterwarnings("ignore::jaxmarl_envs.adapters.incoming.host.SlowEnvironmentWarning")
def test_what_rllib_users_ask_for_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(build, "choose_num_devices", lambda *_: 1)
    with pytest.warns(RLlibTranslationWarning, match="use_lstm, .* is honoured here"):
        namespace = run_blocks(ROOT / "docs" / "from-rllib.md")
    results = [namespace[name] for name in ("corridor", "ensembles", "shuttles", "league", "turns")]
    assert namespace["trainer"].config.num_steps == 64
    assert all(not result.interrupted and result.history for result in results)
    assert len(namespace["ensembles"].history[-1]["policies"]) == 9


@pytest.mark.rare
def test_python_blocks_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # By now JAX has started, and has the devices that tests have.
    monkeypatch.setattr(jaxmarl_ppo, "use_cpu_cores", lambda: None)
    namespace = run_blocks(README)
    assert (namespace["result"].run_dir / "curve.png").is_file()
    assert namespace["metrics"].sums.env_steps.shape == (3,)


def test_callbacks_are_told_as_the_document_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert run_blocks(ROOT / "docs" / "runs.md")["result"].env_steps == 4096


def test_environments_are_written_and_drawn_as_the_document_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(registry, "_ENTRY_POINTS", dict(registry._ENTRY_POINTS))
    namespace = run_blocks(ROOT / "docs" / "your-own-environment.md")
    assert jaxmarl_envs.make("whisper")[0].agents == ("speaker", "listener")
    env = namespace["Circle"](num_agents=3)
    _, state = env.reset(jax.random.key(0))
    picture = env.render(jax.device_get(state))
    assert picture.count("<text") >= 3
    assert "<title>step 0</title>" in picture
    assert len(env.action_names) == env.action_layout(env.default_params).width
    assert env.best_actions(jax.device_get(state)).sum(1).tolist() == [1, 1, 1]
    nim = namespace["Nim"]()
    reported = nim.reset(None, None)
    for stones in (3, 3, 3, 1):
        (mover,) = reported.acting
        reported = nim.step(None, {mover: (np.array([stones - 1]), np.array([]))})
    assert reported.is_over
    assert reported.returns == {"player_0": -1.0, "player_1": 1.0}


def test_every_page_of_the_site_is_there_and_every_link_within_the_documents_holds():
    if not (ROOT / "mkdocs.yml").exists():
        pytest.skip("the site is part of the repository, and of no installed package")
    listed = set(re.findall(r"[\w-]+\.(?:md|ipynb)", (ROOT / "mkdocs.yml").read_text()))
    documents = [*sorted((ROOT / "docs").glob("*.md")), README]
    assert {path.name for path in documents if path != README} <= listed | {"index.md"}
    for path in documents:
        text = re.sub(r"```.*?```", "", path.read_text(), flags=re.DOTALL)
        for target in re.findall(r"\]\(([^)\s#]+)(?:#[\w-]*)?\)", text):
            if "://" not in target:
                assert (path.parent / target).exists(), (path.name, target)
