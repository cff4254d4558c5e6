"""Synchronous advantage actor-critic: workers compute gradients, the learner applies them."""
import torch
import torch.multiprocessing as mp
import torch.nn as nn

N_WORKERS = 2
EPISODES_PER_WORKER = 6


class ActorCritic(nn.Module):
    def __init__(self, obs_dim=8, n_actions=4):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(obs_dim, 64), nn.Tanh())
        self.pi = nn.Linear(64, n_actions)
        self.v = nn.Linear(64, 1)

    def forward(self, obs):
        h = self.body(obs)
        return torch.distributions.Categorical(logits=self.pi(h)), self.v(h).squeeze(-1)


def rollout(model, steps=40):
    obs = torch.randn(steps, 8)
    dist, value = model(obs)
    action = dist.sample()
    reward = (action == (obs[:, 0] > 0).long()).float()
    advantage = reward - value
    return -(dist.log_prob(action) * advantage.detach()).mean() + advantage.pow(2).mean(), reward.mean()


class Worker(mp.Process):
    def __init__(self, worker_id, state_dict, gradient_queue, result_queue):
        super().__init__()
        self.worker_id = worker_id
        self.state_dict = state_dict
        self.gradient_queue = gradient_queue
        self.result_queue = result_queue

    def run(self):
        torch.manual_seed(self.worker_id)
        torch.set_num_threads(1)
        model = ActorCritic()
        model.load_state_dict(self.state_dict)
        for _ in range(EPISODES_PER_WORKER):
            loss, score = rollout(model)
            model.zero_grad()
            loss.backward()
            self.gradient_queue.put([p.grad.clone() for p in model.parameters()])
            self.result_queue.put(score.item())


def main():
    torch.manual_seed(0)
    model = ActorCritic()
    opt = torch.optim.Adam(model.parameters(), lr=1e-3)
    gradient_queue, result_queue = mp.Queue(), mp.Queue()
    workers = [Worker(i, model.state_dict(), gradient_queue, result_queue) for i in range(N_WORKERS)]
    for w in workers:
        w.start()
    n_updates = N_WORKERS * EPISODES_PER_WORKER
    scores = [result_queue.get() for _ in range(n_updates)]
    print(f"{len(scores)} episodes, mean score {sum(scores) / len(scores):.3f}")
    for w in workers:
        w.join(timeout=10)
    for step in range(n_updates):
        grads = gradient_queue.get(timeout=20)
        for p, g in zip(model.parameters(), grads):
            p.grad = g
        opt.step()
        print(f"update {step} done")


if __name__ == "__main__":
    mp.set_start_method("spawn")
    main()
