"""Sessions of ONNX Runtime, which take and give tensors."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_ir.backends.protocol import TupleCalled
from torch_ir.backends.runtimes.onnx_model import array_of


class Session(TupleCalled):
    """A session: takes tensors and sizes, gives tensors."""

    def __init__(self, runtime: Any, model: bytes, options: Mapping[str, Any]):
        settings = runtime.SessionOptions()
        settings.intra_op_num_threads = options.get("threads", torch.get_num_threads())
        settings.log_severity_level = 4
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        if level := options.get("graph_optimization_level"):
            settings.graph_optimization_level = getattr(runtime.GraphOptimizationLevel, level)
        providers = list(options.get("providers", ["CPUExecutionProvider"]))
        self.model = model
        self.session = session = runtime.InferenceSession(model, settings, providers=providers)
        self._names = list(enumerate([given.name for given in session.get_inputs()]))
        self._outputs = [made.name for made in session.get_outputs()]
        # below the session is one that does not look at the names of each call again
        self._run: Callable[..., list[Any]] = getattr(session, "_sess", session).run

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run on some arguments."""
        try:
            feed = {name: given[index].numpy() for index, name in self._names}
        except (AttributeError, RuntimeError):  # a number, or a tensor that requires gradients
            feed = {name: array_of(given[index]) for index, name in self._names}
        return list(map(torch.from_numpy, self._run(self._outputs, feed, None)))


class InPlace(TupleCalled):
    """A session that gives some results in the memory of its inputs; calls take turns.

    It binds what is not where it was: each call of Python or torch costs some 10 microseconds
    where no cache holds its code, as after a large model.
    """

    def __init__(self, plain: Session, places: Mapping[int, int]):
        self._plain, self._places = plain, places
        session = plain.session
        self._given = [given.name for given in session.get_inputs()]
        self._made = [made.name for made in session.get_outputs()]
        self._moving = [i for i in range(len(self._given)) if i not in places.values()]
        self._own = [i for i in range(len(self._made)) if i not in places]
        self._run, self._binding = session.run_with_iobinding, session.io_binding()
        # below the binding is one that makes no object for each result
        self._outputs = getattr(self._binding, "_iobinding", self._binding).get_outputs
        self._bound: dict[int, Any] = {}
        self._turn = threading.Lock()

    def on(self, given: tuple[Any, ...], /) -> Sequence[torch.Tensor]:
        """Run on some arguments."""
        moving = [_tensor_of(given[i]) for i in self._moving]
        if not all(tensor.numel() for tensor in moving):
            return self._plain.on(given)  # what is empty lies nowhere
        with self._turn:
            for position, tensor in zip(self._moving, moving, strict=True):
                where = (tensor.data_ptr(), tensor.shape)
                if self._bound.get(position) != where:
                    self._bound[position] = None  # until it is known, if an interrupt comes
                    self._binding.bind_input(self._given[position], *_memory(tensor))
                    self._bound[position] = where
            for result, place in self._places.items():
                where = given[place].data_ptr()  # which a tensor may have changed
                if self._bound.get(place) != where:
                    self._bound[place] = None
                    self._binding.bind_input(self._given[place], *_memory(given[place]))
                    self._binding.bind_output(self._made[result], *_memory(given[place]))
                    self._bound[place] = where
            for position in self._own:  # else it writes where the last call's result is
                self._binding.bind_output(self._made[position], "cpu")
            self._run(self._binding)
            made = self._outputs()
        results = {result: given[place] for result, place in self._places.items()}
        results |= {i: torch.from_numpy(made[i].numpy()) for i in self._own}
        return [results[i] for i in range(len(self._made))]


def _tensor_of(item: Any) -> torch.Tensor:
    return item if isinstance(item, torch.Tensor) else torch.from_numpy(array_of(item))


def _memory(tensor: torch.Tensor) -> tuple[Any, ...]:
    """Where a tensor lies, as a binding takes it."""
    return "cpu", 0, array_of(tensor).dtype, tuple(tensor.shape), tensor.data_ptr()
