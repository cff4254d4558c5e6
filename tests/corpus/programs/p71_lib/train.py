import torch
import torch.nn.functional as F

from .utils import AverageMeter, EmbeddingLog, release


class Trainer:
    def __init__(self, encoder, head, lr, warmup_epochs):
        self.encoder, self.head = encoder, head
        params = list(encoder.parameters()) + list(head.parameters())
        self.opt = torch.optim.AdamW(params, lr=lr)
        self.warmup_epochs = warmup_epochs
        self.log = EmbeddingLog()

    def step(self, patches, labels, keep):
        tokens = self.encoder(patches)
        emb = tokens[:, 0]
        loss = F.cross_entropy(self.head(emb), labels)
        self.opt.zero_grad()
        loss.backward()
        self.opt.step()
        if keep:
            self.log.add(emb, labels)
        release(tokens)
        return loss.item()

    def fit_epoch(self, loader, epoch):
        self.encoder.train()
        meter = AverageMeter()
        keep = epoch >= self.warmup_epochs
        for patches, labels in loader:
            meter.add(self.step(patches, labels, keep), len(labels))
        for emb, labels in self.log.drain():
            self.head.update(emb, labels)
        return meter.value

    @torch.no_grad()
    def evaluate(self, loader):
        self.encoder.eval()
        acc = AverageMeter()
        use_prototypes = bool(self.head.prototypes.any())
        for patches, labels in loader:
            emb = self.encoder(patches)[:, 0]
            pred = self.head.nearest(emb) if use_prototypes else self.head(emb).argmax(-1)
            acc.add((pred == labels).float().mean(), len(labels))
        return acc.value
