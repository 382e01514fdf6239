"""`python -m jaxmarl_ppo` is `jaxmarl-ppo`."""

from jaxmarl_ppo.cli import main

main()
