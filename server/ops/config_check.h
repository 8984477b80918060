// Checks a configuration's values.
// Thread-safety: free functions.
#ifndef SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_
#define SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_

#include "server/ops/config_errors.h"
#include "server/ops/config_places.h"
#include "slotwise/v1/config.pb.h"

namespace slotwise {

// Adds an error, with place, field and value, for each wrong value. Of tables, checks only the number of
// tables, and that no two have the same name. REQUIRES: the command line's values and the defaults are filled
// in.
void CheckConfig(const v1::ServerConfig& config, const ConfigPlaces& where, ConfigErrors& errors);

}  // namespace slotwise

#endif  // SLOTWISE_SERVER_OPS_CONFIG_CHECK_H_
