"""Shapes of the JSON journal entries: what a reader may rely on. Unknown keys are allowed, missing ones too."""

from __future__ import annotations

import msgspec

Int = int | None
Text = str | None


class Versions(msgspec.Struct):
    """VERSIONS."""

    python: Text = None
    torch: Text = None
    cuda: Text = None
    pytracer: Text = None


class Rank(msgspec.Struct):
    """RANK: the process became one, or with `left`, began to leave its job: the function that does so."""

    rank: int
    local_rank: Int = None
    world_size: Int = None
    backend: Text = None
    left: Text = None


class Tensor(msgspec.Struct):
    """A parameter or buffer of a wrapped module."""

    fqn: str
    addr: Int = None
    nbytes: Int = None
    role: Text = None
    dtype: Text = None
    shape: list[int] | None = None
    storage_addr: Int = None
    storage_nbytes: Int = None


class Module(msgspec.Struct, rename={"class_": "class"}):
    """MODULE."""

    module: str
    tensors: list[Tensor]
    class_: Text = None
    wrapper: Text = None


class BucketParameter(msgspec.Struct):
    """A parameter's place in a bucket."""

    fqn: str
    offset_bytes: int
    nbytes: int


class Bucket(msgspec.Struct):
    """A gradient bucket."""

    index: int
    addr: int
    nbytes: int
    parameters: list[BucketParameter]


class Buckets(msgspec.Struct):
    """BUCKETS."""

    module: str
    generation: int
    buckets: list[Bucket]
    has_rebuilt: bool | None = None


class UnitParameter(msgspec.Struct):
    """A parameter of an FSDP unit. Sizes are in elements; `offset` is its place in a flat parameter."""

    fqn: str
    numel: Int = None
    shard_numel: Int = None
    itemsize: Int = None
    addr: Int = None
    offset: Int = None
    placements: list[str] | None = None


class FlatShard(msgspec.Struct):
    """This rank's shard of a flat parameter."""

    addr: Int = None
    numel: Int = None
    itemsize: Int = None


class Unit(msgspec.Struct):
    """UNIT. `unit` is its name below the root, empty for the root itself."""

    module: str
    unit: str
    wrapper: str
    parameters: list[UnitParameter]
    generation: Int = None
    world_size: Int = None
    shard_rank: Int = None
    replicas: Int = None
    strategy: Text = None
    flat: bool | None = None
    shard: FlatShard | None = None


class Hook(msgspec.Struct):
    """HOOK."""

    hook: str
    module: Text = None


class Frame(msgspec.Struct):
    """A Python frame."""

    function: str
    file: str
    line: Int = None


class UncaughtException(msgspec.Struct):
    """EXCEPTION. `on_its_way`: what ran while it had not reached the top; it may have been caught later."""

    type: str
    message: Text = None
    thread: Text = None
    python_stack: list[Frame] = []
    on_its_way: Text = None


class Group(msgspec.Struct):
    """GROUP. Without a name: this process took part in making the group and is no member of it, or has only `begun`."""

    name: Text = None
    ranks: list[int] | None = None
    description: Text = None
    backend: Text = None
    index: Int = None
    begun: bool | None = None


class Worker(msgspec.Struct):
    """WORKER."""

    worker_id: Int = None
    num_workers: Int = None
    seed: Int = None
    dataset: Text = None


class Loader(msgspec.Struct):
    """LOADER. `plain`: its sampler is one of torch's that do not know ranks."""

    dataset: Text = None
    iterable: bool | None = None
    sampler: Text = None
    distributed: bool | None = None
    plain: bool | None = None
    initialized: bool | None = None
    samples: Int = None
