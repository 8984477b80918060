// Caller: who asks. A caller's identity is made once a call and travels with every request of the call, so
// that the inbox can take turns of callers, log lines can name them, and nobody works for a caller who has
// cancelled the call or whose deadline has passed. Today a caller is the address of the connection's peer; a
// token or a certificate may name callers later.
//
// Thread-safety: safe from any thread; copies share the name, and whether the caller is gone.
#ifndef SLOTWISE_SERVER_ENGINE_CALLER_H_
#define SLOTWISE_SERVER_ENGINE_CALLER_H_

#include <atomic>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

namespace slotwise {

class Caller {
 public:
  // A longer name is cut.
  static constexpr std::size_t kMostCharacters = 128;

  // The server itself.
  Caller() = default;
  explicit Caller(std::string_view name)
      : call_(std::make_shared<OfCall>(std::string(name.substr(0, kMostCharacters)))) {}

  std::string_view name() const { return is_server() ? std::string_view("the server") : call_->name; }
  bool is_server() const { return call_ == nullptr; }

  // The caller wants no answer any more. REQUIRES: it is not the server.
  void Leave() const { call_->gone.store(true, std::memory_order_relaxed); }
  bool gone() const { return !is_server() && call_->gone.load(std::memory_order_relaxed); }

  friend bool operator==(const Caller& one, const Caller& other) { return one.name() == other.name(); }

 private:
  struct OfCall {
    explicit OfCall(std::string caller) : name(std::move(caller)) {}
    const std::string name;
    std::atomic<bool> gone{false};
  };
  std::shared_ptr<OfCall> call_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CALLER_H_
