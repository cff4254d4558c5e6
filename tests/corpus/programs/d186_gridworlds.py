import argparse
import logging
import time

import numpy as np
import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
log = logging.getLogger("gridworlds")


class Navigation2D:
    n_obs, n_actions = 2, 4
    moves = np.asarray([(1, 0), (-1, 0), (0, 1), (0, -1)], np.float32)

    def __init__(self, low=-0.5, high=0.5):
        self.low, self.high = low, high
        self.goal = np.zeros(2, np.float32)

    def sample_tasks(self, rng, n):
        return rng.uniform(self.low, self.high, (n, 2)).astype(np.float32)

    def reset_task(self, goal):
        self.goal = goal

    def reset(self):
        self.state = np.zeros(2, np.float32)
        return self.state.copy()

    def step(self, action):
        self.state = self.state + 0.1 * self.moves[action]
        distance = float(np.linalg.norm(self.state - self.goal))
        return self.state.copy(), -distance, distance < 0.06


def make_env(env_kwargs):
    def _make_env():
        return Navigation2D(**env_kwargs)
    return _make_env


class Policy(nn.Module):
    def __init__(self, n_obs, n_actions, width=64):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(n_obs, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, n_actions))

    def forward(self, obs, params=None):
        if params is not None:
            return torch.func.functional_call(self, params, (obs,))
        return self.net(obs)


def reinforce_loss(policy, obs, actions, returns, params=None):
    log_prob = F.log_softmax(policy(obs, params), -1).gather(-1, actions[..., None]).squeeze(-1)
    advantage = (returns - returns.mean(0)) / (returns.std() + 1e-6)
    return -(log_prob * advantage).mean()


def adapt(policy, batch, fast_lr):
    params = dict(policy.named_parameters())
    grads = torch.autograd.grad(reinforce_loss(policy, *batch, params=params), list(params.values()), create_graph=True)
    return {name: p - fast_lr * g for (name, p), g in zip(params.items(), grads)}


class SamplerWorker(mp.Process):
    def __init__(self, index, env_fn, batch_size, policy, seed, task_queue, train_queue, fast_lr):
        super().__init__(daemon=True)
        self.index, self.env_fn, self.batch_size, self.policy = index, env_fn, batch_size, policy
        self.seed, self.task_queue, self.train_queue, self.fast_lr = seed, task_queue, train_queue, fast_lr

    @torch.no_grad()
    def rollout(self, env, params=None, length=20):
        obs, actions, rewards = [], [], []
        for _ in range(self.batch_size):
            state, done = env.reset(), False
            for _ in range(length):
                logits = self.policy(torch.from_numpy(state), params)
                action = int(torch.distributions.Categorical(logits=logits).sample())
                obs.append(state)
                actions.append(action)
                state, reward, done = env.step(action)
                rewards.append(reward)
        rewards = np.asarray(rewards, np.float32).reshape(self.batch_size, length)
        returns = np.flip(np.cumsum(np.flip(rewards, 1), 1), 1).copy()
        return np.stack(obs).reshape(self.batch_size, length, -1), np.asarray(actions).reshape(self.batch_size, length), returns

    def run(self):
        torch.manual_seed(self.seed + self.index)
        env = self.env_fn()
        while True:
            item = self.task_queue.get()
            if item is None:
                return
            index, task = item
            env.reset_task(task)
            train = self.rollout(env)
            params = adapt(self.policy, [torch.from_numpy(x) for x in train], self.fast_lr)
            self.train_queue.put((index, train, self.rollout(env, {k: v.detach() for k, v in params.items()})))


class MultiTaskSampler:
    def __init__(self, env_kwargs, batch_size, policy, seed, num_workers, fast_lr):
        self.task_queue, self.train_queue = mp.Queue(), mp.Queue()
        self.env = make_env(env_kwargs)()
        self.workers = [SamplerWorker(i, make_env(env_kwargs), batch_size, policy, seed, self.task_queue, self.train_queue, fast_lr)
                        for i in range(num_workers)]
        for worker in self.workers:
            worker.start()

    def sample(self, tasks):
        for item in enumerate(tasks):
            self.task_queue.put(item)
        return [self.train_queue.get() for _ in tasks]

    def close(self):
        for _ in self.workers:
            self.task_queue.put(None)
        for worker in self.workers:
            worker.join()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-workers", type=int, default=2)
    parser.add_argument("--meta-batch-size", type=int, default=6)
    parser.add_argument("--fast-batch-size", type=int, default=8)
    parser.add_argument("--num-batches", type=int, default=5)
    parser.add_argument("--fast-lr", type=float, default=0.1)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    mp.set_start_method("spawn")
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    policy = Policy(Navigation2D.n_obs, Navigation2D.n_actions)
    policy.share_memory()
    optimizer = torch.optim.Adam(policy.parameters(), 1e-3)
    log.info("policy has %d parameters, %d workers", sum(p.numel() for p in policy.parameters()), args.num_workers)
    sampler = MultiTaskSampler({"low": -0.4, "high": 0.4}, args.fast_batch_size, policy, args.seed, args.num_workers, args.fast_lr)
    begin = time.time()
    for batch in range(args.num_batches):
        losses, returns = [], []
        for _, train, valid in sampler.sample(sampler.env.sample_tasks(rng, args.meta_batch_size)):
            params = adapt(policy, [torch.from_numpy(x) for x in train], args.fast_lr)
            losses.append(reinforce_loss(policy, *[torch.from_numpy(x) for x in valid], params=params))
            returns.append(valid[2][:, 0].mean())
        loss = torch.stack(losses).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        log.info("batch %d loss %.4f return %.3f (%.1f s)", batch, loss.item(), np.mean(returns), time.time() - begin)
    sampler.close()
    log.info("finished")


if __name__ == "__main__":
    main()
