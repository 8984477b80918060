// ConfigErrors collects all errors of a configuration, so that its author sees them at once.
// Thread-safety: one thread.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_ERRORS_H_
#define SLOTWISE_SERVER_OPS_CONFIG_ERRORS_H_

#include <string>
#include <vector>

#include "slotwise/status.h"

namespace slotwise {

// The place that a value comes from.
struct ConfigPlace {
  std::string source = {};  // a file, or a flag; empty: neither
  int line = 0;             // counted from 1; 0: the file does not have the field
  int column = 0;

  // Returns the beginning of an error: "server.pbtxt:12:3: ", "--listen: ", or nothing.
  std::string str() const;
};

class ConfigErrors {
 public:
  void Add(const ConfigPlace& place, const std::string& what);
  // Adds a warning.
  void Warn(const ConfigPlace& place, const std::string& what);

  bool empty() const { return errors_.empty(); }
  // Returns the sentences, by line and column.
  std::vector<std::string> Errors() const { return Sorted(errors_); }
  std::vector<std::string> Warnings() const { return Sorted(warnings_); }
  // Returns OK, or INVALID_ARGUMENT with one error per line.
  Status status() const;

 private:
  struct Sentence {
    int line;
    int column;
    std::string text;
  };
  static std::vector<std::string> Sorted(std::vector<Sentence> sentences);

  std::vector<Sentence> errors_;
  std::vector<Sentence> warnings_;
};

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_ERRORS_H_
