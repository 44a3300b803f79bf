"""What a test takes from torch's own samples leaves nothing behind for later tests."""

import gc

import torch
from torch.overrides import TorchFunctionMode

from torch_samples import first_samples, op_db


@torch.no_grad()
def numbers():
    yield from range(3)


def test_samples_that_are_left_switch_no_gradients_when_they_are_collected():
    switched = []

    class Watch(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            if func is torch._C._set_grad_enabled:
                switched.append(args)
            return func(*args, **kwargs or {})

    gc.collect()
    entry = next(entry for entry in op_db if entry.name == "abs")
    next(first_samples(entry, torch.float32, 3))
    with Watch():
        gc.collect()
    assert not switched
    left = [numbers()]  # in a cycle, as torch's own are
    next(left[0])
    left.append(left)
    del left
    with Watch():
        gc.collect()
    assert switched == [(False,), (True,)]
