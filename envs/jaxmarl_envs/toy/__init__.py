"""Small environments: what the examples of other libraries do, and probes of one thing each."""
