"""`python -m jaxmarl_ppo` is `jaxmarl-ppo`."""

from jaxmarl_ppo.cli.main import main

main()
