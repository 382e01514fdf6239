"""A policy exported to ONNX acts as the original, without JAX."""

import functools
import json
import subprocess
import sys
from typing import Any, NamedTuple

import flax.linen as nn
import gymnasium
import jax
import jax.numpy as jnp
import numpy as np
import pytest
from command_line import run as call
from decisive import decisive
from documents import ROOT, python_blocks
from gymnasium import spaces
from hybrid_env_deploy import Hybrid
from probe_envs import OpenReach, RandomLives, Reach, tiny_learner
from run_folders import leave_run

import jaxmarl_envs
from jaxmarl_envs.adapters.incoming.gymnasium import from_gymnasium
from jaxmarl_ppo.config.policies import PolicySpec
from jaxmarl_ppo.config.ppo import PPOConfig
from jaxmarl_ppo.config.train import TrainConfig
from jaxmarl_ppo.deploy import onnx_elementwise, onnx_nodes
from jaxmarl_ppo.deploy.jax_export import as_arguments, random_inputs
from jaxmarl_ppo.deploy.onnx_file import METADATA, NUM_CHECKED_ROWS, OnnxCheck
from jaxmarl_ppo.deploy.policy import Policy
from jaxmarl_ppo.learner.build import make_learner
from jaxmarl_ppo.networks.actor_critic import CNN, MLP

onnx = pytest.importorskip("onnx")
runtime = pytest.importorskip("onnxruntime")

NORMALISERS = {"normalise_observations": True, "normalise_rewards": True}
PREVIOUS = {"prev_action": True, "prev_reward": True}


class Own(nn.Module):
    """A module of a user's: attention over the features, norms, an embedding, memory of its own."""

    num_outputs: int = 0

    def initial_hidden(self, batch_shape):
        return {"last": jnp.zeros((*batch_shape, 4)), "mean": jnp.zeros((*batch_shape, 3))}

    @nn.compact
    def __call__(self, hidden, inputs):
        rows = nn.Embed(5, 4)((inputs[..., :3] > 0).astype(int)) * inputs[..., :3, None]
        rows = nn.LayerNorm()(nn.Dense(4)(rows))
        weights = nn.softmax(jnp.einsum("...ik,...jk->...ij", rows, rows) / 2.0)
        seen = nn.gelu(weights @ rows, approximate=False).sum(-2)
        last = nn.tanh(nn.Dense(4)(jnp.concatenate([seen, hidden["last"]], -1)))
        mean = 0.9 * hidden["mean"] + 0.1 * inputs[..., :3]
        y = nn.silu(nn.Dense(6)(jnp.concatenate([last, mean], -1)))
        value = nn.Dense(1)(y).squeeze(-1)
        return {"last": last, "mean": mean}, nn.Dense(self.num_outputs)(y), value


class Sorting(nn.Module):
    """A module with an operation that ONNX export does not know."""

    num_outputs: int = 0

    @nn.compact
    def __call__(self, hidden, inputs):
        outputs = nn.Dense(self.num_outputs + 1)(jnp.sort(inputs, axis=-1))
        return hidden, outputs[..., 1:], outputs[..., 0]


class Wide(gymnasium.Env):
    """Observes everything that Gymnasium can flatten, and has a mask."""

    observation_space = spaces.Dict(
        {
            "observation": spaces.Dict(
                {
                    "speed": spaces.Box(-1, 1, (2, 2)),
                    "kind": spaces.Discrete(3, start=2),
                    "eye": spaces.Box(0, 255, (2, 3, 3), np.uint8),
                    "more": spaces.Tuple(
                        [spaces.MultiDiscrete([2, 4], start=[1, 0]), spaces.MultiBinary(2)]
                    ),
                }
            ),
            "action_mask": spaces.MultiBinary(3),
        }
    )
    action_space = spaces.Discrete(3)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.observation_space.seed(seed)
        return self._seen(), {}

    def step(self, action):
        return self._seen(), 0.0, False, True, {}

    def _seen(self):
        seen = self.observation_space["observation"].sample()
        return {"observation": seen, "action_mask": np.ones(3, np.int8)}


def with_network(env, params, network, **spec):
    config = TrainConfig(
        num_envs=2,
        num_steps=4,
        default_policy=PolicySpec(network, **spec),
        default_ppo=PPOConfig(num_minibatches=1),
    )
    return make_learner(env, params, config)


