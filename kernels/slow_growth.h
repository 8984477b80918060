// A SlowGrowth lets tests see small hash tables in the middle of their growth.
#ifndef SLOTWISE_KERNELS_SLOW_GROWTH_H_
#define SLOTWISE_KERNELS_SLOW_GROWTH_H_

#include <atomic>
#include <cstdint>

namespace slotwise {

// While a SlowGrowth exists, a new hash table has room for a row, and a batch moves or frees so few cells of
// a table that grows, besides those that the table's growth asks for (growing_table.inl).
// Thread-safety: safe from any thread. The scope covers all devices of the process; scopes do not nest.
class SlowGrowth {
 public:
  explicit SlowGrowth(std::uint64_t cells) { cells_ = cells; }
  ~SlowGrowth() { cells_ = 0; }
  SlowGrowth(const SlowGrowth&) = delete;
  SlowGrowth& operator=(const SlowGrowth&) = delete;

  // Returns how many cells a batch works on, where it is `usual` without a SlowGrowth.
  static std::uint64_t CellsABatch(std::uint64_t usual) {
    const std::uint64_t cells = cells_;
    return cells > 0 ? cells : usual;
  }
  // Returns for how many rows a new hash table has room, where it is `usual` without a SlowGrowth.
  static std::uint64_t FirstRows(std::uint64_t usual) { return cells_ > 0 ? 1 : usual; }

 private:
  inline static std::atomic<std::uint64_t> cells_ = 0;
};

}  // namespace slotwise

#endif  // SLOTWISE_KERNELS_SLOW_GROWTH_H_
