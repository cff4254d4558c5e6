"""Trains a small policy on a pool of grid worlds whose stepping core is in C, then
evaluates the greedy policy and the random baseline on a second, larger pool."""
import ctypes
import os
import subprocess
import tempfile

import numpy as np
import torch
import torch.nn as nn

CORE = r"""
#include <stdint.h>
#include <stdlib.h>
typedef struct { int64_t n, side; int64_t *pos, *goal, *t; uint64_t rng; } Pool;
static int64_t *dx, *dy;
static uint64_t nxt(Pool *p) { p->rng ^= p->rng << 13; p->rng ^= p->rng >> 7; p->rng ^= p->rng << 17; return p->rng; }
static void obs(Pool *p, int64_t i, float *o) {
    int64_t s = p->side;
    o[0] = (float)(p->pos[i] % s) / s; o[1] = (float)(p->pos[i] / s) / s;
    o[2] = (float)(p->goal[i] % s) / s; o[3] = (float)(p->goal[i] / s) / s;
}
static void place(Pool *p, int64_t i) {
    int64_t c = p->side * p->side;
    p->pos[i] = nxt(p) % c; p->goal[i] = nxt(p) % c; p->t[i] = 0;
}
Pool *pool_make(int64_t n, int64_t side, uint64_t seed) {
    static const int64_t mx[4] = {1, -1, 0, 0}, my[4] = {0, 0, 1, -1};
    if (!dx) { dx = malloc(32); dy = malloc(32); for (int k = 0; k < 4; k++) { dx[k] = mx[k]; dy[k] = my[k]; } }
    Pool *p = malloc(sizeof(Pool));
    p->n = n; p->side = side; p->rng = seed * 2654435769u + 1;
    p->pos = malloc(8 * n); p->goal = malloc(8 * n); p->t = malloc(8 * n);
    return p;
}
void pool_reset(Pool *p, float *o) { for (int64_t i = 0; i < p->n; i++) { place(p, i); obs(p, i, o + 4 * i); } }
void pool_step(Pool *p, const int64_t *act, float *o, float *rew, uint8_t *done) {
    for (int64_t i = 0; i < p->n; i++) {
        int64_t s = p->side, x = p->pos[i] % s + dx[act[i]], y = p->pos[i] / s + dy[act[i]];
        if (x >= 0 && x < s && y >= 0 && y < s) p->pos[i] = y * s + x;
        int hit = p->pos[i] == p->goal[i];
        rew[i] = hit ? 1.0f : -0.01f;
        done[i] = hit || ++p->t[i] >= 60;
        if (done[i]) place(p, i);
        obs(p, i, o + 4 * i);
    }
}
"""


def build_core():
    folder = tempfile.mkdtemp(prefix="m42_gridpool_eval_", dir="/tmp")
    src, lib = os.path.join(folder, "gridpool.c"), os.path.join(folder, "libgridpool.so")
    with open(src, "w") as f:
        f.write(CORE)
    subprocess.run(["gcc", "-O2", "-g", "-shared", "-fPIC", src, "-o", lib], check=True)
    core = ctypes.CDLL(lib)
    core.pool_make.restype = ctypes.c_void_p
    core.pool_make.argtypes = [ctypes.c_int64, ctypes.c_int64, ctypes.c_uint64]
    core.pool_reset.argtypes = [ctypes.c_void_p] * 2
    core.pool_step.argtypes = [ctypes.c_void_p] * 5
    core.pool_reset.restype = core.pool_step.restype = None
    return core


class Discrete:
    def __init__(self, n, seed):
        self.n = n
        self.rng = np.random.default_rng(seed)

    def sample(self, k):
        return self.rng.integers(0, self.n, size=k, dtype=np.int32)


class GridPool:
    def __init__(self, core, num_envs, side=6, seed=1):
        self.core, self.num_envs = core, num_envs
        self.handle = core.pool_make(num_envs, side, seed)
        self.action_space = Discrete(4, seed)
        self.obs = np.zeros((num_envs, 4), np.float32)
        self.reward = np.zeros(num_envs, np.float32)
        self.done = np.zeros(num_envs, np.uint8)

    def reset(self):
        self.core.pool_reset(self.handle, self.obs.ctypes.data)
        return self.obs.copy()

    def step(self, actions):
        actions = np.ascontiguousarray(actions)
        if actions.shape != (self.num_envs,):
            raise ValueError(f"expected {self.num_envs} actions, got {actions.shape}")
        if actions.min() < 0 or actions.max() >= self.action_space.n:
            raise ValueError("action outside of the action space")
        self.core.pool_step(self.handle, actions.ctypes.data, self.obs.ctypes.data,
                            self.reward.ctypes.data, self.done.ctypes.data)
        return self.obs.copy(), self.reward.copy(), self.done.astype(bool)


def train(core, policy, updates=25, horizon=16):
    pool = GridPool(core, num_envs=64, seed=3)
    opt = torch.optim.Adam(policy.parameters(), lr=5e-3)
    obs = torch.from_numpy(pool.reset())
    for update in range(updates):
        logps, rewards, ends = [], [], []
        for _ in range(horizon):
            dist = torch.distributions.Categorical(logits=policy(obs))
            action = dist.sample()
            logps.append(dist.log_prob(action))
            nxt, reward, done = pool.step(action.numpy())
            obs = torch.from_numpy(nxt)
            rewards.append(torch.from_numpy(reward))
            ends.append(torch.from_numpy(done))
        ret, returns = torch.zeros(64), []
        for reward, end in zip(reversed(rewards), reversed(ends)):
            ret = reward + 0.95 * ret * (~end)
            returns.insert(0, ret)
        adv = torch.stack(returns)
        adv = (adv - adv.mean()) / (adv.std() + 1e-6)
        loss = -(torch.stack(logps) * adv).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if update % 8 == 0:
            print(f"update {update} mean reward {torch.stack(rewards).mean():.4f}", flush=True)


def evaluate(core, name, act, steps=50):
    pool = GridPool(core, num_envs=256, seed=9)
    obs, total = pool.reset(), 0.0
    for _ in range(steps):
        obs, reward, _ = pool.step(act(pool, obs))
        total += float(reward.mean())
    print(f"{name}: return per env {total:.3f}", flush=True)
    return total


def main():
    torch.manual_seed(0)
    core = build_core()
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 4))
    train(core, policy)
    with torch.no_grad():
        greedy = evaluate(core, "greedy", lambda pool, obs: policy(torch.from_numpy(obs)).argmax(-1).numpy())
        chance = evaluate(core, "random", lambda pool, obs: pool.action_space.sample(pool.num_envs))
    print(f"advantage over chance {greedy - chance:.3f}", flush=True)


if __name__ == "__main__":
    main()
