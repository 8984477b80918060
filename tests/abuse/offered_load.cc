// Offers lookups to a server, repeats none of them, and counts the server's answers.
//
// Usage: offered_load ADDRESS best|grpc TABLE CONNECTIONS SAMPLES BAG KEYS RATE AT_ONCE
//            PAUSE_US TIMEOUT_MS SECONDS
//
// A lookup has SAMPLES bags of BAG keys below KEYS, of a table of one slot. If RATE is above 0, so many
// lookups a second are sent, whatever their answers. If RATE is 0, AT_ONCE are in flight, and each answer is
// followed by the next lookup; with AT_ONCE 1, PAUSE_US later. For each second the program writes a line of
// JSON: the lookups that ended, by code, or as STUCK; `without_hint`, the number of RESOURCE_EXHAUSTED
// without a time to try again; the server's hints in ms; and the times of the answered lookups in ms.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "client/cpp/channels.h"
#include "client/cpp/messages.h"
#include "client/cpp/run.h"
#include "slotwise/v1/data.pb.h"
#include "slotwise/v1/embedding.pb.h"
#include "wire/frame_stream.h"

namespace slotwise {
namespace {

using std::chrono::steady_clock;

struct Options {
  std::string address;
  bool data = true;
  std::string table;
  int connections = 1;
  std::uint32_t samples = 1;
  std::uint32_t bag = 1;
  std::uint64_t keys = 1;
  double rate = 0;
  int at_once = 1;
  std::chrono::microseconds pause{0};
  std::chrono::milliseconds timeout{0};
  std::chrono::seconds time{0};
};

// The lookup, which is the same every time.
struct Lookup {
  explicit Lookup(const Options& options) {
    message.set_table(options.table);
    message.set_mode(v1::LOOKUP_MODE_EVAL);
    message.set_samples(options.samples);
    // Keys that neighbours do not share: multiples of a prime.
    constexpr std::uint64_t kStep = 2'654'435'761;
    for (std::uint64_t i = 0; i < std::uint64_t{options.samples} * options.bag; ++i) {
      keys.push_back(i * kStep % options.keys);
    }
    for (std::uint32_t i = 0; i <= options.samples; ++i) offsets.push_back(i * options.bag);
    v1::LookupRequest whole = message;
    whole.set_keys(std::string(reinterpret_cast<const char*>(keys.data()), keys.size() * sizeof(keys[0])));
    whole.set_offsets(
        std::string(reinterpret_cast<const char*>(offsets.data()), offsets.size() * sizeof(offsets[0])));
    bytes = client::Serialize(whole);
  }

  v1::LookupRequest message;
  std::vector<std::uint64_t> keys;
  std::vector<std::uint32_t> offsets;
  grpc::ByteBuffer bytes;
};

// The values are not read. Those of a connection come one after the other, and lie in one place.
class Exchange final : public client::DataExchange {
 public:
  Exchange(const Lookup& lookup, std::vector<std::byte>& values) : lookup_(lookup), values_(values) {}

  std::string method() const override { return "/slotwise.v1.Embedding/Lookup"; }
  const grpc::ByteBuffer& Message() override { return lookup_.bytes; }
  Status ReadMessage(const grpc::ByteBuffer& /*reply*/) override { return {}; }
  void Write(v1::DataCall& call, Body& body) override {
    *call.add_lookups() = lookup_.message;
    v1::DataArrays& arrays = *call.add_arrays();
    const auto keys = std::as_bytes(std::span(lookup_.keys));
    const auto offsets = std::as_bytes(std::span(lookup_.offsets));
    arrays.set_keys(keys.size());
    arrays.set_offsets(offsets.size());
    AddArray(keys, body);
    AddArray(offsets, body);
  }
  Result<Room> MakeRoom(const v1::DataReply& reply) override {
    const std::uint64_t bytes = PaddedBytes(reply.value_bytes(0));
    if (values_.size() < bytes) values_.resize(bytes);
    return Room{std::span(values_).first(bytes)};
  }
  std::uint64_t ValueBytes() const override { return 0; }  // they go by sockets
  Status Read(const v1::DataReply&) override { return {}; }

 private:
  const Lookup& lookup_;
  std::vector<std::byte>& values_;
};

// Sends lookups, and counts. Thread-safety: safe from any thread.
class Load {
 public:
  explicit Load(const Options& options)
      : options_(options),
        lookup_(options),
        values_(static_cast<std::size_t>(options.connections)),
        channels_(*Access::Make({}), {{.address = options.address, .data = options.data}},
                  options.connections, 1, nullptr) {}

  void Run() {
    const auto begin = steady_clock::now();
    const auto end = begin + options_.time;
    if (options_.rate == 0) {
      for (int i = 0; i < options_.at_once; ++i) Send();
      if (options_.pause.count() > 0) return SendWithPauses(end);
    }
    auto report_at = begin + std::chrono::seconds(1);
    for (auto now = begin; now < end; now = steady_clock::now()) {
      if (now >= report_at) Report();
      if (now >= report_at) report_at += std::chrono::seconds(1);
      auto wake_at = std::min(report_at, end);
      if (options_.rate > 0) {
        const double due = options_.rate * std::chrono::duration<double>(now - begin).count();
        for (; static_cast<double>(sent_) < due; ++sent_) Send();
        wake_at = std::min(wake_at, now + std::chrono::milliseconds(2));
      }
      std::this_thread::sleep_until(wake_at);
    }
    ending_ = true;
    AwaitLast();
  }

