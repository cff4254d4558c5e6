// Streams and events. Work completes when it is queued, except for gates: a collective that other ranks have not entered.
#include "state.h"

using namespace fakecuda;

namespace {

// A wait inside a capture is an error, and invalidates the capture.
cudaError_t may_wait(cudaStream_t handle) {
  Lock lock;
  if (!is_stream(handle)) return fail(cudaErrorInvalidResourceHandle);
  Graph* graph = stream_of(handle)->capturing;
  if (graph == nullptr) return cudaSuccess;
  graph->invalid = true;
  return fail(cudaErrorStreamCaptureUnsupported);
}

Event* event_of(cudaEvent_t handle) { return reinterpret_cast<Event*>(handle); }

}  // namespace

FAKECUDA_API cudaError_t cudaStreamCreateWithPriority(cudaStream_t* handle, unsigned flags, int priority) {
  FAKECUDA_CHECK();
  Lock lock;
  auto* stream = new Stream{current_device(), flags, priority};
  streams().insert(stream);
  *handle = reinterpret_cast<cudaStream_t>(stream);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamCreateWithFlags(cudaStream_t* handle, unsigned flags) { return cudaStreamCreateWithPriority(handle, flags, 0); }
FAKECUDA_API cudaError_t cudaStreamCreate(cudaStream_t* handle) { return cudaStreamCreateWithPriority(handle, 0, 0); }
FAKECUDA_API cudaError_t cudaStreamDestroy(cudaStream_t handle) {
  Lock lock;
  streams().erase(reinterpret_cast<Stream*>(handle));
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamGetPriority(cudaStream_t handle, int* priority) {
  Lock lock;
  *priority = stream_of(handle)->priority;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamSynchronize(cudaStream_t handle) {
  surface_device_fault();
  FAKECUDA_CHECK();
  if (cudaError_t error = may_wait(handle)) return error;
  Gates gates;
  {
    Lock lock;
    gates = gates_now(*stream_of(handle));
  }
  wait_for(gates);
  FAKECUDA_CHECK();
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamQuery(cudaStream_t handle) {
  surface_device_fault();
  FAKECUDA_CHECK();
  if (cudaError_t error = may_wait(handle)) return error;
  Lock lock;
  Gates gates = gates_now(*stream_of(handle));
  return passed(gates) ? cudaSuccess : fail(cudaErrorNotReady);
}
FAKECUDA_API cudaError_t cudaStreamWaitEvent(cudaStream_t handle, cudaEvent_t event_handle, unsigned) {
  FAKECUDA_CHECK();
  Lock lock;
  Stream* stream = stream_of(handle);
  Event* event = event_of(event_handle);
  if (event->captured != nullptr && stream->capturing == nullptr) stream->capturing = event->captured;  // the stream joins the capture
  if (capture(stream, "wait for event")) return cudaSuccess;
  passed(stream->gates);
  for (const Gate& gate : event->gates) stream->gates.push_back(gate);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamAddCallback(cudaStream_t handle, cudaStreamCallback_t function, void* argument, unsigned) {
  function(handle, cudaSuccess, argument);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaLaunchHostFunc(cudaStream_t handle, cudaHostFn_t function, void* argument) {
  {
    Lock lock;
    if (capture(stream_of(handle), "host function")) return cudaSuccess;
  }
  function(argument);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaEventCreateWithFlags(cudaEvent_t* handle, unsigned) {
  FAKECUDA_CHECK();
  *handle = reinterpret_cast<cudaEvent_t>(new Event);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaEventCreate(cudaEvent_t* handle) { return cudaEventCreateWithFlags(handle, 0); }
FAKECUDA_API cudaError_t cudaEventDestroy(cudaEvent_t handle) {
  delete event_of(handle);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaEventRecordWithFlags(cudaEvent_t handle, cudaStream_t stream_handle, unsigned) {
  FAKECUDA_CHECK();
  Lock lock;
  Stream* stream = stream_of(stream_handle);
  Event* event = event_of(handle);
  *event = {true, stream->capturing, now_ms(), gates_now(*stream)};
  capture(stream, "record event");
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaEventRecord(cudaEvent_t handle, cudaStream_t stream) { return cudaEventRecordWithFlags(handle, stream, 0); }
FAKECUDA_API cudaError_t cudaEventQuery(cudaEvent_t handle) {
  surface_device_fault();
  FAKECUDA_CHECK();
  Lock lock;
  Event* event = event_of(handle);
  if (event->captured != nullptr) return fail(cudaErrorCapturedEvent);
  return passed(event->gates) ? cudaSuccess : fail(cudaErrorNotReady);
}
FAKECUDA_API cudaError_t cudaEventSynchronize(cudaEvent_t handle) {
  surface_device_fault();
  FAKECUDA_CHECK();
  Gates gates;
  {
    Lock lock;
    gates = event_of(handle)->gates;
  }
  wait_for(gates);
  FAKECUDA_CHECK();
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaEventElapsedTime(float* ms, cudaEvent_t begin, cudaEvent_t end) {
  *ms = static_cast<float>(event_of(end)->ms - event_of(begin)->ms);
  return cudaSuccess;
}
