// Fingerprint: hashes a state that should be equal on every rank, so that a simulator can compare the ranks.
//
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_ENGINE_SCHEDULE_FINGERPRINT_H_
#define SLOTWISE_SERVER_ENGINE_SCHEDULE_FINGERPRINT_H_

#include <cstdint>

namespace slotwise {

class Fingerprint {
 public:
  std::uint64_t value() const { return value_; }

  // Adds integers, enumerators and strong integer types, in this order.
  template <class... Values>
  void Add(Values... values) {
    (AddWord(static_cast<std::uint64_t>(values)), ...);
  }

 private:
  // Does a step of FNV-1a over a whole word, and a rotation, so that high bits affect low ones.
  void AddWord(std::uint64_t word) {
    value_ = (value_ ^ word) * 0x100000001b3ULL;
    value_ = value_ << 29 | value_ >> 35;
  }

  std::uint64_t value_ = 0xcbf29ce484222325ULL;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_SCHEDULE_FINGERPRINT_H_
