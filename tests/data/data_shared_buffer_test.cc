// Tests the data transport with memory that a client on the server's host shares with the server.
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "server/data/data_server.h"
#include "tests/data/data_server_fixture.h"
#include "wire/shared_memory.h"
#include "wire/status_code.h"

namespace slotwise {
namespace {

using test::DataClient;
using test::MetClient;
using test::SharedBufferClient;

constexpr std::uint64_t kMib = std::uint64_t{1} << 20;

class DataSharedBufferTest : public DataServerTest {
 protected:
  void OpenLocally(RpcOptions options = {}) {
    static int servers = 0;
    local_ = options.local = "slotwise-test-" + std::to_string(getpid()) + "-" + std::to_string(servers++);
    OpenWithAds(options);
  }

  // Brings a call's body to a place of the shared buffer, and asks for values at another.
  static v1::DataCall Placed(Call call, const SharedMemory& shared_buffer, std::uint64_t body_at,
                             std::uint64_t values_at = 4096, std::uint64_t values_bytes = 1024) {
    v1::Allocations& places = *call.first.mutable_allocations();
    places.set_body(body_at);
    places.set_body_bytes(call.second.size());
    places.set_values(values_at);
    places.set_values_bytes(values_bytes);
    std::memcpy(shared_buffer.bytes().data() + body_at, call.second.data(), call.second.size());
    return call.first;
  }

  // The push of another step, whose body lies at 64 of the shared buffer.
  static v1::DataCall AtStep(std::uint64_t number, const Call& push) {
    v1::DataCall call = push.first;
    call.set_id(number);
    call.mutable_pushes(0)->mutable_step()->set_number(number);
    call.mutable_allocations()->set_body(64);
    call.mutable_allocations()->set_body_bytes(push.second.size());
    return call;
  }

  // Waits until the server has the shared buffer no more.
  static void AwaitEnd(const SharedMemory& shared_buffer) {
    while (shared_buffer.alive()) poll(nullptr, 0, 1);
  }