def make_case(name):
    """A learner, and the agent whose policy is exported, if not that of all."""
    lives, hybrid = RandomLives(), {**PREVIOUS, "normalise_observations": True}
    if name == "mlp":
        return tiny_learner(*jaxmarl_envs.make("tic_tac_toe"), spec=NORMALISERS), None
    if name == "cnn":
        network = CNN(channels=(4,), hidden_sizes=(8,))
        planes = jaxmarl_envs.make("tic_tac_toe", planes=True)
        return with_network(*planes, network, normalise_observations=True), None
    if name == "lstm":  # one policy for agents that differ
        spec = {**PREVIOUS, **NORMALISERS, "append_agent_id": True}
        return tiny_learner(lives, lives.default_params, memory=True, spec=spec), None
    if name == "gru":
        network = {"separate_critic": True, "head_sizes": (5,), "activation": "gelu"}
        crypto = jaxmarl_envs.make("crypto")
        return tiny_learner(*crypto, memory="gru", mapping="per_agent", network=network), "bob_0"
    if name == "min_gru":
        crypto = jaxmarl_envs.make("crypto")
        network = {"activation": "silu"}
        return (
            tiny_learner(*crypto, memory="min_gru", mapping="per_agent", network=network),
            "eve_0",
        )
    if name == "central":  # its critic sees what the others observe
        spec, network = {"central_critic": True, **NORMALISERS}, {"separate_critic": True}
        return (
            tiny_learner(lives, lives.default_params, mapping="per_agent", spec=spec,
                         network=network),
            "c",
        )  # fmt: skip
    if name == "choices":
        env, params = jaxmarl_envs.make("combination_lock", num_wheels=3, num_options=4)
        return tiny_learner(env, params, network={"unimix": 0.1, "activation": "relu"}), None
    if name in ("squashed", "clipped", "beta"):
        return tiny_learner(Reach(), None, spec={"continuous": name}), None
    if name == "open":
        return tiny_learner(OpenReach(), None, spec=PREVIOUS), None
    if name == "hybrid":
        return tiny_learner(Hybrid(), None, memory="min_gru", spec=hybrid), None
    if name == "both":
        spec = {**hybrid, "continuous": "beta"}
        return tiny_learner(Hybrid(), None, spec=spec), "both"
    if name == "bfloat16":
        network = MLP(hidden_sizes=(8,), dtype="bfloat16")
        return with_network(*jaxmarl_envs.make("tic_tac_toe"), network), None
    return with_network(lives, lives.default_params, Own()), None


CASES = ("mlp", "cnn", "lstm", "gru", "min_gru", "central", "choices", "squashed", "clipped",
         "beta", "open", "hybrid", "both", "bfloat16", "own")  # fmt: skip


class Exported(NamedTuple):
    policy: Policy
    path: Any
    check: OnnxCheck
    session: Any

    @property
    def layout(self):
        return json.loads(self.session.get_modelmeta().custom_metadata_map[METADATA])

    def run(self, inputs, hidden):
        given = {name: np.asarray(x) for name, x in inputs.items()}
        given |= {f"hidden_{i}": np.asarray(x) for i, x in enumerate(hidden)}
        names = [output.name for output in self.session.get_outputs()]
        return dict(zip(names, self.session.run(names, given), strict=True))


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    @functools.cache
    def export(name):
        learner, agent = make_case(name)
        policy = Policy.of(learner, decisive(learner), agent=agent)
        path = tmp_path_factory.mktemp(name) / "policy.onnx"
        check = policy.export_onnx(path)
        return Exported(policy, path, check, runtime.InferenceSession(path))

    return export


@pytest.mark.rare_cases("central", "clipped", "both")
@pytest.mark.parametrize("name", CASES)
def test_a_file_computes_what_the_policy_does(exported, name):
    policy, _, check, _ = found = exported(name)
    signature, near = policy.signature, {"rtol": 1e-5, "atol": 1e-5}
    if name == "bfloat16":
        near = {"rtol": 0.02, "atol": 0.02}
    inputs, hidden = random_inputs(policy, 9)
    outputs = found.run(inputs, hidden)
    given = as_arguments(signature, inputs)
    action, moved = policy.act(hidden=hidden, **given)
    acts = {name: outputs[name] for name in signature.action}
    theirs = signature.split(acts if len(acts) > 1 else acts["action"])
    ours = signature.form.split(signature.form.flatten(action), (9,))
    np.testing.assert_array_equal(theirs[0], ours[0])
    np.testing.assert_allclose(theirs[1], ours[1], **near)
    for i, own in enumerate(moved):
        np.testing.assert_allclose(outputs[f"next_hidden_{i}"], own, **near)
        assert np.ptp(own) > 0.1
    assert check.num_rows == NUM_CHECKED_ROWS == 1000
    assert max(check.differences.values()) < near["atol"]
    if name == "central":
        assert "value" not in outputs
        return
    del given["action_mask"]
    value = policy.value(hidden=hidden, **given)
    np.testing.assert_allclose(outputs["value"], value, **near)


