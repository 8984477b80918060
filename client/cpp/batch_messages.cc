#include "client/cpp/batch_messages.h"

#include <string>
#include <utility>

#include "client/cpp/messages.h"
#include "slotwise/v1/embedding.pb.h"

namespace slotwise::client {

grpc::ByteBuffer LookupMessages::Write(const TableBatch& table, const Piece& piece) {
  return LookupMessage(*memory_, table.table, mode_, type_, table.checked, piece.samples, table.before);
}

void LookupMessages::AddTo(v1::DataCall& call, const TableBatch& table, const Piece& piece) {
  *call.add_lookups() = LookupFields(table.table, mode_, type_, piece.samples, table.before);
}

Status LookupMessages::Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) {
  const Pieces& pieces = batches_->requests[request];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const TableBatch& table = batches_->tables[pieces[i].table];
    const SampleRange samples = pieces[i].samples;
    const std::uint32_t width = table.checked.width;
    const auto out = table.out.subspan(samples.first * width, samples.size() * width);
    const auto met = ReadLookupReply(replies[i], samples.size(), width, type_, out);
    if (!met.ok()) return met.status();
    if (Status status = Meet(request, pieces[i], *met); !status.ok()) return status;
  }
  answered_.Add(pieces);
  return {};
}

Status LookupMessages::Read(std::size_t request, const v1::DataReply& reply) {
  const Pieces& pieces = batches_->requests[request];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const v1::LookupReply& lookup = reply.lookups(static_cast<int>(i));
    const TableState met{lookup.lineage(), lookup.table_step(), lookup.incarnation(), lookup.lost_from()};
    if (Status status = Meet(request, pieces[i], met); !status.ok()) return status;
  }
  answered_.Add(pieces);
  return {};
}

// Notes which state of its table a piece was read of.
Status LookupMessages::Meet(std::size_t request, const Piece& piece, const TableState& met) {
  const TableBatch& table = batches_->tables[piece.table];
  batches_->answers[request].incarnation = met.incarnation;
  Status status = known_.Check(table.table, table.before, met);
  if (status.ok()) states_.Meet(piece.table, met);
  return status;
}

grpc::ByteBuffer PushMessages::Write(const TableBatch& table, const Piece& piece) {
  return PushMessage(*memory_, table.table, step_of_(piece), table.checked, piece.samples, table.gradients,
                     type_, table.looked_up, table.before, table.learning_rate);
}

void PushMessages::AddTo(v1::DataCall& call, const TableBatch& table, const Piece& piece) {
  *call.add_pushes() = PushFields(table.table, step_of_(piece), type_, piece.samples, table.looked_up,
                                  table.before, table.learning_rate);
}

Status PushMessages::Read(std::size_t request, const std::vector<grpc::ByteBuffer>& replies) {
  const Pieces& pieces = batches_->requests[request];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    v1::PushReply reply;
    if (Status status = Deserialize(replies[i], reply); !status.ok()) return status;
    if (Status status = Take(request, pieces[i], reply); !status.ok()) return status;
  }
  return {};
}

Status PushMessages::Read(std::size_t request, const v1::DataReply& reply) {
  const Pieces& pieces = batches_->requests[request];
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    if (Status status = Take(request, pieces[i], reply.pushes(static_cast<int>(i))); !status.ok())
      return status;
  }
  return {};
}

// Notes which step of its table a piece became a part of. All parts of a table's step have one answer, and
// that to the first part is kept.
Status PushMessages::Take(std::size_t request, const Piece& piece, const v1::PushReply& reply) {
  const TableBatch& table = batches_->tables[piece.table];
  batches_->answers[request].incarnation = reply.incarnation();
  const TableState now{reply.lineage(), reply.newest_step(), reply.incarnation(), reply.lost_from()};
  const Status lost = known_.Check(table.table, table.before, now);
  known_.Acknowledge(table.table, {reply.lineage(), reply.table_step(), reply.incarnation()});
  if (!lost.ok()) {
    return lost.InWords(lost.message() + "; this push was applied as the table's step " +
                        std::to_string(reply.table_step()));
  }
  if (piece.part == 0) steps_[piece.table] = reply.table_step();
  return {};
}

}  // namespace slotwise::client
