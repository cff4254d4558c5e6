import argparse
import ctypes
import logging
import subprocess
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn as nn
from torch.distributions import Categorical

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("vecppo")

F32 = np.ctypeslib.ndpointer(np.float32, flags="C_CONTIGUOUS")
I64 = np.ctypeslib.ndpointer(np.int64, flags="C_CONTIGUOUS")


def compile_shared(workdir, name, *flags):
    target = Path(workdir) / f"{name}.so"
    src = Path(__file__).with_suffix(".c")
    subprocess.run(["gcc", "-O1", "-g", "-shared", "-fPIC", "-w", *flags, "-o", str(target), str(src),
                    "-lm", "-ldl"], check=True)
    return str(target)


def load_vecenv(path):
    lib = ctypes.CDLL(path)
    lib.vec_create.restype = ctypes.c_void_p
    lib.vec_create.argtypes = [ctypes.c_char_p, ctypes.c_int, ctypes.c_uint]
    lib.vec_obs_n.argtypes = lib.vec_act_n.argtypes = lib.vec_close.argtypes = [ctypes.c_void_p]
    lib.vec_reset.argtypes = [ctypes.c_void_p, F32]
    lib.vec_step.argtypes = [ctypes.c_void_p, I64, F32, F32, F32]
    return lib


class VecEnv:
    def __init__(self, lib, plugin, num_envs, seed):
        self.lib, self.n = lib, num_envs
        self.handle = lib.vec_create(plugin.encode(), num_envs, seed)
        if not self.handle:
            raise RuntimeError(f"cannot open environment {plugin}")
        self.obs_n, self.act_n = lib.vec_obs_n(self.handle), lib.vec_act_n(self.handle)
        self.obs = np.zeros((num_envs, self.obs_n), np.float32)
        self.reward, self.done = np.zeros(num_envs, np.float32), np.zeros(num_envs, np.float32)

    def reset(self):
        self.lib.vec_reset(self.handle, self.obs)
        return torch.from_numpy(self.obs.copy())

    def step(self, actions):
        self.lib.vec_step(self.handle, actions.numpy(), self.obs, self.reward, self.done)
        return tuple(torch.from_numpy(a.copy()) for a in (self.obs, self.reward, self.done))

    def close(self):
        self.lib.vec_close(self.handle)


class Policy(nn.Module):
    def __init__(self, obs_n, act_n, hidden=64):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_n, hidden), nn.Tanh(), nn.Linear(hidden, hidden), nn.Tanh())
        self.pi, self.value = nn.Linear(hidden, act_n), nn.Linear(hidden, 1)

    def forward(self, obs):
        h = self.body(obs)
        return Categorical(logits=self.pi(h)), self.value(h).squeeze(-1)


def rollout(env, policy, obs, horizon):
    rows = []
    with torch.no_grad():
        for _ in range(horizon):
            dist, value = policy(obs)
            action = dist.sample()
            nxt, reward, done = env.step(action)
            rows.append((obs, action, dist.log_prob(action), value, reward, done))
            obs = nxt
        last = policy(obs)[1]
    obs_b, act, logp, value, reward, done = (torch.stack(c) for c in zip(*rows))
    adv, running = torch.zeros_like(reward), torch.zeros_like(last)
    for t in reversed(range(horizon)):
        after = last if t == horizon - 1 else value[t + 1]
        delta = reward[t] + 0.99 * after * (1 - done[t]) - value[t]
        running = delta + 0.95 * 0.99 * (1 - done[t]) * running
        adv[t] = running
    return obs, [x.flatten(0, 1) for x in (obs_b, act, logp, adv, adv + value)], done.sum().item()


def train_stage(name, env, updates, horizon=64):
    policy = Policy(env.obs_n, env.act_n)
    opt = torch.optim.Adam(policy.parameters(), lr=1e-3)
    obs = env.reset()
    for update in range(updates):
        obs, (o, a, logp, adv, ret), ends = rollout(env, policy, obs, horizon)
        adv = (adv - adv.mean()) / (adv.std() + 1e-8)
        for _ in range(2):
            dist, value = policy(o)
            ratio = (dist.log_prob(a) - logp).exp()
            loss = -torch.min(ratio * adv, ratio.clamp(0.8, 1.2) * adv).mean()
            loss = loss + 0.5 * (value - ret).pow(2).mean() - 0.01 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        length = env.n * horizon / max(ends, 1)
        log.info("%s update %d loss %.3f mean episode %.1f", name, update, loss.item(), length)
    return policy


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--stages", nargs="+", default=["balance", "drift"])
    ap.add_argument("--num-envs", type=int, default=32)
    ap.add_argument("--updates", type=int, default=8)
    args = ap.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory(prefix="vecppo_") as workdir:
        lib = load_vecenv(compile_shared(workdir, "vecenv"))
        plugins = {s: compile_shared(workdir, s, f"-DENV_{s.upper()}") for s in args.stages}
        for seed, stage in enumerate(args.stages):
            log.info("stage %s", stage)
            env = VecEnv(lib, plugins[stage], args.num_envs, seed)
            policy = train_stage(stage, env, args.updates)
            torch.save(policy.state_dict(), Path(workdir) / f"{stage}.pt")
            env.close()
        log.info("curriculum finished")


if __name__ == "__main__":
    main()
