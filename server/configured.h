// Reads and checks a server's whole configuration: its file, the command line's replacements, and the files
// that it names.
// Thread-safety: a free function, for main's thread.
#ifndef SLOTWISE_SERVER_CONFIGURED_H_
#define SLOTWISE_SERVER_CONFIGURED_H_

#include <memory>
#include <vector>

#include "server/access/access_control.h"
#include "server/access/tls_files.h"
#include "server/flags.h"
#include "server/ops/config_errors.h"
#include "slotwise/table_options.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

struct Configured {
  Config config;
  std::vector<TableOptions> tables = {};
  std::unique_ptr<AccessControl> access = nullptr;
};

// Reads everything, and adds all errors to `errors`. If there are any, only the log's fields of the
// configuration are usable.
Configured Configure(const Flags& flags, ConfigErrors& errors);

TlsFiles TlsFilesOf(const v1::Tls& tls);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_CONFIGURED_H_
