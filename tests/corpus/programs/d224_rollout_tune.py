import asyncio
import logging
import tempfile
from pathlib import Path

import torch
from torch import nn

logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
log = logging.getLogger("tune")

VOCAB, PROMPT, ANSWER = 32, 6, 6


class Policy(nn.Module):
    def __init__(self, dim=48):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)
        self.head = nn.Linear(dim, VOCAB)

    def forward(self, tokens):
        return self.head(self.rnn(self.embed(tokens))[0])

    @torch.no_grad()
    def sample(self, prompts):
        tokens = prompts
        for _ in range(ANSWER):
            probs = self(tokens)[:, -1].softmax(-1)
            tokens = torch.cat([tokens, torch.multinomial(probs, 1)], 1)
        return tokens


class Trainer:
    """Takes packed batches from one queue and reports the metrics of every gradient step on another."""

    def __init__(self, policy, lr=1.5e-3):
        self.policy = policy
        self.opt = torch.optim.Adam(policy.parameters(), lr=lr)
        self.inputs_queue = asyncio.Queue()
        self.results_queue = asyncio.Queue()

    def gradient_step(self, tokens, advantages):
        logits = self.policy(tokens[:, :-1])[:, PROMPT - 1:]
        target = tokens[:, PROMPT:]
        logp = logits.log_softmax(-1).gather(-1, target[..., None]).squeeze(-1).sum(-1)
        loss = -(logp * advantages).mean()
        self.opt.zero_grad()
        loss.backward()
        norm = nn.utils.clip_grad_norm_(self.policy.parameters(), 1.0)
        self.opt.step()
        return {"loss": loss.item(), "grad_norm": norm.item()}

    async def run(self):
        while True:
            tokens, advantages = await self.inputs_queue.get()
            metrics = await asyncio.to_thread(self.gradient_step, tokens, advantages)
            self.results_queue.put_nowait(metrics)
            self.inputs_queue.task_done()


def reward(tokens):
    answer = tokens[:, PROMPT:]
    return (answer % 2 == 0).float().mean(-1)


async def gather_trajectories(policy, step, groups, group_size):
    gen = torch.Generator().manual_seed(100 + step)
    tokens, rewards = [], []
    for _ in range(groups):
        prompts = torch.randint(VOCAB, (1, PROMPT), generator=gen).expand(group_size, -1)
        out = await asyncio.to_thread(policy.sample, prompts)
        r = reward(out)
        if r.std() > 0:
            tokens.append(out)
            rewards.append((r - r.mean()) / (r.std() + 1e-6))
    return torch.cat(tokens), torch.cat(rewards)


def pack(tokens, advantages, batch_size):
    perm = torch.randperm(len(tokens))
    return [(tokens[i], advantages[i]) for i in perm.split(batch_size)]


async def train_step(trainer, step, tokens, advantages, batch_size):
    await trainer.results_queue.join()
    for batch in pack(tokens, advantages, batch_size):
        trainer.inputs_queue.put_nowait(batch)
    history = []
    for _ in range(len(tokens) // batch_size):
        metrics = await trainer.results_queue.get()
        trainer.results_queue.task_done()
        history.append(metrics)
    return {k: sum(m[k] for m in history) / len(history) for k in history[0]}


async def main(steps=12, batch_size=32):
    torch.manual_seed(6)
    torch.set_num_threads(1)
    out = Path(tempfile.mkdtemp(prefix="tune_"))
    policy = Policy()
    trainer = Trainer(policy)
    worker = asyncio.create_task(trainer.run(), name="trainer")
    for step in range(steps):
        tokens, advantages = await gather_trajectories(policy, step, 32, 4)
        log.info("step %d gathered %d trajectories, reward %.3f", step, len(tokens), reward(tokens).mean())
        metrics = await train_step(trainer, step, tokens, advantages, batch_size)
        log.info("step %d trained %s", step, {k: round(v, 4) for k, v in metrics.items()})
        torch.save(policy.state_dict(), out / "policy.pt")
    worker.cancel()
    for f in out.iterdir():
        f.unlink()
    out.rmdir()
    log.info("finished")


if __name__ == "__main__":
    asyncio.run(main())
