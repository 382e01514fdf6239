"""Two CPU devices for all tests, so that training spread over devices is tested everywhere."""

import jax

jax.config.update("jax_num_cpu_devices", 2)
