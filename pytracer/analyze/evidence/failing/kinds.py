"""Every kind of failure at a line of the program, in the order in which they are asked: the first that holds."""

from __future__ import annotations

from pytracer.analyze.evidence.failing.autograd.backward_loops import stepped_in_loop_subject
from pytracer.analyze.evidence.failing.autograd.changed_weights import changed_weight, weight_subject
from pytracer.analyze.evidence.failing.autograd.dense_gradients import dense_gradients
from pytracer.analyze.evidence.failing.autograd.deviations import negative_deviation
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
from pytracer.analyze.evidence.failing.data.consumed import nothing_left
from pytracer.analyze.evidence.failing.data.empty_batches import empty_batch
from pytracer.analyze.evidence.failing.data.first_items import no_first_item
from pytracer.analyze.evidence.failing.data.loader_items import batch_of_none, parts_of_a_batch
from pytracer.analyze.evidence.failing.data.loaders import last_batch_of_one, one_sample_subject, smaller_last_batch
from pytracer.analyze.evidence.failing.data.lone_samples import lone_sample
from pytracer.analyze.evidence.failing.data.loops import changed_in_loop, stacked_list
from pytracer.analyze.evidence.failing.data.none_samples import none_sample, none_subject
from pytracer.analyze.evidence.failing.data.numbered_keys import numbered_key
from pytracer.analyze.evidence.failing.data.packed_records import padded_record, padded_record_subject
from pytracer.analyze.evidence.failing.data.sampled_indices import batch_as_index, index_of_part
from pytracer.analyze.evidence.failing.data.samples import empty_sequence, not_json, unequal_samples, unequal_subject
from pytracer.analyze.evidence.failing.data.seeds import seed_beyond
from pytracer.analyze.evidence.failing.data.shared_files import shared_file
from pytracer.analyze.evidence.failing.data.short_buffers import short_buffer
from pytracer.analyze.evidence.failing.data.single_rows import one_row_of_several
from pytracer.analyze.evidence.failing.data.split_shares import split_shares
from pytracer.analyze.evidence.failing.data.text_arrays import text_array
from pytracer.analyze.evidence.failing.data.text_values import no_number, no_number_subject
from pytracer.analyze.evidence.failing.data.unequal_dtypes import unequal_dtypes
from pytracer.analyze.evidence.failing.kind import Kind
from pytracer.analyze.evidence.failing.not_finite.converted import converted, converted_subject
from pytracer.analyze.evidence.failing.not_finite.made import first_not_finite, not_finite_subject
from pytracer.analyze.evidence.failing.operands import refused_value
from pytracer.analyze.evidence.failing.processes.between_ranks import (
    differing_model,
    mesh_too_large,
    model_subject,
    no_object_list,
)
from pytracer.analyze.evidence.failing.processes.called_commands import failed_command, failed_command_subject
from pytracer.analyze.evidence.failing.processes.daemonic import daemonic
from pytracer.analyze.evidence.failing.processes.ended_managers import ended_manager
from pytracer.analyze.evidence.failing.processes.ended_senders import joined_senders
from pytracer.analyze.evidence.failing.processes.gathered_sizes import gathered_sizes
from pytracer.analyze.evidence.failing.processes.handler_errors import raised_by_handler, raised_by_handler_subject
from pytracer.analyze.evidence.failing.processes.imported_again import imported_again, imported_again_subject
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
from pytracer.analyze.evidence.failing.stored.asked_devices import asked_device, asked_subject
from pytracer.analyze.evidence.failing.stored.byte_order import other_byte_order
from pytracer.analyze.evidence.failing.stored.changed_folders import changed_folder
from pytracer.analyze.evidence.failing.stored.ended_folders import ended_folder, ended_folder_subject
from pytracer.analyze.evidence.failing.stored.file_types import misread_file, misread_subject
from pytracer.analyze.evidence.failing.stored.files import missing_file
from pytracer.analyze.evidence.failing.stored.full_disk import full_disk, full_disk_behind, full_disk_subject
from pytracer.analyze.evidence.failing.stored.half_written import half_written, half_written_subject
from pytracer.analyze.evidence.failing.stored.joined_clients import clients_joined, clients_subject
from pytracer.analyze.evidence.failing.stored.left_locks import left_lock, left_lock_subject
from pytracer.analyze.evidence.failing.stored.loaded_optimizers import misfit_state, misfit_subject
from pytracer.analyze.evidence.failing.stored.loading_results import loading_result
from pytracer.analyze.evidence.failing.stored.made_meanwhile import made_meanwhile
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
    text_file_subject,
)
from pytracer.analyze.evidence.failing.stored.optimizer_states import unmade_state
from pytracer.analyze.evidence.failing.stored.other_folders import in_other_folder, other_folder_subject
from pytracer.analyze.evidence.failing.stored.other_kinds import other_kind, other_kind_subject
from pytracer.analyze.evidence.failing.stored.own_paths import own_path_of_rank, own_path_subject
from pytracer.analyze.evidence.failing.stored.pickled import not_picklable
from pytracer.analyze.evidence.failing.stored.plain_states import plain_state, plain_subject
from pytracer.analyze.evidence.failing.stored.removed_folders import removed_path, removed_path_subject
from pytracer.analyze.evidence.failing.stored.shared_blocks import no_shared_memory, shared_memory_subject
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
from pytracer.analyze.evidence.failing.tensors.dtypes import types_that_differ, written_subject
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
from pytracer.analyze.evidence.failing.tensors.squeezed_batches import squeezed_batch
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
from pytracer.analyze.evidence.failing.usage.class_as_object import class_as_object
from pytracer.analyze.evidence.failing.usage.dropped_libraries import (
    dropped_library,
    dropped_library_behind,
    dropped_library_subject,
)
from pytracer.analyze.evidence.failing.usage.empties import nothing_there
from pytracer.analyze.evidence.failing.usage.endless_lookups import endless_lookup, endless_subject
from pytracer.analyze.evidence.failing.usage.grown_numbers import grown_number, grown_subject
from pytracer.analyze.evidence.failing.usage.hidden_methods import hidden_method
from pytracer.analyze.evidence.failing.usage.imports import failed_import
from pytracer.analyze.evidence.failing.usage.kinds import (
    not_a_whole_number,
    plain_tensor,
    unequal_items,
    unformatted,
    wrong_argument,
)
from pytracer.analyze.evidence.failing.usage.lookups import missing_attribute, unexpected_keyword
from pytracer.analyze.evidence.failing.usage.lost_overrides import lost_override, lost_override_subject
from pytracer.analyze.evidence.failing.usage.missing_forward import missing_forward
from pytracer.analyze.evidence.failing.usage.missing_items import missing_item
from pytracer.analyze.evidence.failing.usage.mixed_kinds import mixed_kinds
from pytracer.analyze.evidence.failing.usage.nones import (
    item_subject,
    none_subject_of_option,
    none_value,
    one_way_subject,
    untaken_subject,
)
from pytracer.analyze.evidence.failing.usage.optimizer_numbers import optimizer_number
from pytracer.analyze.evidence.failing.usage.order import called_in_order, order_subject
from pytracer.analyze.evidence.failing.usage.passed_parameters import frozen_subject, no_parameter_passes
from pytracer.analyze.evidence.failing.usage.recursions import repeated_calls
from pytracer.analyze.evidence.failing.usage.replaced_functions import replaced_function, replaced_subject
from pytracer.analyze.evidence.failing.usage.scaler_updates import missing_update, unscaled_each_batch, unscaled_twice
from pytracer.analyze.evidence.failing.usage.schedules import schedule_subject, schedule_too_short
from pytracer.analyze.evidence.failing.usage.settings import refused_setting, text_subject
from pytracer.analyze.evidence.failing.usage.skipped import skipped_call, skipped_subject
from pytracer.analyze.evidence.failing.usage.told_lines import told_line, told_subject, traced_container
from pytracer.analyze.evidence.failing.usage.traced_sizes import traced_size, traced_subject
from pytracer.analyze.evidence.failing.usage.uncalled_classes import class_with_tensors
from pytracer.analyze.evidence.failing.usage.unchanged_values import unchanged_number
from pytracer.analyze.evidence.failing.usage.unloaded_libraries import torch_not_imported
from pytracer.analyze.evidence.failing.usage.unmade_errors import unmade_error_here, unmade_here_subject
from pytracer.analyze.evidence.failing.usage.unpacked import values_to_unpack
from pytracer.analyze.evidence.failing.usage.unpacked_keys import unpacked_keys
from pytracer.analyze.evidence.failing.usage.unpacked_torch import module_without_name
from pytracer.analyze.evidence.failing.usage.unset_names import name_left_unset
from pytracer.analyze.evidence.failing.usage.walkers import walked_too_deep
from pytracer.analyze.evidence.limits.descriptor_sets import beyond_select

