"""The rules, by explicit list: what memory was touched, how else a process died, in which order, what is left, and what
else was odd. `first-death` judges order; `other-death` takes what no rule before it explains; the ones after it only
accompany.
"""

from __future__ import annotations

from pytracer.analyze.rules.base import AnyRule
from pytracer.analyze.rules.collectives.collective_late_rank import CollectiveLateRank
from pytracer.analyze.rules.collectives.collective_mismatch import CollectiveMismatch
from pytracer.analyze.rules.collectives.collective_missing_rank import CollectiveMissingRank
from pytracer.analyze.rules.collectives.collective_wait import CollectiveWait
from pytracer.analyze.rules.collectives.conditional_collective import ConditionalCollective
from pytracer.analyze.rules.collectives.connection_lost import ConnectionLost
from pytracer.analyze.rules.collectives.group_mismatch import GroupMismatch
from pytracer.analyze.rules.collectives.point_to_point_unmatched import PointToPointUnmatched
from pytracer.analyze.rules.collectives.polled_work import PolledWorkRule
from pytracer.analyze.rules.collectives.rendezvous_mismatch import RendezvousMismatch
from pytracer.analyze.rules.collectives.rendezvous_missing_rank import RendezvousMissingRank
from pytracer.analyze.rules.collectives.sampler_before_process_group import SamplerBeforeProcessGroup
from pytracer.analyze.rules.collectives.served_lock import ServedLockRule
from pytracer.analyze.rules.collectives.split_sizes import SplitSizes
from pytracer.analyze.rules.collectives.uneven_inputs import UnevenInputs
from pytracer.analyze.rules.collectives.unrecorded_ranks import UnrecordedRanks
from pytracer.analyze.rules.collectives.unused_parameters import UnusedParameters
from pytracer.analyze.rules.collectives.watchdog_abort import WatchdogAbort
from pytracer.analyze.rules.cuda.cuda_error import CudaErrorRule
from pytracer.analyze.rules.cuda.cuda_graph_input_freed import CudaGraphInputFreed
from pytracer.analyze.rules.cuda.cuda_out_of_memory import CudaOutOfMemory
from pytracer.analyze.rules.cuda.device_pointer_on_host import DevicePointerOnHost
from pytracer.analyze.rules.cuda.missing_stream_wait import MissingStreamWait
from pytracer.analyze.rules.environment.file_system_full import FileSystemFull
from pytracer.analyze.rules.environment.shm_exhausted import ShmExhausted
from pytracer.analyze.rules.environment.two_openmp_runtimes import TwoOpenmpRuntimes
from pytracer.analyze.rules.environment.wrong_library_loaded import WrongLibraryLoaded
from pytracer.analyze.rules.lifecycle.dataloader_timeout import DataLoaderTimeout
from pytracer.analyze.rules.lifecycle.ended_itself import EndedItself
from pytracer.analyze.rules.lifecycle.first_death import FirstDeath
from pytracer.analyze.rules.lifecycle.forked_kernel import ForkedKernelRule
from pytracer.analyze.rules.lifecycle.other_death import OtherDeath
from pytracer.analyze.rules.lifecycle.python_exception import PythonException
from pytracer.analyze.rules.lifecycle.standstill import Standstill
from pytracer.analyze.rules.lifecycle.worker_death import WorkerDeath
from pytracer.analyze.rules.memory.collective_buffer_freed import CollectiveBufferFreed
from pytracer.analyze.rules.memory.flipped_bit import FlippedBit
from pytracer.analyze.rules.memory.freed_meanwhile import FreedMeanwhile
from pytracer.analyze.rules.memory.guard_damage import GuardDamage
from pytracer.analyze.rules.memory.heap_corruption import HeapCorruption
from pytracer.analyze.rules.memory.memory_hardware_error import MemoryHardwareError
from pytracer.analyze.rules.memory.memory_not_inherited import MemoryNotInherited
from pytracer.analyze.rules.memory.misaligned_access import MisalignedAccess
from pytracer.analyze.rules.memory.null_dereference import NullDereference
from pytracer.analyze.rules.memory.out_of_bounds import OutOfBounds
from pytracer.analyze.rules.memory.oversized_tensor import OversizedTensor
from pytracer.analyze.rules.memory.read_only_memory import ReadOnlyMemory
from pytracer.analyze.rules.memory.runaway_access import RunawayAccess
from pytracer.analyze.rules.memory.sparse_indices import SparseIndices
from pytracer.analyze.rules.memory.stack_overflow import StackOverflow
from pytracer.analyze.rules.memory.stale_grad import StaleGrad
from pytracer.analyze.rules.memory.storage_swapped import StorageSwapped
from pytracer.analyze.rules.memory.truncated_mapping import TruncatedMapping
from pytracer.analyze.rules.memory.unchecked_view import UncheckedViewRule
from pytracer.analyze.rules.memory.unfit_arguments import UnfitArguments
from pytracer.analyze.rules.memory.unmapped_memory import UnmappedMemory
from pytracer.analyze.rules.memory.unmapped_storage import UnmappedStorage
from pytracer.analyze.rules.memory.use_after_free import UseAfterFree
from pytracer.analyze.rules.memory.wild_pointer import WildPointer
from pytracer.analyze.rules.memory.wrong_index import WrongIndex
from pytracer.analyze.rules.signals.abort import Abort
from pytracer.analyze.rules.signals.arithmetic import Arithmetic
from pytracer.analyze.rules.signals.forbidden_system_call import ForbiddenSystemCall
from pytracer.analyze.rules.signals.illegal_instruction import IllegalInstruction
from pytracer.analyze.rules.signals.oom_kill import OomKill
from pytracer.analyze.rules.signals.sigkill import Sigkill
from pytracer.analyze.rules.signals.trap import Trap

