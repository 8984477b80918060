// Rows by key. Export and Import are streams, which the caller's thread reads and writes.
#include <grpc/support/time.h>
#include <grpcpp/client_context.h>

#include <algorithm>
#include <atomic>
#include <thread>
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/from_grpc.h"
#include "slotwise/v1/rows.grpc.pb.h"

namespace slotwise {
namespace {

using client::Request;
using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr std::uint64_t kChunkBytes = 1 << 20;
constexpr milliseconds kBackoff{200};

template <class T>
std::string BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Returns a `bytes` field as an array, or an empty one if the bytes are not a whole number of Ts. Strings of
// more than a few bytes are aligned for any number.
template <class T>
std::span<const T> ArrayOf(const std::string& bytes) {
  if (bytes.size() % sizeof(T) != 0) return {};
  return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
}

void SetDeadline(grpc::ClientContext& context, steady_clock::time_point deadline) {
  const auto left = std::max<steady_clock::duration>(milliseconds(1), deadline - steady_clock::now());
  context.set_deadline(gpr_time_add(
      gpr_now(GPR_CLOCK_MONOTONIC),
      gpr_time_from_nanos(std::chrono::duration_cast<std::chrono::nanoseconds>(left).count(), GPR_TIMESPAN)));
}

// Returns whether to try a stream that ended with `status` again, after a short wait.
bool TryAgain(const grpc::Status& status, steady_clock::time_point deadline) {
  if (!client::IsWorthAnotherTry(status.error_code()) || steady_clock::now() + kBackoff >= deadline)
    return false;
  std::this_thread::sleep_for(kBackoff);
  return true;
}

Result<RowsView> ViewOf(const v1::ExportReply& reply) {
  const RowsView rows{.keys = ArrayOf<Key>(reply.keys()),
                      .values = ArrayOf<float>(reply.values()),
                      .state = ArrayOf<float>(reply.state())};
  if (rows.keys.size_bytes() != reply.keys().size() || rows.values.size() != rows.keys.size() * reply.dim() ||
      rows.values.size_bytes() != reply.values().size() ||
      rows.state.size() != rows.keys.size() * reply.state_size() ||
      rows.state.size_bytes() != reply.state().size()) {
    return Status(StatusCode::kInternal,
                  "the reply is not a valid ExportReply: " + std::to_string(reply.keys().size()) +
                      " bytes of keys, " + std::to_string(reply.values().size()) + " of values and " +
                      std::to_string(reply.state().size()) + " of state");
  }
  return rows;
}

// Returns the floats a row if `rows` rows have `size` floats; INVALID_ARGUMENT if rows would differ in size.
Result<std::size_t> FloatsARow(std::string_view array, std::size_t size, std::size_t rows) {
  if (rows == 0 ? size == 0 : size % rows == 0) return rows == 0 ? 0 : size / rows;
  return InvalidArgument(std::string(array) + " has " + std::to_string(size) + " floats for " +
                         std::to_string(rows) + " keys: must have as many for each");
}

}  // namespace

Result<std::uint64_t> Client::Erase(std::string_view table, std::span<const Key> keys) {
  const std::size_t most =
      std::max<std::size_t>(1, std::min(impl_->largest_request(), kChunkBytes) / sizeof(Key));
  std::vector<Request> requests;
  for (std::size_t first = 0; first == 0 || first < keys.size(); first += most) {
    v1::EraseRequest request;
    request.set_table(std::string(table));
    request.set_keys(BytesOf(keys.subspan(first, std::min(most, keys.size() - first))));
    requests.push_back({.method = "/slotwise.v1.Rows/Erase", .message = client::Serialize(request)});
  }
  impl_->Address(requests);
  std::atomic<std::uint64_t> rows{0};
  std::promise<Status> answer;
  impl_->Start(
      std::move(requests),
      [&rows](std::size_t, const grpc::ByteBuffer& bytes) {
        v1::EraseReply reply;
        Status status = client::Deserialize(bytes, reply);
        rows += reply.rows();
        return status;
      },
      [&answer](const Status& status) { answer.set_value(status); });
  if (Status status = answer.get_future().get(); !status.ok()) return status;
  return rows.load();
}

Status Client::Export(std::string_view table, bool with_state,
                      const std::function<Status(const RowsView&)>& take, std::span<const Key> keys) {
  v1::ExportRequest request;
  request.set_table(std::string(table));
  request.set_with_state(with_state);
  request.set_keys(BytesOf(keys));
  client::Channels& channels = impl_->channels();
  for (std::size_t rank = 0; rank < channels.ranks(); ++rank) {
    const auto deadline = steady_clock::now() + impl_->options().timeout;
    for (bool seen = false, over = false; !over;) {
      const auto stub = v1::Rows::NewStub(channels.at(rank, 0).channel);
      grpc::ClientContext context;
      SetDeadline(context, deadline);
      const auto stream = stub->Export(&context, request);
      Status refused;
      v1::ExportReply reply;
      while (refused.ok() && stream->Read(&reply)) {
        seen = true;
        const auto rows = ViewOf(reply);
        refused = rows.ok() ? take(*rows) : rows.status();
      }
      if (!refused.ok()) context.TryCancel();
      const grpc::Status status = stream->Finish();
      if (!refused.ok()) return refused;
      over = status.ok();
      // The export cannot take back rows that the caller has seen.
      if (!over && (seen || !TryAgain(status, deadline))) {
        return client::FromGrpc(status, channels.address(rank), impl_->options().timeout);
      }
    }
  }
  return {};
}

Result<std::uint64_t> Client::Import(std::string_view table, const RowsView& rows,
                                     std::uint64_t table_steps) {
  const auto dim = FloatsARow("values", rows.values.size(), rows.keys.size());
  if (!dim.ok()) return dim.status();
  const auto state_size = FloatsARow("state", rows.state.size(), rows.keys.size());
  if (!state_size.ok()) return state_size.status();
  const std::size_t row_bytes = sizeof(Key) + sizeof(float) * (*dim + *state_size);
  const std::size_t most =
      std::max<std::size_t>(1, std::min(impl_->largest_request(), kChunkBytes) / row_bytes);
  client::Channels& channels = impl_->channels();
  const auto deadline = steady_clock::now() + impl_->options().timeout;
  for (std::size_t attempt = 0;; ++attempt) {
    const auto stub = v1::Rows::NewStub(channels.at(attempt, 0).channel);
    grpc::ClientContext context;
    SetDeadline(context, deadline);
    v1::ImportReply reply;
    const auto stream = stub->Import(&context, &reply);
    v1::ImportRequest request;
    request.set_table(std::string(table));  // required in the first message, allowed in the others
    request.set_table_steps(table_steps);
    for (std::size_t first = 0; first == 0 || first < rows.keys.size(); first += most) {
      const std::size_t count = std::min(most, rows.keys.size() - first);
      request.set_keys(BytesOf(rows.keys.subspan(first, count)));
      request.set_values(BytesOf(rows.values.subspan(first * *dim, count * *dim)));
      request.set_state(BytesOf(rows.state.subspan(first * *state_size, count * *state_size)));
      if (!stream->Write(request)) break;  // Finish returns the reason
    }
    stream->WritesDone();
    const grpc::Status status = stream->Finish();
    if (status.ok()) return reply.rows();
    if (!TryAgain(status, deadline)) {
      return client::FromGrpc(status, channels.address(attempt), impl_->options().timeout);
    }
  }
}

}  // namespace slotwise
