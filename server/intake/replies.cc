#include "server/intake/replies.h"

#include "wire/data_type_proto.h"

namespace slotwise {

v1::LookupReply MessageOf(const LookupAnswer& answer, std::uint64_t incarnation) {
  v1::LookupReply reply;
  reply.set_samples(answer.samples);
  reply.set_width(answer.width);
  reply.set_data_type(ToProto(answer.values.type));
  reply.set_incarnation(incarnation);
  reply.set_lineage(answer.values.version.lineage);
  reply.set_table_step(answer.values.version.step);
  reply.set_lost_from(answer.lost_from);
  return reply;
}

v1::PushReply MessageOf(const PushAnswer& answer, std::uint64_t incarnation) {
  v1::PushReply reply;
  reply.set_table_step(answer.applied.table_step);
  reply.set_lineage(answer.applied.now.lineage);
  reply.set_newest_step(answer.applied.now.step);
  reply.set_incarnation(incarnation);
  reply.set_lost_from(answer.lost_from);
  return reply;
}

}  // namespace slotwise
