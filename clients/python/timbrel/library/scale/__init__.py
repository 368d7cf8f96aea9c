"""The same plan on a cluster: Ray Data, shards of raw notes on any file system that fsspec knows."""

from timbrel.library.scale.build import ShardedBuild, build_shards
from timbrel.library.scale.shard import SHARD_FORMATS

__all__ = ["SHARD_FORMATS", "ShardedBuild", "build_shards"]
