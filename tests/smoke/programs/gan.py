"""A GAN with two optimizers; its tensors are made by the old constructors."""

import torch
import torch.nn as nn

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor


def layers(*widths):
    made = []
    for a, b in zip(widths, widths[1:]):
        made += [nn.Linear(a, b), nn.LeakyReLU(0.2)]
    return nn.Sequential(*made[:-1])


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = layers(8, 16, 32)

    def forward(self, z):
        return torch.tanh(self.net(z))


class Discriminator(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = layers(32, 16, 1)

    def forward(self, x):
        return torch.sigmoid(self.net(x))


generator, discriminator = Generator(), Discriminator()
criterion = nn.BCELoss()
if cuda:
    generator.cuda()
    discriminator.cuda()
    criterion.cuda()
first = torch.optim.Adam(generator.parameters(), lr=0.002)
second = torch.optim.Adam(discriminator.parameters(), lr=0.002)
for _ in range(20):
    real = torch.randn(16, 32).type(Tensor)
    valid, fake = Tensor(16, 1).fill_(1.0), Tensor(16, 1).fill_(0.0)
    first.zero_grad()
    made = generator(torch.randn(16, 8, device="cuda" if cuda else "cpu"))
    loss = criterion(discriminator(made), valid)
    loss.backward()
    first.step()
    second.zero_grad()
    loss = criterion(discriminator(real), valid) + criterion(discriminator(made.detach()), fake)
    loss.backward()
    second.step()
