// Capture and replay: a graph is a list of what was queued; a replay does nothing and is counted.
#include "state.h"

#include <atomic>

using namespace fakecuda;

namespace {

struct Executable {
  unsigned long long id;
  size_t nodes;
};
struct UserObject {
  cudaHostFn_t destroy;
  void* object;
  unsigned references;
};

std::atomic<unsigned long long> launches{0};

Graph* graph_of(cudaGraph_t handle) { return reinterpret_cast<Graph*>(handle); }

}  // namespace

/// For tests: how many graphs were launched.
FAKECUDA_API unsigned long long fakecuda_graph_launches() { return launches; }

FAKECUDA_API cudaError_t cudaStreamBeginCapture(cudaStream_t handle, cudaStreamCaptureMode) {
  FAKECUDA_CHECK();
  Lock lock;
  if (reinterpret_cast<uintptr_t>(handle) <= 2) return fail(cudaErrorStreamCaptureUnsupported);
  Stream* stream = stream_of(handle);
  if (stream->capturing != nullptr) return fail(cudaErrorIllegalState);
  stream->capturing = new Graph;
  stream->capturing->id = next_id();
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamBeginCaptureToGraph(cudaStream_t handle, cudaGraph_t graph, const cudaGraphNode_t*, const cudaGraphEdgeData*,
                                                       size_t, cudaStreamCaptureMode) {
  Lock lock;
  stream_of(handle)->capturing = graph_of(graph);
  graph_of(graph)->id = next_id();
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamEndCapture(cudaStream_t handle, cudaGraph_t* out) {
  FAKECUDA_CHECK();
  Lock lock;
  Graph* graph = stream_of(handle)->capturing;
  if (graph == nullptr) return fail(cudaErrorIllegalState);
  for (Stream* stream : streams())
    if (stream->capturing == graph) stream->capturing = nullptr;
  log("captured id=%llu nodes=%zu invalid=%d\n", graph->id, graph->nodes.size(), graph->invalid);
  *out = graph->invalid ? nullptr : reinterpret_cast<cudaGraph_t>(graph);
  return graph->invalid ? fail(cudaErrorStreamCaptureInvalidated) : cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamIsCapturing(cudaStream_t handle, cudaStreamCaptureStatus* status) {
  FAKECUDA_CHECK();
  Lock lock;
  if (!is_stream(handle)) return fail(cudaErrorInvalidResourceHandle);
  Graph* graph = stream_of(handle)->capturing;
  *status = graph == nullptr ? cudaStreamCaptureStatusNone : graph->invalid ? cudaStreamCaptureStatusInvalidated : cudaStreamCaptureStatusActive;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamGetCaptureInfo(cudaStream_t handle, cudaStreamCaptureStatus* status, unsigned long long* id,
                                                  cudaGraph_t* graph_out, const cudaGraphNode_t** dependencies, const cudaGraphEdgeData** edges,
                                                  size_t* count) {
  if (cudaError_t error = cudaStreamIsCapturing(handle, status)) return error;
  Lock lock;
  Graph* graph = stream_of(handle)->capturing;
  bool any = graph != nullptr && !graph->nodes.empty();
  if (id != nullptr) *id = graph != nullptr ? graph->id : 0;
  if (graph_out != nullptr) *graph_out = reinterpret_cast<cudaGraph_t>(graph);
  if (dependencies != nullptr) *dependencies = any ? reinterpret_cast<const cudaGraphNode_t*>(&graph->nodes.back()) : nullptr;
  if (edges != nullptr) *edges = nullptr;
  if (count != nullptr) *count = any ? 1 : 0;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaStreamUpdateCaptureDependencies(cudaStream_t, cudaGraphNode_t*, const cudaGraphEdgeData*, size_t, unsigned) {
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaThreadExchangeStreamCaptureMode(cudaStreamCaptureMode* mode) {
  static thread_local cudaStreamCaptureMode current = cudaStreamCaptureModeGlobal;
  std::swap(*mode, current);
  return cudaSuccess;
}

FAKECUDA_API cudaError_t cudaGraphGetNodes(cudaGraph_t handle, cudaGraphNode_t* nodes, size_t* count) {
  Graph* graph = graph_of(handle);
  for (size_t i = 0; nodes != nullptr && i < *count && i < graph->nodes.size(); i++) nodes[i] = reinterpret_cast<cudaGraphNode_t>(graph->nodes[i]);
  *count = graph->nodes.size();
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphNodeGetDependencies(cudaGraphNode_t, cudaGraphNode_t*, cudaGraphEdgeData*, size_t* count) {
  *count = 0;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphAddNode(cudaGraphNode_t* node, cudaGraph_t graph, const cudaGraphNode_t*, const cudaGraphEdgeData*, size_t,
                                          cudaGraphNodeParams*) {
  graph_of(graph)->nodes.push_back(new Node{"node"});
  *node = reinterpret_cast<cudaGraphNode_t>(graph_of(graph)->nodes.back());
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphConditionalHandleCreate(cudaGraphConditionalHandle*, cudaGraph_t, unsigned, unsigned) {
  return fail(cudaErrorNotSupported);
}
FAKECUDA_API cudaError_t cudaGraphDebugDotPrint(cudaGraph_t, const char*, unsigned) { return cudaSuccess; }
FAKECUDA_API cudaError_t cudaGraphInstantiateWithFlags(cudaGraphExec_t* executable, cudaGraph_t handle, unsigned long long) {
  Graph* graph = graph_of(handle);
  *executable = reinterpret_cast<cudaGraphExec_t>(new Executable{graph->id, graph->nodes.size()});
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long flags) {
  return cudaGraphInstantiateWithFlags(executable, graph, flags);
}
FAKECUDA_API cudaError_t cudaGraphLaunch(cudaGraphExec_t handle, cudaStream_t) {
  FAKECUDA_CHECK();
  auto* executable = reinterpret_cast<Executable*>(handle);
  launches++;
  launched();
  log("graph launch id=%llu nodes=%zu\n", executable->id, executable->nodes);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphExecDestroy(cudaGraphExec_t handle) {
  delete reinterpret_cast<Executable*>(handle);
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphDestroy(cudaGraph_t handle) {
  Graph* graph = graph_of(handle);
  for (auto [destroy, object] : graph->owned) destroy(object);
  for (Node* node : graph->nodes) delete node;
  delete graph;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaUserObjectCreate(cudaUserObject_t* handle, void* object, cudaHostFn_t destroy, unsigned references, unsigned) {
  *handle = reinterpret_cast<cudaUserObject_t>(new UserObject{destroy, object, references});
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaUserObjectRelease(cudaUserObject_t handle, unsigned count) {
  auto* object = reinterpret_cast<UserObject*>(handle);
  object->references -= count < object->references ? count : object->references;
  if (object->references != 0) return cudaSuccess;
  object->destroy(object->object);
  delete object;
  return cudaSuccess;
}
FAKECUDA_API cudaError_t cudaGraphRetainUserObject(cudaGraph_t graph, cudaUserObject_t handle, unsigned, unsigned) {
  auto* object = reinterpret_cast<UserObject*>(handle);  // moved, as torch asks for it
  graph_of(graph)->owned.emplace_back(object->destroy, object->object);
  delete object;
  return cudaSuccess;
}
