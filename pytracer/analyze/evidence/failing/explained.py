"""What is wrong at the failing line, in a sentence or two: the first explanation that the recorded facts bear."""

from __future__ import annotations

import ast
from collections.abc import Callable, Sequence

import msgspec

from pytracer._errors import bug_words
from pytracer.analyze.behind import Behind
from pytracer.analyze.evidence.failing.autograd.backward_loops import stepped_in_loop_subject
from pytracer.analyze.evidence.failing.autograd.changed_weights import changed_weight, weight_subject
from pytracer.analyze.evidence.failing.autograd.functions import function_subject, of_function
from pytracer.analyze.evidence.failing.autograd.graphs import autograd_line, carried_subject
from pytracer.analyze.evidence.failing.autograd.hooked_outputs import hooked_output, hooked_subject
from pytracer.analyze.evidence.failing.autograd.in_place import in_place_subject
from pytracer.analyze.evidence.failing.autograd.kept_results import copied_result, copied_subject
from pytracer.analyze.evidence.failing.autograd.modes_of_threads import gradients_of_thread
from pytracer.analyze.evidence.failing.autograd.non_leaves import non_leaf
from pytracer.analyze.evidence.failing.autograd.outside_of_graphs import outside_of_graph
from pytracer.analyze.evidence.failing.autograd.overwritten_outputs import overwritten_output, overwritten_subject
from pytracer.analyze.evidence.failing.autograd.probabilities import no_probability, not_reduced, probability_subject
from pytracer.analyze.evidence.failing.autograd.ready_twice import ready_twice, ready_twice_subject
from pytracer.analyze.evidence.failing.autograd.stepped_losses import stepped_loss, stepped_subject
from pytracer.analyze.evidence.failing.autograd.training_calls import training_call
from pytracer.analyze.evidence.failing.clauses import first_clause
from pytracer.analyze.evidence.failing.data.consumed import nothing_left
from pytracer.analyze.evidence.failing.data.empty_batches import empty_batch
from pytracer.analyze.evidence.failing.data.first_items import no_first_item
from pytracer.analyze.evidence.failing.data.loader_items import batch_of_none, parts_of_a_batch
from pytracer.analyze.evidence.failing.data.loaders import last_batch_of_one, one_sample_subject, smaller_last_batch
from pytracer.analyze.evidence.failing.data.loops import changed_in_loop, stacked_list
from pytracer.analyze.evidence.failing.data.none_samples import none_sample, none_subject
from pytracer.analyze.evidence.failing.data.packed_records import padded_record, padded_record_subject
from pytracer.analyze.evidence.failing.data.sampled_indices import batch_as_index, index_of_part
from pytracer.analyze.evidence.failing.data.samples import empty_sequence, not_json, unequal_samples, unequal_subject
from pytracer.analyze.evidence.failing.data.seeds import seed_beyond
from pytracer.analyze.evidence.failing.data.shared_files import shared_file
from pytracer.analyze.evidence.failing.data.single_rows import one_row_of_several
from pytracer.analyze.evidence.failing.data.text_arrays import text_array
from pytracer.analyze.evidence.failing.data.text_values import no_number, no_number_subject
from pytracer.analyze.evidence.failing.line import FailingLine, failing_line
from pytracer.analyze.evidence.failing.not_finite.converted import converted, converted_subject
from pytracer.analyze.evidence.failing.not_finite.made import first_not_finite, not_finite_subject
from pytracer.analyze.evidence.failing.operands import involved as involved_operands
from pytracer.analyze.evidence.failing.operands import refused_value
from pytracer.analyze.evidence.failing.processes.between_ranks import (
    differing_model,
    mesh_too_large,
    model_subject,
    no_object_list,
)
from pytracer.analyze.evidence.failing.processes.called_commands import failed_command, failed_command_subject
from pytracer.analyze.evidence.failing.processes.daemonic import daemonic
from pytracer.analyze.evidence.failing.processes.ended_senders import joined_senders
from pytracer.analyze.evidence.failing.processes.gathered_sizes import gathered_sizes
from pytracer.analyze.evidence.failing.processes.handler_errors import raised_by_handler, raised_by_handler_subject
from pytracer.analyze.evidence.failing.processes.kept_weights import freed_weight, freed_weight_subject
from pytracer.analyze.evidence.failing.processes.made_by_one import made_by_one, made_by_one_subject
from pytracer.analyze.evidence.failing.processes.none_by_rank import by_rank_subject, none_by_rank
from pytracer.analyze.evidence.failing.processes.not_fork_safe import not_fork_safe
from pytracer.analyze.evidence.failing.processes.own_group_names import own_group_behind, own_group_name
from pytracer.analyze.evidence.failing.processes.proxy_copies import lost_in_copy, lost_in_copy_subject
from pytracer.analyze.evidence.failing.processes.root_only import list_of_root, root_subject
from pytracer.analyze.evidence.failing.processes.sharded import (
    bypass_subject,
    bypassed_forward,
    mixed_operands,
    whole_state,
)
from pytracer.analyze.evidence.failing.processes.sized_by_values import sized_by_values
from pytracer.analyze.evidence.failing.processes.start_methods import fixed_start_method, other_start_method
from pytracer.analyze.evidence.failing.processes.to_itself import itself_behind, itself_subject, message_to_itself
from pytracer.analyze.evidence.failing.processes.uneven_shares import uneven_share, uneven_subject
from pytracer.analyze.evidence.failing.processes.unprepared_reducers import (
    unprepared_behind,
    unprepared_reducer,
    unprepared_subject,
)
from pytracer.analyze.evidence.failing.processes.unreturned_losses import unreturned_loss, unreturned_subject
from pytracer.analyze.evidence.failing.processes.unset_keys import unset_key
from pytracer.analyze.evidence.failing.stored.archive_names import archive_name, archive_name_subject
from pytracer.analyze.evidence.failing.stored.byte_order import other_byte_order
from pytracer.analyze.evidence.failing.stored.ended_folders import ended_folder, ended_folder_subject
from pytracer.analyze.evidence.failing.stored.file_types import misread_file, misread_subject
from pytracer.analyze.evidence.failing.stored.files import missing_file, no_shared_memory, shared_memory_subject
from pytracer.analyze.evidence.failing.stored.full_disk import full_disk, full_disk_behind, full_disk_subject
from pytracer.analyze.evidence.failing.stored.half_written import half_written, half_written_subject
from pytracer.analyze.evidence.failing.stored.joined_clients import clients_joined, clients_subject
from pytracer.analyze.evidence.failing.stored.left_locks import left_lock, left_lock_subject
from pytracer.analyze.evidence.failing.stored.loaded_optimizers import misfit_state, misfit_subject
from pytracer.analyze.evidence.failing.stored.missing_keys import empty_subject, key_subject, missing_key
from pytracer.analyze.evidence.failing.stored.object_arrays import object_array, object_array_subject
from pytracer.analyze.evidence.failing.stored.opened import (
    absent_file,
    absent_subject,
    broken_file,
    file_subject,
    folder_for_file,
    kept_open,
    no_text,
    opened,
    text_file_subject,
)
from pytracer.analyze.evidence.failing.stored.optimizer_states import unmade_state
from pytracer.analyze.evidence.failing.stored.other_folders import in_other_folder, other_folder_subject
from pytracer.analyze.evidence.failing.stored.pickled import not_picklable
from pytracer.analyze.evidence.failing.stored.plain_states import plain_state, plain_subject
from pytracer.analyze.evidence.failing.stored.removed_files import removed_file, removed_subject
from pytracer.analyze.evidence.failing.stored.short_records import short_record, short_record_subject
from pytracer.analyze.evidence.failing.stored.states import (
    environment_subject,
    environment_variable,
    lacking_checkpoint,
    loaded_state,
    number_of_environment,
    pickled_elsewhere,
    refused_global,
    refused_subject,
)
from pytracer.analyze.evidence.failing.stored.unrewound import unrewound, unrewound_subject
from pytracer.analyze.evidence.failing.tensors.asked import more_than_there_is, out_of_constraint
from pytracer.analyze.evidence.failing.tensors.devices import tensor_of_the_host
from pytracer.analyze.evidence.failing.tensors.dtypes import types_that_differ
from pytracer.analyze.evidence.failing.tensors.equations import unequal_letters
from pytracer.analyze.evidence.failing.tensors.expected import expected_size
from pytracer.analyze.evidence.failing.tensors.expected_dimension import unexpected_dimension
from pytracer.analyze.evidence.failing.tensors.first_rows import first_row
from pytracer.analyze.evidence.failing.tensors.in_place_types import cannot_hold
from pytracer.analyze.evidence.failing.tensors.index_ranges import index_of_list
from pytracer.analyze.evidence.failing.tensors.index_types import floating_index
from pytracer.analyze.evidence.failing.tensors.joined import joined_sizes
from pytracer.analyze.evidence.failing.tensors.micro_batches import micro_batch_subject, uneven_micro_batches
from pytracer.analyze.evidence.failing.tensors.shapes import sizes_that_differ
from pytracer.analyze.evidence.failing.tensors.shared_columns import shared_columns, shared_columns_subject
from pytracer.analyze.evidence.failing.tensors.written_tensors import written_tensor
from pytracer.analyze.evidence.failing.usage.calls import (
    arguments_that_differ,
    no_length,
    one_input_only,
    own_check,
    plain_layers,
    tensor_as_condition,
    unset_name,
    wrong_kind,
)
from pytracer.analyze.evidence.failing.usage.dropped_libraries import (
    dropped_library,
    dropped_library_behind,
    dropped_library_subject,
)
from pytracer.analyze.evidence.failing.usage.empties import nothing_there
from pytracer.analyze.evidence.failing.usage.endless_lookups import endless_lookup, endless_subject
from pytracer.analyze.evidence.failing.usage.hidden_methods import hidden_method
from pytracer.analyze.evidence.failing.usage.imports import failed_import
from pytracer.analyze.evidence.failing.usage.kinds import (
    not_a_whole_number,
    plain_tensor,
    unequal_items,
    unformatted,
    wrong_argument,
)
from pytracer.analyze.evidence.failing.usage.library_checks import refused_argument
from pytracer.analyze.evidence.failing.usage.lookups import missing_attribute, missing_item, unexpected_keyword
from pytracer.analyze.evidence.failing.usage.lost_overrides import lost_override, lost_override_subject
from pytracer.analyze.evidence.failing.usage.missing_forward import missing_forward
from pytracer.analyze.evidence.failing.usage.mixed_kinds import mixed_kinds
from pytracer.analyze.evidence.failing.usage.nones import (
    item_subject,
    none_subject_of_option,
    none_value,
    untaken_subject,
)
from pytracer.analyze.evidence.failing.usage.order import called_in_order, order_subject
from pytracer.analyze.evidence.failing.usage.recursions import repeated_calls
from pytracer.analyze.evidence.failing.usage.replaced_functions import replaced_function, replaced_subject
from pytracer.analyze.evidence.failing.usage.scaler_updates import missing_update, unscaled_each_batch
from pytracer.analyze.evidence.failing.usage.schedules import schedule_subject, schedule_too_short
from pytracer.analyze.evidence.failing.usage.settings import refused_setting, text_subject
from pytracer.analyze.evidence.failing.usage.skipped import skipped_call, skipped_subject
from pytracer.analyze.evidence.failing.usage.taken_names import taken_name
from pytracer.analyze.evidence.failing.usage.told_lines import told_line, told_subject, traced_container
from pytracer.analyze.evidence.failing.usage.traced_sizes import traced_size, traced_subject
from pytracer.analyze.evidence.failing.usage.uncalled_classes import class_with_tensors
from pytracer.analyze.evidence.failing.usage.unchanged_values import unchanged_number
from pytracer.analyze.evidence.failing.usage.unloaded_libraries import torch_not_imported
from pytracer.analyze.evidence.failing.usage.unmade_errors import unmade_error_here, unmade_here_subject
from pytracer.analyze.evidence.failing.usage.unpacked import values_to_unpack
from pytracer.analyze.evidence.failing.usage.unpacked_keys import unpacked_keys
from pytracer.analyze.evidence.failing.usage.unset_names import name_left_unset
from pytracer.analyze.evidence.failing.usage.walkers import too_deep, walked_too_deep
from pytracer.analyze.evidence.limits.descriptor_sets import beyond_select
from pytracer.analyze.evidence.limits.words import limit_reason
from pytracer.decode.types.snapshot import Snapshot
from pytracer.report.job import Evidence, ExceptionReport, PythonFrame

