"""Seq2seq summariser fine-tuning with evaluation, best checkpoint and a final test with the best model."""
import argparse
import json
import logging
import os
import tempfile

import numpy as np
import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

logger = logging.getLogger("summarizer")


class DocumentDataset(Dataset):
    def __init__(self, size, vocab, src_len, tgt_len, seed):
        g = torch.Generator().manual_seed(seed)
        rank = torch.rand(size, src_len, generator=g).pow(6) * (vocab - 3)
        self.source = rank.long() + 3
        self.target = self.source[:, : tgt_len].clone()

    def __len__(self):
        return len(self.source)

    def __getitem__(self, i):
        return self.source[i], self.target[i]


class Summarizer(nn.Module):
    def __init__(self, vocab, dim, tgt_len):
        super().__init__()
        self.config = {"vocab": vocab, "dim": dim, "tgt_len": tgt_len}
        self.embed = nn.Embedding(vocab, dim)
        self.encoder = nn.GRU(dim, dim, batch_first=True)
        self.decoder = nn.GRU(dim, dim, batch_first=True)
        self.out = nn.Linear(dim, vocab)

    def forward(self, source, target):
        _, hidden = self.encoder(self.embed(source))
        decoded, _ = self.decoder(self.embed(target), hidden)
        return self.out(decoded)

    def save_pretrained(self, folder):
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "config.json"), "w") as f:
            json.dump(self.config, f)
        np.savez_compressed(os.path.join(folder, "embeddings.npz"), embed=self.embed.weight.detach().numpy(),
                            out=self.out.weight.detach().numpy())
        torch.save(self.state_dict(), os.path.join(folder, "pytorch_model.bin"))

    @classmethod
    def from_pretrained(cls, folder):
        with open(os.path.join(folder, "config.json")) as f:
            model = cls(**json.load(f))
        model.load_state_dict(torch.load(os.path.join(folder, "pytorch_model.bin")))
        return model


class Trainer:
    def __init__(self, model, args, train_set, eval_set, output_dir):
        self.args, self.output_dir = args, output_dir
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.model = model
        self.ddp = DDP(model)
        self.optimizer = torch.optim.Adam(self.ddp.parameters(), lr=args.lr)
        self.train_loader = DataLoader(train_set, args.batch_size, sampler=DistributedSampler(train_set))
        self.eval_loader = DataLoader(eval_set, args.batch_size, sampler=DistributedSampler(eval_set, shuffle=False))
        self.best_metric, self.best_model_checkpoint = float("inf"), None
        self.global_step = 0

    def loss(self, module, source, target):
        logits = module(source, target)
        return F.cross_entropy(logits[:, :-1].flatten(0, 1), target[:, 1:].flatten())

    @torch.no_grad()
    def evaluate(self, module):
        total = torch.zeros(2)
        for source, target in self.eval_loader:
            total += torch.tensor([self.loss(module, source, target).item(), 1.0])
        dist.all_reduce(total)
        return (total[0] / total[1]).item()

    def maybe_log_save_evaluate(self):
        metric = self.evaluate(self.model)
        if self.rank == 0:
            logger.info("step %d eval_loss %.4f", self.global_step, metric)
        if metric < self.best_metric:
            self.best_metric = metric
            self.best_model_checkpoint = os.path.join(self.output_dir, f"checkpoint-{self.global_step}")
            if self.rank == 0:
                self.model.save_pretrained(self.best_model_checkpoint)
                logger.info("saved %s", os.path.basename(self.best_model_checkpoint))

    def train(self):
        for epoch in range(self.args.epochs):
            self.train_loader.sampler.set_epoch(epoch)
            for source, target in self.train_loader:
                loss = self.loss(self.ddp, source, target)
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.global_step += 1
            self.maybe_log_save_evaluate()
        if self.args.load_best_model_at_end:
            if self.rank == 0:
                logger.info("loading best model (eval_loss %.4f)", self.best_metric)
            self.model = Summarizer.from_pretrained(self.best_model_checkpoint)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--load_best_model_at_end", type=int, default=1)
    args = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    dist.init_process_group("gloo")
    torch.manual_seed(11)
    folder = [tempfile.mkdtemp(prefix="summarizer_") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(folder, src=0)

    vocab = 12000
    train_set = DocumentDataset(192, vocab, 32, 12, seed=1)
    eval_set = DocumentDataset(64, vocab, 32, 12, seed=2)
    trainer = Trainer(Summarizer(vocab, 128, 12), args, train_set, eval_set, folder[0])
    trainer.train()
    test_loss = trainer.evaluate(trainer.model)
    if trainer.rank == 0:
        logger.info("test loss of the best model %.4f", test_loss)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
