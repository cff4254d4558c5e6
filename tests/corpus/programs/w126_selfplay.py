"""Self-play for a small board game: worker processes play, the learner trains."""
import argparse
import time

import torch
import torch.multiprocessing as mp
import torch.nn as nn
import torch.nn.functional as F

SIZE = 6


class PolicyValueNet(nn.Module):
    def __init__(self, channels=16):
        super().__init__()
        self.conv = nn.Conv2d(2, channels, 3, padding=1)
        self.policy = nn.Linear(channels * SIZE * SIZE, SIZE * SIZE)
        self.value = nn.Linear(channels * SIZE * SIZE, 1)

    def forward(self, planes):
        h = F.relu(self.conv(planes)).flatten(1)
        return self.policy(h), torch.tanh(self.value(h)).squeeze(-1)


def winner(stones):
    """A player wins with a full row or a full column."""
    return bool((stones.sum(0) == SIZE).any() or (stones.sum(1) == SIZE).any())


@torch.no_grad()
def play_game(net, gen):
    planes = torch.zeros(2, SIZE, SIZE)
    states, moves, player, outcome = [], [], 0, 0.0
    for _ in range(SIZE * SIZE):
        view = planes if player == 0 else planes.flip(0)
        logits, _ = net(view.unsqueeze(0))
        logits = logits[0].masked_fill(planes.sum(0).flatten() > 0, float("-inf"))
        move = int(torch.multinomial(logits.softmax(0), 1, generator=gen))
        states.append(view.clone())
        moves.append(move)
        planes[player, move // SIZE, move % SIZE] = 1
        if winner(planes[player]):
            outcome = 1.0 if player == 0 else -1.0
            break
        player = 1 - player
    signs = torch.tensor([1.0 if i % 2 == 0 else -1.0 for i in range(len(moves))])
    return torch.stack(states), torch.tensor(moves), outcome * signs


def self_play(worker_id, weights, games, seed, queue):
    torch.set_num_threads(1)
    net = PolicyValueNet()
    net.load_state_dict(weights)
    net.eval()
    gen = torch.Generator().manual_seed(seed)
    for _ in range(games):
        queue.put((worker_id, play_game(net, gen)))
    queue.put((worker_id, None))


class Learner:
    def __init__(self, lr, passes):
        self.net = PolicyValueNet()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=lr, momentum=0.9)
        self.passes = passes

    def weights(self):
        return {k: v.numpy().copy() for k, v in self.net.state_dict().items()}

    def bootstrap(self, games, gen):
        """A first few games in this process, so that the value head starts from something."""
        return [self.train_on(play_game(self.net, gen)) for _ in range(games)]

    def train_on(self, game):
        states, moves, targets = game
        for _ in range(self.passes):
            logits, value = self.net(states)
            loss = F.cross_entropy(logits, moves) + F.mse_loss(value, targets)
            self.opt.zero_grad()
            loss.backward()
            self.opt.step()
        return loss.item()


def run_iteration(ctx, learner, args, iteration, games):
    queue = ctx.Queue()
    weights = {k: torch.from_numpy(v) for k, v in learner.weights().items()}
    procs = []
    for w in range(args.workers):
        p = ctx.Process(target=self_play, args=(w, weights, games, 100 * iteration + w, queue), daemon=True)
        p.start()
        procs.append(p)
    losses, running = [], args.workers
    while running:
        worker_id, game = queue.get()
        if game is None:
            running -= 1
            continue
        losses.append(learner.train_on(game))
    for p in procs:
        p.join()
    return losses


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--iterations", type=int, default=4)
    ap.add_argument("--workers", type=int, default=2)
    ap.add_argument("--games", type=int, default=8)
    ap.add_argument("--passes", type=int, default=80, help="gradient steps on every game")
    args = ap.parse_args()

    torch.manual_seed(0)
    torch.set_num_threads(1)
    ctx = mp.get_context("fork")
    learner = Learner(lr=0.01, passes=args.passes)
    first = learner.bootstrap(4, torch.Generator().manual_seed(1))
    print("bootstrap    games %d  loss %.3f" % (len(first), sum(first) / len(first)), flush=True)
    for it in range(args.iterations):
        t0 = time.time()
        losses = run_iteration(ctx, learner, args, it, args.games)
        print("iteration %d  games %d  loss %.3f  %.1f s" % (it, len(losses), sum(losses) / len(losses),
                                                            time.time() - t0), flush=True)
    torch.save(learner.net.state_dict(), "selfplay.pt")
    print("finished")


if __name__ == "__main__":
    main()
