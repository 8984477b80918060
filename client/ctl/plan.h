// `slotwise-ctl plan` computes the memory, network, disk and time that a table will take, without a server.
// Thread-safety: plain values and pure functions.
#ifndef SLOTWISE_CLIENT_CTL_PLAN_H_
#define SLOTWISE_CLIENT_CTL_PLAN_H_

#include <cstdint>
#include <string>

#include "client/ctl/commands.h"

namespace slotwise::ctl {

struct PlanFlags {
  std::uint64_t rows = 0;  // of the table, over all ranks
  std::uint32_t dim = 0;
  std::string optimizer = "sgd";
  std::string row_dtype = "float32";
  std::string rounding = "stochastic";
  bool evicts = false;
  std::uint64_t counter_mib = 0;  // of the table's Bloom counter, over all ranks; 0: it has none
  float max_load = 0.5F;
  std::uint64_t ranks = 1;
  std::uint64_t slots = 1;               // bags per sample
  std::uint64_t hot = 1;                 // keys per bag
  std::uint64_t batch = 4096;            // samples per step, of all trainers together
  double steps = 1;                      // per second
  std::string data_type = "float32";     // of values and gradients between trainers and ranks
  std::string partial_sums = "float32";  // of sums of bags between ranks
  std::string backend = "cuda";
  std::string durability = "none";
  std::uint64_t checkpoint_every = 600;  // seconds; half of the interval if durability is "interval"
  // For each of these, 0 stands for the server's default.
  std::uint64_t copy_on_write_mib = 0;
  std::uint64_t round_mib = 0;
  std::uint64_t queue_mib = 0;
  std::uint64_t host_mib = 0;  // a rank's share of its host's memory; 0: unlimited
  double network = 12.5;       // GB/s per rank, each way
  double disk = 1;             // GB/s of all ranks together
};

// The bounds of each flag that is a number.
struct PlanBounds {
  static constexpr std::uint64_t kMostRanks = 4096;
  static constexpr std::uint64_t kMostHot = 1'000'000;
  static constexpr std::uint64_t kMostBatch = 0xFFFF'FFFEu;
  static constexpr double kLeastRate = 1e-6;
  static constexpr double kMostRate = 1e6;
  static constexpr std::uint64_t kMostSeconds = 2'678'400;
  static constexpr std::uint64_t kMostMib = 16'777'216;
  static constexpr std::uint64_t kMostRoundMib = 4096;
};

// Returns INVALID_ARGUMENT, with the flag, for a number out of its bounds, a word that the flag does not
// know, or numbers that no server accepts together.
Result<Answer> Plan(const PlanFlags& flags);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_PLAN_H_