_EXPLANATIONS: tuple[Callable[[FailingLine], str | None], ...] = (
    dropped_library,
    lost_override,
    replaced_function,
    unmade_error_here,
    not_fork_safe,
    daemonic,
    bypassed_forward,
    unreturned_loss,
    unchanged_number,
    freed_weight,
    mixed_operands,
    sized_by_values,
    whole_state,
    message_to_itself,
    no_object_list,
    gathered_sizes,
    uneven_share,
    mesh_too_large,
    differing_model,
    made_by_one,
    ready_twice,
    unprepared_reducer,
    own_group_name,
    unset_key,
    torch_not_imported,
    failed_import,
    failed_command,
    joined_senders,
    other_start_method,
    fixed_start_method,
    gradients_of_thread,
    overwritten_output,
    class_with_tensors,
    traced_size,
    told_line,
    traced_container,
    of_function,
    training_call,
    missing_forward,
    cannot_hold,
    written_tensor,
    first_row,
    unexpected_dimension,
    skipped_call,
    shared_file,
    other_byte_order,
    index_of_part,
    batch_as_index,
    none_sample,
    empty_batch,
    unequal_samples,
    environment_variable,
    number_of_environment,
    no_number,
    text_array,
    seed_beyond,
    pickled_elsewhere,
    folder_for_file,
    no_text,
    loaded_state,
    unmade_state,
    misfit_state,
    plain_state,
    lacking_checkpoint,
    refused_global,
    clients_joined,
    no_shared_memory,
    full_disk,
    beyond_select,
    unrewound,
    padded_record,
    half_written,
    misread_file,
    short_record,
    object_array,
    left_lock,
    broken_file,
    kept_open,
    ended_folder,
    in_other_folder,
    absent_file,
    removed_file,
    missing_file,
    not_picklable,
    lost_in_copy,
    archive_name,
    missing_key,
    missing_item,
    hidden_method,
    unpacked_keys,
    mixed_kinds,
    missing_attribute,
    unexpected_keyword,
    one_input_only,
    tensor_as_condition,
    arguments_that_differ,
    name_left_unset,
    unset_name,
    parts_of_a_batch,
    batch_of_none,
    values_to_unpack,
    no_first_item,
    no_length,
    wrong_argument,
    plain_tensor,
    not_a_whole_number,
    unformatted,
    wrong_kind,
    nothing_left,
    copied_result,
    missing_update,
    unscaled_each_batch,
    called_in_order,
    plain_layers,
    endless_lookup,
    repeated_calls,
    walked_too_deep,
    none_by_rank,
    none_value,
    refused_setting,
    stacked_list,
    unequal_items,
    empty_sequence,
    not_json,
    out_of_constraint,
    converted,
    first_not_finite,
    nothing_there,
    index_of_list,
    last_batch_of_one,
    one_row_of_several,
    smaller_last_batch,
    changed_in_loop,
    uneven_micro_batches,
    joined_sizes,
    shared_columns,
    sizes_that_differ,
    more_than_there_is,
    unequal_letters,
    expected_size,
    types_that_differ,
    floating_index,
    tensor_of_the_host,
    changed_weight,
    stepped_loss,
    no_probability,
    not_reduced,
    list_of_root,
    hooked_output,
    autograd_line,
    non_leaf,
    outside_of_graph,
    schedule_too_short,
    refused_value,
)