KINDS = (
    Kind(dropped_library, (dropped_library_subject,), behind=dropped_library_behind),
    Kind(lost_override, (lost_override_subject,)),
    Kind(replaced_function, (replaced_subject,)),
    Kind(unmade_error_here, (unmade_here_subject,)),
    Kind(not_fork_safe, together=True),
    Kind(ended_manager, together=True),
    Kind(made_meanwhile, together=True),
    Kind(unequal_dtypes),
    Kind(daemonic),
    Kind(imported_again, (imported_again_subject,)),
    Kind(bypassed_forward, (bypass_subject,)),
    Kind(unreturned_loss, (unreturned_subject,)),
    Kind(unchanged_number),
    Kind(freed_weight, (freed_weight_subject,)),
    Kind(mixed_operands, (bypass_subject,)),
    Kind(sized_by_values),
    Kind(whole_state, (bypass_subject,)),
    Kind(message_to_itself, (itself_subject,), behind=itself_behind),
    Kind(no_object_list),
    Kind(gathered_sizes),
    Kind(uneven_share, (uneven_subject,)),
    Kind(mesh_too_large),
    Kind(differing_model, (model_subject,)),
    Kind(own_path_of_rank, (own_path_subject,)),
    Kind(made_by_one, (made_by_one_subject,)),
    Kind(ready_twice, (ready_twice_subject,)),
    Kind(unprepared_reducer, (unprepared_subject,), behind=unprepared_behind),
    Kind(own_group_name, behind=own_group_behind),
    Kind(unset_key),
    Kind(torch_not_imported),
    Kind(failed_import),
    Kind(failed_command, (failed_command_subject,)),
    Kind(joined_senders),
    Kind(other_start_method),
    Kind(fixed_start_method),
    Kind(gradients_of_thread),
    Kind(overwritten_output, (overwritten_subject,)),
    Kind(class_with_tensors),
    Kind(traced_size, (traced_subject,)),
    Kind(told_line, (told_subject,)),
    Kind(traced_container),
    Kind(of_function, (function_subject,)),
    Kind(training_call),
    Kind(missing_forward),
    Kind(cannot_hold),
    Kind(written_tensor),
    Kind(first_row),
    Kind(unexpected_dimension),
    Kind(skipped_call, (skipped_subject,)),
    Kind(shared_file, together=True),
    Kind(other_byte_order),
    Kind(index_of_part),
    Kind(batch_as_index),
    Kind(none_sample, (none_subject,)),
    Kind(empty_batch),
    Kind(unequal_samples, (unequal_subject,)),
    Kind(environment_variable, (environment_subject,)),
    Kind(number_of_environment, (environment_subject,)),
    Kind(no_number, (no_number_subject,)),
    Kind(text_array),
    Kind(grown_number, (grown_subject,)),
    Kind(short_buffer),
    Kind(seed_beyond),
    Kind(pickled_elsewhere),
    Kind(folder_for_file),
    Kind(no_text, (text_file_subject,)),
    Kind(loaded_state),
    Kind(unmade_state),
    Kind(misfit_state, (misfit_subject,)),
    Kind(plain_state, (plain_subject,)),
    Kind(lacking_checkpoint),
    Kind(asked_device, (asked_subject,)),
    Kind(refused_global, (refused_subject,)),
    Kind(clients_joined, (clients_subject,)),
    Kind(no_shared_memory, (shared_memory_subject,)),
    Kind(full_disk, (full_disk_subject,), behind=full_disk_behind),
    Kind(beyond_select),
    Kind(unrewound, (unrewound_subject,)),
    Kind(padded_record, (padded_record_subject,)),
    Kind(half_written, (half_written_subject,)),
    Kind(misread_file, (misread_subject,)),
    Kind(short_record, (short_record_subject,)),
    Kind(object_array, (object_array_subject,)),
    Kind(left_lock, (left_lock_subject,)),
    Kind(other_kind, (other_kind_subject,)),
    Kind(broken_file, (file_subject,)),
    Kind(kept_open),
    Kind(ended_folder, (ended_folder_subject,)),
    Kind(in_other_folder, (other_folder_subject,)),
    Kind(changed_folder),
    Kind(absent_file, (absent_subject,)),
    Kind(removed_path, (removed_path_subject,)),
    Kind(missing_file),
    Kind(not_picklable),
    Kind(lost_in_copy, (lost_in_copy_subject,)),
    Kind(archive_name, (archive_name_subject,)),
    Kind(numbered_key),
    Kind(missing_key, (empty_subject, key_subject)),
    Kind(missing_item),
    Kind(hidden_method),
    Kind(loading_result),
    Kind(unpacked_keys),
    Kind(mixed_kinds),
    Kind(missing_attribute),
    Kind(unexpected_keyword),
    Kind(one_input_only),
    Kind(tensor_as_condition),
    Kind(class_as_object),
    Kind(arguments_that_differ),
    Kind(name_left_unset),
    Kind(unset_name),
    Kind(parts_of_a_batch),
    Kind(batch_of_none),
    Kind(module_without_name),
    Kind(values_to_unpack),
    Kind(no_first_item),
    Kind(no_length),
    Kind(wrong_argument),
    Kind(plain_tensor),
    Kind(not_a_whole_number),
    Kind(unformatted),
    Kind(wrong_kind),
    Kind(nothing_left),
    Kind(copied_result, (copied_subject,)),
    Kind(missing_update),
    Kind(unscaled_twice),
    Kind(unscaled_each_batch),
    Kind(no_parameter_passes, (frozen_subject,)),
    Kind(called_in_order, (order_subject,)),
    Kind(plain_layers),
    Kind(endless_lookup, (endless_subject,)),
    Kind(repeated_calls),
    Kind(walked_too_deep),
    Kind(none_by_rank, (by_rank_subject,)),
    Kind(none_value, (none_subject_of_option, one_way_subject, untaken_subject, item_subject)),
    Kind(refused_setting, (text_subject,)),
    Kind(optimizer_number),
    Kind(stacked_list),
    Kind(unequal_items),
    Kind(empty_sequence),
    Kind(not_json),
    Kind(out_of_constraint),
    Kind(converted, (converted_subject,)),
    Kind(first_not_finite, (not_finite_subject,)),
    Kind(nothing_there),
    Kind(index_of_list),
    Kind(last_batch_of_one, (one_sample_subject,)),
    Kind(one_row_of_several),
    Kind(lone_sample),
    Kind(smaller_last_batch),
    Kind(changed_in_loop),
    Kind(uneven_micro_batches, (micro_batch_subject,)),
    Kind(joined_sizes),
    Kind(shared_columns, (shared_columns_subject,)),
    Kind(sizes_that_differ),
    Kind(more_than_there_is),
    Kind(unequal_letters),
    Kind(expected_size),
    Kind(types_that_differ, (written_subject,)),
    Kind(floating_index),
    Kind(squeezed_batch),
    Kind(split_shares),
    Kind(dense_gradients),
    Kind(tensor_of_the_host),
    Kind(changed_weight, (weight_subject,)),
    Kind(stepped_loss, (stepped_subject,)),
    Kind(negative_deviation),
    Kind(no_probability, (probability_subject,)),
    Kind(not_reduced),
    Kind(list_of_root, (root_subject,)),
    Kind(hooked_output, (hooked_subject,)),
    Kind(autograd_line, (stepped_in_loop_subject, carried_subject, in_place_subject)),
    Kind(non_leaf),
    Kind(outside_of_graph),
    Kind(schedule_too_short, (schedule_subject,)),
    Kind(refused_value),
)

OWN_KINDS = (
    Kind(raised_by_handler, (raised_by_handler_subject,)),
    Kind(first_not_finite, (not_finite_subject,)),
    Kind(own_check),
)
"""Where the program's own `raise` or `assert` ended it: what a library's check means is not asked there."""
