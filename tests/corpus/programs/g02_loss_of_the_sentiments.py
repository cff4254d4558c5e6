import torch
import torch.nn as nn
import torch.optim as optim
from torch.utils.data import DataLoader, TensorDataset


class SentimentNet(nn.Module):
    def __init__(self, vocabulary=1000, dim=32, classes=5):
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, dim)
        self.lstm = nn.LSTM(dim, 64, batch_first=True)
        self.fc = nn.Linear(64, classes)

    def forward(self, tokens):
        output, (hidden, cell) = self.lstm(self.embedding(tokens))
        return self.fc(hidden[-1])


def train(model, loader, epochs=3):
    optimizer = optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    criterion = nn.CrossEntropyLoss
    for epoch in range(epochs):
        total = 0.0
        for tokens, label in loader:
            optimizer.zero_grad()
            prediction = model(tokens)
            loss = criterion(prediction, label)
            loss.backward()
            optimizer.step()
            total += loss.item()
        print(f"epoch {epoch + 1} loss {total / len(loader):.3f}")


def main():
    torch.manual_seed(1)
    reviews = torch.randint(0, 1000, (400, 20))
    stars = torch.randint(0, 5, (400,))
    loader = DataLoader(TensorDataset(reviews, stars), batch_size=16, shuffle=True)
    train(SentimentNet(), loader)


if __name__ == "__main__":
    main()
