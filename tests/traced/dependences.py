"""Functions that depend on something, in every way of Python's: is a change of it ever missed?

Each case is a program of its own, run twice: as it is, and traced. It is called, what it depends
on is changed, and it is called again; results must be those of the function itself, or it is
refused. `SOURCES` says where a number is read and how it changes, `READERS` through what kind
of code; every pair is a case.

Usage: ``PYTHONPATH=tests python -m traced.dependences``
"""

from __future__ import annotations

import contextlib
import sys
import textwrap
import types
from collections.abc import Iterator
from typing import Any

import torch

from torch_ir import TraceError, make_traced
from traced.comparing import same

SOURCES: dict[str, tuple[str, str, str]] = {
    "a global": ("K = 2.0", "K", "K = 5.0"),
    "a global that is missing": ("", "globals().get('K', 2.0)", "K = 5.0"),
    "globals()": ("K = 2.0", "globals()['K']", "K = 5.0"),
    "eval": ("K = 2.0", "eval('K')", "K = 5.0"),
    "a class": ("class C:\n K = 2.0", "C.K", "C.K = 5.0"),
    "a base class": ("class B:\n K = 2.0\nclass C(B): pass", "C.K", "B.K = 5.0"),
    "a class, through an object": ("class C:\n K = 2.0\no = C()", "o.K", "C.K = 5.0"),
    "a metaclass": ("class M(type):\n K = 2.0\nclass C(metaclass=M): pass", "C.K", "M.K = 5.0"),
    "a property of a metaclass": (
        "K = 2.0\nclass M(type):\n @property\n def k(c): return K\nclass C(metaclass=M): pass",
        "C.k",
        "K = 5.0",
    ),
    "isinstance of a metaclass": (
        "K = 2\nclass M(type):\n def __instancecheck__(c, o): return K > 3\n"
        "class C(metaclass=M): pass",
        "(2.0 if isinstance(1, C) else 3.0)",
        "K = 5",
    ),
    "an annotation": (
        "def g(x: 2.0): pass",
        "float(g.__annotations__['x'])",
        "g.__annotations__['x'] = 5.0",
    ),
    "annotations": (
        "class C:\n K: 2.0",
        "float(C.__annotations__['K'])",
        "C.__annotations__ = {'K': 5.0}",
    ),
    "a docstring": ("def g():\n 'ab'", "float(len(g.__doc__))", "g.__doc__ = 'abcde'"),
    "a name": ("class C: pass", "float(len(C.__name__))", "C.__name__ = 'abcde'"),
    "an object": ("o = types.SimpleNamespace(K=2.0)", "o.K", "o.K = 5.0"),
    "a name that is computed": (
        "o = types.SimpleNamespace(K1=2.0)",
        "getattr(o, 'K' + str(1))",
        "o.K1 = 5.0",
    ),
    "a slot": ("class C:\n __slots__ = ('K',)\no = C()\no.K = 2.0", "o.K", "o.K = 5.0"),
    "a property": (
        "K = 2.0\nclass C:\n @property\n def k(self): return K\no = C()",
        "o.k",
        "K = 5.0",
    ),
    "a descriptor": (
        "K = 2.0\nclass D:\n def __get__(self, o, t): return K\nclass C:\n k = D()\no = C()",
        "o.k",
        "K = 5.0",
    ),
    "__getattr__": (
        "d = {'K': 2.0}\nclass C:\n def __getattr__(self, n): return d[n]\no = C()",
        "o.K",
        "d['K'] = 5.0",
    ),
    "an operator of a class": (
        "K = 2.0\nclass C:\n def __len__(self): return int(K)\no = C()",
        "len(o)",
        "K = 5.0",
    ),
    "the class of an object": (
        "class C:\n K = 2.0\nclass D:\n K = 5.0\no = C()",
        "o.K",
        "o.__class__ = D",
    ),
    "a class method": (
        "class C:\n K = 2.0\n @classmethod\n def k(c): return c.K",
        "C.k()",
        "C.K = 5.0",
    ),
    "a method that is replaced": (
        "class C:\n def k(self): return 2.0\no = C()",
        "o.k()",
        "C.k = lambda self: 5.0",
    ),
    "code that is replaced": (
        "def g(): return 2.0\ndef h(): return 5.0",
        "g()",
        "g.__code__ = h.__code__",
    ),
    "a function's attribute": ("def g(): return g.K\ng.K = 2.0", "g()", "g.K = 5.0"),
    "a default": ("def g(k=[2.0]): return k[0]", "g()", "g.__defaults__[0][0] = 5.0"),
    "defaults that are replaced": ("def g(k=2.0): return k", "g()", "g.__defaults__ = (5.0,)"),
    "a bound method": (
        "class C:\n def k(self): return self.K\no = C()\no.K = 2.0\nk = o.k",
        "k()",
        "o.K = 5.0",
    ),
    "partial": (
        "import functools\nd = {'K': 2.0}\np = functools.partial(lambda d: d['K'], d)",
        "p()",
        "d['K'] = 5.0",
    ),
    "lru_cache": (
        "import functools\nK = 2.0\n@functools.lru_cache\ndef k(): return K",
        "k()",
        "K = 5.0; k.cache_clear()",
    ),
    "a result in a cache": (
        "import functools\n@functools.cache\ndef k(): return [2.0]",
        "k()[0]",
        "k()[0] = 5.0",
    ),
    "a result in a cache with a limit": (
        "import functools\n@functools.lru_cache(2)\ndef k(n): return [n]\nk(1.0)",
        "k(2.0)[0]",
        "k(2.0)[0] = 5.0",
    ),
    "a cache that is emptied": (
        "import functools\nd = {'K': 2.0}\n@functools.cache\ndef k(): return d['K']",
        "k()",
        "d['K'] = 5.0; k.cache_clear()",
    ),
    "cached_property": (
        "import functools\nK = 2.0\nclass C:\n @functools.cached_property\n"
        " def k(self): return K\no = C()",
        "o.k",
        "K = 5.0; del o.__dict__['k']",
    ),
    "singledispatchmethod": (
        "import functools\nK = 2.0\nclass C:\n @functools.singledispatchmethod\n"
        " def k(self, a_): return K\no = C()",
        "o.k(1)",
        "K = 5.0",
    ),
    "__getattribute__": (
        "K = 2.0\nclass C:\n def __getattribute__(self, n): return K\no = C()",
        "o.k",
        "K = 5.0",
    ),
    "the class of an object with slots": (
        "K = 2.0\nclass C:\n __slots__ = ()\n def __len__(self): return int(K)\no = C()",
        "len(o)",
        "K = 5.0",
    ),
    "a namespace of arguments": (
        "import argparse\no = argparse.Namespace(K=2.0)",
        "o.K",
        "o.K = 5.0",
    ),
    "a file of settings": (
        "import configparser\nc = configparser.ConfigParser()\nc.read_string('[a]\\nk = 2')",
        "c.getfloat('a', 'k')",
        "c.set('a', 'k', '5')",
    ),
    "a queue": (
        "import queue\nq = queue.Queue()\nq.put(2.0)",
        "q.queue[0]",
        "q.queue[0] = 5.0",
    ),
    "a dictionary": ("d = {'K': 2.0}", "d['K']", "d['K'] = 5.0"),
    "a nested container": ("d = {'a': [{'K': 2.0}]}", "d['a'][0]['K']", "d['a'][0]['K'] = 5.0"),
    "the order of a dictionary": (
        "d = {'a': 2.0, 'b': 3.0}",
        "next(iter(d.values()))",
        "d['a'] = d.pop('a')",
    ),
    "a list": ("l = [2.0]", "l[0]", "l[0] = 5.0"),
    "the length of a list": ("l = [2.0]", "len(l)", "l.append(1.0)"),
    "a deque": ("import collections\nd = collections.deque([2.0])", "d[0]", "d[0] = 5.0"),
    "a set": ("s = {2, 3}", "sum(s)", "s.add(7)"),
    "an attribute of a list": (
        "class L(list):\n pass\nl = L([2.0])\nl.k = 2.0",
        "(l.k + l[0])",
        "l.k = 5.0",
    ),
    "the class of a list": ("class L(list):\n k = 2.0\nl = L()", "l.k", "L.k = 5.0"),
    "an attribute of a dict": (
        "class D(dict):\n pass\nd = D()\nd.k = 2.0",
        "d.k",
        "d.k = 5.0",
    ),
    "an attribute of a str": ("class S(str):\n pass\ns = S()\ns.k = 2.0", "s.k", "s.k = 5.0"),
    "the class of a number": ("class N(float):\n k = 2.0\nn = N(1)", "(n * n.k)", "N.k = 5.0"),
    "other bases of a class": (
        "class A:\n k = 2.0\nclass B:\n k = 5.0\nclass C(A):\n pass",
        "C.k",
        "C.__bases__ = (B,)",
    ),
    "other bases of a base": (
        "class A:\n k = 2.0\nclass B:\n k = 5.0\nclass C(A):\n pass\nclass D(C):\n pass\nd = D()",
        "d.k",
        "C.__bases__ = (B,)",
    ),
    "a registered class": (
        "import abc\nclass A(abc.ABC):\n pass\nclass B:\n pass\nb = B()",
        "(2.0 if isinstance(b, A) else 5.0)",
        "A.register(B)",
    ),
    "a local of a thread": (
        "import threading\nt = threading.local()\nt.k = 2.0",
        "t.k",
        "t.k = 5.0",
    ),
    "a weak reference": (
        "import weakref\nclass A:\n k = 2.0\na = A()\nw = weakref.ref(a)",
        "w().k",
        "a.k = 5.0",
    ),
    "a dictionary of weak values": (
        "import weakref\nclass A:\n k = 2.0\na = A()\nw = weakref.WeakValueDictionary({'a': a})",
        "w['a'].k",
        "a.k = 5.0",
    ),
    "a dictionary of weak keys": (
        "import weakref\nclass A:\n pass\nb = A()\nw = weakref.WeakKeyDictionary({b: 2.0})",
        "w[b]",
        "w[b] = 5.0",
    ),
    "a weak proxy": (
        "import weakref\nclass A:\n k = 2.0\na = A()\nw = weakref.proxy(a)",
        "w.k",
        "a.k = 5.0",
    ),
    "an array of bytes": ("b = bytearray([2])", "b[0]", "b[0] = 5"),
    "an array": ("import array\nb = array.array('d', [2.0])", "b[0]", "b[0] = 5.0"),
    "a view of memory": ("b = bytearray([2])\nv = memoryview(b)", "v[0]", "b[0] = 5"),
    "a defaultdict": (
        "import collections\nd = collections.defaultdict(float)\nd['K'] = 2.0",
        "d['K']",
        "d['K'] = 5.0",
    ),
    "what a defaultdict makes": (
        "import collections\nK = 2.0\nd = collections.defaultdict(lambda: K)",
        "d['K']",
        "K = 5.0; d.clear()",
    ),
    "a ChainMap": (
        "import collections\nd = {'K': 2.0}\nc = collections.ChainMap(d)",
        "c['K']",
        "d['K'] = 5.0",
    ),
    "a mapping proxy": (
        "d = {'K': 2.0}\nc = types.MappingProxyType(d)",
        "c['K']",
        "d['K'] = 5.0",
    ),
    "an array of NumPy": (
        "import numpy\nn = numpy.array([2.0])",
        "float(n[0])",
        "n[0] = 5.0",
    ),
    "a closed-over variable": (
        "def both():\n v = 2.0\n def g(): return v\n def put(x):\n  nonlocal v\n  v = x\n"
        " return g, put\ng, put = both()",
        "g()",
        "put(5.0)",
    ),
    "ContextVar": (
        "import contextvars\nc = contextvars.ContextVar('c', default=2.0)",
        "c.get()",
        "c.set(5.0)",
    ),
    "a context": (
        "import contextvars\nc = contextvars.ContextVar('c', default=2.0)\n"
        "ctx = contextvars.copy_context()",
        "ctx.run(c.get)",
        "ctx.run(c.set, 5.0)",
    ),
    "environ": (
        "import os\nos.environ['TIR_K'] = '2'",
        "float(os.environ['TIR_K'])",
        "os.environ['TIR_K'] = '5'",
    ),
    "getenv": (
        "import os\nos.environ['TIR_K'] = '2'",
        "float(os.getenv('TIR_K'))",
        "os.environ['TIR_K'] = '5'",
    ),
    "environ under its name": (
        "from os import environ\nenviron['TIR_K'] = '2'",
        "float(environ['TIR_K'])",
        "environ['TIR_K'] = '5'",
    ),
    "a module made at run time": (
        "m = types.ModuleType('m')\nm.K = 2.0",
        "m.K",
        "m.K = 5.0",
    ),
    "a function of such a module": (
        "m = types.ModuleType('m')\nexec('K = 2.0\\ndef k(): return K', m.__dict__)",
        "m.k()",
        "m.K = 5.0",
    ),
    "a name of a module that is computed": (
        "m = types.ModuleType('m')\nm.K = 2.0",
        "getattr(m, 'K')",
        "m.K = 5.0",
    ),
    "a module's class": (
        "K = 2.0\nclass M(types.ModuleType):\n def __getattr__(self, n): return K\nm = M('m')",
        "m.k",
        "K = 5.0",
    ),
    "a module's __getattr__": (
        "m = types.ModuleType('m')\nm.d = {'K': 2.0}\nm.__getattr__ = lambda n: m.d[n]",
        "m.K",
        "m.d['K'] = 5.0",
    ),
    "sys.modules": (
        "sys.modules['tir_m'] = m = types.ModuleType('tir_m')\nm.K = 2.0",
        "sys.modules['tir_m'].K",
        "m.K = 5.0",
    ),
    "import_module": (
        "import importlib\nsys.modules['tir_m'] = m = types.ModuleType('tir_m')\nm.K = 2.0",
        "importlib.import_module('tir_m').K",
        "m.K = 5.0",
    ),
    "a switch of a backend": (
        "b = torch.backends.cuda\nb.enable_flash_sdp(True)",
        "(2.0 if torch.backends.cuda.flash_sdp_enabled() else 3.0)",
        "b.enable_flash_sdp(False)",
    ),
    "the precision of products": (
        "torch.set_float32_matmul_precision('highest')",
        "(2.0 if torch.get_float32_matmul_precision() == 'highest' else 3.0)",
        "torch.set_float32_matmul_precision('high')",
    ),
    "the grad mode": (
        "",
        "(2.0 if torch.is_grad_enabled() else 3.0)",
        "torch.set_grad_enabled(False)",
    ),
    "the default type": (
        "",
        "torch.ones(2)",
        "torch.set_default_dtype(torch.float64)",
    ),
    "another default type": (
        "",
        "torch.tensor(1.5)",
        "torch.set_default_dtype(torch.bfloat16)",
    ),
    "the default type of numbers": (
        "",
        "(torch.arange(2) * 1.5)",
        "torch.set_default_dtype(torch.bfloat16)",
    ),
    "deterministic algorithms": (
        "",
        "(2.0 if torch.are_deterministic_algorithms_enabled() else 3.0)",
        "torch.use_deterministic_algorithms(True)",
    ),
}
"""What makes the world, the expression that reads a number of it, and how it changes."""

