#include "server/durability/checkpoints.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <span>
#include <sstream>
#include <tuple>

#include "server/durability/block_file.h"
#include "server/durability/checked_fields.h"
#include "server/durability/whole_file.h"

namespace slotwise {
namespace {

constexpr std::string_view kPartial = ".partial";
constexpr std::string_view kRemoved = ".removed";

// The text of a kept checkpoint's file. The text of the newest checkpoint before a load names the copy that
// the load saves. If it was the newest before an earlier load, too, that load's copy comes first: a load may
// fail and save none.
constexpr std::string_view kLoaded = "loaded\n";
constexpr std::string_view kBefore = "newest before ";

std::string NewestBefore(const std::string& copies) { return std::string(kBefore) + copies + "\n"; }

// Returns the copies named in `kept`, the text of a kept checkpoint's file. A loaded checkpoint names none.
std::vector<std::string> CopiesOf(std::string_view kept) {
  std::vector<std::string> copies;
  if (!kept.starts_with(kBefore)) return copies;
  std::istringstream words{std::string(kept.substr(kBefore.size()))};
  for (std::string word; words >> word;) copies.push_back(word);
  return copies;
}

// Calls `visit(folder, file, header)` for each file of a checkpoint in `folder` until it returns an error.
// `header` is the expected beginning of the file, empty for the ledger.
template <class Visit>
Status EachFile(const std::string& folder, const Manifest& manifest, const Visit& visit) {
  if (Status status = visit(folder, manifest.ledger, std::string()); !status.ok()) return status;
  for (const TableEntry& table : manifest.tables) {
    for (std::uint32_t r = 0; r < table.ranks.size(); ++r) {
      const RankEntry& rank = table.ranks[r];
      const auto arrays = ArraysOf(table.options, table.value_type, r, rank.rows, rank.erased).All();
      for (std::size_t i = 0; i < rank.files.size(); ++i) {
        Status status = visit(folder + "/" + TableFolder(table.id), rank.files[i], arrays[i].header());
        if (!status.ok()) return status;
      }
    }
  }
  return {};
}

// Returns an error if the tables of `newer` cannot have come from those of `older`.
Status CheckTables(const Manifest& older, const Manifest& newer) {
  const std::string who = "checkpoint " + newer.id + " does not follow " + older.id + ": ";
  for (const TableEntry& table : newer.tables) {
    const std::string name = "table " + std::to_string(Value(table.id));
    const TableEntry* const before = older.Find(table.id);
    if (before == nullptr) {
      if (Value(table.id) >= older.next_table_id) continue;
      return FailedPrecondition(who + name + " is not new, and was not there before");
    }
    if (before->generation != table.generation)
      return FailedPrecondition(who + name + " has another generation");
    if (!DifferByAlteration(before->options, table.options) || !KeepsRows(before->options, table.options))
      return FailedPrecondition(who + name + " has other options");
    if (before->steps > table.steps) return FailedPrecondition(who + name + " has fewer steps");
  }
  return {};
}

Status CheckLink(const Manifest& older, const Manifest& newer) {
  const std::string who = "checkpoint " + newer.id + " does not follow " + older.id + ": ";
  if (older.data_lineage != newer.data_lineage)
    return FailedPrecondition(who + "they are of different lineages of data");
  if (older.round > newer.round) {
    return FailedPrecondition(who + "its round is " + std::to_string(newer.round) + ", not " +
                              std::to_string(older.round) + " or later");
  }
  if (older.next_table_id > newer.next_table_id)
    return FailedPrecondition(who + "its next_table_id is smaller");
  return CheckTables(older, newer);
}

// Returns the error of a checkpoint that may be whole but could not be read; OK if there is none.
Status Unread(const std::vector<ListedCheckpoint>& listed) {
  for (const ListedCheckpoint& checkpoint : listed) {
    const Status& why_not = checkpoint.why_not;
    if (!why_not.ok() && why_not.code() != StatusCode::kFailedPrecondition) return why_not;
  }
  return {};
}

}  // namespace

Result<Manifest> Checkpoints::ReadManifest(const std::string& id) const {
  if (!IsCheckpointId(id)) return FailedPrecondition("'" + id + "' is no checkpoint's id");
  const std::string path = folder_ + "/" + id + "/" + std::string(kManifestName);
  const auto text = ReadCheckedText(*files_, path);
  if (text.status().code() == StatusCode::kNotFound) return FailedPrecondition(path + " is missing");
  if (!text.ok()) return text.status();
  auto manifest = ParseManifest(*text, path);
  if (manifest.ok() && manifest->id != id)
    return FailedPrecondition(path + " is that of checkpoint " + manifest->id);
  return manifest;
}

Result<std::vector<ListedCheckpoint>> Checkpoints::List() const {
  const auto names = files_->List(folder_);
  if (!names.ok() && names.status().code() == StatusCode::kNotFound) return std::vector<ListedCheckpoint>();
  if (!names.ok()) return names.status();
  std::vector<ListedCheckpoint> listed;
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    auto manifest = ReadManifest(name);
    ListedCheckpoint checkpoint{.id = name, .manifest = {}, .why_not = manifest.status()};
    if (manifest.ok()) checkpoint.manifest = std::move(*manifest);
    listed.push_back(std::move(checkpoint));
  }
  const auto age = [](const ListedCheckpoint& checkpoint) {
    const auto& manifest = checkpoint.manifest;
    return std::tuple(manifest.has_value(), manifest ? manifest->round : 0, manifest ? manifest->created : 0,
                      manifest && manifest->folds, std::string_view(checkpoint.id));
  };
  std::ranges::sort(listed, [&](const auto& a, const auto& b) { return age(a) > age(b); });
  return listed;
}

