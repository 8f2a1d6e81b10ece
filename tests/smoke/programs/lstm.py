"""An LSTM language model in two files, without automatic mixed precision."""

import torch
from lstm_model import LanguageModel

model = LanguageModel(50).cuda()
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
loss_function = torch.nn.CrossEntropyLoss().cuda()
text = torch.randint(50, (6, 21)).cuda()
state = None
for _ in range(3):
    logits, state = model(text[:, :-1], state)
    state = tuple(part.detach() for part in state)
    loss = loss_function(logits.reshape(-1, 50), text[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
torch.cuda.empty_cache()
