// gloo: tensors from one process to another by TCP, through libtorch's c10d. Its header asks for gloo's own, for which small/gloo stands.
#include "guard.h"

#ifdef FULCRUM_GLOO
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#include <deque>
#include <map>
#include <mutex>

namespace {

// The heartbeat of processes decides when a wait is over, not gloo; but for the start, where each looks for all others.
constexpr std::chrono::milliseconds kEver = std::chrono::hours(24 * 365), kMeeting = std::chrono::minutes(5);

struct Begun {
  c10::intrusive_ptr<c10d::Work> work;
  at::Tensor x, host;  // host is x, or stands for it where x is on a device
  bool received;
};

struct Gloo {
  c10::intrusive_ptr<c10d::Store> store;
  std::unique_ptr<c10d::ProcessGroupGloo> group;
  std::mutex turn;  // of what follows: abort comes from another thread
  std::deque<Begun> begun;
  bool aborted = false;
};

void begin(Gloo *g, const at::Tensor &x, bool receive, int other, int tag) {
  TORCH_CHECK(x.is_contiguous(), "gloo sends contiguous tensors");
  const at::Tensor host = x.is_cpu() ? x : receive ? at::empty_like(x, x.options().device(at::kCPU)) : x.cpu();
  std::vector<at::Tensor> one = {host};
  const auto work = receive ? g->group->recv(one, other, tag) : g->group->send(one, other, tag);
  const std::lock_guard<std::mutex> lock(g->turn);
  g->begun.push_back({work, x, host, receive});
}

// Waits for the oldest operation.
void finish(Gloo *g) {
  std::unique_lock<std::mutex> lock(g->turn);
  TORCH_CHECK(!g->aborted && !g->begun.empty(), "the group has ended");  // one wait alone takes notice of an abort
  const Begun oldest = g->begun.front();
  lock.unlock();
  TORCH_CHECK(oldest.work->wait(kEver), "the group has ended");
  if (oldest.received && !oldest.x.is_cpu()) oldest.x.copy_(oldest.host);
  lock.lock();
  g->begun.pop_front();
}

// Sends parts of a gradient while the backward pass is under way, each when the pass has come to its parameters as often as in any pass
// before. Where it comes to one of them once more, too little was sent.
struct Sender {
  struct Parameter {
    int64_t from, to;
    int come = 0, most = 0;
  };
  struct Part {
    int64_t from, to;
    int rank, tag, left;
    bool over;
  };
  struct Leaf {
    decltype(torch::autograd::impl::grad_accumulator(at::Tensor())) node;  // a pointer of a kind that differs between versions
    uintptr_t hook;
  };

  Gloo *by;
  at::Tensor gradient;
  std::map<int64_t, Parameter> parameters;  // by from
  std::vector<Leaf> leaves;
  std::vector<Part> parts;
  std::vector<at::Tensor> later;  // sums of shards, which are added to what is sent, in this order
  bool on = false, late = false;
  std::string failed;
  int sent = 0;

  ~Sender() {
    for (Leaf &l : leaves) l.node->del_post_hook(l.hook);
  }
  void watch(const at::Tensor &leaf, int64_t from, int64_t to);

  void start() {
    for (auto &[from, p] : parameters) p.come = 0;
    for (Part &part : parts)
      for (auto &[from, p] : parameters) {
        if (p.to <= part.from || part.to <= from) continue;
        part.left += p.most > 0 ? p.most : 1 << 20;  // not before the end
      }
    on = true, late = false, sent = 0;
    failed.clear();
  }
  void come(Parameter &p) {
    if (!on) return;
    if (++p.come > p.most) late = late || p.most > 0, p.most = p.come;
    for (Part &part : parts)
      if (part.from < p.to && p.from < part.to && --part.left == 0) finish(part);
  }
  void finish(Part &part) {
    if (part.over || !failed.empty()) return;
    part.over = true;
    const at::NoGradGuard no_grad;
    at::Tensor x = gradient.narrow(0, part.from, part.to - part.from);
    for (const at::Tensor &sum : later) x = x.add(sum.narrow(0, part.from, part.to - part.from));  // a copy: the pass may come once more
    try {
      begin(by, x, false, part.rank, part.tag);
      sent++;
    } catch (const std::exception &e) {  // the run has ended: whoever waits is told
      failed = e.what();
    }
  }
  void end() {
    on = false;
    for (Part &part : parts) finish(part);
    parts.clear(), later.clear();
  }
};

struct Hook : torch::autograd::FunctionPostHook {
  Sender *of;
  int64_t from;
  Hook(Sender *of, int64_t from) : of(of), from(from) {}
  torch::autograd::variable_list operator()(const torch::autograd::variable_list &outputs, const torch::autograd::variable_list &) override {
    of->come(of->parameters.at(from));
    return outputs;
  }
};

void Sender::watch(const at::Tensor &leaf, int64_t from, int64_t to) {
  parameters.insert({from, {from, to}});
  const auto node = torch::autograd::impl::grad_accumulator(leaf);
  leaves.push_back({node, node->add_post_hook(std::make_unique<Hook>(this, from))});
}

}  // namespace

