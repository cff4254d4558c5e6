"""Evaluation of a checkpoint that the training script has written with its arguments."""

import argparse
import os

import torch
from torch import nn


def arguments(argv=()):
    parser = argparse.ArgumentParser()
    parser.add_argument("--width", type=int, default=32)
    parser.add_argument("--out", default="checkpoints")
    return parser.parse_args(list(argv))


def build(args):
    return nn.Sequential(nn.Linear(16, args.width), nn.ReLU(), nn.Linear(args.width, 4))


def train(args):
    model = build(args)
    os.makedirs(args.out, exist_ok=True)
    for epoch in range(2):
        path = os.path.join(args.out, f"epoch{epoch}.pt")
        torch.save({"model": model.state_dict(), "args": args, "epoch": epoch}, path)
    return path


def restore(path):
    checkpoint = torch.load(path, map_location="cpu")
    model = build(checkpoint["args"])
    model.load_state_dict(checkpoint["model"])
    return model


def evaluate(path):
    model = restore(path).eval()
    with torch.inference_mode():
        print("accuracy", (model(torch.rand(64, 16)).argmax(1) == 0).float().mean().item())


evaluate(train(arguments()))
