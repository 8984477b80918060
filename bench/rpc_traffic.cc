#include "bench/rpc_traffic.h"

#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "bench/common_options.h"
#include "bench/workload.h"

namespace slotwise::bench {

TableOptions RpcTraffic::TableOf(std::string_view name, const Options& o) {
  TableOptions table;
  table.name = TableName(name);
  table.dim = o.dim;
  table.combiner = o.hot == 1 ? Combiner::kNone : Combiner::kSum;
  table.optimizer.learning_rate = 1;
  table.initializer.low = table.initializer.high = 0;
  table.initial_rows = o.rows;
  return table;
}

RpcTraffic::RpcTraffic(Client& client, std::string table, const Options& options, Device* device)
    : client_(client),
      table_(std::move(table)),
      options_(options),
      no_gradients_(std::size_t{bags()} * options.dim),
      streams_(options.in_flight),
      device_(device) {
  static_cast<void>(client_.DropTable(table_));
  Must(client_.CreateTable(TableOf(table_, options_)), "cannot make the table");
  if (options_.hot > 1) offsets_ = EvenOffsets(bags(), options_.hot);
  std::mt19937_64 random(options_.seed);
  for (Stream& stream : streams_) {
    stream.out.resize(std::size_t{bags()} * options_.dim);
    for (Batch& batch : stream.batches) {
      batch.rows = DrawRows(random);
      for (const std::uint32_t row : batch.rows) batch.keys.push_back(KeyOf(row));
    }
  }
  Fill();
  if (device_ == nullptr) return;
  const std::vector<std::string> gpus = client_.Gpus();
  Must(!gpus.empty(), "the server shares no memory of a device that this process has");
  gpu_.name = gpus.front();
  if (!offsets_.empty()) offsets_there_ = std::make_unique<OnDevice<std::uint32_t>>(*device_, offsets_);
  no_gradients_there_ = std::make_unique<OnDevice<float>>(*device_, no_gradients_);
  for (Stream& stream : streams_) {
    for (Batch& batch : stream.batches)
      batch.keys_there = std::make_unique<OnDevice<Key>>(*device_, batch.keys);
  }
}

RpcTraffic::~RpcTraffic() { static_cast<void>(client_.DropTable(table_)); }

std::vector<std::uint32_t> RpcTraffic::DrawRows(std::mt19937_64& random) const {
  std::vector<std::uint32_t> rows(options_.request);
  for (std::uint32_t& row : rows) row = static_cast<std::uint32_t>(random() % options_.rows);
  const auto repeated = static_cast<std::size_t>(options_.duplicates * options_.request);
  if (repeated == 0) return rows;
  // Consecutive rows have distinct keys.
  const std::size_t distinct = std::max<std::size_t>(1, rows.size() - repeated);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    rows[i] = i < distinct ? (rows[i - 1] + 1) % options_.rows : rows[random() % distinct];
  }
  std::ranges::shuffle(rows, random);
  return rows;
}

// Rows begin as zeros and have learning rate 1, so each becomes the negative of its gradient.
void RpcTraffic::Fill() {
  std::vector<Key> keys(options_.rows);
  std::vector<float> gradients(std::size_t{options_.rows} * options_.dim);
  for (std::uint32_t row = 0; row < options_.rows; ++row) {
    keys[row] = KeyOf(row);
    for (std::uint32_t e = 0; e < options_.dim; ++e) {
      gradients[std::size_t{row} * options_.dim + e] = -ValueOf(row, e);
    }
  }
  const std::vector<std::uint32_t> offsets =
      options_.hot > 1 ? EvenOffsets(keys.size(), 1) : std::vector<std::uint32_t>();
  Must(client_.Push(table_, {keys, offsets}, gradients), "cannot fill the table");
}

std::vector<const std::vector<Key>*> RpcTraffic::batches() const {
  std::vector<const std::vector<Key>*> all;
  for (const Stream& stream : streams_) {
    for (const Batch& batch : stream.batches) all.push_back(&batch.keys);
  }
  return all;
}

void RpcTraffic::Run(std::uint32_t requests, bool pushes) {
  {
    const std::lock_guard lock(mutex_);
    to_send_ = requests;
    to_answer_ = requests;
    pushes_ = pushes;
  }
  for (Stream& stream : streams_) Send(stream);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return to_answer_ == 0; });
  Must(failure_.ok(), "a call: " + failure_.message());
}

void RpcTraffic::Check() {
  LookUp(options_.in_flight);
  for (Stream& stream : streams_) {
    if (stream.there.values == nullptr) continue;
    device_->Download(stream.out.data(), stream.there.values.get(), stream.out.size() * sizeof(float));
  }
  Must(std::ranges::all_of(streams_, [this](const Stream& stream) { return IsRight(stream); }),
       "wrong result: a row is not what was pushed");
}

bool RpcTraffic::IsRight(const Stream& stream) const {
  if (stream.looked_up == nullptr) return true;
  const std::vector<std::uint32_t>& rows = stream.looked_up->rows;
  for (std::size_t bag = 0; bag < bags(); ++bag) {
    for (std::uint32_t e = 0; e < options_.dim; ++e) {
      float sum = 0;
      for (std::uint32_t k = 0; k < options_.hot; ++k) sum += ValueOf(rows[bag * options_.hot + k], e);
      if (stream.out[bag * options_.dim + e] != sum) return false;
    }
  }
  return true;
}

void RpcTraffic::Send(Stream& stream) {
  {
    const std::lock_guard lock(mutex_);
    if (to_send_ == 0) return;
    --to_send_;
  }
  const Batch& batch = stream.batches[stream.turns++ % stream.batches.size()];
  if (device_ != nullptr) return SendOnDevice(stream, batch);
  if (pushes_) {
    const TablePush push{table_, {batch.keys, offsets_}, no_gradients_};
    client_.PushAsync({&push, 1}, std::nullopt,
                      [this, &stream](const Result<std::vector<std::uint64_t>>& steps) {
                        Answered(stream, steps.status());
                      });
  } else {
    stream.looked_up = &batch;
    const TableLookup lookup{table_, {batch.keys, offsets_}, stream.out};
    client_.LookupAsync({&lookup, 1}, LookupMode::kEval,
                        [this, &stream](const Status& status) { Answered(stream, status); });
  }
}

void RpcTraffic::SendOnDevice(Stream& stream, const Batch& batch) {
  const BatchView view{batch.keys_there->span(),
                       offsets_there_ ? offsets_there_->span() : std::span<std::uint32_t>()};
  if (pushes_) {
    const GpuPush push{.table = table_, .batch = view, .gradients = no_gradients_there_->data()};
    client_.PushOnGpuAsync({&push, 1}, std::nullopt, gpu_,
                           [this, &stream](const Result<std::vector<std::uint64_t>>& steps) {
                             Answered(stream, steps.status());
                           });
    return;
  }
  stream.looked_up = &batch;
  stream.there = {};
  const GpuLookup lookup{.table = table_, .batch = view};
  client_.LookupOnGpuAsync({&lookup, 1}, LookupMode::kEval, gpu_,
                           [this, &stream](Result<std::vector<GpuRows>> rows) {
                             if (rows.ok()) stream.there = std::move(rows->front());
                             Answered(stream, rows.status());
                           });
}

void RpcTraffic::Answered(Stream& stream, const Status& status) {
  {
    const std::lock_guard lock(mutex_);
    if (!status.ok()) failure_ = status;
  }
  Send(stream);
  // This must come last, because Run may return after it.
  const std::lock_guard lock(mutex_);
  if (--to_answer_ == 0) changed_.notify_all();
}

}  // namespace slotwise::bench
