"""Pictures of states, as SVG: what several environments draw with."""

from jaxmarl_envs.drawing.svg import DARK, LIGHT, Canvas, fixed_colours

__all__ = ["DARK", "LIGHT", "Canvas", "fixed_colours"]