@pytest.mark.parametrize("name", ["mlp", "choices", "hybrid"])
def test_probabilities_are_those_of_the_policy(exported, name):
    policy, *_ = found = exported(name)
    counts, num_numbers = policy.signature.factors
    inputs, hidden = random_inputs(policy, 9)
    probs = found.run(inputs, hidden)["probabilities"]
    legal = inputs["action_mask"][:, : sum(counts)]
    assert probs.shape == legal.shape
    for own, allowed in zip(
        *(np.split(x, np.cumsum(counts)[:-1], -1) for x in (probs, legal)), strict=True
    ):
        np.testing.assert_allclose(own.sum(-1), 1, rtol=1e-5)
        assert (own[~allowed & allowed.any(-1, keepdims=True)] == 0).all()
    if num_numbers:
        return
    rows = {name: jnp.asarray(x) for name, x in inputs.items()}
    _, outputs, _ = policy.forward(policy.params, rows, list(hidden))
    given = as_arguments(policy.signature, inputs)
    drawn, _ = policy.act(hidden=hidden, key=jax.random.key(0), **given)
    choices = np.asarray(drawn).reshape(9, -1)
    action = drawn if name == "mlp" else jaxmarl_envs.actions.Action(drawn, None)
    wanted = policy.network.distribution.log_prob(outputs, policy.network_mask(rows), action)
    starts = np.cumsum([0, *counts[:-1]])
    chosen = np.take_along_axis(probs, choices + starts, -1)
    np.testing.assert_allclose(np.log(chosen).sum(-1), wanted, rtol=1e-4, atol=1e-5)


def test_one_row_is_computed_as_among_others(exported):
    found = exported("lstm")
    inputs, hidden = random_inputs(found.policy, 6)
    together = found.run(inputs, hidden)
    one = found.run({k: x[2:3] for k, x in inputs.items()}, [h[2:3] for h in hidden])
    for name, x in together.items():
        np.testing.assert_allclose(one[name], x[2:3], rtol=1e-5, atol=1e-6)


def test_a_file_says_what_is_in_it(exported):
    found = exported("both")
    layout, signature = found.layout, found.policy.signature
    assert (layout["policy"], layout["env"], layout["format"]) == ("shared", "hybrid", 1)
    assert layout["inputs"]["prev_numbers"] == {"shape": ["batch", 2], "dtype": "float32"}
    assert layout["hidden"] == []
    assert (layout["options"], layout["numbers"]) == ([3], "beta")
    assert set(layout["versions"]) == {"jaxmarl-ppo", "jax"}
    assert layout["agents"] == {
        "both": {
            "slot": 2,
            "feature_shape": [6],
            "num_actions": 5,
            "action": {"tuple": [{"choice": 3}, {"numbers": [2]}]},
            "observation": [
                {"path": [], "shape": [6], "divisor": 1, "options": None, "first": None}
            ],
            "action_mask": [True] * 5,
            "low": [0.0, 0.0],
            "high": [1.0, 1.0],
        }
    }
    shapes = {x.name: tuple(x.shape) for x in found.session.get_inputs()}
    wanted = {name: ("batch", *shape) for name, (shape, _) in signature.inputs.items()}
    assert shapes == wanted
    outputs = [x.name for x in found.session.get_outputs()]
    assert outputs == ["choices", "numbers", "probabilities", "alpha", "beta", "value"]
    agents = exported("hybrid").layout["agents"]
    # Of choices that an agent lacks, option 0 is legal; each has its own bounds.
    assert agents["picker"]["action_mask"] == [True] * 4 + [True, False, False] + [False] * 2
    assert agents["mover"]["high"] == [2.0, 2.0]
    hidden = exported("gru").layout["hidden"]
    assert hidden == [{"shape": ["batch", 6], "dtype": "float32"}] * 2