READERS: dict[str, str] = {
    "itself": "def f(a):\n return a * EXPR",
    "a function": "def r():\n return EXPR\ndef f(a):\n return a * r()",
    "a lambda": "r = lambda: EXPR\ndef f(a):\n return a * r()",
    "a method": "class R:\n def r(self):\n  return EXPR\nR0 = R()\ndef f(a):\n return a * R0.r()",
    "a comprehension": "def f(a):\n return a * sum([EXPR for _ in range(2)])",
    "a branch": "def f(a):\n v_ = EXPR\n"
    " return a * 2 if type(v_) in (int, float) and v_ > 3 else a + v_",
    "a module": "class R(torch.nn.Module):\n def forward(self, a):\n  return a * EXPR\nf = R()",
    "a closure": "def outer():\n def f(a):\n  return a * EXPR\n return f\nf = outer()",
    "a hook": "net = torch.nn.Identity()\n"
    "net.register_forward_hook(lambda mod_, in_, out_: out_ * EXPR)\ndef f(a):\n return net(a)",
    "a decorator": "import functools\ndef times(of_):\n @functools.wraps(of_)\n def call(a):\n"
    "  return of_(a) * EXPR\n return call\n@times\ndef f(a):\n return a + 1",
}
"""Functions of a tensor that read the number."""

