class AverageMeter:
    def __init__(self):
        self.total, self.count = 0.0, 0

    def add(self, value, n=1):
        self.total += float(value) * n
        self.count += n

    @property
    def value(self):
        return self.total / max(self.count, 1)


class EmbeddingLog:
    """Embeddings and labels of one epoch, for the prototypes."""

    def __init__(self):
        self.items = []

    def add(self, emb, labels):
        self.items.append((emb.detach(), labels))

    def drain(self):
        items, self.items = self.items, []
        return items


def release(*tensors):
    """Give activations back to the allocator before the next batch."""
    for t in tensors:
        t.untyped_storage().resize_(0)
