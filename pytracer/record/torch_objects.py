# ruff: noqa: D102
"""What the recorder reads of torch's objects, for type checkers: nothing imports this module at run time.

torch's own types are not used: analysing them takes minutes, and most of these attributes are private. Each class has
the attributes of torch 2.11 to 2.14 that are used here, and no others; torch documents them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, MutableMapping, Sequence
from typing import Protocol, TypedDict


class Storage(Protocol):
    """torch.UntypedStorage."""

    def data_ptr(self) -> int: ...
    def nbytes(self) -> int: ...


class Tensor(Protocol):
    """torch.Tensor."""

    _cdata: int  # address of the TensorImpl
    _local_tensor: Tensor  # of a DTensor only

    @property
    def dtype(self) -> object: ...
    @property
    def shape(self) -> Iterable[int]: ...
    @property
    def nbytes(self) -> int: ...
    def data_ptr(self) -> int: ...
    def numel(self) -> int: ...
    def element_size(self) -> int: ...
    def untyped_storage(self) -> Storage: ...


class Module(Protocol):
    """torch.nn.Module."""

    def modules(self) -> Iterable[Module]: ...
    def named_modules(self) -> Iterable[tuple[str, Module]]: ...
    def named_parameters(self) -> Iterable[tuple[str, Tensor]]: ...
    def named_buffers(self) -> Iterable[tuple[str, Tensor]]: ...


class Kernel(Protocol):
    """triton.JITFunction, inductor's CachingAutotuner: `fn` is the function that the kernel was made from."""

    fn: object


class Optimizer(Protocol):
    """torch.optim.Optimizer."""

    param_groups: Iterable[Mapping[str, Iterable[Tensor]]]
    state: Mapping[Tensor, object]


class Hook(Protocol):
    """torch.utils.hooks.RemovableHandle."""

    def remove(self) -> None: ...


class DataLoader(Protocol):
    """torch.utils.data.DataLoader."""

    dataset: object
    batch_size: int | None
    drop_last: bool


# torch.distributed


class ProcessGroup(Protocol):
    """torch.distributed.ProcessGroup."""

    group_name: str
    group_desc: str


class DdpModule(Protocol):
    """torch.nn.parallel.DistributedDataParallel."""

    module: Module
    reducer: object


class GradBucket(Protocol):
    """torch.distributed.GradBucket."""

    def index(self) -> int: ...


CommHook = Callable[[object, GradBucket], object]  # of a state and a bucket


class ShardingStrategy(Protocol):
    """HandleShardingStrategy, an enum."""

    name: str


class FlatParameter(Tensor, Protocol):
    """torch.distributed.fsdp._flat_param.FlatParameter."""

    _fqns: Iterable[str]
    _numels_with_padding: Iterable[int]
    _is_padding_mask: Iterable[bool]


class FlatParamHandle(Protocol):
    """torch.distributed.fsdp._flat_param.FlatParamHandle."""

    flat_param: FlatParameter
    rank: int
    world_size: int
    _fully_sharded_module: object
    _sharding_strategy: ShardingStrategy


class ShardingSpec(Protocol):
    """torch.distributed.tensor's DTensorSpec."""

    placements: Iterable[object]


class FsdpParam(Protocol):
    """FSDPParam of fully_shard."""

    all_gather_outputs: Iterable[Tensor]
    fsdp_placement: object
    _orig_size: Iterable[int]
    _param_fqn: str | None
    _sharded_param_data: Tensor
    _sharding_spec: ShardingSpec


class FsdpParamGroup(Protocol):
    """FSDPParamGroup of fully_shard."""

    fsdp_params: Iterable[FsdpParam]
    mesh_info: object
    _module_fqn: str | None


class FsdpStates(Protocol):
    """FSDPStateContext of fully_shard."""

    all_states: Iterable[FsdpState]


class FsdpState(Protocol):
    """FSDPState of fully_shard."""

    _modules: Sequence[object]
    _state_ctx: FsdpStates
    _fsdp_param_group: FsdpParamGroup | None  # torch 2.11


class ProcessFailure(Protocol):
    """torch.distributed.elastic.multiprocessing.errors.ProcessFailure."""

    pid: int
    exitcode: int
    error_file: str
    message: str | Mapping[str, object]
    timestamp: int


# torch.cuda


class CudaStream(Protocol):
    """torch.cuda.Stream."""

    device_index: int
    cuda_stream: int


class CudaEvent(Protocol):
    """torch.cuda.Event. `cuda_event` is 0 or None until it is recorded."""

    cuda_event: int | None


class Waiting(Protocol):
    """torch.cuda.Stream or torch.cuda.Event."""

    def synchronize(self) -> object: ...


class CudaGraph(Protocol):
    """torch.cuda.CUDAGraph. `_pytracer_graph` is ours."""

    _pytracer_graph: int

    def pool(self) -> tuple[int, int]: ...


class FunctionId(Protocol):
    """torch._inductor.cudagraph_trees.FunctionID."""

    id: int


class Placeholder(Protocol):
    """torch._inductor's PlaceholderInfo."""

    stack_trace: str | None


class WrappedFunction(Protocol):
    """torch._inductor.cudagraph_trees.WrappedFunction."""

    model: object
    placeholders: Iterable[Placeholder]


class GraphTreeManager(Protocol):
    """torch._inductor.cudagraph_trees.CUDAGraphTreeManager."""

    ids_to_funcs: MutableMapping[FunctionId, WrappedFunction]


class GroupStatus(TypedDict, total=False):
    """Flight Recorder: `pg_status` of a process group."""

    last_enqueued_collective: int
    last_started_collective: int
    last_completed_collective: int


class TraceEntry(TypedDict, total=False):
    """Flight Recorder: one of `entries`."""

    collective_seq_id: int
    is_p2p: bool
    process_group: tuple[str, str]
    profiling_name: str
