import torch
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset


class Histories(Dataset):
    """The last films of each person and the next one."""

    def __init__(self, people, films, longest=50):
        gen = torch.Generator().manual_seed(9)
        self.longest = longest
        self.rows = []
        for person in range(people):
            n = 60 if person % 7 != 5 else int(torch.randint(5, 45, (1,), generator=gen))
            self.rows.append(torch.randint(0, films, (n,), generator=gen))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        row = self.rows[i]
        return row[:-1][-self.longest:], row[-1]


class NextFilm(nn.Module):
    def __init__(self, films, dim=48):
        super().__init__()
        self.emb = nn.Embedding(films, dim)
        self.rnn = nn.GRU(dim, dim, batch_first=True)

    def forward(self, rows):
        return self.rnn(self.emb(rows))[1][0] @ self.emb.weight.T


def main():
    torch.manual_seed(1)
    data = Histories(400, 900)
    model = NextFilm(900)
    opt = torch.optim.Adam(model.parameters())
    for epoch in range(2):
        for rows, target in DataLoader(data, batch_size=4, num_workers=2):
            loss = nn.functional.cross_entropy(model(rows), target)
            opt.zero_grad()
            loss.backward()
            opt.step()
        print("epoch", epoch, round(loss.item(), 3))


if __name__ == "__main__":
    main()