Result<std::vector<ListedCheckpoint>> Checkpoints::ListUsable() const {
  auto listed = List();
  if (!listed.ok()) return listed;
  std::map<std::string, Status> sizes;
  const auto check = [&](const Chain& chain) -> Status {
    for (const Manifest& link : chain) {
      const auto [known, is_new] = sizes.try_emplace(link.id);
      if (is_new) known->second = CheckSizes(link);
      if (!known->second.ok()) return known->second;
    }
    return {};
  };
  for (ListedCheckpoint& checkpoint : *listed) {
    if (!checkpoint.manifest) continue;
    auto chain = ChainOf(*checkpoint.manifest, *listed);
    const Status status = chain.ok() ? check(*chain) : chain.status();
    checkpoint.why_not = status;
    if (!status.ok()) continue;
    for (const Manifest& link : *chain) checkpoint.chain.push_back(link.id);
  }
  for (ListedCheckpoint& checkpoint : *listed) {
    const auto pinned = Has(folder_ + "/" + checkpoint.id, kPinName);
    checkpoint.pinned = pinned.ok() && *pinned;  // a read error shows in why_not
    const auto kept = Has(folder_ + "/" + checkpoint.id, kKeptName);
    checkpoint.kept_for_load = kept.ok() && *kept;
  }
  const auto left = files_->List(folder_);
  if (!left.ok() && left.status().code() == StatusCode::kNotFound) return std::vector<ListedCheckpoint>();
  if (!left.ok()) return left.status();
  std::erase_if(*listed, [&](const ListedCheckpoint& c) { return !std::ranges::binary_search(*left, c.id); });
  return listed;
}

Result<Chain> Checkpoints::ChainOf(const std::string& id) const {
  const auto listed = List();
  if (!listed.ok()) return listed.status();
  const auto found = std::ranges::find(*listed, id, &ListedCheckpoint::id);
  if (found == listed->end())
    return NotFound("there is no checkpoint " + id + " in " + folder_).Because(Reason::kNoCheckpoint);
  if (!found->manifest) return found->why_not;
  return ChainOf(*found->manifest, *listed);
}

Result<Chain> Checkpoints::ChainOf(const Manifest& last, const std::vector<ListedCheckpoint>& listed) const {
  Chain chain = {last};
  std::set<std::string> seen = {last.id};
  while (chain.back().parent) {
    const CheckpointName parent = *chain.back().parent;
    const std::string who = "the chain of checkpoint " + last.id + " ";
    const auto folds = [&](const ListedCheckpoint& c) { return c.manifest && c.manifest->folds == parent; };
    auto link = std::ranges::find_if(listed, folds);
    if (link == listed.end()) link = std::ranges::find(listed, parent.id, &ListedCheckpoint::id);
    if (link == listed.end()) return FailedPrecondition(who + "has a gap: there is no " + parent.id);
    if (!link->manifest) return link->why_not.InWords(who + "is broken: " + link->why_not.message());
    if (link->manifest->folds != parent && link->manifest->checksum != parent.checksum) {
      return FailedPrecondition(who + "has a foreign link: " + parent.id + " is not the checkpoint that " +
                                chain.back().id + " was made after");
    }
    if (!seen.insert(link->id).second) return FailedPrecondition(who + "comes twice to " + link->id);
    if (chain.size() == kMaxLinks)
      return FailedPrecondition(who + "has more than " + std::to_string(kMaxLinks) + " links");
    if (Status status = CheckLink(*link->manifest, chain.back()); !status.ok())
      return FailedPrecondition(who + "has a foreign link: " + status.message());
    chain.push_back(*link->manifest);
  }
  std::ranges::reverse(chain);
  return chain;
}