_SUBJECTS = (
    raised_by_handler_subject,
    failed_command_subject,
    endless_subject,
    schedule_subject,
    dropped_library_subject,
    lost_override_subject,
    replaced_subject,
    unmade_here_subject,
    converted_subject,
    itself_subject,
    bypass_subject,
    unreturned_subject,
    freed_weight_subject,
    model_subject,
    uneven_subject,
    text_subject,
    skipped_subject,
    copied_subject,
    refused_subject,
    misfit_subject,
    plain_subject,
    weight_subject,
    stepped_subject,
    stepped_in_loop_subject,
    function_subject,
    overwritten_subject,
    traced_subject,
    told_subject,
    carried_subject,
    probability_subject,
    order_subject,
    hooked_subject,
    micro_batch_subject,
    root_subject,
    made_by_one_subject,
    ready_twice_subject,
    unprepared_subject,
    shared_columns_subject,
    none_subject,
    no_number_subject,
    unequal_subject,
    full_disk_subject,
    half_written_subject,
    misread_subject,
    short_record_subject,
    unrewound_subject,
    padded_record_subject,
    archive_name_subject,
    object_array_subject,
    left_lock_subject,
    lost_in_copy_subject,
    file_subject,
    removed_subject,
    ended_folder_subject,
    other_folder_subject,
    absent_subject,
    shared_memory_subject,
    none_subject_of_option,
    by_rank_subject,
    untaken_subject,
    item_subject,
    environment_subject,
    text_file_subject,
    clients_subject,
    empty_subject,
    key_subject,
    one_sample_subject,
    in_place_subject,
)

