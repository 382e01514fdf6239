"""A plain-Python simulator of `shuttle_grid`, and what its tests share."""

import heapq
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxmarl_envs.shuttle_grid.dispatchers import other_exit


def put(env, state, cells, **fields):
    """The state with idle shuttles on these `(row, col)` cells."""
    num_cols, num = env.guidepath.num_cols, env.num_agents
    cell = jnp.array([row * num_cols + col for row, col in cells], jnp.int32)
    zeros = jnp.zeros(num, jnp.int32)
    state = replace(
        state, cell=cell, reserved=cell, axis=zeros, busy=zeros, wait=zeros, loaded=zeros > 0
    )
    state = replace(
        state, **{k: jnp.asarray(v, getattr(state, k).dtype) for k, v in fields.items()}
    )
    return replace(state, exit_times=env.exit_times(state))


class Oracle:
    """A slow simulator that shares nothing with the environment but the draws of the jobs."""

    def __init__(self, env, cells, jobs):
        self.rows, self.cols = env.guidepath.num_rows, env.guidepath.num_cols
        self.timing, self.max_steps = env.guidepath.timings, env.max_steps
        self.ports = {divmod(int(c), self.cols) for c in env.guidepath.port_cells}
        self.jobs, self.t = jobs, 0  # jobs[i][k] = (storage cell, port cell)
        self.shuttles = []
        for i, cell in enumerate(cells):
            job = jobs[i][0]
            self.shuttles.append(
                {
                    "at": cell, "to": cell, "axis": 0 if self.exit(cell, 0) else 1, "loaded": False,
                    "busy": self.timing.handling if cell == job[0] else 0, "wait": 0, "k": 0,
                }
            )  # fmt: skip
        self.distances = {loaded: self.all_distances(loaded) for loaded in (False, True)}
        self.conflicts = self.picks = 0

    def exit(self, cell, axis):
        row, col = cell
        if axis == 0:
            col += 1 if row % 2 == 0 else -1
        else:
            row += -1 if col % 2 == 0 else 1
        return (row, col) if 0 <= row < self.rows and 0 <= col < self.cols else None

    def move_time(self, loaded, old_axis, axis):
        move = self.timing.move_loaded if loaded else self.timing.move_empty
        return move + (self.timing.turn if old_axis != axis else 0)

    def all_distances(self, loaded):
        """Dijkstra from every (cell, axis): {(cell, axis): {target: steps}}."""
        found = {}
        for source in [
            ((r, c), a) for r in range(self.rows) for c in range(self.cols) for a in (0, 1)
        ]:
            best, queue = {}, [(0, source)]
            while queue:
                steps, (cell, axis) = heapq.heappop(queue)
                if (cell, axis) in best:
                    continue
                best[cell, axis] = steps
                for b in (0, 1):
                    if self.exit(cell, b):
                        reach = steps + self.move_time(loaded, axis, b)
                        heapq.heappush(queue, (reach, (self.exit(cell, b), b)))
            found[source] = {}
            for (cell, _), steps in best.items():
                found[source][cell] = min(steps, found[source].get(cell, steps))
        return found

    def target(self, i):
        shuttle = self.shuttles[i]
        return self.jobs[i][shuttle["k"]][1 if shuttle["loaded"] else 0]

    def held(self, cell, but):
        return any(cell in (s["at"], s["to"]) for j, s in enumerate(self.shuttles) if j != but)

    def step(self, actions):
        """Advance; returns each shuttle's deliveries."""
        wants = {}
        for i, (s, action) in enumerate(zip(self.shuttles, actions, strict=True)):
            goal = self.exit(s["at"], int(action) - 1) if action else None
            if s["busy"] == 0 and goal and not self.held(goal, i):
                rank = (s["loaded"], min(s["wait"], 999), (i + self.t) % len(self.shuttles))
                wants.setdefault(goal, []).append((rank, i))
        self.conflicts += sum(len(who) > 1 for who in wants.values())
        winners = {max(who)[1]: goal for goal, who in wants.items()}
        delivered = [0] * len(self.shuttles)
        for i, s in enumerate(self.shuttles):
            s["wait"] = s["wait"] + 1 if s["busy"] == 0 and i not in winners else 0
            if i in winners:
                axis = int(actions[i]) - 1
                s["busy"] = self.move_time(s["loaded"], s["axis"], axis)
                s["axis"], s["to"] = axis, winners[i]
            if s["busy"] > 0:
                s["busy"] -= 1
                if s["busy"] == 0:
                    delivered[i] = self.finish(i)
        self.t += 1
        return delivered

    def finish(self, i):
        s = self.shuttles[i]
        if s["to"] != s["at"]:
            s["at"] = s["to"]
            if s["at"] == self.target(i):
                s["busy"] = self.timing.handling
        elif s["loaded"]:
            s["loaded"], s["k"] = False, s["k"] + 1
            return 1
        else:
            s["loaded"] = True
            self.picks += 1
        return 0

    def exit_times(self, i):
        """Steps until the target is served via each exit, None where there is none."""
        s = self.shuttles[i]
        times = []
        for b in (0, 1):
            cell = self.exit(s["to"], b)
            way = cell and self.distances[s["loaded"]][cell, b][self.target(i)]
            move = self.move_time(s["loaded"], s["axis"], b)
            times.append(s["busy"] + move + way + self.timing.handling if cell else None)
        return times

    def observe(self, i, scale):
        me, height, width = self.shuttles[i], self.rows - 1, self.cols - 1
        longest = max(self.move_time(x, 0, 1) for x in (0, 1))
        longest = max(longest, self.timing.handling)
        (row, col), target, times = me["at"], self.target(i), self.exit_times(i)
        exits = [self.exit(me["to"], b) for b in (0, 1)]
        handling = me["busy"] > 0 and me["to"] == me["at"]
        remaining = me["busy"] if handling else min(t for t in times if t is not None)
        features = [2 * row / height - 1, 2 * col / width - 1, 2 * me["axis"] - 1, me["loaded"]]
        features += [me["busy"] / longest, me["wait"] / (me["wait"] + 8)]
        features += [(target[0] - row) / height, (target[1] - col) / width, remaining / scale]
        features += [e is not None for e in exits]
        features += [e is not None and not self.held(e, i) for e in exits]
        features += [1.0 if t is None else t / scale for t in times]
        features += [1 - self.t / self.max_steps]
        near = [(row + r, col + c) for r in range(-2, 3) for c in range(-2, 3)]
        features += [self.held(cell, i) for cell in near]
        inside = [0 <= r <= height and 0 <= c <= width for r, c in near]
        features += [(c in self.ports) if x else -1 for c, x in zip(near, inside, strict=True)]
        for k in range(1, len(self.shuttles)):
            j = (i + k) % len(self.shuttles)
            mate, goal = self.shuttles[j], self.target(j)
            (r, c), (to_r, to_c) = mate["at"], mate["to"]
            features += [(r - row) / height, (c - col) / width, mate["loaded"], mate["busy"] > 0]
            features += [mate["busy"] / longest, to_r - r, to_c - c]
            features += [(goal[0] - row) / height, (goal[1] - col) / width]
            features += [mate["wait"] / (mate["wait"] + 8)]
        return np.array(features, np.float32)

    def observe_more(self, i, scale):
        """What a full view adds."""
        num, height, width = len(self.shuttles), self.rows - 1, self.cols - 1
        row, col = self.shuttles[i]["at"]

        def port_of(j):
            to_row, to_col = self.jobs[j][self.shuttles[j]["k"]][1]
            return [(to_row - row) / height, (to_col - col) / width]

        def rank(j):
            shuttle = self.shuttles[j]
            return shuttle["loaded"], min(shuttle["wait"], 999), (j + self.t) % num

        features = [*port_of(i), (i + self.t) % num / num]
        for j in [(i + k) % num for k in range(1, num)]:
            features += [2 * self.shuttles[j]["axis"] - 1]
            features += [1.0 if t is None else t / scale for t in self.exit_times(j)]
            features += [*port_of(j), rank(j) > rank(i)]
        return np.array(features, np.float32)

    def remaining(self, i):
        """Steps until shuttle i has delivered if nobody is in the way; either axis counts half."""
        me, handling = self.shuttles[i], self.timing.handling
        at_work = me["busy"] > 0 and me["to"] == self.target(i)
        if at_work:
            left = me["busy"] + (handling if me["to"] != me["at"] else 0)
        else:
            left = min(t for t in self.exit_times(i) if t is not None)
        if me["loaded"]:
            return left
        storage, port = self.jobs[i][me["k"]]
        ways = [self.distances[True][storage, axis][port] for axis in (0, 1)]
        return left + handling + (ways[me["axis"]] if at_work else sum(ways) / 2)


