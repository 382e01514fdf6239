"""Pictures of states, as SVG: what all environments draw with, and the pictures of each."""

from jaxmarl_envs.drawing.svg import DARK, LIGHT, Canvas, fixed_colours

__all__ = ["DARK", "LIGHT", "Canvas", "fixed_colours"]
