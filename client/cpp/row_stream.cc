// RowStream: an export's replies as rows.
#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include "client/cpp/client_impl.h"
#include "client/cpp/export.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/rows.pb.h"
#include "wire/wire_reader.h"

namespace slotwise {
namespace {

using v1::ExportReply;

// The arrays of one reply.
struct OwnRows {
  std::vector<Key> keys;
  std::vector<float> values;
  std::vector<float> state;
};

// Reads a `bytes` field into a vector, and remembers how many bytes there were.
template <class T>
ArrayField IntoVector(int field, std::vector<T>& to, std::size_t& bytes) {
  return {field, [&to, &bytes](std::size_t size) -> void* {
            bytes = size;
            to.resize((size + sizeof(T) - 1) / sizeof(T));
            return to.data();
          }};
}

Status Read(const grpc::ByteBuffer& reply, OwnRows& rows) {
  rows = {};
  std::array<std::size_t, 3> bytes{};
  const std::array arrays{IntoVector(ExportReply::kKeysFieldNumber, rows.keys, bytes[0]),
                          IntoVector(ExportReply::kValuesFieldNumber, rows.values, bytes[1]),
                          IntoVector(ExportReply::kStateFieldNumber, rows.state, bytes[2])};
  ExportReply fields;
  if (Status status = ReadMessage(reply, arrays, fields); !status.ok()) {
    return {StatusCode::kInternal, status.message()};
  }
  const std::uint64_t count = rows.keys.size();
  if (bytes[0] == count * sizeof(Key) && bytes[1] == count * fields.dim() * sizeof(float) &&
      bytes[2] == count * fields.state_size() * sizeof(float)) {
    return {};
  }
  return {StatusCode::kInternal, "the reply is not a valid ExportReply: " + std::to_string(bytes[0]) +
                                     " bytes of keys, " + std::to_string(bytes[1]) + " of values and " +
                                     std::to_string(bytes[2]) + " of state"};
}

std::vector<Key> Unique(std::span<const Key> keys) {
  std::vector<Key> unique(keys.begin(), keys.end());
  std::ranges::sort(unique);
  unique.erase(std::ranges::unique(unique).begin(), unique.end());
  return unique;
}

}  // namespace

class RowStream::Impl {
 public:
  explicit Impl(std::shared_ptr<client::Export> rows) : rows_(std::move(rows)) {}
  ~Impl() { rows_->Cancel(Cancelled("nobody reads the export any more")); }
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  bool Wait(std::chrono::milliseconds most) { return rows_->Wait(std::chrono::steady_clock::now() + most); }

  Result<std::optional<RowsView>> Next() {
    const auto reply = rows_->Take();
    if (!reply.ok()) return reply.status();
    if (!*reply) return std::optional<RowsView>();
    if (Status status = Read(**reply, own_); !status.ok()) {
      rows_->Cancel(status);
      return status;
    }
    return std::optional(RowsView{.keys = own_.keys, .values = own_.values, .state = own_.state});
  }

 private:
  const std::shared_ptr<client::Export> rows_;
  OwnRows own_;
};

RowStream::RowStream(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
RowStream::~RowStream() = default;
RowStream::RowStream(RowStream&&) noexcept = default;
RowStream& RowStream::operator=(RowStream&&) noexcept = default;

Result<std::optional<RowsView>> RowStream::Next() { return impl_->Next(); }
bool RowStream::Wait(std::chrono::milliseconds most) { return impl_->Wait(most); }

Result<RowStream> Client::Export(std::string_view table, bool with_state,
                                 std::optional<std::span<const Key>> keys, const CallOptions& options) {
  v1::ExportRequest request;
  request.set_table(std::string(table));
  request.set_with_state(with_state);
  std::vector<grpc::ByteBuffer> requests;
  if (!keys) requests.push_back(client::Serialize(request));
  // A request without keys would mean all keys, so no keys make no request.
  const std::vector<Key> wanted = keys ? Unique(*keys) : std::vector<Key>();
  const std::size_t most = impl_->RowsAMessage(sizeof(Key));
  for (std::size_t first = 0; first < wanted.size(); first += most) {
    const auto some = std::span(wanted).subspan(first, std::min(most, wanted.size() - first));
    request.set_keys(std::string(reinterpret_cast<const char*>(some.data()), some.size_bytes()));
    requests.push_back(client::Serialize(request));
  }
  const client::Call call = impl_->Begin(options);
  const auto rows = std::make_shared<client::Export>(impl_->channels(), call, std::move(requests));
  if (Status status = impl_->Enter(rows, call.stop); !status.ok()) return status;
  const std::weak_ptr<client::Export> weak = rows;
  rows->Start([impl = impl_.get(), weak] { impl->Leave(weak.lock()); });
  return RowStream(std::make_unique<RowStream::Impl>(rows));
}

}  // namespace slotwise
