"""Benchmarks of training speed, and of the fraction of the machine's throughput it reaches."""