  std::string local_;
};

// Of both kinds of memory: the host's, and the device's, which is the host's here.
class AnySharedBufferTest : public DataSharedBufferTest, public ::testing::WithParamInterface<bool> {};
INSTANTIATE_TEST_SUITE_P(OfEitherMemory, AnySharedBufferTest, ::testing::Bool(),
                         [](const auto& of) { return std::string(of.param ? "Device" : "Host"); });

TEST_P(AnySharedBufferTest, AnswersAsGrpcDoes) {
  OpenLocally();
  SharedBufferClient client(local_, 2, GetParam());
  ASSERT_EQ(client.shared_buffer->bytes().size(), 2 * kMib);
  const auto pushed = client.Ask(Placed(Push(1, WholePush(1)), *client.shared_buffer, 64));
  ASSERT_EQ(pushed.head.code(), 0U) << pushed.head.message();
  EXPECT_EQ(pushed.head.pushes(0).table_step(), 1U);

  auto reply = client.Ask(Placed(Lookup(2), *client.shared_buffer, 64));
  EXPECT_TRUE(reply.head.in_shared_buffer());
  EXPECT_TRUE(reply.body.empty());
  reply.body.assign(reinterpret_cast<const char*>(client.shared_buffer->bytes().data()) + 4096, 1024);
  ExpectSameAsByGrpc(reply);

  v1::PushReply again;
  ASSERT_TRUE(Ask(embedding_, &Embedding::Push, WholePush(1), &again).ok());
  EXPECT_EQ(again.SerializeAsString(), pushed.head.pushes(0).SerializeAsString());
}

TEST_P(AnySharedBufferTest, AnswersCallsOfSeveralMessages) {
  OpenLocally();
  SharedBufferClient client(local_, 1, GetParam());
  Call call;
  call.first.set_id(7);
  call.first.set_timeout_ms(kMinuteMs);
  call.first.set_many(true);
  for (int i = 0; i < 3; ++i) {
    v1::LookupRequest message = SmallLookup();
    MoveArrays(message, call.first, call.second);
    *call.first.add_lookups() = message;
  }
  auto reply = client.Ask(Placed(call, *client.shared_buffer, 8192));
  ASSERT_TRUE(reply.head.in_shared_buffer());
  reply.body.assign(reinterpret_cast<const char*>(client.shared_buffer->bytes().data()) + 4096, 1024);
  for (int i = 0; i < 3; ++i) ExpectSameAsByGrpc(reply, i);
}

// 48 bytes of values have 64 in a body.
TEST_F(DataSharedBufferTest, SendsValuesForWhichThereIsNoRoomByTheSocket) {
  OpenLocally();
  SharedBufferClient client(local_, 1);
  for (const std::uint64_t room : {0, 63}) {
    const auto reply = client.Ask(Placed(Lookup(1), *client.shared_buffer, 64, 4096, room));
    EXPECT_FALSE(reply.head.in_shared_buffer());
    ExpectSameAsByGrpc(reply);
  }
  EXPECT_TRUE(client.Ask(Placed(Lookup(1), *client.shared_buffer, 64, 4096, 64)).head.in_shared_buffer());

  // And a body may come by the socket, beside a shared buffer.
  ExpectSameAsByGrpc(client.Ask(Lookup(2)));
}

TEST_P(AnySharedBufferTest, EndsConnectionsThatLieAboutPlaces) {
  OpenLocally({.max_message_bytes = kMib / 2});
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  using Lie = std::function<void(v1::Allocations&)>;
  const std::vector<std::pair<const char*, Lie>> lies{
      {"a body at the word before all places", [](auto& places) { places.set_body(0); }},
      {"a body that is not aligned", [](auto& places) { places.set_body(65); }},
      {"a body beyond the shared buffer", [](auto& places) { places.set_body(2 * kMib); }},
      {"a body that begins in the shared buffer alone", [](auto& places) { places.set_body(kMib - 64); }},
      {"a body whose end is beyond 2^64", [](auto& places) { places.set_body(kMost - 63); }},
      {"a body of other bytes than its arrays'", [](auto& places) { places.set_body_bytes(64); }},
      {"more bytes than a message's", [](auto& places) { places.set_body_bytes(kMib / 2 + 64); }},
      {"2^64 bytes", [](auto& places) { places.set_body_bytes(kMost); }},
      {"values at the word before all places", [](auto& places) { places.set_values(0); }},
      {"values that are not aligned", [](auto& places) { places.set_values(4097); }},
      {"values beyond the shared buffer", [](auto& places) { places.set_values_bytes(kMib); }},
      {"2^64 bytes of values", [](auto& places) { places.set_values_bytes(kMost); }},
  };
  for (const auto& [what, lie] : lies) {
    SharedBufferClient client(local_, 1, GetParam());
    v1::DataCall call = Placed(Lookup(1), *client.shared_buffer, 64);
    lie(*call.mutable_allocations());
    ASSERT_TRUE(client.Send(call, {})) << what;
    EXPECT_TRUE(client.Ended()) << what;
  }
  {
    SharedBufferClient client(local_, 1, GetParam());
    const Call twice = Lookup(1);
    ASSERT_TRUE(client.Send(Placed(twice, *client.shared_buffer, 64), twice.second));
    EXPECT_TRUE(client.Ended()) << "a body in the shared buffer and in the frame";
  }
  for (const bool local : {false, true}) {
    const auto client =
        local ? std::make_unique<DataClient>(local_) : std::make_unique<DataClient>(server_->port());
    client->Meet();
    Call call = Lookup(1);
    call.first.mutable_allocations()->set_body_bytes(call.second.size());
    ASSERT_TRUE(client->Send(call.first, {}));
    EXPECT_TRUE(client->Ended()) << "places in no shared buffer";
  }
  DataClient tcp(server_->port());
  ASSERT_TRUE(tcp.Greet(kDataVersion, {1}));
  EXPECT_TRUE(tcp.Ended()) << "a shared buffer by TCP";
  DataClient neither(local_);
  ASSERT_TRUE(neither.SendBytes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 24));
  EXPECT_TRUE(neither.Ended()) << "gRPC by the Unix socket";
  DataClient next(local_);
  EXPECT_NE(next.MeetWithSharedBuffer(1, GetParam()), nullptr);
}

TEST_F(DataSharedBufferTest, SharesNoMoreThanItsMemoryAndTakesItBackFromClientsThatAreGone) {
  OpenLocally({.max_shared_bytes = 17 * kMib});
  DataClient first(local_);
  const auto most = first.MeetWithSharedBuffer(kMostSharedBufferMib);
  ASSERT_NE(most, nullptr);
  EXPECT_EQ(most->bytes().size(), 2 * kMib) << "no one gets more than an eighth";
  std::vector<std::unique_ptr<DataClient>> others;
  for (int i = 0; i < 7; ++i) {
    others.push_back(std::make_unique<DataClient>(local_));
    ASSERT_NE(others.back()->MeetWithSharedBuffer(2), nullptr);
  }
  DataClient second(local_);
  const auto less = second.MeetWithSharedBuffer(2);
  ASSERT_NE(less, nullptr) << "a part of what it asks for";
  EXPECT_EQ(less->bytes().size(), kMib);
  DataClient third(local_);
  EXPECT_EQ(third.MeetWithSharedBuffer(1), nullptr);
  ExpectSameAsByGrpc(third.Ask(Lookup(1)));  // who shares nothing is served all the same

  // Its client keeps the memory and goes.
  std::memset(most->bytes().data() + 64, 1, most->bytes().size() - 64);
  first.Close();
  AwaitEnd(*most);
  struct stat file {};
  do {
    ASSERT_EQ(fstat(most->descriptor(), &file), 0);
  } while (file.st_blocks > 8);  // of a page
  std::shared_ptr<SharedMemory> again;
  // The charge ends behind the memory.
  while (again == nullptr || again->bytes().size() < 2 * kMib) {
    DataClient other(local_);
    again = other.MeetWithSharedBuffer(2);
  }
}

TEST_F(DataSharedBufferTest, GivesNoClientMoreThanAQuarterOfTheDevicesMemory) {
  OpenLocally({.max_device_shared_bytes = 9 * kMib});
  std::vector<std::unique_ptr<DataClient>> clients;
  for (const std::uint64_t mib : {2, 2, 2, 2, 1, 0}) {
    clients.push_back(std::make_unique<DataClient>(local_));
    const auto shared_buffer = clients.back()->MeetWithSharedBuffer(kMostSharedBufferMib, true);
    ASSERT_EQ(shared_buffer != nullptr, mib > 0);
    if (shared_buffer) {
      EXPECT_EQ(shared_buffer->bytes().size(), mib * kMib);
    }
  }
  DataClient another(local_);
  EXPECT_NE(another.MeetWithSharedBuffer(1), nullptr) << "the host's memory counts for itself";
}

TEST_F(DataSharedBufferTest, HasNoOtherPlaceForValuesThanTheDevices) {
  OpenLocally();
  SharedBufferClient client(local_, 1, true);
  const auto refused = client.Ask(Placed(Lookup(1), *client.shared_buffer, 64, 4096, 63));
  EXPECT_EQ(refused.head.code(), 3U) << "INVALID_ARGUMENT";
  EXPECT_EQ(refused.head.message(), "the call's place for values has 63 bytes, and they take 64");
  EXPECT_TRUE(client.Ask(Placed(Lookup(2), *client.shared_buffer, 64, 4096, 64)).head.in_shared_buffer());
}

// A call's arrays, of which `change` may be wrong, in the device's memory.
TEST_F(DataSharedBufferTest, RefusesWhatIsWrongOnADeviceInTheSameWords) {
  OpenLocally();
  SharedBufferClient on_device(local_, 1, true);
  MetClient by_socket(server_->port());
  using Change = std::function<void(v1::PushRequest&)>;
  const auto set = [](std::string& bytes, std::size_t at, auto value) {
    std::memcpy(bytes.data() + at * sizeof(value), &value, sizeof(value));
  };
  const std::vector<Change> changes{
      [](v1::PushRequest&) {},
      [](v1::PushRequest& push) { push.set_table("none"); },
      [](v1::PushRequest& push) { push.mutable_keys()->pop_back(); },
      [](v1::PushRequest& push) { push.mutable_keys()->resize(push.keys().size() - 8); },
      [](v1::PushRequest& push) { push.mutable_offsets()->pop_back(); },
      [](v1::PushRequest& push) { push.mutable_offsets()->resize(push.offsets().size() - 4); },
      [](v1::PushRequest& push) { push.clear_offsets(); },
      [&](v1::PushRequest& push) { set(*push.mutable_offsets(), 0, std::uint32_t{1}); },
      [&](v1::PushRequest& push) { set(*push.mutable_offsets(), 1, ~std::uint32_t{0}); },
      [](v1::PushRequest& push) { push.set_weights(std::string(push.keys().size() / 2 + 4, 0)); },
      [&](v1::PushRequest& push) {
        push.set_weights(std::string(push.keys().size() / 2, 0));
        set(*push.mutable_weights(), 1, std::numeric_limits<float>::infinity());
      },
      [](v1::PushRequest& push) { push.mutable_gradients()->pop_back(); },
      [&](v1::PushRequest& push) { set(*push.mutable_gradients(), 2, std::nanf("")); },
      [](v1::PushRequest& push) { push.set_data_type(v1::DATA_TYPE_BFLOAT16); },
      [](v1::PushRequest& push) { push.set_data_type(static_cast<v1::DataType>(9)); },
      [](v1::PushRequest& push) { push.set_samples(push.samples() + 1); },
      [](v1::PushRequest& push) { push.clear_step(); },
  };
  for (std::size_t i = 0; i < changes.size(); ++i) {
    SCOPED_TRACE("change " + std::to_string(i));
    v1::PushRequest push = WholePush(100 + i);
    changes[i](push);
    const Call call = Push(1 + i, push);
    const auto there = on_device.Ask(Placed(call, *on_device.shared_buffer, 64));
    const auto here = by_socket.Ask(call);
    EXPECT_EQ(there.head.code(), here.head.code());
    EXPECT_EQ(there.head.message(), here.head.message());
    // The same step came twice, and was applied once: its body has the same hash, computed there or here.
    const bool is_right = i == 0 || i == 6;  // of one key a bag, as the offsets have it
    EXPECT_EQ(there.head.code() == 0, is_right) << there.head.message();
  }
}

TEST_F(DataSharedBufferTest, TakesOffsetsOf64BitsOnADeviceAlone) {
  OpenLocally();
  const auto widen = [](Call& call) {
    v1::DataArrays& arrays = *call.first.mutable_arrays(0);
    const std::uint64_t before = PaddedBytes(arrays.keys()) + PaddedBytes(arrays.gradients());
    std::vector<std::uint32_t> narrow(arrays.offsets() / 4);
    std::memcpy(narrow.data(), call.second.data() + before, arrays.offsets());
    const std::vector<std::int64_t> wide(narrow.begin(), narrow.end());
    std::string bytes(PaddedBytes(8 * wide.size()), 0);
    std::memcpy(bytes.data(), wide.data(), 8 * wide.size());
    call.second =
        call.second.substr(0, before) + bytes + call.second.substr(before + PaddedBytes(arrays.offsets()));
    arrays.set_offsets(8 * wide.size());
    arrays.set_wide_offsets(true);
  };
  SharedBufferClient client(local_, 1, true);
  Call narrow = Push(1, WholePush(1));
  Call wide = Push(2, WholePush(1));
  ASSERT_GT(narrow.first.arrays(0).offsets(), 0U);
  widen(wide);
  const auto first = client.Ask(Placed(narrow, *client.shared_buffer, 64));
  EXPECT_EQ(first.head.code(), 0U) << first.head.message();
  const auto again = client.Ask(Placed(wide, *client.shared_buffer, 64));
  EXPECT_EQ(again.head.code(), 0U) << "the same body of the same step: " << again.head.message();
  EXPECT_EQ(again.head.pushes(0).table_step(), first.head.pushes(0).table_step());
  wide.first.mutable_arrays(0)->set_offsets(wide.first.arrays(0).offsets() - 4);
  const auto half = client.Ask(Placed(wide, *client.shared_buffer, 64));
  EXPECT_EQ(half.head.message(),
            "offsets has " + std::to_string(wide.first.arrays(0).offsets()) + " bytes, not a multiple of 8");
  MetClient by_socket(server_->port());
  Call sent = Push(3, WholePush(3));
  widen(sent);
  by_socket.Send(sent.first, sent.second);
  EXPECT_TRUE(by_socket.Ended()) << "wide offsets by a socket";
}

// Its client goes while calls are under way, and while the engine still writes their values.
TEST_P(AnySharedBufferTest, OutlivesClientsThatGoInTheMiddleOfCalls) {
  OpenLocally();
  std::vector<std::shared_ptr<SharedMemory>> shared_buffers;
  for (int i = 0; i < 40; ++i) {
    DataClient client(local_);
    shared_buffers.push_back(client.MeetWithSharedBuffer(1, GetParam()));
    ASSERT_NE(shared_buffers.back(), nullptr);
    for (std::uint64_t id = 1; id <= 8; ++id) {
      ASSERT_TRUE(client.Send(Placed(Lookup(id), *shared_buffers.back(), 64), {}));
    }
    v1::DataCall cut = Placed(Push(9, WholePush(1)), *shared_buffers.back(), 64);
    const std::string frame = test::FrameOf(cut.SerializeAsString(), {});
    ASSERT_TRUE(client.SendBytes(frame.data(), frame.size() / 2));
  }
  if (!GetParam()) {  // memory of a device is not taken back
    for (const auto& shared_buffer : shared_buffers) AwaitEnd(*shared_buffer);
  }
  EXPECT_EQ(ByGrpc().values(), std::string(48, 0)) << "no cut push was applied";
}

// What is applied is what was checked: a client rewrites its shared buffer at every moment, with numbers that
// are finite and numbers that are not, with offsets that are right and wrong.
TEST_P(AnySharedBufferTest, AppliesOnlyWhatItHasChecked) {
  constexpr std::uint64_t kSeed = 7;
  RecordProperty("seed", static_cast<int>(kSeed));
  OpenLocally();
  SharedBufferClient client(local_, 1, GetParam());
  const Call good = Push(1, WholePush(1));
  ASSERT_EQ(good.second.size(), 192U);  // keys, gradients, offsets: 64 bytes of each
  std::atomic<bool> over = false;
  std::thread writer([&] {
    std::mt19937_64 random(kSeed);
    std::byte* const at = client.shared_buffer->bytes().data() + 64;
    while (!over) {
      const std::uint64_t what = random();
      if (what % 4 == 0) {
        std::memcpy(at, good.second.data(), good.second.size());
      } else if (what % 4 == 1) {
        const float wrong = std::numeric_limits<float>::quiet_NaN();
        std::memcpy(at + 64 + (what >> 8) % 12 * 4, &wrong, sizeof(wrong));
      } else if (what % 4 == 2) {
        const std::uint32_t wrong = static_cast<std::uint32_t>(what >> 32);
        std::memcpy(at + 128 + (what >> 8) % 5 * 4, &wrong, sizeof(wrong));
      } else {
        const float other = -1;
        std::memcpy(at + 64 + (what >> 8) % 12 * 4, &other, sizeof(other));
      }
    }
  });
  std::uint64_t applied = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t number = 1; number < 100'000 && (applied < 200 || refused < 200); ++number) {
    const auto reply = client.Ask(AtStep(number, good));
    ++(reply.head.code() == 0 ? applied : refused);
    if (reply.head.code() != 0) {
      ASSERT_EQ(reply.head.code(), WireCode(StatusCode::kInvalidArgument)) << reply.head.message();
    }
  }
  over = true;
  writer.join();
  EXPECT_GE(applied, 200U);
  EXPECT_GE(refused, 200U);
  const std::string values = ByGrpc().values();
  for (std::size_t i = 0; i < values.size() / sizeof(float); ++i) {
    float value = 0;
    std::memcpy(&value, values.data() + i * sizeof(float), sizeof(value));
    EXPECT_TRUE(std::isfinite(value)) << "element " << i;
  }
}

