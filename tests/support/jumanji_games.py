"""Environments of Jumanji that are small enough to be played in a moment."""

WAREHOUSE = {
    "shelf_rows": 1,
    "shelf_columns": 3,
    "column_height": 2,
    "num_agents": 3,
    "sensor_range": 1,
    "request_queue_size": 4,
}
FORAGE = {"grid_size": 5, "num_agents": 2, "num_food": 1, "fov": 1, "force_coop": False}
GRID = {"grid_size": 5, "num_agents": 3}
MAZE = {"num_rows": 4, "num_cols": 4, "num_agents": 2}
JOBS = {"num_jobs": 4, "num_machines": 3, "max_num_ops": 2, "max_op_duration": 2}
GAMES = {
    "RobotWarehouse-v0": {"generator": WAREHOUSE, "time_limit": 20},
    "LevelBasedForaging-v0": {"generator": FORAGE, "time_limit": 30},
    "Connector-v3": {"generator": GRID, "time_limit": 12},
    "Cleaner-v0": {"generator": MAZE, "time_limit": 30},
    "SearchAndRescue-v0": {"time_limit": 6},
    "RubiksCube-partly-scrambled-v0": {"time_limit": 5},
    "JobShop-v0": {"generator": JOBS},
    "MMST-v0": {"time_limit": 8},
    "Tetris-v0": {"num_rows": 6, "num_cols": 5, "time_limit": 10},
    "Snake-v1": {"num_rows": 4, "num_cols": 4, "time_limit": 30},
    "Game2048-v1": {"board_size": 2},
}
