// RedisPeer starts a redis-server on a free port of 127.0.0.1. redis-benchmark fetches many values at once,
// like a user who keeps embedding rows in Redis.
//
// Thread-safety: one thread at a time. The server ends with the object.
#ifndef SLOTWISE_BENCH_PEERS_REDIS_H_
#define SLOTWISE_BENCH_PEERS_REDIS_H_

#include <sys/types.h>

#include <cstdint>
#include <memory>
#include <string>

namespace slotwise::bench {

class RedisPeer {
 public:
  struct Options {
    std::uint32_t rows = 100'000;  // keys in the server
    std::uint32_t row_bytes = 256;
    std::uint32_t keys_a_request = 100;
    std::uint32_t pipeline = 16;
    std::uint32_t connections = 8;
  };

  // Starts a server with `rows` values, and checks their number and the length of the last value. Returns
  // null, and sets `why_not`, if redis-server, redis-benchmark or redis-cli is missing.
  static std::unique_ptr<RedisPeer> Start(const Options& options, std::string& why_not);
  ~RedisPeer();
  RedisPeer(const RedisPeer&) = delete;
  RedisPeer& operator=(const RedisPeer&) = delete;

  // Fetches `rows` values by MGET, of random keys, or always of the same keys, whose values are in the cache.
  // Returns the seconds by redis-benchmark's own clock. Throws std::runtime_error if it reports no rate.
  double Fetch(double rows, bool fixed_keys = false);

  // Returns the processor time that the server and all clients have used so far.
  double CpuSeconds() const;

  std::string description() const;

 private:
  explicit RedisPeer(const Options& options) : options_(options) {}

  const Options options_;
  pid_t server_ = -1;
  int port_ = 0;
};

}  // namespace slotwise::bench

#endif  // SLOTWISE_BENCH_PEERS_REDIS_H_
