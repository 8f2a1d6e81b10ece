import torch
import torch.nn as nn


class LanguageModel(nn.Module):
    def __init__(self, words, width=24):
        super().__init__()
        self.embed = nn.Embedding(words, width)
        self.lstm = nn.LSTM(width, width, num_layers=2, batch_first=True)
        self.out = nn.Linear(width, words)

    def forward(self, x, state=None):
        if state is None:
            zeros = torch.zeros(2, x.shape[0], 24, device="cuda")
            state = (zeros, zeros)
        h, state = self.lstm(self.embed(x), state)
        return self.out(h), state