Status Checkpoints::CheckSizes(const Manifest& manifest) const {
  return EachFile(folder_ + "/" + manifest.id, manifest,
                  [&](const std::string& folder, const FileEntry& file, const std::string&) {
                    return BlockReader::Open(*files_, folder, file).status();
                  });
}

Status Checkpoints::FirstUnusable(const Chain& chain, std::string& id) const {
  for (const Manifest& link : chain) {
    if (Status status = CheckSizes(link); !status.ok()) {
      id = link.id;
      return status;
    }
  }
  return {};
}

Result<NewestChain> Checkpoints::Newest(const std::vector<std::string>& refused) const {
  auto listed = List();
  if (!listed.ok()) return listed.status();
  if (listed->empty()) return NotFound("there is no checkpoint in " + folder_).Because(Reason::kNoCheckpoint);
  NewestChain newest;
  const auto pass_over = [&](ListedCheckpoint& checkpoint, std::string why) {
    newest.passed_over.push_back(why);
    checkpoint.manifest.reset();
    checkpoint.why_not = FailedPrecondition(std::move(why));
  };
  for (ListedCheckpoint& checkpoint : *listed) {
    if (std::ranges::find(refused, checkpoint.id) != refused.end()) {
      pass_over(checkpoint, "checkpoint " + checkpoint.id + " was refused by its reader");
    } else if (!checkpoint.manifest) {
      newest.passed_over.push_back(checkpoint.why_not.message());
    }
  }
  if (Status status = Unread(*listed); !status.ok()) return status;
  for (ListedCheckpoint& checkpoint : *listed) {
    // If a link cannot be used, a base that folds other links may stand in for them.
    while (checkpoint.manifest) {
      auto chain = ChainOf(*checkpoint.manifest, *listed);
      if (!chain.ok()) {
        pass_over(checkpoint, chain.status().message());
        break;
      }
      std::string unusable;
      const Status status = FirstUnusable(*chain, unusable);
      if (status.ok()) {
        newest.chain = std::move(*chain);
        return newest;
      }
      if (status.code() != StatusCode::kFailedPrecondition) return status;
      pass_over(*std::ranges::find(*listed, unusable, &ListedCheckpoint::id), status.message());
    }
  }
  std::string message = "no checkpoint in " + folder_ + " can be used";
  for (const std::string& why : newest.passed_over) message += "; " + why;
  return FailedPrecondition(std::move(message));
}

Status Checkpoints::CheckChain(const std::string& id) const {
  const auto chain = ChainOf(id);
  if (!chain.ok()) return chain.status();
  std::string unusable;
  return FirstUnusable(*chain, unusable);
}

Status Checkpoints::Verify(const std::string& id) const { return ReadBackOf(id).status(); }

Result<ReadBack> Checkpoints::ReadBackOf(const std::string& id) const {
  const auto manifest = ReadManifest(id);
  if (!manifest.ok()) return manifest.status();
  ReadBack back;
  const auto read = [&](const std::string& folder, const FileEntry& file, const std::string& header) {
    auto reader = BlockReader::Open(*files_, folder, file);
    if (!reader.ok()) return reader.status();
    if (Status status = reader->CheckBeginning(header); !status.ok()) return status;
    ++back.files;
    back.bytes += file.bytes;
    return reader->Verify();
  };
  if (Status status = EachFile(folder_ + "/" + id, *manifest, read); !status.ok()) return status;
  return back;
}