IMPORTS = {
    "import inside": "def f(a):\n import tir_m\n return a * tir_m.K",
    "import as": "def f(a):\n import tir_m as z\n return a * z.K",
    "from import": "def f(a):\n from tir_m import K\n return a * K",
    "from import as": "def f(a):\n from tir_m import K as z\n return a * z",
    "inner function": "def f(a):\n import tir_m\n def g():\n  return tir_m.K\n return a * g()",
    "and getattr": "def f(a):\n import tir_m\n return a * getattr(tir_m, 'K')",
    "of two": "def f(a):\n import sys, tir_m\n return a * tir_m.K",
    "a function of it": "def f(a):\n from tir_m import k\n return a * k()",
}
"""Functions that import a module as they run."""

MODULE = "sys.modules['tir_m'] = m = types.ModuleType('tir_m')\n"
MODULE += "exec('K = 2.0\\ndef k(): return K', m.__dict__)"


def cases() -> Iterator[tuple[str, str, str]]:
    """Yield the name of each case, its source and what changes."""
    for source, (setup, read, change) in SOURCES.items():
        for reader, text in READERS.items():
            yield f"{source}, by {reader}", f"{setup}\n{text.replace('EXPR', read)}", change
    for name, text in IMPORTS.items():
        yield f"import: {name}", f"{MODULE}\n{text}", "m.K = 5.0"


