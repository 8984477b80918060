#include "server/ops/config_places.h"

#include "slotwise/v1/config.pb.h"

namespace slotwise {

ConfigPlace ConfigPlaces::At(const ConfigPath& path) const {
  for (const auto& [of, flag] : flags_) {
    if (of == path) return {.source = flag};
  }
  for (const auto& [of, older] : older_names_) {
    if (of == path) return At(older);
  }
  ConfigPlace place{.source = file_};
  const google::protobuf::Descriptor* message = v1::ServerConfig::descriptor();
  const Tree* tree = tree_.get();
  for (const ConfigStep& step : path) {
    if (tree == nullptr || message == nullptr) break;
    const auto* field = message->FindFieldByNumber(step.field);
    const auto location = tree->GetLocation(field, step.index);
    if (location.line < 0) break;
    place.line = location.line + 1;
    place.column = location.column + 1;
    tree = tree->GetTreeForNested(field, step.index);
    message = field->message_type();
  }
  return place;
}

}  // namespace slotwise
