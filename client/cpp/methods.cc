// Calls the methods of the service Admin, each of which takes one small message and returns one. This file
// also does what some methods need of the client besides.
#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <algorithm>
#include <array>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "client/cpp/client_impl.h"
#include "client/cpp/messages.h"
#include "slotwise/client.h"
#include "slotwise/v1/admin.pb.h"
#include "wire/json.h"
#include "wire/table_options_proto.h"

namespace slotwise {
namespace {

namespace pb = google::protobuf;

// A method that reads or writes a checkpoint may take kLongCall if the caller sets no timeout; a failed
// request is sent again only within the client's usual timeout. `once`: the request must not arrive twice, so
// it is never sent again.
struct LongMethod {
  std::string_view name;
  bool once = false;
};
constexpr std::array kLongMethods{LongMethod{"SaveCheckpoint"}, LongMethod{"VerifyCheckpoint"},
                                  LongMethod{"CompactCheckpoint"}, LongMethod{"LoadCheckpoint", true}};

// Returns an empty message of a type that this library has.
std::unique_ptr<pb::Message> Make(const pb::Descriptor* type) {
  return std::unique_ptr<pb::Message>(pb::MessageFactory::generated_factory()->GetPrototype(type)->New());
}

}  // namespace

Status Client::Impl::Ask(const CallOptions& options, std::string_view method, const pb::Message& request,
                         pb::Message& reply, std::optional<std::size_t> rank) {
  if (!IsOfThisProcess()) return client::Runs::OfAnotherProcess();
  if (rank && *rank >= channels_.ranks()) {
    return InvalidArgument("rank is " + std::to_string(*rank) + ": the server has " +
                           std::to_string(channels_.ranks()));
  }
  if (Status legal = NoteRequest(request); !legal.ok()) return legal;
  const auto* const long_method = std::ranges::find(kLongMethods, method, &LongMethod::name);
  const bool is_long = long_method != kLongMethods.end();
  CallOptions patient = options;
  if (is_long && !options.timeout) patient.timeout = kLongCall;
  client::Call call = CallOf(patient);
  if (is_long) call.retry_for = long_method->once ? std::chrono::milliseconds() : options_.timeout;
  client::Request asked = client::ToAsk(
      method, request, [&reply](const grpc::ByteBuffer& bytes) { return client::Deserialize(bytes, reply); });
  asked.rank = rank.value_or(0);
  asked.once = rank.has_value();
  const Status status = runs_.SendAndWait(call, {std::move(asked)});
  return status.ok() ? NoteReply(request, reply) : status;
}

Status Client::Impl::NoteRequest(const pb::Message& request) {
  if (const auto* const create = pb::DynamicCastToGenerated<v1::CreateTableRequest>(&request))
    return FromProto(create->options()).status();
  if (const auto* const drop = pb::DynamicCastToGenerated<v1::DropTableRequest>(&request))
    ForgetAllOf(drop->table());
  // Even if no answer comes, the tables may have been replaced.
  if (const auto* const load = pb::DynamicCastToGenerated<v1::LoadCheckpointRequest>(&request)) {
    if (load->some().tables().empty()) ForgetOptions();
    for (const std::string& table : load->some().tables()) Forget(table);
  }
  return {};
}

Status Client::Impl::NoteReply(const pb::Message& request, const pb::Message& reply) {
  const auto remember = [this](const Result<TableOptions>& options) {
    if (options.ok()) Remember(*options);
    return options.status();
  };
  if (const auto* const created = pb::DynamicCastToGenerated<v1::CreateTableReply>(&reply)) {
    return remember(client::OptionsIn(created->options()));
  }
  if (const auto* const described = pb::DynamicCastToGenerated<v1::DescribeTableReply>(&reply)) {
    const auto* const asked = pb::DynamicCastToGenerated<v1::DescribeTableRequest>(&request);
    return remember(client::DescribedOptions(*described, asked->table()));
  }
  if (const auto* const topology = pb::DynamicCastToGenerated<v1::GetTopologyReply>(&reply)) {
    Meet(client::TopologyOf(*topology));
  }
  if (const auto* const load = pb::DynamicCastToGenerated<v1::LoadCheckpointRequest>(&request)) {
    if (load->some().tables().empty()) ForgetTables();
    for (const std::string& table : load->some().tables()) ForgetAllOf(table);
  }
  return {};
}

Result<std::string> Client::Ask(std::string_view method, const std::string& request, const CallOptions& call,
                                std::optional<std::size_t> rank) {
  const auto* const found = v1::CreateTableRequest::descriptor()->file()->pool()->FindMethodByName(
      client::kAdminService + ("." + std::string(method)));
  if (found == nullptr) {
    return InvalidArgument("method is \"" + std::string(method) + "\", which service " +
                           client::kAdminService + " does not have");
  }
  const auto asked = Make(found->input_type());
  if (const Status parsed = FromJson(request, *asked); !parsed.ok()) {
    return parsed.InWords("the request is no JSON of a " + found->input_type()->full_name() + ": " +
                          parsed.message());
  }
  const auto reply = Make(found->output_type());
  if (Status status = impl_->Ask(call, method, *asked, *reply, rank); !status.ok()) return status;
  return ToJson(*reply);
}

std::optional<TableOptions> Client::KnownTable(std::string_view table) const { return impl_->Known(table); }
void Client::ForgetTable(std::string_view table) { impl_->Forget(table); }

}  // namespace slotwise
