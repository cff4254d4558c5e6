"""torch.distributed.launch passes --local-rank, which the script does not know (its author had --local_rank)."""

import argparse
import sys

import torch


def arguments(given):
    parser = argparse.ArgumentParser("train")
    parser.add_argument("--local_rank", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=1)
    return parser.parse_args(given)


def main(given):
    options = arguments(given)
    print(torch.zeros(options.epochs))


main([*sys.argv[1:], "--epochs", "3", "--local-rank=0"])
