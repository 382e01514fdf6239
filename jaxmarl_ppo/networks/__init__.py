"""What computes: modules, their memory, and distributions of actions."""