def mixed(state, obs, params, key):
    """Mostly sensible actions, so that loads get delivered, and one in five at random."""
    key_choice, key_random = jax.random.split(key)
    chosen = other_exit(state, obs, params, key)
    random = jax.random.randint(key_random, chosen.shape, 0, 3)
    return jnp.where(jax.random.uniform(key_choice, chosen.shape) < 0.2, random, chosen)


@partial(jax.jit, static_argnums=(0, 1, 3))
def trace(env, dispatcher, key, num_steps):
    """Everything that happened, with a leading axis of steps; observations are those after."""
    key_reset, key_steps = jax.random.split(key)
    params = env.default_params

    def step(carry, key):
        obs, state = carry
        action = dispatcher(state, obs, params, key)
        obs, state, reward, terminated, truncated, info = env.step_env(key, state, action, params)
        return (obs, state), (action, obs, state, reward, terminated, truncated, info)

    start = env.reset_env(key_reset, params)
    return start, jax.lax.scan(step, start, jax.random.split(key_steps, num_steps))[1]


def jobs_of(env, key, num_jobs):
    """`jobs[i][k]` as the documentation states them: `fold_in(fold_in(key, i), k)`."""
    key_reset, _ = jax.random.split(key)
    _, key_jobs = jax.random.split(key_reset)

    ports = env.guidepath.port_cells
    others = jnp.array(sorted(set(range(env.guidepath.num_cells)) - set(ports.tolist())))

    def job(i, k):
        bits = jax.random.bits(jax.random.fold_in(jax.random.fold_in(key_jobs, i), k))
        return others[bits % len(others)], jnp.asarray(ports)[bits // len(others) % len(ports)]

    i, k = jnp.meshgrid(jnp.arange(env.num_agents), jnp.arange(num_jobs), indexing="ij")
    storage, port = jax.vmap(jax.vmap(job))(i, k)
    pair = np.stack([storage, port], axis=-1).tolist()
    return [
        [tuple(divmod(c, env.guidepath.num_cols) for c in job) for job in jobs] for jobs in pair
    ]