_BEHIND = (dropped_library_behind, itself_behind, unprepared_behind, own_group_behind, full_disk_behind)

_OF_OTHERS = ("lfs", "html")  # no program of this job made them


class Explanation(msgspec.Struct, frozen=True):
    """One cause, by the line and its values; None where a table's advice is all that can be said.

    `subject`: what it is about in a few words, for the headline; only with `words`.
    `file`: what the words are about, where its writer is of interest.
    `together`: whether it takes several workers at once, so that one process does not repeat it.
    `behind`: the values and lines that it is about, where they are known.
    `failure`: an error of our own, which must not cost the report. `of_limit`: a limit of the process was reached.
    `line`: the one at which it went wrong, where another one raised it. `evidence`: of another process, which is why.
    """

    words: str | None = None
    subject: str | None = None
    file: str | None = None
    together: bool = False
    failure: str | None = None
    of_limit: bool = False
    behind: Behind | None = None
    line: PythonFrame | None = None
    evidence: Evidence | None = None


def explained(
    snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame], dataset: str | None = None
) -> Explanation:
    """What is wrong at the innermost line of the program.

    Args:
        snapshot: The process that raised it.
        exception: With the variables of the innermost frame of the program.
        stack: Its frames, innermost first.
        dataset: The class of a DataLoader worker's dataset.
    """
    limit = limit_reason(snapshot, exception, stack)
    if limit is not None:
        return Explanation(limit.advice, limit.subject, of_limit=True, behind=limit.behind, line=limit.line)
    at = failing_line(snapshot, exception, stack, dataset)
    try:
        if at is None:
            return _of_libraries(snapshot, exception, stack)
        words = taken_name(snapshot, exception, stack) or _first(at)
        named = Behind.of([], *at.named) if at.named else None  # before the subjects ask for words, too
        subjects = (found for name in _SUBJECTS if (found := name(at)) is not None)
        broken = opened(at.values) if words is not None and words == broken_file(at) else None
        file = broken.path if broken is not None and broken.kind not in _OF_OTHERS else None
        subject = not_finite_subject(at) if words is not None and words == first_not_finite(at) else None
        if words is not None and subject is None:
            subject = next(subjects, None) or first_clause(words)
        together = words is not None and words in (shared_file(at), not_fork_safe(at))
        about = next((item for of in _BEHIND if (item := of(at)) is not None), named) if words is not None else None
        return Explanation(words, subject, file, together, behind=about)
    except Exception as error:  # a program may be written in any way: the report goes on, and says so
        return Explanation(failure=f"an explanation of that line: {bug_words(error)}")


def _of_libraries(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> Explanation:
    """Where no line of the program is on the recorded stack."""
    words = too_deep(snapshot, exception, stack) if exception is not None else None
    words = words or taken_name(snapshot, exception, stack)  # of a file that is not here as it was
    return Explanation(words, first_clause(words)) if words is not None else Explanation()


def involved(snapshot: Snapshot, exception: ExceptionReport | None, stack: Sequence[PythonFrame]) -> str | None:
    """What the failing expression works on, each with its value and the line that made it; None for none, or many."""
    at = failing_line(snapshot, exception, stack)
    try:
        return refused_argument(at) or involved_operands(at) if at is not None else None
    except Exception:  # as above; what is said otherwise is enough
        return None


def _first(at: FailingLine) -> str | None:
    """The words of the first explanation that holds; `named` has the lines of that one."""
    unset = at.kind in ("NameError", "UnboundLocalError")  # of the raise itself, as in `from error`
    own = isinstance(at.statement, (ast.Raise, ast.Assert)) and at.own and not unset
    for explain in (raised_by_handler, first_not_finite, own_check) if own else _EXPLANATIONS:
        at.named.clear()
        words = explain(at)
        if words is not None:
            return words
    return None
