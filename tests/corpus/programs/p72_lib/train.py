import numpy as np
import torch
import torch.nn.functional as F

from . import native
from .data import BrandIndex


class TripletTrainer:
    def __init__(self, model, catalog, lr):
        self.model, self.catalog = model, catalog
        self.opt = torch.optim.Adam(model.parameters(), lr=lr)
        self.rng = np.random.default_rng(0)
        native.seed(20240613)

    def _batches(self, idx, batch_size, shuffle):
        brands = self.catalog.brand[idx]
        content = torch.from_numpy(self.catalog.content[idx])
        index = BrandIndex(brands, self.catalog.n_brands)
        order = self.rng.permutation(len(idx)) if shuffle else np.arange(len(idx))
        for lo in range(0, len(order), batch_size):
            anchor = order[lo:lo + batch_size]
            pos, neg = native.sample_triplets(brands[anchor], index)
            yield content[anchor], content[pos], content[neg]

    def _loss(self, a, p, n):
        return F.triplet_margin_loss(self.model(a), self.model(p), self.model(n), margin=0.3)

    def train_epoch(self, idx, batch_size):
        self.model.train()
        losses = []
        for a, p, n in self._batches(idx, batch_size, shuffle=True):
            loss = self._loss(a, p, n)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
            losses.append(loss.item())
        return float(np.mean(losses))

    @torch.no_grad()
    def validate(self, idx, batch_size):
        self.model.eval()
        losses = [self._loss(*b).item() for b in self._batches(idx, batch_size, shuffle=False)]
        return float(np.mean(losses))