Result<std::vector<std::string>> Checkpoints::RemoveOld(std::size_t keep) const {
  const auto listed = List();
  if (!listed.ok()) return listed.status();
  if (Status status = Unread(*listed); !status.ok()) return status;
  const auto pinned = PinnedAndTheirChains(*listed);
  if (!pinned.ok()) return pinned.status();
  std::set<std::string> bases;
  std::set<std::string> kept;
  std::vector<std::string> old;
  for (const ListedCheckpoint& checkpoint : *listed) {
    if (!checkpoint.manifest || kept.contains(checkpoint.id)) continue;
    const auto chain = ChainOf(*checkpoint.manifest, *listed);
    // All links of a chain have the same base, so no link that is old here belongs to a kept chain.
    if (bases.size() == keep && !(chain.ok() && bases.contains(chain->front().id))) {
      if (!pinned->contains(checkpoint.id)) old.push_back(checkpoint.id);
    } else if (chain.ok()) {
      bases.insert(chain->front().id);
      for (const Manifest& link : *chain) kept.insert(link.id);
    }
  }
  // The newest is removed first, so that a crash leaves whole chains.
  for (std::size_t i = 0; i < old.size(); ++i) {
    const auto removed = RemoveCheckpoint(old[i]);
    if (!removed.ok()) return removed.status();
    if (*removed) continue;
    old.resize(i);  // the pinned checkpoint may depend on those behind it
    break;
  }
  return old;
}

Result<bool> Checkpoints::Has(const std::string& folder, std::string_view name) const {
  const auto file = files_->Open(folder + "/" + std::string(name));
  if (file.ok()) return true;
  if (file.status().code() == StatusCode::kNotFound) return false;
  return file.status();
}

Result<bool> Checkpoints::Stays(const std::string& folder) const {
  const auto pinned = Has(folder, kPinName);
  return !pinned.ok() || *pinned ? pinned : Has(folder, kKeptName);
}

Result<std::set<std::string>> Checkpoints::PinnedAndTheirChains(
    const std::vector<ListedCheckpoint>& listed) const {
  std::set<std::string> ids;
  for (const ListedCheckpoint& checkpoint : listed) {
    const auto pinned = Stays(folder_ + "/" + checkpoint.id);
    if (!pinned.ok()) return pinned.status();
    if (!*pinned) continue;
    ids.insert(checkpoint.id);
    if (!checkpoint.manifest) continue;
    const auto chain = ChainOf(*checkpoint.manifest, listed);
    if (!chain.ok()) continue;
    for (const Manifest& link : *chain) ids.insert(link.id);
  }
  return ids;
}

// A pin and a removal may run at the same moment. Pin writes its file and then looks for the folder again;
// the removal renames the folder and then looks for a pin. So at least one of them sees the other.
Status Checkpoints::Pin(const std::string& id) const {
  const auto listed = List();
  if (!listed.ok()) return listed.status();
  std::size_t others = 0;
  for (const ListedCheckpoint& checkpoint : *listed) {
    const auto pinned = Has(folder_ + "/" + checkpoint.id, kPinName);
    if (!pinned.ok()) return pinned.status();
    others += *pinned && checkpoint.id != id ? 1 : 0;
  }
  if (others >= kMaxPinned) {
    return ResourceExhausted(std::to_string(others) + " checkpoints are pinned, and at most " +
                             std::to_string(kMaxPinned) + " may be: release one first");
  }
  const std::string folder = folder_ + "/" + id;
  const std::string pin = folder + "/" + std::string(kPinName);
  Status created = files_->Create(pin).status();
  Status gone = NotFound("there is no checkpoint " + id + " in " + folder_).Because(Reason::kNoCheckpoint);
  if (created.code() == StatusCode::kNotFound) return gone;
  if (!created.ok() && created.code() != StatusCode::kAlreadyExists) return created;
  Status synced = files_->SyncFolder(folder);
  if (synced.code() == StatusCode::kNotFound) return gone;
  if (!synced.ok()) return synced;
  const auto there = Has(folder, kPinName);
  if (!there.ok()) return there.status();
  if (*there) return {};
  if (created.ok()) return gone;
  return FailedPrecondition(pin + " is no file, but a folder or a link to nothing, so it pins nothing");
}

Status Checkpoints::Release(const std::string& id) const {
  const std::string folder = folder_ + "/" + id;
  bool any = false;
  for (const std::string_view name : {kPinName, kKeptName}) {
    Status removed = files_->Remove(folder + "/" + std::string(name));
    if (!removed.ok() && removed.code() != StatusCode::kNotFound) return removed;
    any = any || removed.ok();
  }
  if (any) {
    Status synced = files_->SyncFolder(folder);
    // A checkpoint without a pin may be removed at once.
    return synced.code() == StatusCode::kNotFound ? Status() : synced;
  }
  Status there = files_->List(folder).status();
  return there.code() == StatusCode::kNotFound
             ? NotFound("there is no checkpoint " + id + " in " + folder_).Because(Reason::kNoCheckpoint)
             : there;
}

