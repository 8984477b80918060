// RpcTraffic: lookups and pushes of one table by the C++ client, `in_flight` of them at any time.
// Thread-safety: one thread at a time. Throws std::runtime_error if a call is refused or a result is wrong.
#ifndef SLOTWISE_BENCH_RPC_TRAFFIC_H_
#define SLOTWISE_BENCH_RPC_TRAFFIC_H_

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "bench/on_device.h"
#include "kernels/shard.h"
#include "slotwise/client.h"
#include "slotwise/types.h"

namespace slotwise::bench {

class RpcTraffic {
 public:
  struct Options {
    std::uint32_t rows = 0;  // of the table
    std::uint32_t dim = 0;
    std::uint32_t hot = 1;      // keys a bag; bags of several keys are summed
    std::uint32_t request = 0;  // keys of a call; a multiple of `hot`
    std::uint32_t in_flight = 1;
    double duplicates = 0;  // the share of a call's keys that repeat others; 0: rows are drawn uniformly
    std::uint64_t seed = 1;
  };
  // Makes the table and fills it, after dropping a table of that name that an aborted run has left. `device`
  // is the device whose memory holds the calls' arrays, and is shared with the server; null: the host. It
  // must outlive the traffic, and is used by nothing else.
  RpcTraffic(Client& client, std::string table, const Options& options, Device* device = nullptr);
  // Drops the table, and ignores errors.
  ~RpcTraffic();
  RpcTraffic(const RpcTraffic&) = delete;
  RpcTraffic& operator=(const RpcTraffic&) = delete;

  // Each function returns once `requests` calls are answered.
  void LookUp(std::uint32_t requests) { Run(requests, false); }
  void Push(std::uint32_t requests) { Run(requests, true); }  // pushes zeros, which leave the rows unchanged
  // Looks rows up, and throws if a value is wrong.
  void Check();

  // Returns the distinct batches, which the calls use in turn.
  std::vector<const std::vector<Key>*> batches() const;
  // Returns the options that the table was made with.
  static TableOptions TableOf(std::string_view name, const Options& options);
  static Key KeyOf(std::uint32_t row) { return Key{(row + 1) * 0x9E3779B97F4A7C15ULL}; }

 private:
  struct Batch {
    std::vector<std::uint32_t> rows;
    std::vector<Key> keys;
    std::unique_ptr<OnDevice<Key>> keys_there = nullptr;
  };
  // A stream uses its batches in turn, so that not all rows are in the cache.
  struct Stream {
    std::array<Batch, 8> batches;
    std::size_t turns = 0;
    const Batch* looked_up = nullptr;  // the batch whose values `out` has; null: the stream had no turn
    std::vector<float> out;
    GpuRows there = {};  // replaces `out` on a device
  };

  static float ValueOf(std::uint32_t row, std::uint32_t element) {
    return static_cast<float>(row % 4096 * 64 + element % 64);
  }
  std::vector<std::uint32_t> DrawRows(std::mt19937_64& random) const;
  void Fill();
  void Run(std::uint32_t requests, bool pushes);
  void Send(Stream& stream);
  void SendOnDevice(Stream& stream, const Batch& batch);
  void Answered(Stream& stream, const Status& status);
  bool IsRight(const Stream& stream) const;
  std::uint32_t bags() const { return options_.request / options_.hot; }

  Client& client_;
  const std::string table_;
  const Options options_;
  std::vector<std::uint32_t> offsets_;  // empty: one key a bag
  const std::vector<float> no_gradients_;
  std::vector<Stream> streams_;
  Device* const device_;
  Gpu gpu_;
  std::unique_ptr<OnDevice<std::uint32_t>> offsets_there_;
  std::unique_ptr<OnDevice<float>> no_gradients_there_;

  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint32_t to_send_ = 0;
  std::uint32_t to_answer_ = 0;
  bool pushes_ = false;
  Status failure_;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_RPC_TRAFFIC_H_
