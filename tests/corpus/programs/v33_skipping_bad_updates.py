import logging

import torch
import torch.nn as nn

logging.basicConfig(level=logging.INFO, format="%(levelname)s: %(message)s")


class CTCModel(nn.Module):
    def __init__(self, idim=40, hidden=64, odim=30):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(idim, hidden), nn.ReLU(), nn.Linear(hidden, hidden), nn.ReLU())
        self.ctc_lo = nn.Linear(hidden, odim)
        self.criterion = nn.CTCLoss(reduction="sum")

    def forward(self, speech, speech_lengths, text, text_lengths):
        logits = self.ctc_lo(self.encoder(speech))
        log_probs = logits.float().log_softmax(-1).transpose(0, 1)
        return self.criterion(log_probs, text, speech_lengths, text_lengths)


def batches(count):
    generator = torch.Generator().manual_seed(7)
    for _ in range(count):
        yield (torch.randn(8, 100, 40, generator=generator), torch.full((8,), 100),
               torch.randint(1, 30, (8, 12), generator=generator), torch.full((8,), 12))


def train_one_epoch(model, iterator, optimizer, scaler, grad_clip=5.0):
    for iiter, batch in enumerate(iterator, 1):
        with torch.autocast("cpu", dtype=torch.float16):
            loss = model(*batch)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        grad_norm = nn.utils.clip_grad_norm_(model.parameters(), grad_clip)
        if not torch.isfinite(grad_norm):
            logging.warning(f"The grad norm is {grad_norm}. Skipping updating the model.")
            optimizer.zero_grad()
            continue
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
        logging.info(f"iter {iiter} loss {loss.item():.2f} grad_norm {grad_norm:.2f}")


torch.manual_seed(0)
model = CTCModel()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu")
train_one_epoch(model, batches(20), optimizer, scaler)
