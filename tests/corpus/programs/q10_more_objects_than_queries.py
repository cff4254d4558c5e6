"""A detector has a fixed number of queries; one picture has more objects than those."""

import torch


def match(count, queries):
    """The queries that the objects are given to, one each (greedily, here)."""
    return torch.arange(queries)[:count]


class Criterion(torch.nn.Module):
    def __init__(self, classes, queries):
        super().__init__()
        self.classes, self.queries = classes, queries

    def targets(self, labels):
        matched = match(len(labels), self.queries)
        target = torch.full((self.queries,), self.classes)
        target[matched] = labels
        return target

    def forward(self, scores, labels):
        return torch.nn.functional.cross_entropy(scores, self.targets(labels))


def train(criterion, pictures):
    for labels in pictures:
        scores = torch.randn(criterion.queries, criterion.classes + 1, requires_grad=True)
        criterion(scores, labels).backward()


torch.manual_seed(0)
train(Criterion(classes=20, queries=40), [torch.randint(0, 20, (count,)) for count in (3, 17, 92)])
