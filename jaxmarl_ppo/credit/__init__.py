"""Credit assignment: the rewards and advantages of each transition."""
