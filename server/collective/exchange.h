// An Exchange moves the arrays of a batch between ranks' devices. (Ranks agree by a Collective.)
//
// Arrays lie in the device's memory, which on the CPU is the host's. An exchange has a stream of the device:
// a call is enqueued on the stream, as Stream::Copy is, and need not wait for its work. There are three
// implementations: one rank, whose bytes stay where they are; MPI, which copies a GPU's memory through the
// host's; NCCL, from GPU to GPU. Every call is collective: all ranks make the same calls in the same order,
// with sizes that match.
// Thread-safety: one thread at a time (the engine's). Device, Stream and Collective outlive it.
// Errors: std::runtime_error with the call and the transport's message, std::bad_alloc if there is no
// scratch: after either, a rank cannot go on. The Collective's watchdog notices a call that does not end.
#ifndef SLOTWISE_SERVER_COLLECTIVE_EXCHANGE_H_
#define SLOTWISE_SERVER_COLLECTIVE_EXCHANGE_H_

#include <cstddef>
#include <memory>
#include <numeric>
#include <span>
#include <string>

#include "kernels/shard.h"
#include "server/collective/collective.h"
#include "server/counters/exchange_counters.h"
#include "slotwise/status.h"

namespace slotwise {

class Exchange {
 public:
  virtual ~Exchange() = default;
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  Stream& stream() const { return stream_; }

  // Tells an operator how arrays travel ("MPI", "NCCL 2.28.3"), and if not by NCCL, why not.
  virtual std::string Name() const = 0;

  // Returns how long operations took, from the time when this rank's own arrays were there until the other
  // ranks' had come. MPI counts every operation, by the host's clock. NCCL counts one in 16 on average, by
  // the device's clock, once it has ended and a later one begins. A rank that is alone counts none. Any
  // thread may call this, at any time.
  ExchangeStats Durations() const { return durations_.Read(); }

  // Gathers all ranks' blocks in place, in rank order, one behind the other. Before the call this rank's
  // block lies at its own place. `bytes` are the blocks' sizes, multiples of 4, the same on every rank.
  virtual void AllGatherBlocks(std::span<const std::size_t> bytes, void* blocks) = 0;

  // An array for AllGatherTogether.
  struct Blocks {
    std::span<const std::size_t> bytes;
    void* blocks = nullptr;
  };
  // Does AllGatherBlocks for each of the arrays. The ranks may wait for each other once for all of them.
  virtual void AllGatherTogether(std::span<const Blocks> arrays) {
    for (const Blocks& array : arrays) AllGatherBlocks(array.bytes, array.blocks);
  }

  // `partial` holds one block a rank, in rank order; `sizes` are the blocks' elements. Sizes and type are the
  // same on every rank. Sets `mine` to the sum over ranks of their partial blocks for this rank, added in
  // float32, from +0 in rank order; but see ExchangeOptions. `mine` does not overlap `partial`.
  virtual void ReduceScatter(std::span<const std::size_t> sizes, ConstNumbers partial, float* mine) = 0;

  // `send` holds one block a rank, in rank order; the block for rank r goes to rank r. Sets `received` to the
  // blocks for this rank, in rank order, its own one too. Sizes are elements: this rank's to_sizes[r] is rank
  // r's from_sizes[this rank]. The arrays do not overlap, and are of one type, the same on every rank.
  virtual void AllToAll(std::span<const std::size_t> to_sizes, ConstNumbers send,
                        std::span<const std::size_t> from_sizes, Numbers received) = 0;

 protected:
  explicit Exchange(Stream& stream) : stream_(stream) {}
  ExchangeCounters& durations() { return durations_; }

 private:
  Stream& stream_;
  ExchangeCounters durations_;
};

// REQUIRES: the options are equal on every rank.
struct ExchangeOptions {
  // ReduceScatter always adds in rank order. If false, NCCL may choose another order for float32, if blocks
  // are equal and more than two are added.
  bool deterministic = false;
};

// Collective. Makes the fastest exchange that all ranks have: over NCCL if each has a GPU to itself and
// NCCL's library, else over MPI. FAILED_PRECONDITION, on every rank alike, if only some ranks have GPUs.
Result<std::unique_ptr<Exchange>> MakeExchange(Device& device, Stream& stream, Collective& collective,
                                               const ExchangeOptions& options = {});

// Makes the exchange of a server of one rank.
std::unique_ptr<Exchange> MakeSoloExchange(Stream& stream);

// Collective. Makes an exchange over MPI, of every process of MPI_COMM_WORLD, whatever the devices are. `why`
// says why the exchange is not over NCCL, and becomes part of its name.
std::unique_ptr<Exchange> MakeMpiExchange(Device& device, Stream& stream, Collective& collective,
                                          const std::string& why = {});

// Returns the sum of the sizes.
inline std::size_t Sum(std::span<const std::size_t> sizes) {
  return std::accumulate(sizes.begin(), sizes.end(), std::size_t{0});
}

// The exchanges of rounds, each with a stream of its own, so that a batch arrives while pooled bags of the
// batch before it leave.
class Exchanges {
 public:
  // Collective. Errors: as MakeExchange.
  static Result<Exchanges> Make(Device& device, Collective& collective, const ExchangeOptions& options = {});
  static Exchanges MakeSolo(Device& device);
  // REQUIRES: each exchange uses the stream given with it.
  static Exchanges Of(std::unique_ptr<Stream> batches_stream, std::unique_ptr<Exchange> batches,
                      std::unique_ptr<Stream> bags_stream, std::unique_ptr<Exchange> bags);

  Exchange& batches() const {
    return *batches_;
  }  // keys, offsets, weights, gradients: from every rank to all
  Exchange& bags() const {
    return *bags_;
  }  // pooled bags, and their gradients, between the ranks that need them

  // Returns Durations() of both together. Any thread may ask, at any time.
  ExchangeStats Durations() const;

 private:
  std::unique_ptr<Stream> batches_stream_, bags_stream_;
  std::unique_ptr<Exchange> batches_, bags_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_COLLECTIVE_EXCHANGE_H_