extern "C" {

// The store where processes tell each other their addresses, of the one that keeps it (*port 0: it chooses one) and of the others.
const char *fc_gloo_store(const char *host, int *port, bool keeps, void **out) {
  return guard([&] {
    c10d::TCPStoreOptions options;
    options.port = static_cast<uint16_t>(*port);
    options.isServer = keeps;
    options.waitWorkers = false;
    auto g = std::make_unique<Gloo>();
    const auto store = c10::make_intrusive<c10d::TCPStore>(host, options);
    *port = store->getPort();
    g->store = store;
    *out = g.release();
  });
}
// Waits until all size processes have come; the others reach this one at address.
const char *fc_gloo_join(void *of, const char *address, int rank, int size) {
  return guard([&] {
    auto *g = static_cast<Gloo *>(of);
    const auto options = c10d::ProcessGroupGloo::Options::create(kMeeting);
    options->devices.push_back(c10d::ProcessGroupGloo::createDeviceForHostname(address));
    options->threads = 1;  // of collective operations, which are not used
    g->group = std::make_unique<c10d::ProcessGroupGloo>(g->store, rank, size, options);
  });
}
const char *fc_gloo_send(void *of, Tensor x, int to, int tag) {
  return guard([&] { begin(static_cast<Gloo *>(of), *x, false, to, tag); });
}
const char *fc_gloo_receive(void *of, Tensor x, int from, int tag) {
  return guard([&] { begin(static_cast<Gloo *>(of), *x, true, from, tag); });
}
const char *fc_gloo_wait(void *of, int operations) {
  return guard([&] {
    for (; operations > 0; operations--) finish(static_cast<Gloo *>(of));
  });
}
const char *fc_gloo_abort(void *of) {
  return guard([&] {
    auto *g = static_cast<Gloo *>(of);
    const std::lock_guard<std::mutex> lock(g->turn);
    g->aborted = true;
    for (const Begun &b : g->begun) b.work->abort();
  });
}

const char *fc_sender(void *of, Tensor gradient, void **out) {
  return guard([&] {
    auto a = std::make_unique<Sender>();
    a->by = static_cast<Gloo *>(of);
    a->gradient = *gradient;
    *out = a.release();
  });
}
const char *fc_sender_watch(void *sender, Tensor leaf, int64_t from, int64_t to) {
  return guard([&] { static_cast<Sender *>(sender)->watch(*leaf, from, to); });
}
const char *fc_sender_part(void *sender, int64_t from, int64_t to, int rank, int tag) {
  return guard([&] { static_cast<Sender *>(sender)->parts.push_back({from, to, rank, tag, 0, false}); });
}
const char *fc_sender_later(void *sender, Tensor sum) {
  return guard([&] { static_cast<Sender *>(sender)->later.push_back(*sum); });
}
const char *fc_sender_start(void *sender) {
  return guard([&] { static_cast<Sender *>(sender)->start(); });
}
const char *fc_sender_end(void *sender, int *early, int *sent, bool *late) {
  return guard([&] {
    auto *a = static_cast<Sender *>(sender);
    *early = a->sent;
    a->end();
    *sent = a->sent, *late = a->late;
    TORCH_CHECK(a->failed.empty(), a->failed);
  });
}
const char *fc_sender_free(void *sender) {
  return guard([&] { delete static_cast<Sender *>(sender); });
}

}  // extern "C"

#else

extern "C" {
static const char *none() { return fc_message("this libtorch has no gloo"); }
const char *fc_gloo_store(const char *, int *, bool, void **) { return none(); }
const char *fc_gloo_join(void *, const char *, int, int) { return none(); }
const char *fc_gloo_send(void *, Tensor, int, int) { return none(); }
const char *fc_gloo_receive(void *, Tensor, int, int) { return none(); }
const char *fc_gloo_wait(void *, int) { return none(); }
const char *fc_gloo_abort(void *) { return none(); }
const char *fc_sender(void *, Tensor, void **) { return none(); }
const char *fc_sender_watch(void *, Tensor, int64_t, int64_t) { return none(); }
const char *fc_sender_part(void *, int64_t, int64_t, int, int) { return none(); }
const char *fc_sender_later(void *, Tensor) { return none(); }
const char *fc_sender_start(void *) { return none(); }
const char *fc_sender_end(void *, int *, int *, bool *) { return none(); }
const char *fc_sender_free(void *) { return none(); }
}  // extern "C"

#endif
