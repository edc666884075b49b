// guard turns C++ exceptions into messages; wrap gives a result to the caller.
#pragma once

#include <torch/torch.h>

#include <cstring>

#include "fulcrum_torch.h"

inline const char *fc_message(const char *text) {
  char *copy = static_cast<char *>(malloc(strlen(text) + 1));
  if (copy != nullptr) strcpy(copy, text);
  return copy;
}

template <class F>
const char *guard(F &&f) {
  try {
    f();
    return nullptr;
  } catch (const c10::Error &e) {
    return fc_message(e.what_without_backtrace());
  } catch (const std::exception &e) {
    return fc_message(e.what());
  } catch (...) {
    return fc_message("unknown C++ exception");
  }
}

inline Tensor wrap(at::Tensor t) { return new at::Tensor(std::move(t)); }

inline at::IntArrayRef ints(const int64_t *p, int64_t n) { return at::IntArrayRef(p, static_cast<size_t>(n)); }
