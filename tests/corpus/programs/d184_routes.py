import argparse
import logging
import time

import torch
import torch.multiprocessing as mp
from torch import nn
from torch.nn import functional as F

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(processName)s %(message)s")
log = logging.getLogger("routes")


def normalized_columns_initializer(weights, std=1.0):
    out = torch.randn(weights.size())
    out *= std / torch.sqrt(out.pow(2).sum(1, keepdim=True))
    return out


class ACNet(nn.Module):
    def __init__(self, max_addrs, num_loc, hidden_dim=128):
        super().__init__()
        self.embed = nn.Embedding(max_addrs, hidden_dim)
        self.cell = nn.GRUCell(hidden_dim, hidden_dim)
        self.loc_linear = nn.Linear(hidden_dim, num_loc)
        self.critic_linear = nn.Linear(hidden_dim, 1)
        self.loc_linear.weight.data = normalized_columns_initializer(self.loc_linear.weight.data, 0.01)
        self.loc_linear.bias.data.fill_(0)
        self.critic_linear.weight.data = normalized_columns_initializer(self.critic_linear.weight.data, 1.0)
        self.critic_linear.bias.data.fill_(0)

    def forward(self, addr, hidden):
        hidden = self.cell(self.embed(addr), hidden)
        return self.loc_linear(hidden), self.critic_linear(hidden), hidden


class DeliveryEnv:
    def __init__(self, max_addrs, num_loc, seed, length=20):
        self.max_addrs, self.num_loc, self.length = max_addrs, num_loc, length
        self.generator = torch.Generator().manual_seed(seed)

    def reset(self):
        self.steps = 0
        return self._next()

    def _next(self):
        self.addr = torch.randint(0, self.max_addrs, (1,), generator=self.generator)
        return self.addr

    def step(self, loc):
        distance = abs(int(self.addr) * self.num_loc // self.max_addrs - loc) / self.num_loc
        self.steps += 1
        return self._next(), 1.0 - 2.0 * distance, self.steps >= self.length


def train_worker(rank, args, shared_model, lock, counter):
    torch.manual_seed(args.seed + rank)
    log.info("started")
    env = DeliveryEnv(args.max_addrs, args.num_loc, args.seed + rank)
    model = ACNet(args.max_addrs, args.num_loc)
    optimizer = torch.optim.SGD(shared_model.parameters(), lr=args.lr)
    log.info("model is created")
    for episode in range(args.episodes):
        model.load_state_dict(shared_model.state_dict())
        addr, done = env.reset(), False
        hidden = torch.zeros(1, model.cell.hidden_size)
        log_probs, values, rewards, entropies = [], [], [], []
        while not done:
            logits, value, hidden = model(addr, hidden)
            dist = torch.distributions.Categorical(logits=logits)
            loc = dist.sample()
            addr, reward, done = env.step(int(loc))
            log_probs.append(dist.log_prob(loc))
            entropies.append(dist.entropy())
            values.append(value.view(-1))
            rewards.append(reward)
        loss, running = 0.0, torch.zeros(1)
        for i in reversed(range(len(rewards))):
            running = rewards[i] + args.gamma * running
            advantage = running - values[i]
            loss = loss + 0.5 * advantage.pow(2) - log_probs[i] * advantage.detach() - 0.01 * entropies[i]
        model.zero_grad()
        loss.sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 10.0)
        with lock:
            for shared, local in zip(shared_model.parameters(), model.parameters()):
                shared.grad = local.grad
            optimizer.step()
            counter.value += 1
        if episode % 10 == 0:
            log.info("episode %d reward %.3f", episode, sum(rewards) / len(rewards))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--num-processes", type=int, default=2)
    parser.add_argument("--num-threads", type=int, default=2)
    parser.add_argument("--max-addrs", type=int, default=400)
    parser.add_argument("--num-loc", type=int, default=512)
    parser.add_argument("--episodes", type=int, default=40)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--gamma", type=float, default=0.95)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(args.num_threads)
    shared_model = ACNet(args.max_addrs, args.num_loc)
    shared_model.share_memory()
    log.info("shared model has %d parameters", sum(p.numel() for p in shared_model.parameters()))
    lock, counter = mp.Lock(), mp.Value("i", 0)
    begin = time.time()
    processes = []
    for rank in range(args.num_processes):
        p = mp.Process(target=train_worker, args=(rank, args, shared_model, lock, counter))
        p.start()
        processes.append(p)
    for p in processes:
        p.join()
    log.info("finished: %d episodes in %.1f s", counter.value, time.time() - begin)


if __name__ == "__main__":
    main()