// A large push is applied long after it was checked: what its client writes by then is not applied.
TEST_P(AnySharedBufferTest, AppliesALargePushAsItWasChecked) {
  OpenLocally();
  SharedBufferClient client(local_, 4, GetParam());
  constexpr std::uint32_t kSamples = 20'000;  // of two bags of a key, of dim 3
  std::vector<std::uint64_t> keys(2 * kSamples);
  for (std::size_t i = 0; i < keys.size(); ++i) keys[i] = i;
  v1::PushRequest push = WholePush(1);
  push.set_samples(kSamples);
  push.set_keys(BytesOf(keys));
  push.clear_offsets();
  push.set_gradients(BytesOf(std::vector<float>(6 * kSamples, 1)));
  const Call good = Push(1, push);
  std::memcpy(client.shared_buffer->bytes().data() + 64, good.second.data(), good.second.size());
  float* const last = reinterpret_cast<float*>(client.shared_buffer->bytes().data() + 64 + keys.size() * 8) +
                      6 * std::size_t{kSamples} - 1;
  std::atomic<bool> over = false;
  std::thread writer([&] {
    const std::atomic_ref<float> number(*last);
    while (!over) {
      for (const float value : {std::numeric_limits<float>::infinity(), 1.0F}) {
        number = value;
        const auto end = std::chrono::steady_clock::now() + std::chrono::microseconds(300);
        while (std::chrono::steady_clock::now() < end) continue;
      }
    }
  });
  std::uint64_t applied = 0;
  std::uint64_t refused = 0;
  for (std::uint64_t number = 1; number < 100'000 && applied < 100; ++number) {
    EXPECT_TRUE(client.Send(AtStep(number, good), {}));
    const auto reply = client.Receive();
    if (!reply) break;
    ++(reply->head.code() == 0 ? applied : refused);
  }
  over = true;
  writer.join();
  EXPECT_EQ(applied, 100U);
  EXPECT_GT(refused, 0U);
  // The number was 1 in all that was applied: so its row has moved as far as the others' numbers.
  v1::LookupRequest lookup = SmallLookup();
  lookup.set_samples(1);
  lookup.set_keys(BytesOf<std::uint64_t>({keys.back(), keys.back()}));
  lookup.set_offsets(BytesOf<std::uint32_t>({0, 1, 2}));
  const std::string values = ByGrpc(lookup).values();
  ASSERT_EQ(values.size(), 6 * sizeof(float));
  std::array<float, 3> row{};
  std::memcpy(row.data(), values.data(), sizeof(row));
  EXPECT_NEAR(row[2], row[0], 0.1F) << "rows begin within 0.05 of 0";
}

}  // namespace
}  // namespace slotwise
