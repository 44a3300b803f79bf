"""What every test stands on: no network, one thread, nothing left over from the caller's shell."""

import os
from importlib.metadata import version

import pytest

from torch_ir.torch_versions import RECORDED, minor_version

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["TRANSFORMERS_OFFLINE"] = "1"
os.environ["NO_COLOR"] = "1"
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Compare generated tables only with the torch that they were made from."""
    if minor_version(version("torch")) == RECORDED:
        return
    other = pytest.mark.skip(reason=f"the tables are of torch {RECORDED}; run `make generate`")
    for item in items:
        if item.get_closest_marker("recorded"):
            item.add_marker(other)
