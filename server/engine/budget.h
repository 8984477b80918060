// Budget: a bound on the bytes that are in use at a time. Reservation: bytes of a budget, which its
// destructor gives back.
//
// Thread-safety: any thread, at any time. Reservations may outlive their budget.
#ifndef SLOTWISE_SERVER_ENGINE_BUDGET_H_
#define SLOTWISE_SERVER_ENGINE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

namespace slotwise {

class Reservation {
 public:
  Reservation() = default;
  Reservation(Reservation&& other) noexcept
      : used_(std::move(other.used_)), bytes_(std::exchange(other.bytes_, 0)) {}
  Reservation& operator=(Reservation&& other) noexcept {
    Reservation old(std::move(*this));
    used_ = std::move(other.used_);
    bytes_ = std::exchange(other.bytes_, 0);
    return *this;
  }
  ~Reservation() {
    if (bytes_ > 0) *used_ -= bytes_;
  }

  std::uint64_t bytes() const { return bytes_; }

  // Moves `bytes` of these bytes to the returned reservation. REQUIRES: bytes <= bytes().
  Reservation Split(std::uint64_t bytes) {
    bytes_ -= bytes;
    return {used_, bytes};
  }

 private:
  friend class Budget;
  Reservation(std::shared_ptr<std::atomic<std::uint64_t>> used, std::uint64_t bytes)
      : used_(std::move(used)), bytes_(bytes) {}

  std::shared_ptr<std::atomic<std::uint64_t>> used_;
  std::uint64_t bytes_ = 0;
};

class Budget {
 public:
  explicit Budget(std::uint64_t limit)
      : limit_(limit), used_(std::make_shared<std::atomic<std::uint64_t>>(0)) {}

  std::uint64_t limit() const { return limit_; }
  std::uint64_t used() const { return *used_; }
  // Returns whether the reservation belongs to this budget.
  bool Has(const Reservation& reservation) const { return reservation.used_ == used_; }

  // Reserves bytes. Returns nothing if they and the bytes in use exceed the limit by more than `beyond`. A
  // reservation always succeeds if no bytes are in use, or if `bytes` is 0.
  std::optional<Reservation> Reserve(std::uint64_t bytes, std::uint64_t beyond = 0) {
    const std::uint64_t limit = limit_ + beyond;
    std::uint64_t used = *used_;
    do {
      if (bytes > 0 && used > 0 && (bytes > limit || used > limit - bytes)) return std::nullopt;
    } while (!used_->compare_exchange_weak(used, used + bytes));
    return Reservation(used_, bytes);
  }

 private:
  const std::uint64_t limit_;
  std::shared_ptr<std::atomic<std::uint64_t>> used_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_BUDGET_H_
