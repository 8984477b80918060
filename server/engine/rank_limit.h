// RankLimit: bounds the rows of a table on one rank.
//
// The owner of a key is public (docs/semantics.md), so a client can send keys of one rank alone, and without
// a limit fill that rank's memory with all of a table's max_rows. The limit stops such a client, and does not
// affect others. It is a multiple c of the rank's even share of max_rows, plus `slack` rows.
//
// Keys that are not chosen to collide fall on a rank with probability p, its share of the buckets, as
// independent draws or closer to their mean. Of n <= max_rows keys the rank gets µ = n·p on average, which is
// at most its share. By Chernoff's bound, it gets r·µ or more with a probability of at most exp(-µ·(r·ln r -
// r + 1)), for r > 1. The limit is at least c·µ + slack. The bound is largest for the µ at which r = 1 + c·ln
// r, and is exp(-slack·ln r) there. With c = 1.5, r is 2.14, and 1024 rows of slack make the bound 10^-339;
// with c = 1.1, the least that a configuration may say, r is 1.206, and the bound is 10^-83. Even the many
// batches of a server's life do not make such an event likely. Because of the slack, a table of few rows has
// no limit but max_rows.
//
// Thread-safety: plain values.
#ifndef SLOTWISE_SERVER_ENGINE_RANK_LIMIT_H_
#define SLOTWISE_SERVER_ENGINE_RANK_LIMIT_H_

#include <algorithm>
#include <cstdint>

#include "kernels/shard.h"
#include "slotwise/sizing.h"

namespace slotwise {

// Equal on every rank.
struct RankLimit {
  std::uint32_t percent = 150;  // c, in percent
  std::uint64_t slack = 1024;

  // Returns how many rows one of `ranks` ranks may hold of a table of max_rows rows. REQUIRES: 1 <= ranks <=
  // kBuckets, max_rows <= TableOptions::kMaxMaxRows, percent <= 1,000,000.
  constexpr std::uint64_t RowsOf(std::uint64_t max_rows, int ranks) const {
    if (ranks == 1) return max_rows;
    const std::uint64_t share = sizing::EvenShare(max_rows, static_cast<std::uint64_t>(ranks));
    return std::min(max_rows, (share * percent + 99) / 100 + slack);
  }
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_ENGINE_RANK_LIMIT_H_
