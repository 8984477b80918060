#include "tests/sim/sim_exchange.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "tests/support/apart_device.h"

namespace slotwise::sim {

using test::AddWork;
namespace {

std::string Listed(std::span<const std::size_t> sizes) {
  std::string all;
  for (const std::size_t size : sizes) all += " " + std::to_string(size);
  return all;
}

// Block `place` of blocks of these sizes.
std::span<const std::byte> Block(std::span<const std::byte> all, std::span<const std::size_t> sizes,
                                 std::size_t place, std::size_t width) {
  return all.subspan(Sum(sizes.first(place)) * width, sizes[place] * width);
}

}  // namespace

void SimExchange::AllGatherBlocks(std::span<const std::size_t> bytes, void* blocks) {
  const auto me = static_cast<std::size_t>(rank_);
  auto* const mine = static_cast<std::byte*>(blocks) + Sum(bytes.first(me));
  Travel("AllGatherBlocks of" + Listed(bytes), {}, {mine, bytes[me]},
         {static_cast<std::byte*>(blocks), Sum(bytes)}, [](const Meetings::Meeting& meeting) {
           Bytes all;
           for (const Bytes& block : meeting.bytes) all.insert(all.end(), block.begin(), block.end());
           return all;
         });
}

void SimExchange::ReduceScatter(std::span<const std::size_t> sizes, ConstNumbers partial, float* mine) {
  const auto me = static_cast<std::size_t>(rank_);
  const std::vector<std::size_t> blocks(sizes.begin(), sizes.end());
  const DataType type = partial.type;
  Travel("ReduceScatter of" + Listed(sizes), {},
         {static_cast<const std::byte*>(partial.data), Sum(sizes) * BytesOf(type)},
         std::as_writable_bytes(std::span(mine, sizes[me])), [=](const Meetings::Meeting& meeting) {
           std::vector<float> sum(blocks[me], 0.0F);
           std::vector<float> wide(blocks[me]);
           for (const Bytes& sent : meeting.bytes) {
             Widen(Block(sent, blocks, me, BytesOf(type)).data(), type, wide);
             for (std::size_t i = 0; i < sum.size(); ++i) sum[i] += wide[i];
           }
           const auto bytes = std::as_bytes(std::span(sum));
           return Bytes(bytes.begin(), bytes.end());
         });
}

void SimExchange::AllToAll(std::span<const std::size_t> to_sizes, ConstNumbers send,
                           std::span<const std::size_t> from_sizes, Numbers received) {
  const auto me = static_cast<std::size_t>(rank_);
  const std::size_t width = BytesOf(send.type);
  const std::vector<std::size_t> from(from_sizes.begin(), from_sizes.end());
  Travel("AllToAll", {to_sizes.begin(), to_sizes.end()},
         {static_cast<const std::byte*>(send.data), Sum(to_sizes) * width},
         {static_cast<std::byte*>(received.data), Sum(from_sizes) * width},
         [=, this](const Meetings::Meeting& meeting) {
           Bytes all;
           for (std::size_t r = 0; r < meeting.bytes.size(); ++r) {
             const auto block = Block(meeting.bytes[r], meeting.sizes[r], me, width);
             if (meeting.sizes[r][me] != from[r]) {
               scheduler_.Fail("AllToAll: rank " + std::to_string(r) + " sends " +
                               std::to_string(meeting.sizes[r][me]) + " numbers to rank " +
                               std::to_string(me) + ", which expects " + std::to_string(from[r]));
             }
             all.insert(all.end(), block.begin(), block.end());
           }
           return all;
         });
}

void SimExchange::Travel(const std::string& call, std::vector<std::size_t> sizes,
                         std::span<const std::byte> from, std::span<std::byte> to, Receive receive) {
  scheduler_.Yield(rank_, "work");
  const auto meeting = meetings_.Begin(rank_, call);
  meeting->sizes[static_cast<std::size_t>(rank_)] = std::move(sizes);
  const auto write = [to, receive = std::move(receive), meeting] {
    const Bytes all = receive(*meeting);
    if (all.size() == to.size() && !all.empty()) std::memcpy(to.data(), all.data(), all.size());
  };
  if (kind_ == ExchangeKind::kBlocking) {
    stream().Wait();
    Meetings::Come(*meeting, rank_, from);
    scheduler_.Await(rank_, call, [&] { return meeting->absent == 0; });
    return write();
  }
  // The bytes are read when this rank's stream has come here, as soon as a real one might.
  const int rank = rank_;
  AddWork(
      stream(),
      [meeting, from, rank] {
        if (!meeting->came[static_cast<std::size_t>(rank)]) Meetings::Come(*meeting, rank, from);
        return meeting->absent == 0;
      },
      write);
}

Exchanges MakeSimExchanges(ExchangeKind kind, Device& device, Wires& wires, int rank) {
  auto batches_stream = device.MakeStream();
  auto bags_stream = device.MakeStream();
  auto batches = std::make_unique<SimExchange>(kind, *batches_stream, wires.batches, wires.scheduler, rank);
  auto bags = std::make_unique<SimExchange>(kind, *bags_stream, wires.bags, wires.scheduler, rank);
  return Exchanges::Of(std::move(batches_stream), std::move(batches), std::move(bags_stream),
                       std::move(bags));
}

}  // namespace slotwise::sim
