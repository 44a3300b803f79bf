"""What the functions of `behavior_functions` close over; each world has what its own names."""

import collections
import dataclasses
import enum
import functools
import types
import warnings

import torch
from torch import nn

torch.manual_seed(3)
Point = collections.namedtuple("Point", "a b")


@dataclasses.dataclass
class Data:
    x: object
    s: object


class Color(enum.Enum):
    RED = 2


class Square(torch.autograd.Function):
    @staticmethod
    def forward(ctx, a):
        ctx.save_for_backward(a)
        return a * a

    @staticmethod
    def backward(ctx, g):
        return 3 * g * ctx.saved_tensors[0]


@torch.jit.script
def scripted(a):
    return a * 2


def f2(x, s=1, *, k=2):
    return x * k


def super_(x):
    return Sub().run(x)


class Base:
    K = 2

    def run(self, x):
        return x * self.K


class Sub(Base):
    def run(self, x):
        return super().run(x) + 1


def async_(x):
    async def run():
        return x + 1

    try:
        run().send(None)
    except StopIteration as stop:
        return stop.value


def default(x, kept=[]):  # noqa: B006  # what is shown
    kept.append(1)
    return x * len(kept)


@functools.lru_cache
def lru(s):
    return 2


COUNT, TABLE, CACHE, TENSORS = [1], {}, {}, [torch.ones(2)]
OBJ = types.SimpleNamespace(n=1)
W, B, BASE = nn.Parameter(torch.randn(2, 2)), torch.ones(2), torch.arange(4.0)
BASE_VIEW = BASE[1:3]
B3, V3 = torch.zeros(3), torch.ones(3)
GEN, ITER = (torch.ones(1) for _ in range(9)), iter([1, 2, 3, 4, 5, 6, 7, 8])
NET, NORM, DROP = nn.Linear(3, 2), nn.BatchNorm1d(3), nn.Dropout(0.5)
GRU, LSTM = nn.GRU(3, 2), nn.LSTM(3, 2, num_layers=2, dropout=0.5)
EMB, BAG = nn.Embedding(3, 2, max_norm=0.5), nn.EmbeddingBag(3, 2)
MHA, ENC = nn.MultiheadAttention(2, 1), nn.TransformerEncoderLayer(2, 1, 4, batch_first=True)
SPECTRAL = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 2))
WNORM = nn.utils.parametrizations.weight_norm(nn.Linear(3, 2))
with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    OLD_WNORM = nn.utils.weight_norm(nn.Linear(3, 2))
INST = nn.InstanceNorm1d(2, track_running_stats=True)
LIST, PLIST = nn.ModuleList([nn.Linear(3, 2)]), nn.ParameterList([torch.ones(2)])
MDICT, PDICT = nn.ModuleDict({"a": nn.Tanh()}), nn.ParameterDict({"w": torch.ones(2)})
SCRIPT_NET = torch.jit.script(nn.Linear(3, 2))
LAZY = nn.LazyLinear(2)
HOOKED, PRE_HOOKED, GRAD_HOOKED = nn.Linear(3, 2), nn.Linear(3, 2), nn.Linear(3, 2)
HOOKED.register_forward_hook(lambda m, a, o: (o, o * COUNT[0]))
PRE_HOOKED.register_forward_pre_hook(lambda m, a, k: ((a[0] * 2,), k), with_kwargs=True)
GRAD_HOOKED.register_full_backward_hook(
    lambda m, gi, go: tuple(None if g is None else g * 2 for g in gi)
)


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.n = 0

    def forward(self, x):
        self.n += 1
        return x * self.n


class Counter2(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("n", torch.zeros(()))

    def forward(self, x):
        self.n += 1
        return x * self.n


class Counter3(Counter2):
    def forward(self, x):
        self.n = self.n + 1
        return x * self.n


class Counter4(Counter2):
    def forward(self, x):
        self.n.copy_(x.sum())
        return x * self.n, self.n


class Cached(nn.Module):
    def __init__(self):
        super().__init__()
        self.kept = None

    def forward(self, x):
        if self.kept is None or self.kept.shape != x.shape:
            self.kept = torch.ones(x.shape)
        return x + self.kept


class KeyValue(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("k", torch.zeros(4, 3))
        self.at = 0

    def forward(self, x):
        self.k[self.at : self.at + 1] = x[:1]
        self.at = (self.at + 1) % 4
        return self.k[: self.at + 1]


class Copying(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.ones(3))

    def forward(self, x):
        with torch.no_grad():
            self.w.copy_(x[0])
        return self.w * x


COUNTER, COUNTER2, COUNTER3, COUNTER4, CACHED, KV, COPY = (
    Counter(),
    Counter2(),
    Counter3(),
    Counter4(),
    Cached(),
    KeyValue(),
    Copying(),
)
