#include "client/ctl/plan_numbers.h"

#include <cmath>

#include "slotwise/types.h"

namespace slotwise::ctl {
namespace {

using sizing::DivideUp;

// Constants of the server. tests/e2e/test_plan.py compares them with its sources: checkpoint_pace.h, stage.h
// and durability_options.h of server/engine, snapshot.inl of kernels, and journal_format.h of
// server/durability.
constexpr std::uint64_t kGentleBytes = std::uint64_t{48} << 10;  // per millisecond, on a rank that trains
constexpr std::uint64_t kStages = 2;                             // on a GPU
constexpr std::uint64_t kCellsAtOnce = std::uint64_t{1} << 20;
constexpr std::uint64_t kJournalReserveMib = 64;
constexpr std::uint64_t kMostDeltas = 16;  // after a base
constexpr std::uint64_t kRecordHeaderBytes = 64;
constexpr std::uint64_t kScoredKeyBytes = 16;
constexpr std::uint64_t kBytesOfGroupedKey = 55;  // at least, as measured

std::uint64_t RoundUp8(std::uint64_t bytes) { return DivideUp(bytes, 8) * 8; }

RankPart PartOf(const PlanFlags& flags, const Shape& shape) {
  RankPart part;
  part.share = sizing::EvenShare(flags.rows, flags.ranks);
  const auto more = static_cast<std::uint64_t>(std::ceil(6 * std::sqrt(static_cast<double>(part.share))));
  part.most = flags.ranks == 1 ? flags.rows : std::min(flags.rows, part.share + more);
  const std::uint64_t behind =
      StateFloats(shape.optimizer, flags.dim) * sizeof(float) + (flags.evicts ? sizeof(std::uint64_t) : 0);
  part.row_bytes = flags.dim * BytesOf(shape.row_dtype) + behind;
  part.copy_bytes = flags.dim * sizeof(float) + behind;
  return part;
}

// Records lie in one array, the state of an optimizer that keeps one float per row in another, and scores
// with keys, or keys alone, in a third.
std::uint64_t BytesOfRows(const PlanFlags& flags, const Shape& shape, std::uint64_t rows,
                          std::uint64_t (*ahead)(std::uint64_t)) {
  const auto bytes = [&](std::uint64_t items, std::uint64_t size) {
    return sizing::RoundUpToPieces(ahead(items) * size);
  };
  const std::uint64_t record = sizing::RecordOf(shape.row_dtype, shape.optimizer, flags.dim).bytes;
  return bytes(rows * record, 1) + (KeepsOneFloatARow(shape.optimizer) ? bytes(rows, sizeof(float)) : 0) +
         (flags.evicts ? bytes(rows, kScoredKeyBytes) : 0) +
         (shape.keeps_keys ? bytes(rows, sizeof(Key)) : 0);
}

// A score lies beside its key in memory, and alone in files.
std::uint64_t MemoryOfRow(const PlanFlags& flags, const Shape& shape) {
  return sizing::RecordOf(shape.row_dtype, shape.optimizer, flags.dim).bytes +
         (KeepsOneFloatARow(shape.optimizer) ? sizeof(float) : 0) + (flags.evicts ? kScoredKeyBytes : 0) +
         (shape.keeps_keys ? sizeof(Key) : 0);
}

std::uint64_t NotAhead(std::uint64_t n) { return n; }

// The memory of a rank's blocks of the Bloom counter, which is a table of its own.
std::uint64_t BytesOfCounter(const PlanFlags& flags, const Shape& shape) {
  if (flags.counter_mib == 0) return 0;
  const std::uint64_t all = BloomCounter::BlocksOfBucket(flags.counter_mib) * BloomCounter::kBuckets;
  const std::uint64_t blocks = std::max(sizing::EvenShare(all, flags.ranks), sizing::kFirstRows);
  return sizing::BytesOfCells(sizing::CellsFor(blocks, flags.max_load)) +
         sizing::RoundUpToPieces(blocks * BloomCounter::kBlockBytes) +
         (shape.keeps ? sizing::RoundUpToPieces(blocks) : 0);
}

TableMemory MadeAhead(const PlanFlags& flags, const Shape& shape, const RankPart& part) {
  const std::uint64_t rows = std::max(part.most, sizing::kFirstRows);
  TableMemory memory;
  memory.cells = sizing::CellsFor(rows, flags.max_load);
  memory.cells_bytes = sizing::BytesOfCells(memory.cells);
  memory.rows_bytes = BytesOfRows(flags, shape, rows, NotAhead);
  if (shape.keeps)
    memory.marks_bytes = sizing::RoundUpToPieces(memory.rows_bytes / MemoryOfRow(flags, shape));
  memory.counter_bytes = BytesOfCounter(flags, shape);
  return memory;
}

// All keys of a batch may be new: a shard makes room for them before it has counted them.
TableMemory Grown(const PlanFlags& flags, const Shape& shape, const RankPart& part) {
  const std::uint64_t rows = std::max(std::min(part.most + shape.keys, kMaxRowsPerShard), sizing::kFirstRows);
  TableMemory memory;
  memory.cells = sizing::CellsFor(rows, flags.max_load);
  memory.cells_bytes = sizing::BytesOfCells(memory.cells);
  memory.rows_bytes = BytesOfRows(flags, shape, rows, shape.gpu ? sizing::AheadOnGpu : sizing::AheadOnCpu);
  memory.old_cells_bytes = sizing::BytesOfCells(memory.cells / 2);
  if (shape.keeps)
    memory.marks_bytes = sizing::RoundUpToPieces(memory.rows_bytes / MemoryOfRow(flags, shape));
  memory.counter_bytes = BytesOfCounter(flags, shape);
  return memory;
}

// The memory during a checkpoint: a state per row, copies of rows that change, and a list of some cells.
std::uint64_t SnapshotBytes(const sizing::MemoryPlan& memory_plan, const Shape& shape, const RankPart& part,
                            const TableMemory& memory) {
  if (!shape.keeps) return 0;
  const std::uint64_t a_copy = part.copy_bytes + sizeof(std::uint32_t);
  const std::uint64_t copies = std::min(memory_plan.limits.copy_on_write * kMiB / a_copy, part.most);
  const std::uint64_t listed = std::min(kCellsAtOnce, memory.cells + 1);
  return part.most * sizeof(std::uint32_t) + copies * a_copy + listed * (sizeof(Key) + sizeof(RowIndex)) +
         DivideUp(part.most, 32) * sizeof(std::uint32_t);
}

// The arrays of rounds of this batch: the gathered arrays, and with several ranks the bags in transit; on a
// GPU for two rounds. Finding and grouping keys takes the rest.
std::uint64_t StageBytes(const PlanFlags& flags, const Shape& shape) {
  const std::uint64_t round = sizing::StepBytes(shape.keys, shape.bags, flags.dim, false);
  const std::uint64_t travel = flags.ranks == 1 ? 0 : shape.bags * flags.dim * sizeof(float);
  return (shape.gpu ? kStages : 1) * (round + travel) + shape.keys * kBytesOfGroupedKey;
}

// Without --host-mib, the host has enough memory.
sizing::MemoryPlan MemoryPlanOf(const PlanFlags& flags, const Shape& shape) {
  constexpr std::uint64_t kPlentyMib = std::uint64_t{32} << 10;
  const std::uint64_t host = flags.host_mib > 0 ? flags.host_mib : kPlentyMib;
  return sizing::PlanMemory(
      {.host_mib = host,
       .device_mib = host,
       .gpu = shape.gpu,
       .several_ranks = flags.ranks > 1,
       .keeps = shape.keeps,
       .journals = shape.sync,
       .set = {
           .round = flags.round_mib, .queue = flags.queue_mib, .copy_on_write = flags.copy_on_write_mib}});
}

// The set-aside of the host's memory, and the lists of the table's keys and rows during an export and a
// checkpoint.
HostMemory HostOf(const sizing::SetAside& aside, const Shape& shape, const RankPart& part) {
  HostMemory host{.aside = aside};
  const std::uint64_t a_row = shape.keeps ? sizing::kListedBytesKeeping : sizing::kListedBytes;
  // With a GPU, the row states of a snapshot lie in the host's memory.
  host.lists = part.most * (a_row - (shape.gpu && shape.keeps ? sizeof(std::uint32_t) : 0));
  return host;
}

Network NetworkOf(const PlanFlags& flags, const Shape& shape) {
  Network network;
  // Clients leave offsets out if every bag has one key.
  const std::uint64_t offsets = flags.hot == 1 ? 0 : (shape.bags + 1) * sizeof(std::uint32_t);
  const std::uint64_t batch = shape.keys * sizeof(Key) + offsets;
  const std::uint64_t values = shape.bags * flags.dim * shape.value_bytes;
  network.to_server = 2 * batch + values;
  network.from_server = values;
  if (flags.ranks > 1) {
    const auto ranks = static_cast<double>(flags.ranks);
    const double others = (ranks - 1) / ranks;
    // The batches of the lookup and the push: every rank sends its share to each of the others.
    const double gathered =
        2 * others * static_cast<double>(shape.keys * sizeof(Key) + shape.bags * sizeof(std::uint32_t));
    const double elements = others * static_cast<double>(shape.bags * flags.dim);
    const double bags = elements * static_cast<double>(shape.partial_bytes + sizeof(float));
    const double owned = 1 - std::pow(1 - 1 / ranks, static_cast<double>(flags.hot));
    network.all_bags = static_cast<std::uint64_t>(gathered + bags);
    network.owned_bags = static_cast<std::uint64_t>(gathered + bags * owned);
  }
  const std::uint64_t between = std::min(network.all_bags, network.owned_bags);
  const std::uint64_t busier = std::max(network.to_server, network.from_server);
  network.rank_bytes = DivideUp(busier, flags.ranks) + between;
  network.seconds = static_cast<double>(network.rank_bytes) / (flags.network * 1e9);
  return network;
}

// The bytes of a checkpoint: each rank has a file of keys, of starts, of rows, and of each vector of state.
std::uint64_t CheckpointBytes(const PlanFlags& flags, const Shape& shape, const RankPart& part) {
  const std::uint64_t states = StatesOf(shape.optimizer).size() + (flags.evicts ? 1 : 0);
  const std::uint64_t of_rank =
      (3 + states) * sizing::kNpyHeaderBytes + (sizing::kBuckets + 1) * sizeof(std::uint64_t);
  return flags.rows * (sizeof(Key) + part.row_bytes) + flags.ranks * of_rank;
}

// The journal's bytes for a step of one part on each rank; every rank writes all records.
std::uint64_t JournalBytes(const PlanFlags& flags, const Shape& shape) {
  if (!shape.sync) return 0;
  constexpr std::uint64_t kStep = 3 * 8 + 4 * 4 + 16;  // the step, and its table
  constexpr std::uint64_t kPart = 24;
  constexpr std::uint64_t kArrays = 16;  // types and sizes of a part's arrays
  const std::uint64_t parts = flags.ranks;
  const std::uint64_t record = kRecordHeaderBytes + RoundUp8(kStep + parts * kPart);
  // A part has one more offset than bags, even if it came without offsets. Arrays begin at multiples of 8.
  const std::uint64_t offsets = (shape.bags + parts) * sizeof(std::uint32_t);
  const std::uint64_t arrays =
      shape.keys * sizeof(Key) + RoundUp8(offsets) + RoundUp8(shape.bags * flags.dim * shape.value_bytes);
  return flags.ranks * (record + kArrays) + arrays;
}

Disk DiskOf(const PlanFlags& flags, const Shape& shape, const RankPart& part) {
  Disk disk;
  const double rate = flags.disk * 1e9;
  disk.checkpoint = CheckpointBytes(flags, shape, part);
  disk.checkpoint_seconds = static_cast<double>(disk.checkpoint) / rate;
  disk.training_seconds = disk.checkpoint_seconds;
  const auto every = static_cast<double>(flags.checkpoint_every);
  if (!shape.gpu) {
    const auto rows = static_cast<double>(part.most * part.copy_bytes);
    const double a_second = std::max(static_cast<double>(kGentleBytes) * 1e3, 2 * rows / every);
    disk.training_seconds = std::max(disk.checkpoint_seconds, rows / a_second);
  }
  disk.journal_a_step = JournalBytes(flags, shape);
  disk.journal_rate = static_cast<double>(disk.journal_a_step) * flags.steps;
  const double journal = disk.journal_rate * every;
  // Replay applies steps at least as fast as trainers pushed them.
  disk.replay_seconds = shape.sync ? std::max(journal / rate, every) : 0;
  if (shape.keeps) {
    const double changed = std::min(static_cast<double>(flags.rows),
                                    std::ceil(static_cast<double>(shape.keys) * flags.steps * every));
    disk.delta = static_cast<std::uint64_t>(changed) * (sizeof(Key) + part.row_bytes);
  }
  disk.read_seconds = static_cast<double>(disk.checkpoint + kMostDeltas * disk.delta) / rate;
  if (shape.keeps) {
    // Two checkpoints are kept while a third is written. A segment is deleted after two newer checkpoints.
    const double segments =
        shape.sync ? 3 * journal + static_cast<double>(flags.ranks * kJournalReserveMib * kMiB) : 0;
    disk.most = 3 * (disk.checkpoint + kMostDeltas * disk.delta) + static_cast<std::uint64_t>(segments);
  }
  return disk;
}

}  // namespace

PlanNumbers NumbersOf(const PlanFlags& flags, const Shape& shape) {
  PlanNumbers plan;
  plan.flags = flags;
  plan.shape = shape;
  plan.part = PartOf(flags, shape);
  plan.ahead = MadeAhead(flags, shape, plan.part);
  plan.grown = Grown(flags, shape, plan.part);
  plan.memory = MemoryPlanOf(flags, shape);
  plan.snapshot_ahead = SnapshotBytes(plan.memory, shape, plan.part, plan.ahead);
  plan.snapshot_grown = SnapshotBytes(plan.memory, shape, plan.part, plan.grown);
  plan.stages = StageBytes(flags, shape);
  plan.host = HostOf(plan.memory.aside, shape, plan.part);
  plan.network = NetworkOf(flags, shape);
  plan.round = sizing::RoundBytes(shape.keys, shape.bags, flags.dim, false);
  plan.step = sizing::StepBytes(shape.keys, shape.bags, flags.dim, false);
  plan.disk = DiskOf(flags, shape, plan.part);
  return plan;
}

}  // namespace slotwise::ctl
