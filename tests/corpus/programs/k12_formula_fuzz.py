"""Mutate SMT-like formulas and score them with a small recursive net."""
import copy
import random
import sys

import torch
import torch.nn as nn

sys.setrecursionlimit(1_000_000)

OPS = ("+", "*", "-")


class Term:
    def __init__(self, op, args=(), value=0.0):
        self.op, self.args, self.value = op, list(args), value

    def leaves(self):
        stack, found = [self], []
        while stack:
            term = stack.pop()
            stack.extend(term.args)
            if not term.args:
                found.append(term)
        return found


def parse_chain(length, rng):
    """(+ (* (- ... x1) x2) x3), the way bounded model checkers unroll loops."""
    term = Term("x", value=rng.random())
    for _ in range(length):
        term = Term(rng.choice(OPS), [term, Term("x", value=rng.random())])
    return term


class Mutator:
    def __init__(self, seed):
        self.rng = random.Random(seed)

    def __call__(self, formula, count=3):
        mutants = []
        for _ in range(count):
            mutant = copy.deepcopy(formula)
            leaf = self.rng.choice(mutant.leaves())
            leaf.value = self.rng.random()
            mutants.append(mutant)
        return mutants


class LeafScorer(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(1, dim), nn.Tanh(), nn.Linear(dim, 1))

    def forward(self, formula):
        values = torch.tensor([[leaf.value] for leaf in formula.leaves()])
        return self.net(values).mean()


def main():
    torch.manual_seed(0)
    rng, mutate, scorer = random.Random(0), Mutator(1), LeafScorer()
    for name, length in (("atan-1", 50), ("atan-3", 800), ("ball_count_2d", 40000)):
        formula = parse_chain(length, rng)
        scores = [scorer(m).item() for m in mutate(formula)]
        print(f"{name}: {len(formula.leaves())} leaves, best {max(scores):.4f}", flush=True)


if __name__ == "__main__":
    main()
