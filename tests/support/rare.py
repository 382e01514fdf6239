"""Tests that `make test` leaves out, and `make slow` runs: rarer combinations of what others show.

`@pytest.mark.rare` marks a test of which another one holds the same promise on a simpler case, or
that takes long for what it shows; `@pytest.mark.rare_cases("id", ...)` marks some of the cases of
a parametrised test, by their ids.
"""

import pytest


def mark_cases(items: list[pytest.Item], all_cases: bool) -> None:
    """Mark the cases that `rare_cases` names as `rare`.

    Args:
        items: the collected tests.
        all_cases: whether every case of each test was collected.

    Raises:
        pytest.UsageError: `rare_cases` names a case that the test does not have.
    """
    missing: dict[str, set[str]] = {}
    for item in items:
        test, _, case = item.nodeid.removesuffix("]").partition("[")
        for named in item.iter_markers("rare_cases"):
            missing.setdefault(test, set(named.args)).discard(case)
            if case in named.args:
                item.add_marker(pytest.mark.rare)
    if all_cases and any(missing.values()):
        raise pytest.UsageError(f"rare_cases: no {sorted(set.union(*missing.values()))}")