# ---- What goes wrong -----------------------------------------------------------------------------


def test_an_operation_that_is_not_known_is_named_before_anything_is_written(tmp_path):
    lives = RandomLives()
    learner = with_network(lives, lives.default_params, Sorting())
    policy = Policy.of(learner, decisive(learner))
    message = "policy 'shared' cannot be exported to ONNX: an ONNX file cannot compute `sort`"
    with pytest.raises(ValueError, match=message):
        policy.export_onnx(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_an_observation_with_nan_gets_no_illegal_action(exported):
    found = exported("mlp")
    inputs, hidden = random_inputs(found.policy, 3)
    features, mask = (np.array(inputs[name]) for name in ("features", "action_mask"))
    features[1, 0] = np.nan
    mask[:, :2] = False
    mask[:, 2:] = True
    outputs = found.run({**inputs, "features": features, "action_mask": mask}, hidden)
    assert np.isnan(outputs["probabilities"][1, 2:]).all()
    assert mask[np.arange(3), outputs["action"]].all()


def test_a_file_that_differs_is_not_written(exported, tmp_path, monkeypatch):
    policy, *_ = exported("mlp")
    monkeypatch.setitem(onnx_elementwise.ELEMENTWISE, "tanh", onnx_elementwise._plainly("Sin"))
    message = "computes another probabilities than the policy, .*1,000 random.*nothing was written"
    with pytest.raises(ValueError, match=message):
        policy.export_onnx(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_other_choices_are_noticed(exported, tmp_path, monkeypatch):
    policy, *_ = exported("choices")
    monkeypatch.setitem(onnx_nodes.NODES, "argmax", onnx_nodes._extreme("ArgMin", 0))
    with pytest.raises(ValueError, match=r"makes other choices on .* of 1,000 random inputs"):
        policy.export_onnx(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_a_file_that_does_not_run_is_not_written(exported, tmp_path, monkeypatch):
    policy, *_ = exported("mlp")
    monkeypatch.setitem(onnx_elementwise.ELEMENTWISE, "tanh", onnx_elementwise._plainly("Tan_h"))
    with pytest.raises(ValueError, match=r"does not run the file \(.*Tan_h.*nothing was written"):
        policy.export_onnx(tmp_path / "policy.onnx")
    assert not list(tmp_path.iterdir())


def test_an_existing_file_stays(exported):
    policy, path, *_ = exported("mlp")
    before = path.read_bytes()
    with pytest.raises(ValueError, match="exists; choose another name"):
        policy.export_onnx(path)
    assert path.read_bytes() == before


# ---- Command line --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def run_dir(tmp_path_factory):
    env, params = jaxmarl_envs.make("tic_tac_toe", size=2, k=2)
    config = TrainConfig(default_policy=PolicySpec(network=MLP(hidden_sizes=(4,))))
    learner = make_learner(env, params, config)
    folder = tmp_path_factory.mktemp("runs") / "small"
    return leave_run(folder, learner, config, decisive(learner))


def test_a_policy_is_exported_by_a_command(run_dir, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    status, output, errors = call(capsys, "export", run_dir, "--format", "onnx")
    assert status == 0, errors
    assert "policy shared, which plays x, o; checked on 1,000 random inputs: it acts" in output
    assert "greatest differences: probabilities " in output
    assert "saved in shared.onnx (" in output
    session = runtime.InferenceSession("shared.onnx")
    names = [x.name for x in session.get_outputs()]
    assert names == ["action", "probabilities", "value"]
    status, _, errors = call(capsys, "export", run_dir, "--format", "onnx")
    assert (status, errors.count("\n")) == (2, 1)
    assert "'shared.onnx' exists" in errors


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_the_extra_is_named_where_a_package_is_missing(
    run_dir, capsys, tmp_path, monkeypatch, package
):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, package, None)
    status, _, errors = call(capsys, "export", run_dir, "--format", "onnx")
    assert (status, errors.count("\n")) == (2, 1)
    assert f"{package!r} is not installed: pip install ./envs '.[onnx]'" in errors
    assert not list(tmp_path.iterdir())


def test_options_without_effect_are_named(run_dir, capsys):
    args = ("export", run_dir, "--format", "onnx", "--platforms", "cpu")
    status, _, errors = call(capsys, *args)
    assert (status, errors) == (2, "error: --platforms has no effect with --format onnx; drop it\n")


# ---- Observations --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def wide():
    with pytest.warns(UserWarning, match="is stepped in Python"):
        env = from_gymnasium(Wide, num_workers=0)
    learner = tiny_learner(env, env.default_params)
    return Policy.of(learner, decisive(learner)), env.pool.make_game()


def test_observations_are_flattened_as_in_training(wide):
    policy, game = wide
    for seed in range(5):
        frame = game.reset(seed)
        seen, _ = game.env.reset(seed=seed)
        np.testing.assert_array_equal(policy.flatten(seen), frame.features[0])
        assert policy.flatten(seen).shape == (33,)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda seen: seen.pop("kind"), r"\['observation'\]\['kind'\] is missing \(KeyError"),
        (lambda seen: seen.update(kind=5), r"\['kind'\] is \[5\], but its space has 2 to 4"),
        (
            lambda seen: seen.update(speed=[1, 2]),
            r"\['speed'\] has shape \(2,\), but its space has shape \(2, 2\)",
        ),
        (
            lambda seen: seen.update(more=(np.array([0, 1]), seen["more"][1])),
            r"\['more'\]\[0\] is \[0, 1\], but its space has 1 to 2, 0 to 3",
        ),
    ],
)
def test_an_observation_of_another_space_is_named(wide, change, message):
    policy, game = wide
    seen, _ = game.env.reset(seed=0)
    change(seen["observation"])
    with pytest.raises(ValueError, match=message):
        policy.flatten(seen)


