"""What `scripts/compare_ray.py` runs: Ray RLlib's PPO and this package's on the same games.

Modules named `*_twin` are the games in plain Python and NumPy, as RLlib steps them; they import
neither Ray nor JAX. Of the rest only `rllib_*` need Ray, and only `our_side` and `noise` JAX.
"""
