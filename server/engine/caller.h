// Caller: who asks. A caller's identity is made once a call and travels with every request of the call, so
// that the inbox can take turns of callers, and log lines can name them. Today a caller is the address of the
// connection's peer; a token or a certificate may name callers later.
//
// Thread-safety: a plain value; copies share the name.
#ifndef SLOTWISE_SERVER_ENGINE_CALLER_H_
#define SLOTWISE_SERVER_ENGINE_CALLER_H_

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace slotwise {

class Caller {
 public:
  // A longer name is cut.
  static constexpr std::size_t kMostCharacters = 128;

  // The server itself.
  Caller() = default;
  explicit Caller(std::string_view name)
      : name_(std::make_shared<const std::string>(name.substr(0, kMostCharacters))) {}

  std::string_view name() const { return name_ == nullptr ? std::string_view("the server") : *name_; }

  friend bool operator==(const Caller& one, const Caller& other) { return one.name() == other.name(); }

 private:
  std::shared_ptr<const std::string> name_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_CALLER_H_