def test_actions_become_those_of_the_environment():
    class Acting(Wide):
        action_space = spaces.Dict(
            {
                "gear": spaces.Discrete(3, start=2),
                "steer": spaces.Box(-1.0, 1.0, (2, 1)),
                "lights": spaces.MultiDiscrete([2, 3], start=[0, 4]),
            }
        )
        observation_space = spaces.Box(-1, 1, (2,))

        def _seen(self):
            return np.zeros(2, np.float32)

    with pytest.warns(UserWarning, match="is stepped in Python"):
        env = from_gymnasium(Acting, num_workers=0)
    learner = tiny_learner(env, env.default_params)
    policy = Policy.of(learner, decisive(learner))
    own = policy.unflatten((np.array([2, 1, 0]), np.array([0.5, -0.5], np.float32)))
    assert env.action_space("agent", ()).contains((np.array([2, 1, 0]), np.array([0.5, -0.5])))
    assert Acting.action_space.contains(own)
    assert (own["gear"], own["lights"].tolist()) == (4, [1, 4])
    assert own["steer"].tolist() == [[0.5], [-0.5]]
    with pytest.raises(ValueError, match="is not of"):
        policy.unflatten(3)


def test_actions_of_several_agents_ask_for_the_agent(exported):
    policy = exported("cnn").policy
    assert policy.unflatten(4, "o") == 4
    with pytest.raises(ValueError, match="plays several agents: pass agent=, one of x, o"):
        policy.unflatten(4)
    with pytest.raises(ValueError, match="does not play agent 'z'; it plays x, o"):
        policy.unflatten(4, "z")


def test_observations_of_this_library_stay_as_they_are(exported):
    policy = exported("cnn").policy
    planes = np.random.default_rng(0).normal(size=policy.signature.feature_shape)
    np.testing.assert_array_equal(policy.flatten(planes), planes.astype(np.float32))
    with pytest.raises(ValueError, match=r"has shape .* but its space has shape"):
        policy.flatten(planes[None])
    with pytest.raises(ValueError, match="does not play agent 'z'; it plays x, o"):
        policy.flatten(planes, "z")


def test_the_agent_is_asked_for_where_observations_differ():
    learner = tiny_learner(*jaxmarl_envs.make("crypto"))
    policy = Policy.of(learner, decisive(learner))
    widths = {agent: own.feature_shape[0] for agent, own in policy.signature.agent_shapes.items()}
    assert len(set(widths.values())) > 1
    with pytest.raises(ValueError, match="have different observations: pass agent=, one of"):
        policy.flatten(np.zeros(4))
    for agent, width in widths.items():
        assert policy.flatten(np.ones(width), agent).shape == (width,)


