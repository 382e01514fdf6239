"""Presets of Jumanji's environments: the tasks of Mava's experiments."""

import pytest

from jaxmarl_ppo import preset
from jaxmarl_ppo.cli.train import parse_train
from jaxmarl_ppo.config.jumanji_presets import JUMANJI_PRESETS
from jaxmarl_ppo.config.parsing import parse_file

# Time limit and generator in mava/configs/env of github.com/instadeepai/Mava at 57c8e64, as they
# stand there.
LBF, RWARE = "time_limit: 100", "time_limit: 500"
YAML = {
    "lbf_2s_8x8_2p_2f_coop": (
        LBF,
        """
grid_size: 8
fov: 2
num_agents: 2
num_food: 2
max_agent_level: 2
force_coop: True
""",
    ),
    "lbf_15x15_4p_3f": (
        LBF,
        """
grid_size: 15
fov: 15
num_agents: 4
num_food: 3
max_agent_level: 2
force_coop: False
""",
    ),
    "connector_5x5x3a": (
        "time_limit: 25",
        """
grid_size: 5
num_agents: 3
""",
    ),
    "rware_tiny_2ag": (
        RWARE,
        """
column_height: 8
shelf_rows: 1
shelf_columns: 3
num_agents: 2
sensor_range: 1
request_queue_size: 2
""",
    ),
    "rware_tiny_4ag": (
        RWARE,
        """
column_height: 8
shelf_rows: 1
shelf_columns: 3
num_agents: 4
sensor_range: 1
request_queue_size: 4
""",
    ),
}


def test_every_preset_is_compared():
    assert list(JUMANJI_PRESETS) == list(YAML)


@pytest.mark.parametrize("name", YAML)
def test_a_task_is_mava_s(write, name):
    limit, generator = YAML[name]
    env_kwargs = dict(preset("jumanji", name).env_kwargs)
    del env_kwargs["env_id"]
    assert env_kwargs.pop("generator") == parse_file(write(generator, "yaml"))
    assert env_kwargs == parse_file(write(limit, "yaml"))


@pytest.mark.parametrize("name", JUMANJI_PRESETS)
def test_a_budget_is_whole_iterations(name):
    config = preset("jumanji", name).config
    assert config.total_env_steps % (config.num_envs * config.num_steps) == 0


def test_the_command_line_repeats_a_row():
    options = parse_train(["jumanji", "--preset", "rware_tiny_2ag"])
    assert options.run.config == preset("jumanji", "rware_tiny_2ag").config
    assert options.run.env_kwargs == preset("jumanji", "rware_tiny_2ag").env_kwargs