 private:
  // REQUIRES: one lookup is under way, and all others begin here.
  void SendWithPauses(steady_clock::time_point end) {
    for (auto report_at = steady_clock::now() + std::chrono::seconds(1); steady_clock::now() < end; Send()) {
      {
        std::unique_lock lock(mutex_);
        ended_.wait(lock, [this] { return under_way_ == 0; });
      }
      if (steady_clock::now() >= report_at) {
        Report();
        report_at += std::chrono::seconds(1);
      }
      std::this_thread::sleep_for(options_.pause);
    }
    AwaitLast();
  }

  void AwaitLast() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return under_way_ == 0; });
    lock.unlock();
    Report();
  }

  void Send() {
    std::size_t channel = 0;
    {
      const std::lock_guard lock(mutex_);
      ++under_way_;
      channel = next_++ % values_.size();
    }
    const auto begin = steady_clock::now();
    std::vector<client::Request> requests;
    requests.push_back(
        {.exchange = std::make_shared<Exchange>(lookup_, values_[channel]), .channel = channel});
    const client::Call call{.timeout = options_.timeout,
                            .deadline = begin + options_.timeout,
                            .stop = {},
                            .retry_for = std::chrono::milliseconds(0)};
    std::make_shared<client::Run>(channels_, call, std::move(requests))
        ->Start([this, begin](const Status& status) { End(status, steady_clock::now() - begin); });
  }

  void End(const Status& status, std::chrono::duration<double, std::milli> took) {
    const bool next = options_.rate == 0 && options_.pause.count() == 0 && !ending_;
    if (next) Send();
    const std::lock_guard lock(mutex_);
    // What no server says: this program was not given the time to send what it had begun to send.
    const bool cut_off = status.message().find("that was given up were stuck") != std::string::npos;
    ++codes_[cut_off ? "STUCK" : std::string(ToString(status.code()))];
    if (status.ok()) took_.push_back(took.count());
    if (status.code() == StatusCode::kResourceExhausted) {
      const auto hint = status.retry_after().count();
      hint > 0 ? hints_.push_back(static_cast<double>(hint)) : void(++without_hint_);
    }
    const bool expected = status.ok() || cut_off || status.code() == StatusCode::kResourceExhausted ||
                          status.code() == StatusCode::kDeadlineExceeded;
    if (!expected) std::fprintf(stderr, "%s\n", status.message().c_str());
    if (--under_way_ == 0) ended_.notify_all();
  }

  static void Print(const char* name, const std::vector<double>& numbers) {
    std::printf(", \"%s\": [", name);
    for (std::size_t i = 0; i < numbers.size(); ++i) std::printf("%s%.3f", i > 0 ? ", " : "", numbers[i]);
    std::printf("]");
  }

  void Report() {
    const std::lock_guard lock(mutex_);
    std::printf("{\"codes\": {");
    for (const char* comma = ""; const auto& [code, count] : codes_) {
      std::printf("%s\"%s\": %d", std::exchange(comma, ", "), code.c_str(), count);
    }
    std::printf("}, \"without_hint\": %d", without_hint_);
    Print("hints", hints_);
    Print("took", took_);
    std::printf("}\n");
    std::fflush(stdout);
    codes_.clear();
    hints_.clear();
    took_.clear();
    without_hint_ = 0;
  }

  const Options options_;
  const Lookup lookup_;
  std::vector<std::vector<std::byte>> values_;
  std::uint64_t sent_ = 0;  // at the rate
  std::atomic<bool> ending_ = false;

  std::mutex mutex_;
  std::condition_variable ended_;
  // Guarded by mutex_:
  std::size_t next_ = 0;
  int under_way_ = 0;
  std::map<std::string, int> codes_;
  std::vector<double> hints_;
  std::vector<double> took_;
  int without_hint_ = 0;

  client::Channels channels_;  // last: its threads end first
};

}  // namespace
}  // namespace slotwise

int main(int argc, char** argv) {
  if (argc != 13) return 2;
  const auto number = [&](int i) { return std::strtoull(argv[i], nullptr, 10); };
  slotwise::Load({.address = argv[1],
                  .data = std::string_view(argv[2]) == "best",
                  .table = argv[3],
                  .connections = static_cast<int>(number(4)),
                  .samples = static_cast<std::uint32_t>(number(5)),
                  .bag = static_cast<std::uint32_t>(number(6)),
                  .keys = number(7),
                  .rate = std::strtod(argv[8], nullptr),
                  .at_once = static_cast<int>(number(9)),
                  .pause = std::chrono::microseconds(number(10)),
                  .timeout = std::chrono::milliseconds(number(11)),
                  .time = std::chrono::seconds(number(12))})
      .Run();
  return 0;
}
