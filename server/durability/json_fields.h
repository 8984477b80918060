// Fields: reads a JSON object strictly. The first field that is missing, mistyped, out of range or unknown is
// named, and nothing that was read counts then.
// Thread-safety: one thread at a time.
#ifndef SLOTWISE_SERVER_DURABILITY_JSON_FIELDS_H_
#define SLOTWISE_SERVER_DURABILITY_JSON_FIELDS_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "server/durability/hex.h"

namespace slotwise {

class Fields {
 public:
  // `where` names the object in messages ("tables[3]."; empty for the outermost). `error` outlives this; it
  // gets the first complaint and is never overwritten.
  Fields(const nlohmann::json& object, std::string where, std::string& error);

  bool Has(const std::string& name) const { return object_.is_object() && object_.contains(name); }
  // Each returns an empty value after a complaint.
  std::uint64_t Number(const std::string& name, std::uint64_t least = 0,
                       std::uint64_t most = std::numeric_limits<std::uint64_t>::max());
  std::uint64_t HexNumber(const std::string& name);
  float Float(const std::string& name);
  bool Flag(const std::string& name);
  std::string Text(const std::string& name);
  const nlohmann::json& Array(const std::string& name);
  Fields Object(const std::string& name);
  // Says that the object may have a field that is not read.
  void Know(const std::string& name) { known_.insert(name); }
  // Complains about a field that nobody asked for.
  void RefuseOthers();

  void Complain(const std::string& name, const std::string& what);
  std::string Path(const std::string& name) const { return where_ + name; }
  std::string& error() { return error_; }

 private:
  const nlohmann::json& Find(const std::string& name);

  const nlohmann::json& object_;
  std::string where_;
  std::string& error_;
  std::set<std::string> known_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_DURABILITY_JSON_FIELDS_H_
