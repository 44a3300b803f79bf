"""Functions as models."""

from torch import nn


class Call(nn.Module):
    """A model that is a function of one tensor."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class CallOfTwo(nn.Module):
    """A model that is a function of two tensors."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x, y):
        return self.function(x, y)
