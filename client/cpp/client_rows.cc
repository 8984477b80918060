// Implements erase and import by key: requests of about 1 MiB each, of which several are in flight at a time.
#include <algorithm>
#include <atomic>
#include <utility>

#include "client/cpp/client_impl.h"
#include "client/cpp/messages.h"
#include "slotwise/v1/rows.pb.h"

namespace slotwise {
namespace {

using client::Request;

// The number of messages to each rank that are in flight at once.
constexpr std::size_t kAtOnce = 4;

template <class T>
std::string BytesOf(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}

// Returns the floats per row if `rows` rows have `size` floats; INVALID_ARGUMENT if that is no whole number.
Result<std::size_t> FloatsARow(std::string_view array, std::size_t size, std::size_t rows) {
  if (rows == 0 ? size == 0 : size % rows == 0) return rows == 0 ? 0 : size / rows;
  return InvalidArgument(std::string(array) + " has " + std::to_string(size) + " floats for " +
                         std::to_string(rows) + " keys: must have as many for each");
}

// The rows of each key's last place, copied, if some key repeats.
struct OwnRows {
  std::vector<Key> keys;
  std::vector<float> values;
  std::vector<float> state;
};

// Returns the last place of each key, in order; nothing if no key repeats.
std::vector<std::size_t> LastPlaces(std::span<const Key> keys) {
  std::vector<std::pair<Key, std::size_t>> sorted;
  sorted.reserve(keys.size());
  for (std::size_t i = 0; i < keys.size(); ++i) sorted.emplace_back(keys[i], i);
  std::ranges::sort(sorted);
  std::vector<std::size_t> last;
  last.reserve(keys.size());
  for (std::size_t i = 0; i < sorted.size(); ++i) {
    if (i + 1 == sorted.size() || sorted[i].first != sorted[i + 1].first) last.push_back(sorted[i].second);
  }
  if (last.size() == keys.size()) return {};
  std::ranges::sort(last);
  return last;
}

// Adds to an error how many keys were done before it, if the call took several messages.
Status WithRowsDone(const Status& error, std::uint64_t rows, std::size_t count, const char* done) {
  return error.InWords(error.message() + "; of the " + std::to_string(count) +
                       " rows, which took several messages, " + std::to_string(rows) + " were " + done +
                       " before, and more may have been");
}

// Returns DATA_LOSS if a reply names another generation of the table than the replies before: a loaded
// checkpoint has replaced rows that were written.
class OneGeneration {
 public:
  template <class Reply>
  Status Check(const Reply& reply) {
    if constexpr (requires { reply.lineage(); }) {
      std::uint64_t first = 0;
      if (reply.lineage() == 0 || generation_.compare_exchange_strong(first, reply.lineage()) ||
          first == reply.lineage())
        return {};
      return DataLoss("a checkpoint was loaded while rows were written, and some of them are gone")
          .Because(Reason::kStepsLost);
    }
    return {};
  }

 private:
  std::atomic<std::uint64_t> generation_{0};
};

// Sends requests for `count` keys, at most `most` keys each and at least one request, to ranks in turn.
// `request(first, some)` returns the request for keys [first, first + some). Returns the sum of the rows in
// the replies. `done` is the word for finished rows in an error: "written".
template <class Reply, class ClientImpl, class MakeRequest>
Result<std::uint64_t> SendInPieces(ClientImpl& impl, const CallOptions& call, const char* method,
                                   std::size_t count, std::size_t most, const char* done,
                                   const MakeRequest& request) {
  std::atomic<std::uint64_t> rows{0};
  OneGeneration generation;
  const auto read = [&](const grpc::ByteBuffer& bytes) {
    Reply reply;
    if (Status status = client::Deserialize(bytes, reply); !status.ok()) return status;
    rows += reply.rows();
    return generation.Check(reply);
  };
  const std::size_t ranks = impl.channels().ranks();
  std::size_t first = 0;
  do {
    std::vector<Request> requests;
    do {
      const std::size_t some = std::min(most, count - first);
      requests.push_back({.exchange = std::make_shared<client::MessageExchange>(
                              method, client::Serialize(request(first, some)), read),
                          .rank = requests.size() % ranks,
                          .channel = requests.size() / ranks});
      first += some;
    } while (first < count && requests.size() < kAtOnce * ranks);
    const Status status = impl.runs().SendAndWait(impl.CallOf(call), std::move(requests));
    if (!status.ok()) return count <= most ? status : WithRowsDone(status, rows, count, done);
  } while (first < count);
  return rows.load();
}

}  // namespace

Result<std::uint64_t> Client::Erase(std::string_view table, std::span<const Key> keys,
                                    const CallOptions& call) {
  return SendInPieces<v1::EraseReply>(*impl_, call, "/slotwise.v1.Rows/Erase", keys.size(),
                                      impl_->RowsAMessage(sizeof(Key)), "erased",
                                      [&](std::size_t first, std::size_t some) {
                                        v1::EraseRequest request;
                                        request.set_table(std::string(table));
                                        request.set_keys(BytesOf(keys.subspan(first, some)));
                                        return request;
                                      });
}

Result<std::uint64_t> Client::Import(std::string_view table, const RowsView& all, std::uint64_t table_steps,
                                     const CallOptions& call) {
  const auto dim = FloatsARow("values", all.values.size(), all.keys.size());
  if (!dim.ok()) return dim.status();
  const auto state_size = FloatsARow("state", all.state.size(), all.keys.size());
  if (!state_size.ok()) return state_size.status();

  // Messages to several ranks are applied in any order, so a key must be in one message only.
  RowsView rows = all;
  OwnRows own;
  for (const std::size_t place : LastPlaces(all.keys)) {
    const auto append = [place](auto from, std::size_t each, auto& to) {
      const auto row = from.subspan(place * each, each);
      to.insert(to.end(), row.begin(), row.end());
    };
    append(all.keys, 1, own.keys);
    append(all.values, *dim, own.values);
    append(all.state, *state_size, own.state);
  }
  if (!own.keys.empty()) rows = {.keys = own.keys, .values = own.values, .state = own.state};

  const std::size_t row_bytes = sizeof(Key) + sizeof(float) * (*dim + *state_size);
  // A stream of one message looks like a unary call on the wire, and can be sent again like one.
  return SendInPieces<v1::ImportReply>(
      *impl_, call, "/slotwise.v1.Rows/Import", rows.keys.size(), impl_->RowsAMessage(row_bytes), "written",
      [&](std::size_t first, std::size_t some) {
        v1::ImportRequest request;
        request.set_table(std::string(table));
        request.set_table_steps(table_steps);
        request.set_keys(BytesOf(rows.keys.subspan(first, some)));
        request.set_values(BytesOf(rows.values.subspan(first * *dim, some * *dim)));
        request.set_state(BytesOf(rows.state.subspan(first * *state_size, some * *state_size)));
        return request;
      });
}

}  // namespace slotwise
