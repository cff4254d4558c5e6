import math
import os

import torch
import torch.nn as nn
import torch.nn.functional as F

WORK = "/tmp/e41_reference_offload"
VOCAB, DIM, CTX, HEADS = 8000, 192, 48, 6


class RMSNorm(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.weight


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.norm1 = RMSNorm(dim)
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)
        self.norm2 = RMSNorm(dim)
        self.mlp = nn.Sequential(nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.proj(y.transpose(1, 2).reshape(b, t, d))
        return x + self.mlp(self.norm2(x))


class Decoder(nn.Module):
    def __init__(self, layers=3):
        super().__init__()
        self.tok = nn.Embedding(VOCAB, DIM)
        self.pos = nn.Embedding(CTX, DIM)
        self.blocks = nn.ModuleList(Block(DIM, HEADS) for _ in range(layers))
        self.norm = RMSNorm(DIM)
        nn.init.normal_(self.tok.weight, std=0.02)

    def forward(self, ids):
        x = self.tok(ids) + self.pos(torch.arange(ids.shape[1]))
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x), self.tok.weight)

    def logprobs(self, ids):
        logits = self(ids[:, :-1])
        return torch.log_softmax(logits, -1).gather(-1, ids[:, 1:, None]).squeeze(-1)


class ColdStore:
    """Keeps the weights of a model that is idle on disk."""

    def __init__(self, model, path):
        self.model, self.path, self.bytes = model, path, 0

    def offload(self):
        torch.save({n: p.detach() for n, p in self.model.named_parameters()}, self.path)
        for p in self.model.parameters():
            storage = p.untyped_storage()
            self.bytes += storage.nbytes()
            storage.resize_(0)
        return self.bytes / 2**20

    @torch.no_grad()
    def reload(self):
        weights = torch.load(self.path)
        for n, p in self.model.named_parameters():
            p.untyped_storage().resize_(p.numel() * p.element_size())
            p.copy_(weights[n])


def build_reference(policy, shared_layers=1):
    reference = Decoder()
    reference.load_state_dict(policy.state_dict())
    for i in range(shared_layers):
        policy.blocks[i].requires_grad_(False)
        reference.blocks[i] = policy.blocks[i]
    return reference.eval().requires_grad_(False)


class RolloutBuffer:
    def __init__(self):
        self.items = []

    def add(self, ids, old, ref, reward):
        advantage = (reward - reward.mean()) / (reward.std() + 1e-6)
        self.items.append((ids, old, ref, advantage))

    def minibatches(self, size):
        for ids, old, ref, adv in self.items:
            for part in torch.randperm(len(ids)).split(size):
                yield ids[part], old[part], ref[part], adv[part]


@torch.no_grad()
def collect(policy, reference, n, gen):
    ids = torch.randint(0, VOCAB, (n, CTX), generator=gen)
    reward = (ids % 7 == 0).float().mean(1) + 0.1 * torch.rand(n, generator=gen)
    return ids, policy.logprobs(ids), reference.logprobs(ids), reward


def ppo_step(policy, opt, batch, clip=0.2, beta=0.05):
    ids, old, ref, adv = batch
    new = policy.logprobs(ids)
    ratio = (new - old).exp()
    gain = torch.min(ratio * adv[:, None], ratio.clamp(1 - clip, 1 + clip) * adv[:, None]).mean()
    kl = ((ref - new).exp() - (ref - new) - 1).mean()
    loss = -gain + beta * kl
    opt.zero_grad(set_to_none=True)
    loss.backward()
    nn.utils.clip_grad_norm_([p for p in policy.parameters() if p.requires_grad], 1.0)
    opt.step()
    return loss.item(), kl.item()


def main():
    os.makedirs(WORK, exist_ok=True)
    torch.manual_seed(0)
    gen = torch.Generator().manual_seed(1)
    policy = Decoder()
    reference = build_reference(policy)
    cold = ColdStore(reference, os.path.join(WORK, "reference.pt"))
    opt = torch.optim.AdamW([p for p in policy.parameters() if p.requires_grad], lr=3e-4)
    log = []
    for iteration in range(2):
        buffer = RolloutBuffer()
        for _ in range(2):
            buffer.add(*collect(policy, reference, 16, gen))
        print(f"iteration {iteration}: collected {len(buffer.items) * 16} rollouts", flush=True)
        print(f"iteration {iteration}: reference moved to disk ({cold.offload():.0f} MiB)", flush=True)
        for step, batch in enumerate(buffer.minibatches(8)):
            loss, kl = ppo_step(policy, opt, batch)
            log.append((loss, kl))
            print(f"  step {step} loss {loss:+.4f} kl {kl:.5f}", flush=True)
        cold.reload()
    print("finished", math.fsum(x[0] for x in log) / len(log))


if __name__ == "__main__":
    main()
