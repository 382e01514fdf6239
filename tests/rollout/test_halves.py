"""Two halves of a batch in turn, against each half by itself."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxmarl_ppo.rollout.halves import Following, scan_halves

NUM_STEPS, NUM_ROWS = 4, 6


def begin(carry, entry):
    return {"drawn": carry["sum"] * 2 + entry}


def finish(carry, begun, entry, following=None):
    total = carry["sum"] * 3 + begun["drawn"] - entry
    results = {"entry": jnp.broadcast_to(entry, total.shape), "total": total}
    if isinstance(following, Following):
        ahead = following.ahead(carry["id"], following.carry["sum"], following.begun["drawn"])
        told = (ahead.is_wanted, ahead.first, ahead.first_now, following.entry)
        results["told"] = jnp.broadcast_to(jnp.stack(told), (*total.shape, 4))
        results["next"] = jnp.stack([ahead.state, ahead.action], axis=1)
    return {**carry, "sum": total}, results


@pytest.fixture(scope="module", params=[1, 2])
def found(request):
    carry = {"sum": jnp.arange(NUM_ROWS), "id": jnp.arange(NUM_ROWS)}
    entries = jnp.arange(2 * NUM_STEPS) + 1
    return jax.jit(lambda *args: scan_halves(begin, finish, *args, request.param))(carry, entries)


def test_each_half_goes_its_own_way(found):
    carry, results = found
    assert results["total"].shape == (NUM_STEPS, NUM_ROWS)
    own, half = {"sum": jnp.arange(NUM_ROWS)}, NUM_ROWS // 2
    for step in range(NUM_STEPS):
        for rows, entry in ((slice(half), 2 * step + 1), (slice(half, None), 2 * step + 2)):
            part = {"sum": own["sum"][rows]}
            after, expected = finish(part, begin(part, entry), entry)
            own = {"sum": own["sum"].at[rows].set(after["sum"])}
            for name in ("total", "entry"):
                np.testing.assert_array_equal(results[name][step, rows], expected[name])
    np.testing.assert_array_equal(carry["sum"], own["sum"])
    np.testing.assert_array_equal(carry["id"], np.arange(NUM_ROWS))


def test_a_half_is_told_what_the_other_does_next(found):
    _, results = found
    told, following = results["told"], results["next"]
    for step in range(NUM_STEPS):
        is_last = step == NUM_STEPS - 1
        # Is it wanted, where do its rows begin, where do these, and the entry that it has.
        assert told[step, 0].tolist() == [1, 3, 0, 2 * step + 2]
        assert told[step, -1].tolist() == [not is_last, 0, 3, 1 if is_last else 2 * step + 3]
        if not is_last:
            own = results["total"][step, :3]
            np.testing.assert_array_equal(following[step, 3:, 0], own)
            np.testing.assert_array_equal(following[step, 3:, 1], own * 2 + 2 * step + 3)
