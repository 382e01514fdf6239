"""What an evaluation says beyond returns, scenario by scenario."""
