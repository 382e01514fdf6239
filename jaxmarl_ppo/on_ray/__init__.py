"""Work on a Ray cluster: workers of a search, hosts of a run, a `Trainable` for Tune."""
