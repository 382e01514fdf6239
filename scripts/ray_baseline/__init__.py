"""Comparison of RLlib's PPO with this package's on the same games, for `scripts/compare_ray.py`.

Modules named `*_twin` are the games in plain Python and NumPy, as RLlib steps them; they import
neither Ray nor JAX. Among the others, only `rllib_*` need Ray, and only `our_side` and `noise` need
JAX.
"""
