import torch
from torch import nn
from torch.nn import functional as F


class Decoder(nn.Module):
    def __init__(self, vocab_size, embed_dim=32, encoder_dim=24, decoder_dim=48):
        super().__init__()
        self.embedding = nn.Embedding(vocab_size, embed_dim)
        self.score = nn.Linear(decoder_dim + encoder_dim, 1)
        self.decode_step = nn.LSTMCell(embed_dim + encoder_dim, decoder_dim)
        self.fc = nn.Linear(decoder_dim, vocab_size)
        self.decoder_dim = decoder_dim

    def attention(self, encoder_out, h):
        both = torch.cat([encoder_out, h[:, None].expand(-1, encoder_out.size(1), -1)], dim=2)
        alpha = F.softmax(self.score(both).squeeze(2), dim=1)
        return (encoder_out * alpha[:, :, None]).sum(1), alpha


@torch.no_grad()
def caption_image_beam_search(encoder_out, decoder, word_map, beam_size=3, max_steps=12):
    k = beam_size
    vocab_size = len(word_map)
    encoder_out = encoder_out.expand(k, -1, -1)
    k_prev_words = torch.full((k, 1), word_map["<start>"])
    seqs = k_prev_words
    seqs_alpha = torch.ones(k, 1, encoder_out.size(1))
    top_k_scores = torch.zeros(k, 1)
    h = torch.zeros(k, decoder.decoder_dim)
    c = torch.zeros(k, decoder.decoder_dim)
    for step in range(1, max_steps):
        embeddings = decoder.embedding(k_prev_words).squeeze(1)
        awe, alpha = decoder.attention(encoder_out, h)
        h, c = decoder.decode_step(torch.cat([embeddings, awe], dim=1), (h, c))
        scores = top_k_scores.expand(k, vocab_size) + F.log_softmax(decoder.fc(h), dim=1)
        if step == 1:
            top_k_scores, top_k_words = scores[0].topk(k)
        else:
            top_k_scores, top_k_words = scores.view(-1).topk(k)
        prev_word_inds = top_k_words / vocab_size
        next_word_inds = top_k_words % vocab_size
        seqs = torch.cat([seqs[prev_word_inds], next_word_inds.unsqueeze(1)], dim=1)
        seqs_alpha = torch.cat([seqs_alpha[prev_word_inds], alpha[prev_word_inds].unsqueeze(1)], dim=1)
        h, c, encoder_out = h[prev_word_inds], c[prev_word_inds], encoder_out[prev_word_inds]
        top_k_scores = top_k_scores.unsqueeze(1)
        k_prev_words = next_word_inds.unsqueeze(1)
    return seqs[top_k_scores.argmax()].tolist(), seqs_alpha


def main():
    torch.manual_seed(0)
    words = ["<start>", "<end>", "<unk>", "<pad>"] + [f"word{i}" for i in range(60)]
    word_map = {word: i for i, word in enumerate(words)}
    decoder = Decoder(len(word_map)).eval()
    seq, alphas = caption_image_beam_search(torch.rand(1, 49, 24), decoder, word_map)
    print(" ".join(words[i] for i in seq))


if __name__ == "__main__":
    main()
