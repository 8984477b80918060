// Runs slotwise-ctl's commands. Each command returns its answer twice: as JSON, and as text for people.
// Thread-safety: free functions, for one thread.
#ifndef SLOTWISE_CLIENT_CTL_COMMANDS_H_
#define SLOTWISE_CLIENT_CTL_COMMANDS_H_

#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "client/ctl/options.h"
#include "slotwise/client.h"

namespace slotwise::ctl {

struct Answer {
  nlohmann::ordered_json json;
  std::string text;
  bool good = true;          // false: the program exits with 1, though the command ran
  std::string warning = {};  // for stderr; empty: none
};

struct ServerFlags {
  std::string address = "127.0.0.1:7070";
  double timeout = 30;  // seconds; streams of rows may take longer
  Credentials credentials = {};
};

// Shows whether the server is SERVING, and its topology. `wait`: the seconds to wait until the server is
// SERVING. The answer is good only if the server is SERVING.
Result<Answer> ShowStatus(const ServerFlags& server, std::optional<double> wait);

// Asks all addresses whether they are SERVING, within `seconds` in all. `wait`: a server may become SERVING
// within that time. The answer is good only if all are SERVING. UNAVAILABLE: an address did not answer.
Result<Answer> ShowHealth(const std::vector<std::string>& addresses, const Credentials& credentials,
                          double seconds, bool wait);

Result<Answer> ShowTables(Client& client);
Result<Answer> Create(Client& client, const TableOptions& options);
Result<Answer> Drop(Client& client, const std::string& table, bool missing_ok);
Result<Answer> Describe(Client& client, const std::string& table, bool with_ages);
Result<Answer> ShowDigest(Client& client, const std::string& table);
Result<Answer> Evict(Client& client, const std::string& table, const RowsToEvict& rows);
Result<Answer> ShowEvicted(Client& client, const std::string& table, const EvictedSince& since);
Result<Answer> Alter(Client& client, const std::string& table, const TableAlteration& alteration);
Result<Answer> SetRate(Client& client, const std::string& table, float learning_rate);
Result<Answer> Export(Client& client, const std::string& table, const std::string& folder, bool with_state);
Result<Answer> Import(Client& client, const std::string& table, const std::string& folder, bool with_state);

}  // namespace slotwise::ctl

#endif  // SLOTWISE_CLIENT_CTL_COMMANDS_H_
