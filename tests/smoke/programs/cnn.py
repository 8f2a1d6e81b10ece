"""A small image classifier that upsamples, trained on noise."""

import argparse

import torch
import torch.nn as nn
import torch.nn.functional as F


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
        self.head = nn.Conv2d(8, 4, 1)
        self.drop = nn.Dropout(0.1)
        self.classify = nn.Linear(4, 10)

    def forward(self, x):
        x = self.body(x)
        x = F.interpolate(x, scale_factor=2, mode="nearest")
        x = self.head(x)
        return self.classify(self.drop(x.mean((2, 3))))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=1)
    epochs = parser.parse_args().epochs
    torch.manual_seed(1)
    model = Net().cuda()
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(epochs):
        for _ in range(4):
            images = torch.randn(8, 3, 16, 16, device="cuda")
            labels = torch.randint(10, (8,)).cuda(non_blocking=True)
            optimizer.zero_grad()
            loss = criterion(model(images), labels)
            loss.backward()
            optimizer.step()
            torch.cuda.synchronize()
            print("loss", loss.item())


if __name__ == "__main__":
    main()
