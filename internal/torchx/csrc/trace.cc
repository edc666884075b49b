// The gradient's side of trace.go: which node of a backward pass makes the first number that is not finite.
#include <torch/torch.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/function_hook.h>

#include <mutex>
#include <sstream>
#include <unordered_set>

#include "guard.h"
#include "trace.h"

using torch::autograd::Node;
using torch::autograd::variable_list;

namespace {

// finding is shared by the hooks of one backward pass.
struct finding {
  std::mutex lock;
  std::string text;
};

bool all_finite(const variable_list &xs) {
  at::NoGradGuard no_grad;
  for (const auto &x : xs)
    if (x.defined() && x.is_floating_point() && !at::isfinite(x).all().item<bool>()) return false;
  return true;
}

std::string shapes(const variable_list &xs) {
  std::ostringstream out;
  const char *comma = "";
  for (const auto &x : xs) {
    if (!x.defined()) continue;
    out << comma << x.sizes();
    comma = ", ";
  }
  return out.str();
}

// Looks at a node's gradients after it has run.
class look : public torch::autograd::FunctionPostHook {
 public:
  look(Node *node, std::shared_ptr<finding> found) : node_(node), found_(std::move(found)) {}
  variable_list operator()(const variable_list &outputs, const variable_list &inputs) override {
    std::lock_guard<std::mutex> guard(found_->lock);
    if (found_->text.empty() && all_finite(inputs) && !all_finite(outputs)) {
      std::ostringstream text;
      text << node_->name() << "|" << static_cast<const void *>(node_) << "|" << shapes(inputs);
      found_->text = text.str();
    }
    return outputs;
  }

 private:
  Node *node_;
  std::shared_ptr<finding> found_;
};

}  // namespace

const char *fc_backward_traced(Tensor x, Tensor grad, bool keep_graph, const char **first) {
  return guard([&] {
    *first = nullptr;
    auto found = std::make_shared<finding>();
    std::unordered_set<Node *> seen;
    std::vector<Node *> todo{x->grad_fn().get()};
    while (!todo.empty()) {
      Node *node = todo.back();
      todo.pop_back();
      if (node == nullptr || !seen.insert(node).second) continue;
      node->add_post_hook(std::make_unique<look>(node, found));
      for (const auto &edge : node->next_edges()) todo.push_back(edge.function.get());
    }
    x->backward(grad == nullptr ? at::Tensor() : *grad, keep_graph);
    if (!found->text.empty()) *first = fc_message(found->text.c_str());
  });
}

const void *fc_graph_node(Tensor x) { return x->requires_grad() ? static_cast<const void *>(x->grad_fn().get()) : nullptr; }
