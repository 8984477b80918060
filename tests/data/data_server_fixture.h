// DataServerTest: a server of one rank, called over the data transport and, for comparison, by gRPC.
// Thread-safety: one thread.
#ifndef SLOTWISE_TESTS_DATA_DATA_SERVER_FIXTURE_H_
#define SLOTWISE_TESTS_DATA_DATA_SERVER_FIXTURE_H_

#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include "tests/data/data_client.h"
#include "tests/rpc/rpc_server_fixture.h"

namespace slotwise {

class DataServerTest : public RpcServerTest {
 protected:
  static constexpr std::uint32_t kMinuteMs = 60'000;

  // Moves a message's arrays into a call's body.
  template <class Message>
  static void MoveArrays(Message& message, v1::DataCall& call, std::string& body) {
    v1::DataArrays& bytes = *call.add_arrays();
    const auto add = [&](const std::string& array) {
      body += array;
      body.append(PaddedBytes(array.size()) - array.size(), 0);
      return array.size();
    };
    bytes.set_keys(add(message.keys()));
    if constexpr (requires { message.gradients(); }) {
      bytes.set_gradients(add(message.gradients()));
      message.clear_gradients();
    }
    bytes.set_offsets(add(message.offsets()));
    bytes.set_weights(add(message.weights()));
    message.clear_keys();
    message.clear_offsets();
    message.clear_weights();
  }

  using Call = std::pair<v1::DataCall, std::string>;
  template <class Message>
  static Call CallOf(std::uint64_t id, Message message, Message* (v1::DataCall::*add)()) {
    Call call;
    call.first.set_id(id);
    call.first.set_timeout_ms(kMinuteMs);
    MoveArrays(message, call.first, call.second);
    *(call.first.*add)() = message;
    return call;
  }
  static Call Lookup(std::uint64_t id, v1::LookupRequest message = SmallLookup()) {
    return CallOf(id, std::move(message), &v1::DataCall::add_lookups);
  }
  static Call Push(std::uint64_t id, v1::PushRequest message) {
    return CallOf(id, std::move(message), &v1::DataCall::add_pushes);
  }

  // Returns gRPC's answer to the same lookup.
  v1::LookupReply ByGrpc(const v1::LookupRequest& request = SmallLookup()) {
    v1::LookupReply reply;
    EXPECT_TRUE(Ask(embedding_, &Embedding::Lookup, request, &reply).ok());
    return reply;
  }
  void ExpectSameAsByGrpc(const test::DataClient::Reply& reply, int place = 0) {
    const v1::LookupReply expected = ByGrpc();
    v1::LookupReply fields = expected;
    fields.clear_values();
    EXPECT_EQ(reply.head.lookups(place).SerializeAsString(), fields.SerializeAsString());
    ASSERT_EQ(reply.head.value_bytes(place), expected.values().size());
    const std::size_t first = static_cast<std::size_t>(place) * PaddedBytes(expected.values().size());
    EXPECT_EQ(reply.body.substr(first, expected.values().size()), expected.values());
  }
};

}  // namespace slotwise

#endif  // SLOTWISE_TESTS_DATA_DATA_SERVER_FIXTURE_H_
