// Whose process answers at a Unix socket, and what a client brings it.
#include "client/cpp/local_door.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <chrono>
#include <future>
#include <memory>
#include <string>
#include <thread>

#include "client/cpp/data_link.h"
#include "tests/client/peer.h"

namespace slotwise::client {
namespace {

std::string Name(const char* of) {
  return std::string("slotwise-test-") + of + "-" + std::to_string(getpid());
}

TEST(LocalDoor, ServesWhereTheUsersProcessGreets) {
  const std::string name = Name("door");
  EXPECT_FALSE(ServesLocally(name, geteuid())) << "nobody listens";
  Peer peer(name);
  std::thread greets([&peer] { peer.Meet(); });
  EXPECT_TRUE(ServesLocally(name, geteuid()));
  greets.join();
  std::thread greets_otherwise([&peer] { peer.Meet(kDataVersion + 1); });
  EXPECT_FALSE(ServesLocally(name, geteuid())) << "it speaks another version";
  greets_otherwise.join();
  EXPECT_FALSE(ServesLocally(name, geteuid() + 1)) << "somebody else has taken the name";
  EXPECT_FALSE(ServesLocally("", geteuid()));
  EXPECT_FALSE(ServesLocally(std::string(200, 'x'), geteuid()));
}

// Who listens and does not greet is waited for, but not for long.
TEST(LocalDoor, DoesNotServeWhereNobodyGreets) {
  const std::string name = Name("silent");
  const Peer peer(name);
  const auto begin = std::chrono::steady_clock::now();
  EXPECT_FALSE(ServesLocally(name, geteuid()));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

class Nothing final : public DataExchange {
 public:
  void Write(v1::DataCall& /*call*/, Body& /*body*/) override {}
  Result<Room> MakeRoom(const v1::DataReply& /*reply*/) override { return Room{}; }
  std::uint64_t ValueBytes() const override { return 0; }
  Status Read(const v1::DataReply& /*reply*/) override { return {}; }
};

// The name of a server that is gone may be taken by anybody on the host, and its port, too.
TEST(LocalDoor, ALinkBringsNothingToAnotherUsersProcess) {
  const std::string name = Name("taken");
  Peer taken(name);
  Peer port;
  DataThreads threads(1);
  DataLink link(threads, RankAddress{.address = port.address(), .local = name, .only_user = geteuid() + 1});
  std::promise<grpc::StatusCode> ended;
  link.Send(std::make_shared<Nothing>(), std::chrono::steady_clock::now() + std::chrono::minutes(1),
            [&ended](const grpc::Status& answer, const Status&) { ended.set_value(answer.error_code()); });
  EXPECT_EQ(ended.get_future().get(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_TRUE(taken.HearsNothing());
  EXPECT_TRUE(port.HearsNothing());
}

}  // namespace
}  // namespace slotwise::client
