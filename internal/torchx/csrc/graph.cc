// CUDA graphs: libtorch's CUDAGraph, and the side stream that it records on.
#include "graph.h"

#include "guard.h"

#ifdef FULCRUM_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>

#include <map>
#include <mutex>
#include <thread>

namespace {

using Stream = c10::cuda::CUDAStream;  // gotorch has a CUDAStream of its own

struct SideStream {
  c10::DeviceGuard device;  // CUDAGuard would have to be linked to the CUDA runtime, whose version changes
  Stream before, stream;
};

// One stream a device: cuBLAS keeps a workspace for each stream that it has seen.
Stream side_of(c10::DeviceIndex device) {
  static std::mutex lock;
  static std::map<c10::DeviceIndex, Stream> streams;
  const std::lock_guard<std::mutex> held(lock);
  auto found = streams.find(device);
  if (found == streams.end()) found = streams.emplace(device, c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)).first;
  return found->second;
}

// What is launched on `then` from now on waits for what was launched on `first`.
void after(const Stream &first, const Stream &then) {
  c10::Event event(c10::DeviceType::CUDA);
  event.record(first.unwrap());
  event.block(then.unwrap());
}

at::cuda::CUDAGraph *graph_of(Graph graph) { return static_cast<at::cuda::CUDAGraph *>(graph); }

}  // namespace

extern "C" {

const char *fc_side_begin(Tensor like, Side *out) {
  return guard([&] {
    TORCH_CHECK(like->is_cuda(), "a CUDA stream for a tensor on ", like->device());
    const c10::DeviceIndex device = like->device().index();
    const Stream before = c10::cuda::getCurrentCUDAStream(device), stream = side_of(device);
    auto *side = new SideStream{c10::DeviceGuard(at::Device(at::kCUDA, device)), before, stream};
    after(before, stream);
    c10::cuda::setCurrentCUDAStream(stream);
    *out = side;
  });
}

const char *fc_side_end(Side handle) {
  return guard([&] {
    const std::unique_ptr<SideStream> side(static_cast<SideStream *>(handle));
    c10::cuda::setCurrentCUDAStream(side->before);
    after(side->stream, side->before);
  });
}

const char *fc_graph_begin(Graph share, Graph *out) {
  return guard([&] {
    auto graph = std::make_unique<at::cuda::CUDAGraph>();
    // Only this thread's calls may break the recording: others may be at work on the device.
    graph->capture_begin(share == nullptr ? at::cuda::MempoolId_t{0, 0} : graph_of(share)->pool(), cudaStreamCaptureModeThreadLocal);
    *out = graph.release();
  });
}
const char *fc_graph_end(Graph graph) {
  return guard([&] { graph_of(graph)->capture_end(); });
}
const char *fc_graph_replay(Graph graph) {
  return guard([&] { graph_of(graph)->replay(); });
}
void fc_graph_free(Graph graph) { delete graph_of(graph); }

const char *fc_mark(Tensor like, Mark *out) {
  return guard([&] {
    TORCH_CHECK(like->is_cuda(), "a mark in the queue of ", like->device());
    auto event = std::make_unique<c10::Event>(c10::DeviceType::CUDA);
    event->record(c10::cuda::getCurrentCUDAStream(like->device().index()).unwrap());
    *out = event.release();
  });
}
const char *fc_mark_wait(Mark mark) {
  return guard([&] {
    const std::unique_ptr<c10::Event> event(static_cast<c10::Event *>(mark));
    while (!event->query()) std::this_thread::yield();
  });
}

}  // extern "C"

#else

namespace {
const char *none() { return fc_message("CUDA graphs need a libtorch with CUDA"); }
}  // namespace

extern "C" {

const char *fc_side_begin(Tensor, Side *) { return none(); }
const char *fc_side_end(Side) { return none(); }
const char *fc_graph_begin(Graph, Graph *) { return none(); }
const char *fc_graph_end(Graph) { return none(); }
const char *fc_graph_replay(Graph) { return none(); }
void fc_graph_free(Graph) {}
const char *fc_mark(Tensor, Mark *) { return none(); }
const char *fc_mark_wait(Mark) { return none(); }

}  // extern "C"

#endif
