#include "wire/shared_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <limits>

namespace slotwise {
namespace {

constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;

std::uint64_t BytesOfSystem(int descriptor) {
  struct stat file {};
  EXPECT_EQ(fstat(descriptor, &file), 0);
  return static_cast<std::uint64_t>(file.st_blocks) * 512;
}

// A memfd of so many bytes with these seals.
int Sealed(std::uint64_t bytes, int seals) {
  const int descriptor = memfd_create("test", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  EXPECT_EQ(ftruncate(descriptor, static_cast<off_t>(bytes)), 0);
  EXPECT_EQ(fcntl(descriptor, F_ADD_SEALS, seals), 0);
  return descriptor;
}

TEST(SharedMemory, IsTheSameAtBothEndsAndOfOneSize) {
  const auto server = SharedMemory::Make(kBytes);
  ASSERT_NE(server, nullptr);
  const auto client = SharedMemory::Open(dup(server->descriptor()), kBytes);
  ASSERT_NE(client, nullptr);
  ASSERT_EQ(client->bytes().size(), kBytes);
  EXPECT_EQ(client->bytes()[kBytes - 1], std::byte{0});
  client->bytes()[kBytes - 1] = std::byte{7};
  EXPECT_EQ(server->bytes()[kBytes - 1], std::byte{7});
  EXPECT_NE(ftruncate(client->descriptor(), 4096), 0) << "a client that shrank it would end the server";
  EXPECT_NE(ftruncate(client->descriptor(), 2 * kBytes), 0) << "the client would not be charged";
  EXPECT_NE(fcntl(client->descriptor(), F_ADD_SEALS, F_SEAL_WRITE), 0);
}

TEST(SharedMemory, TakesMemoryAsItIsTouchedAndGivesAllBackThoughTheClientHasItYet) {
  auto server = SharedMemory::Make(64 * kBytes);
  ASSERT_NE(server, nullptr);
  const auto client = SharedMemory::Open(dup(server->descriptor()), 64 * kBytes);
  ASSERT_NE(client, nullptr);
  EXPECT_LE(BytesOfSystem(client->descriptor()), 4 * kBytes);
  for (std::byte& byte : client->bytes().subspan(SharedMemory::kFirstPlace)) byte = std::byte{1};
  EXPECT_GE(BytesOfSystem(client->descriptor()), 64 * kBytes);
  EXPECT_TRUE(client->alive());
  server.reset();
  EXPECT_FALSE(client->alive());
  EXPECT_EQ(BytesOfSystem(client->descriptor()), 4096U) << "the page of the word that says so";
  EXPECT_EQ(client->bytes()[kBytes], std::byte{0});
}

TEST(SharedMemory, TheClientsEndGivesNothingBack) {
  const auto server = SharedMemory::Make(kBytes);
  ASSERT_NE(server, nullptr);
  {
    const auto client = SharedMemory::Open(dup(server->descriptor()), kBytes);
    ASSERT_NE(client, nullptr);
    client->bytes()[100] = std::byte{5};
  }
  EXPECT_TRUE(server->alive());
  EXPECT_EQ(server->bytes()[100], std::byte{5});
}

TEST(SharedMemory, OpensNothingThatSomebodyCanMakeSmaller) {
  EXPECT_EQ(SharedMemory::Open(Sealed(kBytes, 0), kBytes), nullptr);
  EXPECT_EQ(SharedMemory::Open(Sealed(kBytes, F_SEAL_GROW), kBytes), nullptr);
  EXPECT_EQ(SharedMemory::Open(Sealed(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), 2 * kBytes), nullptr);
  EXPECT_EQ(SharedMemory::Open(Sealed(0, F_SEAL_SHRINK | F_SEAL_GROW), 0), nullptr);
  EXPECT_EQ(SharedMemory::Open(open("/dev/null", O_RDWR | O_CLOEXEC), kBytes), nullptr);
  EXPECT_NE(SharedMemory::Open(Sealed(kBytes, F_SEAL_SHRINK | F_SEAL_GROW), kBytes), nullptr);
}

TEST(SharedMemory, HasOnlyPlacesThatLieInItAndAreAligned) {
  constexpr std::uint64_t kMost = std::numeric_limits<std::uint64_t>::max();
  const auto memory = SharedMemory::Make(kBytes);
  ASSERT_NE(memory, nullptr);
  for (const auto& [at, bytes] : {std::pair<std::uint64_t, std::uint64_t>{64, kBytes - 64},
                                  {kBytes - 64, 64},
                                  {kBytes - 64, 1},
                                  {kBytes, 0},
                                  {64, 0}}) {
    const auto place = memory->Place(at, bytes);
    ASSERT_TRUE(place) << at << ", " << bytes;
    EXPECT_EQ(place->data() - memory->bytes().data(), static_cast<std::ptrdiff_t>(at));
    EXPECT_EQ(place->size(), bytes);
  }
  for (const auto& [at, bytes] : {std::pair<std::uint64_t, std::uint64_t>{0, 64},
                                  {32, 64},
                                  {65, 64},
                                  {64, kBytes - 63},
                                  {kBytes, 1},
                                  {kBytes + 64, 0},
                                  {64, kMost},
                                  {kMost - 63, 64},
                                  {kMost - 63, 128}}) {
    EXPECT_FALSE(memory->Place(at, bytes)) << at << ", " << bytes;
  }
  EXPECT_TRUE(memory->Has(memory->bytes().data()));
  EXPECT_TRUE(memory->Has(memory->bytes().data() + kBytes - 1));
  EXPECT_FALSE(memory->Has(memory->bytes().data() + kBytes));
  EXPECT_FALSE(memory->Has(nullptr));
}

TEST(SharedMemory, TravelsBesideBytes) {
  std::array<int, 2> sockets{};
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets.data()), 0);
  const auto memory = SharedMemory::Make(kBytes);
  ASSERT_NE(memory, nullptr);
  const std::array<std::byte, 3> sent{std::byte{1}, std::byte{2}, std::byte{3}};
  ASSERT_EQ(SendWithDescriptor(sockets[0], sent, memory->descriptor()), 3);
  std::array<std::byte, 2> received{};
  int descriptor = -1;
  ASSERT_EQ(ReceiveWithDescriptor(sockets[1], received, descriptor), 2);
  EXPECT_EQ(received[1], std::byte{2});
  ASSERT_GE(descriptor, 0);
  EXPECT_NE(descriptor, memory->descriptor());
  const auto opened = SharedMemory::Open(descriptor, kBytes);
  ASSERT_NE(opened, nullptr);
  EXPECT_TRUE(opened->alive());
  ASSERT_EQ(ReceiveWithDescriptor(sockets[1], received, descriptor), 1);
  EXPECT_EQ(descriptor, -1);
  EXPECT_EQ(ReceiveWithDescriptor(sockets[1], received, descriptor), -1) << "it does not wait";
  close(sockets[0]);
  EXPECT_EQ(ReceiveWithDescriptor(sockets[1], received, descriptor), 0);
  close(sockets[1]);
}

}  // namespace
}  // namespace slotwise
