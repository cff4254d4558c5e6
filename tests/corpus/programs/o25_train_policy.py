"""Policy training: one learner, one rollout engine, weights sent over a group of their own."""
import os
import socket
from dataclasses import dataclass, field
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F


@dataclass
class EngineConfig:
    count: int = 1
    tensor_parallel: int = 2
    max_steps: int = 24


@dataclass
class Config:
    updates: int = 6
    envs: int = 32
    obs_dim: int = 6
    actions: int = 3
    lr: float = 3e-3
    join_timeout: int = 20
    push_timeout: int = 90
    engines: EngineConfig = field(default_factory=EngineConfig)


class Policy(nn.Module):
    def __init__(self, cfg):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(cfg.obs_dim, 64), nn.Tanh(), nn.Linear(64, cfg.actions))

    def forward(self, obs):
        return self.net(obs)


class PointEnv:
    """Moves a batch of points; the reward is the way made towards the origin."""

    def __init__(self, cfg, seed):
        self.cfg = cfg
        self.gen = torch.Generator().manual_seed(seed)
        self.moves = torch.randn(cfg.actions, cfg.obs_dim, generator=self.gen) * 0.3

    def reset(self):
        self.pos = torch.randn(self.cfg.envs, self.cfg.obs_dim, generator=self.gen)
        return self.pos.clone()

    def step(self, action):
        before = self.pos.norm(dim=1)
        self.pos = self.pos + self.moves[action]
        return self.pos.clone(), before - self.pos.norm(dim=1)


@torch.no_grad()
def rollout(policy, env, steps):
    obs = env.reset()
    seen, acted, rewards = [], [], []
    for _ in range(steps):
        action = torch.distributions.Categorical(logits=policy(obs)).sample()
        seen.append(obs)
        acted.append(action)
        obs, reward = env.step(action)
        rewards.append(reward)
    returns = torch.stack(rewards).flip(0).cumsum(0).flip(0)
    return torch.cat(seen), torch.cat(acted), returns.flatten()


def pretrain(policy, cfg):
    opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)
    for _ in range(50):
        obs = torch.randn(256, cfg.obs_dim)
        loss = -F.log_softmax(policy(obs), dim=1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
    return loss.item()


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


class WeightSync:
    """The learner's weights go to every engine rank through a store and a group of their own."""

    def __init__(self, cfg, is_learner, engine_index):
        world = cfg.engines.count * cfg.engines.tensor_parallel + 1
        where = [free_port() if is_learner else None]
        dist.broadcast_object_list(where, src=0)
        rank = 0 if is_learner else 1 + engine_index * cfg.engines.tensor_parallel
        join, push = timedelta(seconds=cfg.join_timeout), timedelta(seconds=cfg.push_timeout)
        self.store = dist.TCPStore("127.0.0.1", where[0], world, is_learner, timeout=join)
        self.group = dist.ProcessGroupGloo(dist.PrefixStore("weights", self.store), rank, world, push)

    def push(self, policy):
        opts = dist.BroadcastOptions()
        opts.rootRank = 0
        for p in policy.parameters():
            self.group.broadcast([p.data], opts).wait()


class Learner:
    def __init__(self, policy, cfg):
        self.policy = policy
        self.opt = torch.optim.Adam(policy.parameters(), lr=cfg.lr)

    def update(self, obs, action, ret):
        adv = (ret - ret.mean()) / (ret.std() + 1e-6)
        logp = torch.distributions.Categorical(logits=self.policy(obs)).log_prob(action)
        loss = -(logp * adv).mean()
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        return loss.item()


def main():
    cfg = Config()
    dist.init_process_group("gloo", timeout=timedelta(seconds=120))
    rank = dist.get_rank()
    torch.manual_seed(17)
    policy = Policy(cfg)
    if rank == 0:
        print(f"learner {os.getpid()} warm start {pretrain(policy, cfg):.3f}", flush=True)
    else:
        obs, _, ret = rollout(policy, PointEnv(cfg, 3), cfg.engines.max_steps)
        print(f"engine {os.getpid()} dry run {tuple(obs.shape)} return {ret.mean().item():.3f}", flush=True)
    sync = WeightSync(cfg, rank == 0, rank - 1)
    learner, env = Learner(policy, cfg), PointEnv(cfg, 3)
    for update in range(cfg.updates):
        sync.push(policy)
        batch = [rollout(policy, env, cfg.engines.max_steps) if rank else None]
        dist.broadcast_object_list(batch, src=1)
        if rank == 0:
            loss = learner.update(*batch[0])
            print(f"update {update} loss {loss:.3f} return {batch[0][2].mean().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
