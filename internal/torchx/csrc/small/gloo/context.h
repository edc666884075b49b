// What libtorch's ProcessGroupGloo.hpp names of gloo, whose own headers libtorch does not bring. Nothing here is ever made or called by us:
// libtorch makes these objects, and we hold pointers to them.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
};

namespace rendezvous {
class Store {
 public:
  static constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::seconds(30);
  virtual ~Store() = default;
  virtual void set(const std::string &key, const std::vector<char> &data) = 0;
  virtual std::vector<char> get(const std::string &key) = 0;
  virtual void wait(const std::vector<std::string> &keys) = 0;
  virtual void wait(const std::vector<std::string> &keys, const std::chrono::milliseconds &timeout) = 0;
};
}  // namespace rendezvous

namespace transport {
class Device {
 public:
  virtual ~Device() = default;
};
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer() = default;
};
}  // namespace transport

}  // namespace gloo
