"""Benchmarks of training speed, and of the share of the machine's throughput that it reaches."""