# ---- The document --------------------------------------------------------------------------------

BLOCKS = python_blocks(ROOT / "docs" / "deployment.md")


def test_the_document_flattens_observations_as_the_policy_does(wide, tmp_path, monkeypatch):
    policy, game = wide
    policy.export_onnx(tmp_path / "bob.onnx")
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {}
    exec(BLOCKS[0], namespace)
    (agent,) = namespace["layout"]["agents"].values()
    for seed in range(5):
        seen, _ = game.env.reset(seed=seed)
        row = namespace["flatten"](seen, agent)
        np.testing.assert_array_equal(row, policy.flatten(seen))
        assert row.dtype == np.float32


@pytest.mark.rare_cases("clipped", "beta")
@pytest.mark.parametrize("name", ["mlp", "choices", "squashed", "clipped", "beta", "open", "both"])
def test_the_document_draws_actions_as_the_policy_does(exported, name):
    policy, *_ = found = exported(name)
    namespace: dict[str, Any] = {"np": np}
    exec(BLOCKS[1], namespace)
    inputs, _ = random_inputs(policy, 1)
    agents, rng = found.layout["agents"], np.random.default_rng(0)
    agent = list(agents.values())[-1]
    inputs |= {"action_mask": np.array([agent["action_mask"]])}
    inputs |= {"agent": np.array([agent["slot"]], np.int32)} if "agent" in inputs else {}
    many = {key: np.repeat(x, 4000, axis=0) for key, x in inputs.items()}
    drawn = namespace["draw"](found.run(many, ()), found.layout, agent, rng)
    action, _ = policy.act(hidden=(), key=jax.random.key(1), **as_arguments(policy.signature, many))
    ours = policy.signature.form.split(policy.signature.form.flatten(action), (4000,))
    varies = False
    for own, theirs in zip(ours, drawn, strict=True):
        if np.size(own):
            a, b = map(np.asarray, (own, theirs))
            width = max(1.0, np.ptp(a))
            np.testing.assert_allclose(a.mean(0), b.mean(0), atol=0.03 * width)
            np.testing.assert_allclose(a.std(0), b.std(0), atol=0.03 * width)
            varies |= a.std() > 0.1
    assert varies


SERVE = """
import json, sys, threading, urllib.request
sys.modules["jax"] = sys.modules["jaxmarl_ppo"] = sys.modules["onnx"] = None
namespace = {"__name__": "service"}
for block in json.loads(sys.argv[1]):
    exec(block, namespace)
namespace["Service"].log_message = lambda *args: None
server = namespace["HTTPServer"](("127.0.0.1", 0), namespace["Service"])
threading.Thread(target=server.serve_forever, daemon=True).start()
for asked in json.loads(sys.stdin.read()):
    request = urllib.request.Request(f"http://127.0.0.1:{server.server_port}",
                                     json.dumps(asked).encode())
    print(urllib.request.urlopen(request).read().decode())
server.shutdown()
"""


def test_the_documents_service_acts_as_the_policy_without_jax(exported, tmp_path):
    policy, path, *_ = exported("gru")
    (tmp_path / "bob.onnx").write_bytes(path.read_bytes())
    rng = np.random.default_rng(3)
    episodes = ["a", "b", "a", "a", "b"]
    seen = rng.normal(size=(len(episodes), *policy.signature.feature_shape)).astype(np.float32)
    asked = [
        {"episode": episode, "observation": row.tolist()}
        for episode, row in zip(episodes, seen, strict=True)
    ]
    asked[2]["action_mask"] = mask = [False, True, True, False]
    answers = subprocess.run(
        [sys.executable, "-c", SERVE, json.dumps([BLOCKS[0], BLOCKS[2]])],
        input=json.dumps(asked), cwd=tmp_path, capture_output=True, text=True, check=False,
        timeout=60,
    )  # fmt: skip
    assert answers.returncode == 0, answers.stderr
    held = {episode: policy.initial_hidden() for episode in episodes}
    for k, (episode, row, line) in enumerate(
        zip(episodes, seen, answers.stdout.splitlines(), strict=True)
    ):
        answer = json.loads(line)
        value = policy.value(row, held[episode])
        action, held[episode] = policy.act(row, held[episode], action_mask=mask if k == 2 else None)
        assert answer["action"] == action
        assert answer["value"] == pytest.approx(float(value), abs=1e-5)
