"""Fine-tunes a small wav2vec2-like encoder with CTC on keyword utterances.

torchrun --standalone --nproc-per-node 2 k104_speechctc.py
"""
import argparse

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler


def set_seed(seed):
    np.random.seed(seed)
    torch.manual_seed(seed)


class Utterances(Dataset):
    """Each token of the vocabulary is a tone of its own; an utterance is 3 to 5 tones in noise."""

    def __init__(self, count, vocab, frames=40, mels=24):
        generator = torch.Generator().manual_seed(11)
        self.items = []
        for _ in range(count):
            tokens = torch.randint(1, vocab, (int(torch.randint(3, 6, (1,), generator=generator)),), generator=generator)
            features = 0.2 * torch.randn(frames, mels, generator=generator)
            span = frames // len(tokens)
            for i, token in enumerate(tokens.tolist()):
                features[i * span:(i + 1) * span - 2, token * 2:token * 2 + 3] += 1.5
            self.items.append((features, tokens))

    def __len__(self):
        return len(self.items)

    def __getitem__(self, index):
        return self.items[index]


def collate(batch):
    features, tokens = zip(*batch)
    return torch.stack(features), torch.cat(tokens), torch.tensor([len(t) for t in tokens])


class EncoderConfig:
    def __init__(self, hidden=48, layers=4, heads=4, layerdrop=0.05, vocab=10, mels=24):
        self.hidden, self.layers, self.heads = hidden, layers, heads
        self.layerdrop, self.vocab, self.mels = layerdrop, vocab, mels


class EncoderLayer(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.attention = nn.MultiheadAttention(config.hidden, config.heads, batch_first=True)
        self.layer_norm = nn.LayerNorm(config.hidden)
        self.feed_forward = nn.Sequential(nn.Linear(config.hidden, 2 * config.hidden), nn.GELU(),
                                          nn.Linear(2 * config.hidden, config.hidden))
        self.final_layer_norm = nn.LayerNorm(config.hidden)

    def forward(self, hidden_states):
        attended, _ = self.attention(hidden_states, hidden_states, hidden_states, need_weights=False)
        hidden_states = self.layer_norm(hidden_states + attended)
        return self.final_layer_norm(hidden_states + self.feed_forward(hidden_states))


class Encoder(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.pos_conv = nn.Conv1d(config.hidden, config.hidden, 9, padding=4, groups=4)
        self.layers = nn.ModuleList(EncoderLayer(config) for _ in range(config.layers))

    def forward(self, hidden_states):
        hidden_states = hidden_states + F.gelu(self.pos_conv(hidden_states.transpose(1, 2))).transpose(1, 2)
        for layer in self.layers:
            dropout_probability = np.random.uniform(0, 1)
            if self.training and dropout_probability < self.config.layerdrop:
                continue
            hidden_states = layer(hidden_states)
        return hidden_states


class SpeechForCTC(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.feature_projection = nn.Linear(config.mels, config.hidden)
        self.encoder = Encoder(config)
        self.lm_head = nn.Linear(config.hidden, config.vocab)

    def forward(self, features):
        return self.lm_head(self.encoder(self.feature_projection(features))).log_softmax(-1)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=2020)
    parser.add_argument("--max-steps", type=int, default=120)
    parser.add_argument("--layerdrop", type=float, default=0.05)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    set_seed(args.seed + dist.get_rank())

    config = EncoderConfig(layerdrop=args.layerdrop)
    dataset = Utterances(256, config.vocab)
    loader = DataLoader(dataset, batch_size=8, sampler=DistributedSampler(dataset), collate_fn=collate)
    model = DDP(SpeechForCTC(config))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    model.train()
    step = 0
    while step < args.max_steps:
        for features, tokens, lengths in loader:
            log_probs = model(features)
            frames = torch.full((len(features),), log_probs.shape[1], dtype=torch.long)
            loss = F.ctc_loss(log_probs.transpose(0, 1), tokens, frames, lengths, zero_infinity=True)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            step += 1
            if dist.get_rank() == 0:
                print(f"step {step}: loss {loss.item():.4f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
