#include "client/cpp/client_impl.h"

#include <algorithm>
#include <future>
#include <utility>

#include "slotwise/v1/admin.pb.h"
#include "wire/table_options_proto.h"

namespace slotwise {

using client::Request;
using client::Run;
using client::SampleRange;

namespace {

constexpr std::uint64_t kDefaultMaxMessage = 4 << 20;  // gRPC's own default
constexpr std::uint64_t kHeaderBytes = 1024;           // room in a request for the fields that are not arrays

}  // namespace

Client::Impl::Impl(std::vector<std::string> addresses, const ClientOptions& options,
                   std::uint64_t max_message_bytes)
    : options_(options),
      largest_request_(
          std::max(max_message_bytes == 0 ? kDefaultMaxMessage : max_message_bytes, 2 * kHeaderBytes) -
          kHeaderBytes),
      channels_(std::move(addresses), options.channels_per_rank, options.threads) {}

Client::Impl::~Impl() {
  std::unique_lock lock(mutex_);
  closing_ = true;
  const auto runs = runs_;
  lock.unlock();
  for (const auto& run : runs) run->Cancel(FailedPrecondition("the client is closed"));
  lock.lock();
  changed_.wait(lock, [this] { return runs_.empty(); });
}

void Client::Impl::Start(std::vector<Request> requests, Run::OnReply on_reply, Run::OnDone on_done) {
  // The run needs its own address to take itself off runs_, which keeps the run alive until then.
  auto self = std::make_shared<std::weak_ptr<Run>>();
  auto run = std::make_shared<Run>(channels_, options_.timeout, std::move(requests), std::move(on_reply),
                                   [this, self, done = std::move(on_done)](const Status& status) {
                                     done(status);
                                     const std::lock_guard lock(mutex_);
                                     runs_.erase(self->lock());
                                     changed_.notify_all();
                                   });
  *self = run;
  std::unique_lock lock(mutex_);
  if (closing_) {
    lock.unlock();
    return run->Refuse(FailedPrecondition("the client is closed"));
  }
  runs_.insert(run);
  lock.unlock();
  run->Start();
}

Status Client::Impl::Call(std::string_view method, const google::protobuf::MessageLite& request,
                          google::protobuf::MessageLite& reply) {
  std::promise<Status> answer;
  std::vector<Request> requests(1);
  requests[0] = {.method = "/slotwise.v1." + std::string(method), .message = client::Serialize(request)};
  Start(
      std::move(requests),
      [&reply](std::size_t, const grpc::ByteBuffer& bytes) { return client::Deserialize(bytes, reply); },
      [&answer](const Status& status) { answer.set_value(status); });
  return answer.get_future().get();
}

void Client::Impl::WithTable(std::string_view table, std::function<void(const Result<TableOptions>&)> then) {
  {
    std::unique_lock lock(mutex_);
    if (const auto known = tables_.find(table); known != tables_.end()) {
      const TableOptions options = known->second;
      lock.unlock();
      return then(options);
    }
  }
  v1::DescribeTableRequest describe;
  describe.set_table(std::string(table));
  std::vector<Request> requests(1);
  requests[0] = {.method = "/slotwise.v1.Admin/DescribeTable", .message = client::Serialize(describe)};
  auto options = std::make_shared<TableOptions>();
  const auto read = [this, options](std::size_t, const grpc::ByteBuffer& bytes) -> Status {
    v1::DescribeTableReply reply;
    if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
    const auto described = FromProto(reply.options());
    if (!described.ok()) return {StatusCode::kInternal, "the reply: " + described.status().message()};
    *options = *described;
    Remember(*options);
    return {};
  };
  Start(std::move(requests), read, [options, then = std::move(then)](const Status& status) {
    if (!status.ok()) return then(status);
    then(*options);
  });
}

void Client::Impl::Remember(const TableOptions& options) {
  const std::lock_guard lock(mutex_);
  tables_.insert_or_assign(options.name.str(), options);
}

void Client::Impl::Forget(std::string_view table) {
  const std::lock_guard lock(mutex_);
  if (const auto known = tables_.find(table); known != tables_.end()) tables_.erase(known);
}

std::vector<SampleRange> Client::Impl::CutBatch(
    const client::CheckedBatch& batch, const std::function<std::uint64_t(SampleRange)>& request_bytes) const {
  const std::uint64_t whole =
      std::max(BytesOf(options_.data_type) * std::uint64_t{batch.width} * batch.samples,
               client::PartBytes(batch.view, batch.slots, {0, batch.samples}));
  const auto ranges = client::Cut(batch.samples, whole, channels_.ranks(), channels_.channels_per_rank());
  return client::HalveUntilFit(ranges, request_bytes, largest_request_);
}

void Client::Impl::Address(std::vector<Request>& parts) {
  const std::size_t ranks = channels_.ranks();
  const std::size_t turn = parts.size() == 1 ? turns_.fetch_add(1, std::memory_order_relaxed) : 0;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    parts[i].rank = (i * ranks / parts.size() + turn) % ranks;
    parts[i].channel = i + turn / ranks;
  }
}

}  // namespace slotwise
