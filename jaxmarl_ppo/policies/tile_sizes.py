"""Tiles, of one policy each, for rows of drawn policies: their size, and how many at once.

At a step each policy has about its share of the rows. Its last tile is partly empty, and so may be
the tiles of the last pass; but every pass has a fixed cost.
"""

import numpy as np

from jaxmarl_ppo.machine.tuning import tuning

MIN_TILE_ROWS, MAX_TILE_ROWS = 16, 512
# Fixed costs of a tile and a pass, in rows.
ROWS_PER_TILE, ROWS_PER_PASS = 13, 25
NUM_DRAWS = 64
FULL_TILES = 4  # of a policy, where all rows are computed in one pass
MIN_ENVS_VALUED = 8  # at once; fewer would not be cheaper


def envs_valued_at_once(num_envs: int) -> int:
    """Choose how many environments' final observations are valued at once; few end at a step.

    An accelerator values all: reading their number would need the host.
    """
    if not tuning().weighs_tiles:
        return num_envs
    return min(max(num_envs // 16, MIN_ENVS_VALUED), num_envs)


def choose_tiles(num_rows: int, valued_rows: int, num_policies: int) -> tuple[int, int]:
    """Choose the rows of a tile, and how many tiles are computed at once.

    Args:
        num_rows: that can act at a step.
        valued_rows: of the environments that are valued at once.
        num_policies: that are drawn for them, each as often as the others.
    """
    most = tuning().max_pass_rows
    if not tuning().weighs_tiles:
        # All in one pass. Every policy can leave a tile partly empty, so each gets several.
        share = max(num_rows // (FULL_TILES * num_policies), 1)
        power_of_two = 1 << (share.bit_length() - 1)
        size = min(max(power_of_two, MIN_TILE_ROWS), most)
        return size, max(1, most // size)
    # Always the same draws: the choice is part of the program that is compiled.
    rng = np.random.default_rng(0)
    shares = np.full(num_policies, 1.0 / num_policies)
    counts = {rows: rng.multinomial(rows, shares, NUM_DRAWS) for rows in (num_rows, valued_rows)}

    def cost(size: int, at_once: int) -> float:
        # What a step costs on average, in rows: acting, and valuing what has ended.
        total = 0.0
        for rows, drawn in counts.items():
            fitting = min(size, rows)
            num_tiles = (-(-drawn // fitting)).sum(axis=1)
            of_pass = at_once * (fitting + ROWS_PER_TILE) + ROWS_PER_PASS
            total += (-(-num_tiles // at_once)).mean() * of_pass
        return total

    sizes = [MIN_TILE_ROWS]
    while sizes[-1] < min(num_rows, MAX_TILE_ROWS):
        sizes.append(2 * sizes[-1])
    choices = [
        (size, at_once)
        for size in sizes
        for at_once in range(1, min(most // size, num_rows // size + num_policies) + 1)
    ]
    return min(choices, key=lambda choice: cost(*choice))
