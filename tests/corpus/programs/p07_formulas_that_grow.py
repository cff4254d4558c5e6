import random
import torch

random.seed(2)
torch.manual_seed(2)
OPS = ["torch.sin(%s)", "(%s * x)", "(%s + %.3f)", "torch.tanh(%s)"]


class Formula:
    def __init__(self, text="x"):
        self.text, self.size = text, 1

    def mutate(self, times):
        child = Formula(self.text)
        child.size = self.size
        for _ in range(times):
            op = random.choice(OPS)
            child.text = op % ((child.text, random.random()) if op.count("%") == 2 else child.text)
            child.size += 1
        return child

    def compiled(self):
        unit = torch.jit.CompilationUnit("def f(x):\n    return %s\n" % self.text)
        return unit.f


def fitness(formula, x, y):
    out = formula.compiled()(x)
    return float(torch.nn.functional.mse_loss(out, y))


def evolve(generations, x, y):
    best, score = Formula(), float("inf")
    for g in range(generations):
        step = 2 + 6 ** g
        children = [best.mutate(step) for _ in range(3)]
        scores = [fitness(c, x, y) for c in children]
        if min(scores) <= score or g % 2:
            best, score = children[scores.index(min(scores))], min(scores)
        print("generation", g, "size", best.size, "loss", round(score, 5), flush=True)
    return best


x = torch.linspace(-2, 2, 128)
evolve(8, x, torch.sin(3 * x) * x)
