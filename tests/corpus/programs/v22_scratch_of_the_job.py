import os
import shutil

JOBS = "/tmp/law_jobs"


def enter_job(task, version, branch):
    job = os.path.join(JOBS, task, "run3_2022_postEE", "nominal", f"calib_{version}", f"branch_{branch}", "htcondor_job")
    shutil.rmtree(JOBS, ignore_errors=True)
    os.makedirs(os.path.join(job, "tmp"))
    os.environ["TMPDIR"] = os.path.join(job, "tmp")
    os.chdir(job)


if __name__ == "__main__":
    enter_job("TrainClassifier", "prod_2024_07", 12)

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def events(count=4096):
    generator = torch.Generator().manual_seed(0)
    inputs = torch.randn(count, 24, generator=generator)
    return TensorDataset(inputs, (inputs.sum(dim=1) > 0).long())


def train(epochs=3):
    loader = DataLoader(events(), batch_size=128, shuffle=True, num_workers=2)
    model = nn.Sequential(nn.Linear(24, 64), nn.ReLU(), nn.Linear(64, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        for inputs, labels in loader:
            loss = nn.functional.cross_entropy(model(inputs), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.4f}", flush=True)


if __name__ == "__main__":
    train()
    os.chdir("/")
    shutil.rmtree(JOBS)
