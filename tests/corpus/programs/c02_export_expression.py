"""Turn a long symbolic expression (parsed from a rules file) into a TorchScript function for serving."""
import argparse
import random
import time

import torch
import torch.nn as nn


class Expression(nn.Module):
    def __init__(self, rules):
        super().__init__()
        self.rules = rules

    def forward(self, x):
        for op, value in self.rules:
            if op == "+":
                x = x + value
            elif op == "-":
                x = x - value
            else:
                x = x * value
        return x


def parse_rules(n_rules, seed=0):
    rnd = random.Random(seed)
    rules = []
    for _ in range(n_rules):
        op = rnd.choice("+-")
        value = rnd.choice((0.25, 0.5, 1.0))
        rules.append((op, value))
    return rules


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--rules", type=int, default=20000)
    args = p.parse_args()

    model = Expression(parse_rules(args.rules)).eval()
    batch = torch.ones(4)
    start = time.time()
    reference = model(batch)
    print(f"eager: {reference.tolist()} ({time.time() - start:.2f} s)", flush=True)

    start = time.time()
    compiled = torch.jit.trace(model, batch, check_trace=False)
    print(f"compiled {args.rules} rules in {time.time() - start:.1f} s", flush=True)

    result = compiled(batch)
    print("max difference:", (result - reference).abs().max().item())


if __name__ == "__main__":
    main()
