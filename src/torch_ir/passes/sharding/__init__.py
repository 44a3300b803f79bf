"""Programs whose weights are shared by the ranks of a group."""

from torch_ir.passes.sharding.sharding import shard

__all__ = ["shard"]