@contextlib.contextmanager
def _state_kept() -> Iterator[None]:
    """Put back what cases change of torch."""
    try:
        yield
    finally:
        torch.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cuda.enable_flash_sdp(True)


def results(source: str, change: str, *, traced: bool) -> list[Any]:
    """What a function gives before and after a change, and after no further change."""
    world = types.ModuleType("tir_world")
    names = vars(world)
    names |= {"torch": torch, "types": types, "sys": sys}
    with _state_kept():
        exec(textwrap.dedent(source), names)  # a case is source
        function = make_traced(names["f"]) if traced else names["f"]
        made = [function(torch.tensor([1.0, 2.0]))]
        exec(change, names)  # as above
        return [*made, *[function(torch.tensor([1.0, 2.0])) for _ in range(2)]]


def outcome(source: str, change: str) -> str:
    """``"same"``, ``"refused"``, or how a traced function differs from itself."""
    expected = results(source, change, traced=False)
    try:
        got = results(source, change, traced=True)
    except TraceError:
        return "refused"
    except Exception as error:  # noqa: BLE001  # whatever it is, eager does not raise it
        return f"it raises {type(error).__name__}: {error}"
    return "same" if same(expected, got) else f"it gives {got}, eager {expected}"


def main() -> int:
    """Run every case."""
    found = {name: outcome(source, change) for name, source, change in cases()}
    wrong = {name: text for name, text in found.items() if text not in ("same", "refused")}
    for name, text in wrong.items():
        print(f"{name}: {text}")  # noqa: T201  # a script
    refused = sum(text == "refused" for text in found.values())
    print(f"{len(found)} cases: {len(wrong)} wrong, {refused} refused")  # noqa: T201  # a script
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
