"""Pictures of JaxMARL's particles, battles and kitchens."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxmarl_envs.drawing.svg import Canvas, agent_colour

# Of Overcooked: how things in the kitchen are numbered, and what is shown of them.
_THINGS = {3: "onion", 4: "onions", 5: "plate", 6: "plates", 7: "serve", 8: "pot", 9: "soup"}
_WALL = 2
CELL = 40.0


def draw_particles(
    positions: np.ndarray, radii: np.ndarray, agents: Sequence[str], time: int
) -> str:
    """Draw what floats in the plane: agents with their letters, then landmarks.

    Args:
        positions: `[entities, 2]`, agents first.
        radii: `[entities]`, of the same units.
        agents: names of the agents.
        time: steps since the beginning.
    """
    size = 260.0
    canvas = Canvas(size, size + 20)
    canvas.rect(2, 2, size - 4, size - 4, "field", corner=6)
    span = max(1.2, float(np.abs(positions).max()) * 1.1)
    scale = (size / 2 - 12) / span
    middle = size / 2
    for k in [*range(len(agents), len(positions)), *range(len(agents))]:
        x, y = middle + scale * positions[k, 0], middle - scale * positions[k, 1]
        radius = max(6.0, scale * float(radii[k]))
        if k < len(agents):
            canvas.agent(k, x, y, radius, str(k))
        else:
            canvas.circle(x, y, radius, "ink")
    canvas.text(6, size + 10, f"step {time}", 10, "faint", "start")
    near = [
        f"{name} at {positions[k, 0]:.1f}, {positions[k, 1]:.1f}" for k, name in enumerate(agents)
    ]
    return canvas.to_svg(f"Step {time}: {'; '.join(near)}")


def draw_battle(battle: Any, width: float, height: float, full_health: np.ndarray) -> str:
    """Draw the units of SMAX: ours with their numbers, the others hollow, and what each has left.

    Args:
        battle: SMAX's state.
        width: of the map.
        height: of the map.
        full_health: `[types]`, what a unit of a type begins with.
    """
    scale = 300.0 / width
    canvas = Canvas(300, scale * height + 20)
    canvas.rect(1, 1, 298, scale * height - 2, "field", corner=6)
    left = [0, 0]
    num_ours = int((np.asarray(battle.unit_teams) == 0).sum())
    for k, (x, y) in enumerate(np.asarray(battle.unit_positions)):
        team = int(battle.unit_teams[k])
        if not battle.unit_alive[k]:
            continue
        left[team] += 1
        place = scale * float(x), scale * (height - float(y))
        canvas.agent(k if team == 0 else 1, *place, 8, str(k % num_ours), hollow=team == 1)
        share = float(battle.unit_health[k]) / float(full_health[int(battle.unit_types[k])])
        canvas.rect(place[0] - 8, place[1] - 15, 16, 3, "edge")
        canvas.rect(place[0] - 8, place[1] - 15, 16 * min(1.0, max(0.0, share)), 3, "good")
    caption = f"step {int(battle.step)}: {left[0]} of ours, {left[1]} of theirs"
    canvas.text(6, scale * height + 10, caption, 10, "faint", "start")
    return canvas.to_svg(caption.capitalize())


def draw_kitchen(state: Any, padding: int, agents: Sequence[str]) -> str:
    """Draw a kitchen of Overcooked: what stands where, who holds what and looks where.

    Args:
        state: Overcooked's state.
        padding: cells around the kitchen in its map.
        agents: names of the agents.
    """
    cells = np.asarray(state.maze_map)[padding:-padding, padding:-padding]
    height, width = np.asarray(state.wall_map).shape
    cells = cells[:height, :width]
    canvas = Canvas(CELL * width + 8, CELL * height + 26)
    for row in range(height):
        for col in range(width):
            left, top = 4 + CELL * col, 4 + CELL * row
            thing, is_wall = int(cells[row, col, 0]), bool(state.wall_map[row, col])
            canvas.rect(left, top, CELL - 2, CELL - 2, "edge" if is_wall else "field", corner=4)
            if thing in _THINGS:
                canvas.rect(left + 4, top + 4, CELL - 10, CELL - 10, "paper", "ink", 0.8, 4)
                canvas.text(left + CELL / 2 - 1, top + CELL / 2 - 1, _THINGS[thing], 8)
            if thing == 8:
                canvas.text(left + CELL / 2 - 1, top + CELL - 11, _soup(int(cells[row, col, 2])), 7)
    said = []
    for k, name in enumerate(agents):
        x, y = (4 + CELL * (float(p) + 0.5) - 1 for p in np.asarray(state.agent_pos)[k])
        u, v = (float(d) for d in np.asarray(state.agent_dir)[k])
        canvas.agent(k, x, y, 10, str(k))
        canvas.arrow((x + 10 * u, y + 10 * v), (x + 18 * u, y + 18 * v), agent_colour(k), 2)
        held = _THINGS.get(int(np.asarray(state.agent_inv)[k]), "nothing")
        if held != "nothing":
            canvas.text(x, y - 14, held, 8, bold=True)
        said.append(f"{name} holds {held}")
    caption = f"step {int(state.step)}"
    canvas.text(6, CELL * height + 16, caption, 10, "faint", "start")
    return canvas.to_svg(f"Step {int(state.step)}: {'; '.join(said)}")


def _soup(status: int) -> str:
    """Return the progress of a pot's soup from the map's number: 23 for an empty pot."""
    if status == 0:
        return "ready"
    return f"{23 - status} of 3" if status > 20 else f"{status} steps"
