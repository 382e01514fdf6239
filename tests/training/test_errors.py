"""What errors of training say."""

from pathlib import Path

import pytest

from jaxmarl_ppo.rollout.faults import FAULT_FIELDS, no_fault
from jaxmarl_ppo.training.errors import EnvironmentFault


@pytest.mark.parametrize(
    ("num_choices", "words"), [(1, "no legal action"), (2, "a choice without a legal option")]
)
def test_a_mask_that_leaves_nothing_is_told_by_the_number_of_choices(num_choices, words):
    fault = no_fault().replace(field=FAULT_FIELDS.index("action_mask"))
    error = EnvironmentFault("hybrid", "pair", fault, 5, Path("run"), num_choices)
    assert f"environment 'hybrid' gave {words} in 'action_mask' of agent 'pair'" in str(error)
