"""Where the numbers of a run go."""

import json
import math
import warnings

from jaxmarl_ppo.runs.files import METRICS_FILE
from jaxmarl_ppo.runs.log import RunLog


def test_what_is_not_finite_is_named_once_and_left_out_of_the_curves(tmp_path, caplog):
    with RunLog(tmp_path) as log, warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for steps in (8, 16):
            log.write({"env_steps": steps, "policies": {"x": {"kl": math.nan, "loss": math.inf}}})
    assert [str(warning.message) for warning in caught] == [
        "policies/x/kl is nan after 8 environment steps; what is not finite is left out of "
        "TensorBoard's curves"
    ]
    assert not caplog.records
    lines = (tmp_path / METRICS_FILE).read_text().splitlines()
    assert [json.loads(line)["policies"] for line in lines] == [
        {"x": {"kl": None, "loss": None}}
    ] * 2
