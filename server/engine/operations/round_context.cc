#include "server/engine/operations/round_context.h"

#include <utility>

namespace slotwise {
namespace {

// NCCL connects ranks when they first exchange something, and again when blocks are first unequal. No round
// should wait for that, so the ranks do both at the start.
void Connect(Device& device, const Collective& collective, Exchange& exchange) {
  const auto ranks = static_cast<std::size_t>(collective.size());
  std::vector<std::size_t> bytes(ranks, sizeof(std::uint32_t));
  DeviceArray<std::uint32_t> blocks(device);
  blocks.Reserve(ranks + 1);
  exchange.AllGatherBlocks(bytes, blocks.data());
  bytes[0] *= 2;
  exchange.AllGatherBlocks(bytes, blocks.data());
  device.Wait();
}

}  // namespace

RoundContext::RoundContext(Device& of_rank, Collective& ranks, const Exchanges& exchanges,
                           const TableMaker& table_maker, std::uint64_t max_round_bytes,
                           const TravelOptions& travel, ArrayPool& pool, Tables& all_tables, TicketBook& book,
                           RoundLog& round_log, Checkpointing& checkpoints, RoomMaker* room_maker)
    : device(of_rank),
      collective(ranks),
      maker(table_maker),
      arrays(pool),
      tables(all_tables),
      tickets(book),
      log(round_log),
      checkpointing(checkpoints),
      work(of_rank, ranks, exchanges.bags(), travel, kRoundsOfNewRows * max_round_bytes, room_maker),
      stages(of_rank, ranks, exchanges, book) {
  Connect(device, collective, exchanges.batches());
}

Status RoundContext::AgreeOnRoomToRecord(std::uint64_t more_bytes) {
  if (Status may = checkpointing.MayUpdate(); !may.ok()) return may;
  if (!log.on()) return {};
  return work.Agree(log.Reserve(kSmallRecord + more_bytes));
}

}  // namespace slotwise
