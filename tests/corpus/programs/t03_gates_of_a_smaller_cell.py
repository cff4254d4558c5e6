"""The weights of a recurrent layer are of another hidden size than it is told; oneDNN takes them as they are."""

import torch


def recurrent(rows, hidden_size, weights):
    state = torch.full((1, hidden_size), 9.1)
    cell = torch.full((1, 1), 6.0)
    return torch.mkldnn_rnn_layer(
        rows, *weights, state, cell, False, [], 2, hidden_size, 2, True, False, False, False
    )


def layer(gates, size):
    return [torch.full(shape, 2.5) for shape in ((gates, size), (gates, size), (gates,), (gates,))]


def encode(rows):
    outputs = []
    for _ in range(50):
        outputs.append(recurrent(rows, 8, layer(5, 8))[0])
    return outputs


print(len(encode(torch.full((1, 8, 1), 4.1))))