Result<std::map<std::string, std::string>> Checkpoints::KeptForLoads() const {
  const auto names = files_->List(folder_);
  if (!names.ok()) return names.status();
  std::map<std::string, std::string> kept;
  for (const std::string& name : *names) {
    if (name.starts_with('.')) continue;
    const auto file = files_->Open(folder_ + "/" + name + "/" + std::string(kKeptName));
    if (file.status().code() == StatusCode::kNotFound) continue;
    if (!file.ok()) return file.status();
    constexpr std::uint64_t kLongest = 256;  // of the text that KeepForLoad writes
    std::string text(std::min((*file)->size(), kLongest), '\0');
    if (Status read = (*file)->ReadAt(0, std::as_writable_bytes(std::span(text))); !read.ok()) return read;
    kept.emplace(name, std::move(text));
  }
  return kept;
}

Status Checkpoints::KeepForLoad(const std::string& loaded, const std::string& newest,
                                const std::string& copy) const {
  const auto kept = KeptForLoads();
  if (!kept.ok()) return kept.status();
  std::string before = newest;
  std::string copies = copy;
  for (const auto& [id, text] : *kept) {
    const auto earlier = CopiesOf(text);
    if (earlier.empty() || !(newest.empty() || std::ranges::find(earlier, newest) != earlier.end())) continue;
    before = id;
    copies = (newest.empty() ? earlier.back() : newest) + " " + copy;
  }
  const auto keep = [&](const std::string& id, std::string_view text) {
    return WriteWholeFile(*files_, folder_ + "/" + id, kKeptName, text);
  };
  if (!before.empty()) {
    Status status = keep(before, NewestBefore(copies));
    // A person may have removed the checkpoint by hand.
    if (!status.ok() && status.code() != StatusCode::kNotFound) return status;
  }
  return loaded == before ? Status() : keep(loaded, kLoaded);
}

Status Checkpoints::ForgetEarlierLoads(const std::string& loaded, const std::string& copy) const {
  const auto kept = KeptForLoads();
  if (!kept.ok()) return kept.status();
  for (const auto& [id, text] : *kept) {
    const auto copies = CopiesOf(text);
    if (id == loaded || (!copies.empty() && copies.back() == copy)) continue;
    const std::string folder = folder_ + "/" + id;
    if (Status removed = files_->Remove(folder + "/" + std::string(kKeptName)); !removed.ok()) return removed;
    if (Status synced = files_->SyncFolder(folder); !synced.ok()) return synced;
  }
  return {};
}

Result<bool> Checkpoints::RemoveCheckpoint(const std::string& id) const {
  const std::string folder = folder_ + "/" + id;
  const std::string removed = folder_ + "/." + id + std::string(kRemoved);
  if (Status status = files_->RemoveFolder(removed); !status.ok()) return status;
  if (Status status = files_->Rename(folder, removed); !status.ok()) return status;
  const auto pinned = Stays(removed);
  if (!pinned.ok()) return pinned.status();
  if (*pinned) {
    if (Status status = files_->Rename(removed, folder); !status.ok()) return status;
  }
  if (Status status = files_->SyncFolder(folder_); !status.ok()) return status;
  if (*pinned) return false;
  if (Status status = files_->RemoveFolder(removed); !status.ok()) return status;
  return true;
}

Status Checkpoints::RemoveLeftovers() const {
  const auto names = files_->List(folder_);
  if (!names.ok() && names.status().code() == StatusCode::kNotFound) return {};
  if (!names.ok()) return names.status();
  for (const std::string& name : *names) {
    if (!name.starts_with('.') || !(name.ends_with(kPartial) || name.ends_with(kRemoved))) continue;
    if (name.ends_with(kRemoved)) {
      // A crash came after the folder was renamed for its removal, and a pin had come before.
      const auto pinned = Stays(folder_ + "/" + name);
      if (!pinned.ok()) return pinned.status();
      if (*pinned) {
        const std::string id = name.substr(1, name.size() - 1 - kRemoved.size());
        if (Status status = files_->Rename(folder_ + "/" + name, folder_ + "/" + id); !status.ok())
          return status;
        continue;
      }
    }
    if (Status status = files_->RemoveFolder(folder_ + "/" + name); !status.ok()) return status;
  }
  return files_->SyncFolder(folder_);
}

}  // namespace slotwise
