"""The algorithm as pure functions: `TrainState` in, `TrainState` out."""
