// RowStream: an export's replies as rows.
#include <algorithm>
#include <utility>
#include <vector>

#include "client/cpp/client_impl.h"
#include "client/cpp/export.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/rows.pb.h"

namespace slotwise {
namespace {

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
    if (Status status = client::ReadExportReply(**reply, own_); !status.ok()) {
      rows_->Cancel(status);
      return status;
    }
    if (lineage_ == 0) lineage_ = own_.lineage;
    if (own_.lineage != lineage_) {
      const Status replaced =
          DataLoss("a checkpoint was loaded while rows were read: those before are of another state")
              .Because(Reason::kStepsLost);
      rows_->Cancel(replaced);
      return replaced;
    }
    return std::optional(RowsView{.keys = own_.keys, .values = own_.values, .state = own_.state});
  }

 private:
  const std::shared_ptr<client::Export> rows_;
  client::ExportedRows own_;
  std::uint64_t lineage_ = 0;  // of the first reply
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
  // Every rank sends its own rows, so the export has to know all ranks of the server as it is now.
  if (const auto topology = Topology(options); !topology.ok()) return topology.status();
  const client::Call call = impl_->Begin(options);
  const auto rows = std::make_shared<client::Export>(impl_->channels(), call, std::move(requests));
  if (Status status = impl_->Enter(rows, call.stop); !status.ok()) return status;
  const std::weak_ptr<client::Export> weak = rows;
  rows->Start([impl = impl_.get(), weak] { impl->Leave(weak.lock()); });
  return RowStream(std::make_unique<RowStream::Impl>(rows));
}

}  // namespace slotwise
