import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

HERE = os.path.dirname(os.path.abspath(__file__))
OBS_DIM, ACT_DIM = 10, 2


def build_sim(workdir):
    so = os.path.join(workdir, "libdrive.so")
    subprocess.check_call(
        ["gcc", "-O1", "-g", "-shared", "-fPIC", os.path.join(HERE, "a195_drive_sim.c"), "-o", so, "-lm"])
    lib = ctypes.CDLL(so)
    p, f, i = ctypes.c_void_p, ctypes.c_float, ctypes.c_int
    lib.world_create.restype = p
    lib.world_create.argtypes = [i]
    lib.world_destroy.argtypes = [p]
    lib.world_add_polyline.argtypes = [p, p, i, i, f]
    lib.world_reset.argtypes = [p, p]
    lib.world_step.argtypes = [p, p, p]
    lib.world_observe.argtypes = [p, f, p]
    return lib


def make_scene(name, num_agents, num_lanes, points_per_lane, seed):
    rng = np.random.default_rng(seed)
    lanes = []
    t = np.linspace(0, 1, points_per_lane)
    for k in range(num_lanes):
        bend = rng.uniform(-40, 40)
        x = 200 * t
        y = 4.0 * k + bend * t * t
        lanes.append((np.stack([x, y], 1).astype(np.float32), k % 3))
    state = np.zeros((num_agents, 6), np.float32)
    state[:, 0] = rng.uniform(0, 30, num_agents)
    state[:, 1] = rng.uniform(0, 4 * num_lanes, num_agents)
    state[:, 2] = rng.uniform(2, 6, num_agents)
    state[:, 4] = state[:, 0] + 60
    state[:, 5] = state[:, 1] + rng.uniform(-5, 5, num_agents)
    return {"name": name, "lanes": lanes, "state": state}


class DriveEnv:
    def __init__(self, lib, scene, radius=30.0, polyline_reduction=0.0):
        self.lib, self.scene, self.radius = lib, scene, radius
        self.n = len(scene["state"])
        self.world = lib.world_create(self.n)
        for xy, kind in scene["lanes"]:
            xy = np.ascontiguousarray(xy)
            lib.world_add_polyline(self.world, xy.ctypes.data, len(xy), kind, polyline_reduction)

    def reset(self):
        state = np.ascontiguousarray(self.scene["state"])
        self.lib.world_reset(self.world, state.ctypes.data)
        return self.observe()

    def observe(self):
        obs = np.zeros((self.n, OBS_DIM), np.float32)
        self.lib.world_observe(self.world, self.radius, obs.ctypes.data)
        return torch.from_numpy(obs) / 10

    def step(self, action):
        act = np.ascontiguousarray(action.numpy(), dtype=np.float32)
        reward = np.zeros(self.n, np.float32)
        self.lib.world_step(self.world, act.ctypes.data, reward.ctypes.data)
        return self.observe(), torch.from_numpy(reward)

    def close(self):
        self.lib.world_destroy(self.world)


class Policy(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(OBS_DIM, hidden), nn.Tanh(), nn.Linear(hidden, ACT_DIM))
        self.log_std = nn.Parameter(torch.full((ACT_DIM,), -0.5))

    def dist(self, obs):
        return torch.distributions.Normal(self.net(obs), self.log_std.exp())


def rollout(env, policy, horizon=60):
    obs = env.reset()
    logps, rewards = [], []
    for _ in range(horizon):
        d = policy.dist(obs)
        act = d.sample()
        logps.append(d.log_prob(act).sum(-1))
        obs, rew = env.step(act)
        rewards.append(rew)
    ret = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    return torch.stack(logps), ret


def main():
    torch.manual_seed(0)
    scenes = [
        make_scene("tfrecord-00000_4", 4, 6, 400, seed=1),
        make_scene("tfrecord-00000_7", 6, 10, 500, seed=2),
        make_scene("tfrecord-00000_9", 8, 24, 900, seed=3),
    ]
    with tempfile.TemporaryDirectory(prefix="drive_") as work:
        lib = build_sim(work)
        policy = Policy()
        opt = torch.optim.Adam(policy.parameters(), lr=3e-3)
        for scene in scenes:
            env = DriveEnv(lib, scene)
            print(f"scene {scene['name']}: {env.n} agents, {len(scene['lanes'])} lanes", flush=True)
            for it in range(15):
                logp, ret = rollout(env, policy)
                adv = (ret - ret.mean()) / (ret.std() + 1e-6)
                loss = -(logp * adv).mean()
                opt.zero_grad()
                loss.backward()
                opt.step()
                if it % 5 == 4:
                    print(f"  iter {it + 1} return {ret[0].mean():.3f} loss {loss.item():.4f}", flush=True)
            env.close()


if __name__ == "__main__":
    main()