# Each rule has a type of its own for what it found.
RULES: tuple[AnyRule, ...] = (
    MemoryHardwareError(),
    StackOverflow(),
    MisalignedAccess(),
    UnfitArguments(),
    StaleGrad(),
    StorageSwapped(),
    UseAfterFree(),
    FreedMeanwhile(),
    CollectiveBufferFreed(),
    OversizedTensor(),
    MemoryNotInherited(),
    UnmappedStorage(),
    UncheckedViewRule(),
    SparseIndices(),
    WrongIndex(),
    RunawayAccess(),
    OutOfBounds(),
    TruncatedMapping(),
    ShmExhausted(),
    FileSystemFull(),
    DevicePointerOnHost(),
    ReadOnlyMemory(),
    GuardDamage(),
    HeapCorruption(),
    NullDereference(),
    UnmappedMemory(),
    WildPointer(),
    IllegalInstruction(),
    Arithmetic(),
    Trap(),
    ForbiddenSystemCall(),
    UnusedParameters(),
    SamplerBeforeProcessGroup(),
    RendezvousMismatch(),
    RendezvousMissingRank(),
    GroupMismatch(),
    CollectiveMismatch(),
    SplitSizes(),
    PolledWorkRule(),
    ServedLockRule(),
    PointToPointUnmatched(),
    CollectiveMissingRank(),
    CollectiveLateRank(),
    ConditionalCollective(),
    UnevenInputs(),
    CollectiveWait(),
    ForkedKernelRule(),
    WorkerDeath(),
    DataLoaderTimeout(),
    WatchdogAbort(),
    UnrecordedRanks(),
    CudaOutOfMemory(),
    CudaErrorRule(),
    ConnectionLost(),
    Abort(),
    PythonException(),
    OomKill(),
    Sigkill(),
    Standstill(),
    FirstDeath(),
    EndedItself(),
    OtherDeath(),
    CudaGraphInputFreed(),
    MissingStreamWait(),
    TwoOpenmpRuntimes(),
    WrongLibraryLoaded(),
    FlippedBit(),
)
