#include "server/durability/whole_file.h"

#include <cstddef>
#include <span>

namespace slotwise {

Status WriteWholeFile(FileSystem& files, const std::string& folder, std::string_view name,
                      std::string_view text) {
  const std::string path = folder + "/" + std::string(name);
  const std::string temporary = folder + "/." + std::string(name) + ".partial";
  if (Status removed = files.Remove(temporary); !removed.ok() && removed.code() != StatusCode::kNotFound)
    return removed;
  {
    const auto file = files.Create(temporary);
    if (!file.ok()) return file.status();
    const auto bytes = std::as_bytes(std::span(text));
    if (Status written = (*file)->WriteAt(0, {&bytes, 1}); !written.ok()) return written;
    if (Status synced = (*file)->Sync(); !synced.ok()) return synced;
  }
  if (Status renamed = files.Rename(temporary, path); !renamed.ok()) return renamed;
  return files.SyncFolder(folder);
}

}  // namespace slotwise
