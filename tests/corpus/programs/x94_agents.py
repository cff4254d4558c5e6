"""Agent and observers over RPC: an observer plays in its environment and asks the agent for actions."""
import argparse
import os
import socket

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp
from torch import nn

AGENT = "agent"


class Environment:
    """A cart on a line, to be kept near 0."""

    def __init__(self, seed, length):
        self.random = torch.Generator().manual_seed(seed)
        self.length = length

    def reset(self):
        self.steps = 0
        self.state = torch.randn(4, generator=self.random)
        return self.state

    def step(self, action):
        push = torch.tensor([0.0, 0.1, 0.0, 0.05]) * (1 if action else -1)
        self.state = 0.98 * self.state + push + 0.02 * torch.randn(4, generator=self.random)
        self.steps += 1
        return self.state, 1.0 - self.state[0].abs().item(), self.steps >= self.length


class PolicyServer:
    """Holds the network; it may live on any worker."""

    def __init__(self, width):
        torch.manual_seed(1)
        self.net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 2))
        self.optimizer = torch.optim.Adam(self.net.parameters(), lr=1e-3)

    @torch.no_grad()
    def act(self, state):
        logits = self.net(state.expand(64, 4)).mean(0)
        return torch.distributions.Categorical(logits=logits).sample().item()

    def learn(self, states, actions, returns):
        log_probs = torch.log_softmax(self.net(states), dim=1)
        loss = -(log_probs[torch.arange(len(actions)), actions] * (returns - returns.mean())).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return loss.item()


class Observer:
    def __init__(self, seed, length):
        self.env = Environment(seed, length)

    def run_episode(self, agent_rref):
        state, done, episode = self.env.reset(), False, []
        while not done:
            action = agent_rref.rpc_sync().select_action(state)
            following, reward, done = self.env.step(action)
            episode.append((state, action, reward))
            state = following
        return episode


class Agent:
    def __init__(self, args):
        self.args = args
        self.policy = rpc.remote(args.policy_on, PolicyServer, args=(args.width,))
        self.observers = [rpc.remote(f"observer{i}", Observer, args=(i, args.length))
                          for i in range(1, args.world)]
        self.answered = 0

    def select_action(self, state):
        self.answered += 1
        return self.policy.rpc_sync().act(state)

    def collect(self, observers):
        me = rpc.RRef(self)
        futures = [observer.rpc_async().run_episode(me) for observer in observers]
        return [step for future in futures for step in future.wait()]

    def update(self, steps):
        states = torch.stack([s for s, _, _ in steps])
        actions = torch.tensor([a for _, a, _ in steps])
        rewards = torch.tensor([r for _, _, r in steps])
        return self.policy.rpc_sync().learn(states, actions, rewards)

    def train(self):
        for observer in self.observers:
            steps = self.collect([observer])
            print(f"trial episode: {len(steps)} steps, loss {self.update(steps):+.4f}", flush=True)
        for iteration in range(self.args.iterations):
            steps = self.collect(self.observers)
            print(f"iteration {iteration}: {len(steps)} steps, {self.answered} actions so far, "
                  f"loss {self.update(steps):+.4f}", flush=True)


def run_worker(rank, args):
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = str(args.port)
    torch.set_num_threads(1)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=args.threads, rpc_timeout=3600)
    name = AGENT if rank == 0 else f"observer{rank}"
    rpc.init_rpc(name, rank=rank, world_size=args.world, rpc_backend_options=options)
    if rank == 0:
        Agent(args).train()
    rpc.shutdown()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--world", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2, help="RPC threads of each worker")
    parser.add_argument("--policy-on", default=AGENT)
    parser.add_argument("--iterations", type=int, default=10)
    parser.add_argument("--length", type=int, default=100)
    parser.add_argument("--width", type=int, default=256)
    args = parser.parse_args()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        args.port = free.getsockname()[1]
    mp.spawn(run_worker, args=(args,), nprocs=args.world)


if __name__ == "__main__":
    main()
