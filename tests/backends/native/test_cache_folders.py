"""Folders of compiled blobs that cannot be written, and files in them that are not their own."""

import pytest
import torch
from torch import nn

import torch_ir
from torch_ir import CacheError, extract_ir
from torch_ir.backends import SUPPORTED, NativeBackend
from torch_ir.backends.native import auto

X = torch.randn(3, 4)


class Kept(NativeBackend):
    """A runtime that keeps the weights of a net with one layer: its blob is what it computes."""

    name, version = "kept", "1"

    def supports(self, node, ir):
        return SUPPORTED

    def build(self, program, options):
        ((weight,), self.is_built) = program.state_dict.values(), True
        return Product(weight.clone())

    def pack(self, built):
        return bytes(built.weight.untyped_storage().tolist())

    def unpack(self, blob, program, options):
        return Product(torch.frombuffer(bytearray(blob), dtype=torch.float32).view(2, 4))


class Product:
    def __init__(self, weight):
        self.weight = weight

    def __call__(self, x):
        return [x @ self.weight.t()]


def compiled(net, backend, **options):
    return torch_ir.compile(extract_ir(net, (X,)), net.state_dict(), backend=backend, **options)


@pytest.mark.parametrize("is_chosen", [False, True], ids=["named", "auto"])
def test_a_folder_that_cannot_be_written_is_no_fault_of_the_runtime(
    is_chosen, tmp_path, monkeypatch
):
    backend, file = Kept(), tmp_path / "file"
    file.touch()
    monkeypatch.setattr(auto, "installed_runtimes", lambda: ["kept"])
    monkeypatch.setattr(auto, "find_backend", lambda name: backend)
    for folder, reason in ((file, "File exists"), (file / "in_it", "Not a directory")):
        with pytest.raises(CacheError) as raised:
            compiled(nn.Linear(4, 2, False), "auto" if is_chosen else backend, cache=folder)
        assert str(raised.value) == (
            f"the cache {str(folder)!r} cannot be written: {reason}\n"
            "Give cache= or TORCH_IR_CACHE a folder of your own, or neither."
        )


@pytest.mark.parametrize("verify", [False, True], ids=["unverified", "verified"])
def test_a_file_with_the_name_of_another_is_built_anew(verify, tmp_path):
    nets = [nn.Linear(4, 2, False), nn.Linear(4, 2, False)]
    for net in nets:
        compiled(net, Kept(), cache=tmp_path)
    first, second = tmp_path.iterdir()
    contents = first.read_bytes(), second.read_bytes()
    first.write_bytes(contents[1])
    second.write_bytes(contents[0])
    for net in nets:
        backend = Kept()
        run = compiled(net, backend, cache=tmp_path, verify=verify)
        assert backend.is_built
        torch.testing.assert_close(run(X), net(X).detach())
    backend = Kept()
    compiled(nets[0], backend, cache=tmp_path)
    assert not hasattr(backend, "is_built")


def test_a_choice_with_the_name_of_another_file_is_made_anew(tmp_path, monkeypatch):
    monkeypatch.setattr(auto, "installed_runtimes", lambda: ["kept"])
    monkeypatch.setattr(auto, "find_backend", lambda name: Kept())
    net = nn.Linear(4, 2, False)
    compiled(net, "auto", cache=tmp_path)
    files = sorted(tmp_path.iterdir())
    contents = [file.read_bytes() for file in files]
    assert len(files) == 2
    for file, content in zip(files, reversed(contents), strict=True):
        file.write_bytes(content)
    torch.testing.assert_close(compiled(net, "auto", cache=tmp_path)(X), net(X).detach())
    assert sorted(len(file.read_bytes()) for file in files) == sorted(map(len, contents))


def test_a_folder_that_is_no_path_is_the_callers_fault():
    with pytest.raises(torch_ir.ArgumentError, match=r"compile\(\) takes cache: str"):
        compiled(nn.Linear(4, 2, False), Kept(), cache=3)
