// CUDA graphs: libtorch's CUDAGraph, and the side stream that it records on.
#include "graph.h"

#include "beside.h"
#include "guard.h"

#ifdef FULCRUM_CUDA
#include <ATen/cuda/CUDAGraph.h>
#include <c10/core/Event.h>
#include <c10/cuda/CUDAStream.h>

#include <atomic>
#include <map>
#include <mutex>
#include <thread>
#include <vector>

namespace {

using Stream = c10::cuda::CUDAStream;  // gotorch has a CUDAStream of its own

struct SideStream {
  c10::DeviceGuard device;  // CUDAGuard would have to be linked to the CUDA runtime, whose version changes
  Stream before, stream;
};

// Two streams a device, to record on and for what goes beside: cuBLAS keeps a workspace for each stream that it has seen.
Stream side_of(c10::DeviceIndex device, bool beside = false) {
  static std::mutex lock;
  static std::map<std::pair<c10::DeviceIndex, bool>, Stream> streams;
  const std::lock_guard<std::mutex> held(lock);
  auto found = streams.find({device, beside});
  if (found == streams.end()) found = streams.emplace(std::make_pair(device, beside), c10::cuda::getStreamFromPool(/*isHighPriority=*/false, device)).first;
  return found->second;
}

// What is launched on `then` from now on waits for what was launched on `first`.
void after(const Stream &first, const Stream &then) {
  c10::Event event(c10::DeviceType::CUDA);
  event.record(first.unwrap());
  event.block(then.unwrap());
}

// The device that a graph is recorded on, or -1; and what is read beside it. A gradient that nobody holds may be added to in place.
std::atomic<int> recording{-1};
std::mutex held_lock;
std::vector<at::Tensor> held;

at::cuda::CUDAGraph *graph_of(Graph graph) { return static_cast<at::cuda::CUDAGraph *>(graph); }

}  // namespace

void beside::run(std::initializer_list<at::Tensor> reads, const std::function<void()> &f) {
  const int device = recording;
  if (device < 0 || !reads.begin()->is_cuda() || reads.begin()->get_device() != device) {
    f();
    return;
  }
  const auto index = static_cast<c10::DeviceIndex>(device);
  const Stream now = c10::cuda::getCurrentCUDAStream(index), other = side_of(index, true);
  after(now, other);
  {
    const std::lock_guard<std::mutex> lock(held_lock);
    held.insert(held.end(), reads);
  }
  struct Back {
    const Stream &stream;
    ~Back() { c10::cuda::setCurrentCUDAStream(stream); }
  } const back{now};
  c10::cuda::setCurrentCUDAStream(other);
  f();
}

void beside::join() {
  const int device = recording;
  const std::lock_guard<std::mutex> lock(held_lock);
  if (device < 0 || held.empty()) return;
  const auto index = static_cast<c10::DeviceIndex>(device);
  after(side_of(index, true), c10::cuda::getCurrentCUDAStream(index));
  held.clear();
}

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
    recording = c10::cuda::getCurrentCUDAStream().device_index();
    *out = graph.release();
  });
}
const char *fc_graph_end(Graph graph) {
  recording = -1;
  held.clear();
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

void beside::run(std::initializer_list<at::Tensor>, const std::function<void()> &f) { f(); }
void beside::join() {}

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
