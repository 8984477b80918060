// SimExchange: a rank's Exchange among ranks of one process, like NCCL's or like MPI's.
//
// Like NCCL's: a call is queued in its stream and returns at once; the blocks travel when every rank's stream
// has reached the call. Like MPI's: the call downloads its blocks, waits for the other ranks, and queues the
// upload of the received blocks on its stream.
// Thread-safety: the scheduler's thread.
#ifndef SLOTWISE_TESTS_SIM_SIM_EXCHANGE_H_
#define SLOTWISE_TESTS_SIM_SIM_EXCHANGE_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "server/collective/exchange.h"
#include "tests/sim/meetings.h"
#include "tests/sim/scheduler.h"
#include "tests/sim/sim_collective.h"

namespace slotwise::sim {

enum class ExchangeKind {
  kInStreamOrder,  // like NCCL. REQUIRES: a stream of MakeApartDevice.
  kBlocking,       // like MPI
};

class SimExchange final : public Exchange {
 public:
  SimExchange(ExchangeKind kind, Stream& stream, Meetings& meetings, Scheduler& scheduler, int rank)
      : Exchange(stream), kind_(kind), meetings_(meetings), scheduler_(scheduler), rank_(rank) {}

  std::string Name() const override { return "simulated"; }
  void AllGatherBlocks(std::span<const std::size_t> bytes, void* blocks) override;
  void ReduceScatter(std::span<const std::size_t> sizes, ConstNumbers partial, float* mine) override;
  void AllToAll(std::span<const std::size_t> to_sizes, ConstNumbers send,
                std::span<const std::size_t> from_sizes, Numbers received) override;

 private:
  using Bytes = std::vector<std::byte>;
  // Returns the bytes that arrive at `to`, computed from what all ranks sent.
  using Receive = std::function<Bytes(const Meetings::Meeting&)>;
  // `sizes` are those of this rank's blocks for each rank, where they differ from rank to rank.
  void Travel(const std::string& call, std::vector<std::size_t> sizes, std::span<const std::byte> from,
              std::span<std::byte> to, Receive receive);

  const ExchangeKind kind_;
  Meetings& meetings_;
  Scheduler& scheduler_;
  const int rank_;
};

// Makes a rank's exchanges, each on its own stream.
Exchanges MakeSimExchanges(ExchangeKind kind, Device& device, Wires& wires, int rank);

}  // namespace slotwise::sim

#endif  // SLOTWISE_TESTS_SIM_SIM_EXCHANGE_H_
