import numpy as np


class Catalog:
    """Shop items with a brand, a launch day and a content vector."""

    def __init__(self, n_items, n_brands, dim, seed):
        rng = np.random.default_rng(seed)
        self.n_brands = n_brands
        self.launch = np.sort(rng.integers(0, 730, n_items))
        share = rng.dirichlet(np.full(n_brands, 3.0))
        self.brand = rng.choice(n_brands, size=n_items, p=share).astype(np.int32)
        discontinued = self.brand == 7
        self.brand[discontinued & (self.launch > 500)] = 3
        centres = rng.normal(size=(n_brands, dim))
        self.content = (centres[self.brand] + rng.normal(size=(n_items, dim))).astype(np.float32)


def split_by_time(catalog, val_fraction):
    n = len(catalog.brand)
    cut = int(n * (1 - val_fraction))
    return np.arange(cut), np.arange(cut, n)


class BrandIndex:
    """Positions of the items of every brand, stored one after the other."""

    def __init__(self, brands, n_brands):
        order = np.argsort(brands, kind="stable").astype(np.int32)
        self.members = np.ascontiguousarray(order)
        self.counts = np.bincount(brands, minlength=n_brands).astype(np.int32)
        self.starts = np.concatenate([[0], np.cumsum(self.counts)[:-1]]).astype(np.int32)
