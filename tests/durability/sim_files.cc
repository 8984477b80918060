#include "tests/durability/sim_files.h"

#include <algorithm>
#include <map>
#include <random>

namespace slotwise {
namespace {

constexpr std::uint64_t kSector = 512;

// A change of a file that is not synced: bytes at an offset, or a new length.
struct FileChange {
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes = {};
  bool is_length = false;
  std::uint64_t length = 0;
};

void ApplyTo(std::vector<std::byte>& bytes, const FileChange& change) {
  if (change.is_length) {
    bytes.resize(static_cast<std::size_t>(change.length));
    return;
  }
  const auto begin = static_cast<std::size_t>(change.offset);
  bytes.resize(std::max(bytes.size(), begin + change.bytes.size()));
  std::copy(change.bytes.begin(), change.bytes.end(), bytes.begin() + static_cast<std::ptrdiff_t>(begin));
}

// Draws the same numbers on every machine.
class Draw {
 public:
  explicit Draw(std::uint64_t seed) : engine_(seed) {}

  // Returns a number below `end`, or 0.
  std::uint64_t Below(std::uint64_t end) { return end == 0 ? 0 : engine_() % end; }
  bool Coin() { return Below(2) == 1; }

  // Returns what is left of things that may not have happened: all, none, the first few, or any.
  template <class Thing>
  std::vector<Thing> Some(std::vector<Thing> things) {
    switch (Below(4)) {
      case 0:
        return things;
      case 1:
        return {};
      case 2:
        things.resize(static_cast<std::size_t>(Below(things.size() + 1)));
        return things;
      default: {
        std::vector<Thing> some;
        for (Thing& thing : things) {
          if (Coin()) some.push_back(std::move(thing));
        }
        return some;
      }
    }
  }

  template <class Thing>
  void Shuffle(std::vector<Thing>& things) {
    for (std::size_t i = things.size(); i > 1; --i) {
      std::swap(things[i - 1], things[static_cast<std::size_t>(Below(i))]);
    }
  }

 private:
  std::mt19937_64 engine_;
};

// Cuts a write where a crash may tear it.
void Tear(const FileChange& change, Draw& draw, std::vector<FileChange>& pieces) {
  if (change.is_length) {
    pieces.push_back(change);
    return;
  }
  const std::uint64_t end = change.offset + change.bytes.size();
  const std::uint64_t anywhere = draw.Coin() ? change.offset + draw.Below(change.bytes.size()) : end;
  for (std::uint64_t at = change.offset; at < end;) {
    std::uint64_t next = std::min(end, (at / kSector + 1) * kSector);
    if (at < anywhere) next = std::min(next, anywhere);
    const auto first = change.bytes.begin() + static_cast<std::ptrdiff_t>(at - change.offset);
    pieces.push_back({.offset = at, .bytes = {first, first + static_cast<std::ptrdiff_t>(next - at)}});
    at = next;
  }
}

std::vector<std::string> Split(const std::string& path) {
  std::vector<std::string> parts;
  for (std::size_t at = 0; at < path.size();) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (!part.empty() && part != ".") parts.push_back(part);
    at = end + 1;
  }
  return parts;
}

}  // namespace

// A file or a folder.
struct SimFiles::Node {
  // A change of a folder's names: `from` goes, if it is not empty; `to` is the node, if it is not empty.
  struct NameChange {
    std::string from;
    std::string to;
    std::shared_ptr<Node> node;
  };
  using Names = std::map<std::string, std::shared_ptr<Node>>;

  static void ApplyTo(Names& names, const NameChange& change) {
    if (!change.from.empty()) names.erase(change.from);
    if (!change.to.empty()) names[change.to] = change.node;
  }

  void Alter(const std::string& from, const std::string& to, std::shared_ptr<Node> node) {
    pending_names.push_back({from, to, std::move(node)});
    ApplyTo(names, pending_names.back());
  }
  void Alter(FileChange change) {
    slotwise::ApplyTo(bytes, change);
    pending.push_back(std::move(change));
  }
  // Takes away all that is in a folder.
  void Empty() {
    const Names before = names;
    for (const auto& [name, node] : before) {
      if (node->is_folder) node->Empty();
      Alter(name, "", nullptr);
    }
  }

  void Crash(Draw& draw) {
    if (is_folder) {
      for (const NameChange& change : draw.Some(std::move(pending_names))) ApplyTo(synced_names, change);
      pending_names.clear();
      names = synced_names;
      for (const auto& [name, node] : names) node->Crash(draw);
      return;
    }
    std::vector<FileChange> pieces;
    for (const FileChange& change : pending) Tear(change, draw, pieces);
    const bool in_order = draw.Coin();
    pieces = draw.Some(std::move(pieces));
    if (!in_order) draw.Shuffle(pieces);
    for (const FileChange& piece : pieces) slotwise::ApplyTo(synced, piece);
    pending.clear();
    bytes = synced;
  }

  bool is_folder = false;
  std::vector<std::byte> bytes;  // as reads show them
  std::vector<std::byte> synced;
  std::vector<FileChange> pending;
  Names names;
  Names synced_names;
  std::vector<NameChange> pending_names;
};

class SimWritableFile final : public WritableFile {
 public:
  SimWritableFile(SimFiles& files, std::shared_ptr<SimFiles::Node> node, std::string path)
      : files_(files), node_(std::move(node)), path_(std::move(path)), life_(files.life_) {}

  Status WriteAt(std::uint64_t offset, std::span<const std::span<const std::byte>> pieces) override {
    return files_.Operate("write to " + path_, life_, [&](SimFiles::Verdict verdict) {
      FileChange change{.offset = offset};
      for (const auto& piece : pieces) change.bytes.insert(change.bytes.end(), piece.begin(), piece.end());
      if (verdict == SimFiles::Verdict::kFail) change.bytes.resize(change.bytes.size() / 2);
      if (change.bytes.empty()) return Status();
      if (Status status = files_.CheckSpace(*node_, offset + change.bytes.size(), path_); !status.ok()) {
        return status;
      }
      node_->Alter(std::move(change));
      return Status();
    });
  }

  Status Reserve(std::uint64_t size) override {
    return files_.Operate("take space for " + path_, life_, [&](SimFiles::Verdict verdict) {
      if (size <= node_->bytes.size()) return Status();
      return SetLength(size, verdict);
    });
  }

  Status Truncate(std::uint64_t size) override {
    return files_.Operate("change the length of " + path_, life_,
                          [&](SimFiles::Verdict verdict) { return SetLength(size, verdict); });
  }

  Status Sync() override {
    return files_.Operate("sync " + path_, life_, [&](SimFiles::Verdict verdict) {
      if (verdict == SimFiles::Verdict::kDie) return Status();
      if (verdict == SimFiles::Verdict::kGo) {
        for (const FileChange& change : node_->pending) ApplyTo(node_->synced, change);
      }
      node_->pending.clear();
      return Status();
    });
  }

 private:
  Status SetLength(std::uint64_t size, SimFiles::Verdict verdict) {
    if (verdict == SimFiles::Verdict::kFail) return Status();
    if (Status status = files_.CheckSpace(*node_, size, path_); !status.ok()) return status;
    node_->Alter({.is_length = true, .length = size});
    return Status();
  }

  SimFiles& files_;
  std::shared_ptr<SimFiles::Node> node_;
  std::string path_;
  std::uint64_t life_;
};

class SimReadableFile final : public ReadableFile {
 public:
  SimReadableFile(const SimFiles& files, std::shared_ptr<SimFiles::Node> node, std::string path)
      : files_(files),
        node_(std::move(node)),
        path_(std::move(path)),
        life_(files.life_),
        size_(node_->bytes.size()) {}

  std::uint64_t size() const override { return size_; }

  Status ReadAt(std::uint64_t offset, std::span<std::byte> bytes) const override {
    const std::scoped_lock lock(files_.mutex_);
    if (files_.dead_ || life_ != files_.life_) return files_.Dead();
    if (offset > node_->bytes.size() || bytes.size() > node_->bytes.size() - offset) {
      return Unavailable("cannot read " + path_ + ": it ends at byte " + std::to_string(node_->bytes.size()));
    }
    const auto first = node_->bytes.begin() + static_cast<std::ptrdiff_t>(offset);
    std::copy(first, first + static_cast<std::ptrdiff_t>(bytes.size()), bytes.begin());
    return Status();
  }

 private:
  const SimFiles& files_;
  std::shared_ptr<SimFiles::Node> node_;
  std::string path_;
  std::uint64_t life_;
  std::uint64_t size_;
};

SimFiles::SimFiles() : root_(std::make_shared<Node>()) { root_->is_folder = true; }
SimFiles::~SimFiles() = default;

Status SimFiles::Dead() const { return Unavailable("the simulated process is dead"); }

Status SimFiles::Operate(const std::string& what, std::uint64_t life,
                         const std::function<Status(Verdict)>& work) {
  const std::scoped_lock lock(mutex_);
  if (dead_ || life != life_) return Dead();
  ++operations_;
  Verdict verdict = Verdict::kGo;
  if (operations_ == fail_at_) verdict = Verdict::kFail;
  if (operations_ == crash_at_) verdict = Verdict::kDie;
  Status status = work(verdict);
  dead_ = verdict == Verdict::kDie;
  if (dead_) return Dead();
  if (verdict == Verdict::kGo) return status;
  if (fault_ == Fault::kNoSpace) return ResourceExhausted("cannot " + what + ": no space (simulated)");
  return Unavailable("cannot " + what + ": broken (simulated)");
}

Status SimFiles::CheckSpace(const Node& file, std::uint64_t size, const std::string& path) const {
  if (size <= file.bytes.size() || UsedBy(*root_) + size - file.bytes.size() <= capacity_) return Status();
  return ResourceExhausted("cannot make " + path + " longer: no space of " + std::to_string(capacity_) +
                           " bytes (simulated)");
}

std::uint64_t SimFiles::UsedBy(const Node& node) {
  std::uint64_t sum = node.bytes.size();
  for (const auto& [name, child] : node.names) sum += UsedBy(*child);
  return sum;
}

std::shared_ptr<SimFiles::Node> SimFiles::Find(const std::string& path) const {
  std::shared_ptr<Node> node = root_;
  for (const std::string& part : Split(path)) {
    const auto place = node->names.find(part);
    if (place == node->names.end()) return nullptr;
    node = place->second;
  }
  return node;
}

SimFiles::Place SimFiles::FindPlace(const std::string& path) const {
  const std::vector<std::string> parts = Split(path);
  if (parts.empty()) return {};
  Place place{.folder = root_, .name = parts.back()};
  for (std::size_t i = 0; i + 1 < parts.size() && place.folder != nullptr; ++i) {
    const auto next = place.folder->names.find(parts[i]);
    place.folder = next == place.folder->names.end() ? nullptr : next->second;
  }
  if (place.folder == nullptr || !place.folder->is_folder) return {};
  const auto node = place.folder->names.find(place.name);
  if (node != place.folder->names.end()) place.node = node->second;
  return place;
}

Result<std::unique_ptr<WritableFile>> SimFiles::Create(const std::string& path) {
  std::shared_ptr<Node> node = std::make_shared<Node>();
  Status status = Operate("make " + path, life(), [&](Verdict verdict) {
    const Place place = FindPlace(path);
    if (place.folder == nullptr) return NotFound("cannot make " + path + ": there is no such folder");
    if (place.node != nullptr) return AlreadyExists("cannot make " + path + ": it is there");
    if (verdict != Verdict::kFail) place.folder->Alter("", place.name, node);
    return Status();
  });
  if (!status.ok()) return status;
  const std::scoped_lock lock(mutex_);
  return std::unique_ptr<WritableFile>(std::make_unique<SimWritableFile>(*this, node, path));
}

Result<std::unique_ptr<WritableFile>> SimFiles::OpenToWrite(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  if (dead_) return Dead();
  std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || node->is_folder) return NotFound("cannot open " + path + ": there is no such file");
  return std::unique_ptr<WritableFile>(std::make_unique<SimWritableFile>(*this, std::move(node), path));
}

Result<std::unique_ptr<ReadableFile>> SimFiles::Open(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  if (dead_) return Dead();
  std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || node->is_folder) return NotFound("cannot open " + path + ": there is no such file");
  return std::unique_ptr<ReadableFile>(std::make_unique<SimReadableFile>(*this, std::move(node), path));
}

Status SimFiles::Rename(const std::string& from, const std::string& to) {
  return Operate("rename " + from + " to " + to, life(), [&](Verdict verdict) {
    const Place source = FindPlace(from);
    const Place target = FindPlace(to);
    if (source.node == nullptr) return NotFound("cannot rename " + from + ": there is no such file");
    if (source.folder != target.folder) return Unavailable("SimFiles renames within a folder alone");
    if (target.node != nullptr && target.node->is_folder) return AlreadyExists("cannot rename to " + to);
    if (verdict != Verdict::kFail) source.folder->Alter(source.name, target.name, source.node);
    return Status();
  });
}

Status SimFiles::Remove(const std::string& path) {
  return Operate("remove " + path, life(), [&](Verdict verdict) {
    const Place place = FindPlace(path);
    if (place.node == nullptr) return NotFound("cannot remove " + path + ": there is no such file");
    if (place.node->is_folder) return FailedPrecondition("cannot remove " + path + ": it is a folder");
    if (verdict != Verdict::kFail) place.folder->Alter(place.name, "", nullptr);
    return Status();
  });
}

Status SimFiles::RemoveFolder(const std::string& path) {
  return Operate("remove the folder " + path, life(), [&](Verdict verdict) {
    const Place place = FindPlace(path);
    if (place.node == nullptr || verdict == Verdict::kFail) return Status();
    place.node->Empty();
    place.folder->Alter(place.name, "", nullptr);
    return Status();
  });
}

Status SimFiles::MakeFolder(const std::string& path) {
  return Operate("make the folder " + path, life(), [&](Verdict verdict) {
    const Place place = FindPlace(path);
    if (place.folder == nullptr)
      return NotFound("cannot make the folder " + path + ": its parent is missing");
    if (place.node != nullptr) return place.node->is_folder ? Status() : Unavailable(path + " is a file");
    if (verdict == Verdict::kFail) return Status();
    auto node = std::make_shared<Node>();
    node->is_folder = true;
    place.folder->Alter("", place.name, node);
    return Status();
  });
}

Result<std::vector<std::string>> SimFiles::List(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  if (dead_) return Dead();
  const std::shared_ptr<Node> node = Find(path);
  if (node == nullptr || !node->is_folder) return NotFound("there is no folder " + path);
  std::vector<std::string> names;
  for (const auto& [name, child] : node->names) names.push_back(name);
  return names;
}

Status SimFiles::SyncFolder(const std::string& path) {
  return Operate("sync the folder " + path, life(), [&](Verdict verdict) {
    const std::shared_ptr<Node> node = Find(path);
    if (node == nullptr || !node->is_folder) return NotFound("there is no folder " + path);
    if (verdict != Verdict::kGo) return Status();
    for (const Node::NameChange& change : node->pending_names) Node::ApplyTo(node->synced_names, change);
    node->pending_names.clear();
    return Status();
  });
}

void SimFiles::Crash(std::uint64_t seed) {
  const std::scoped_lock lock(mutex_);
  Draw draw(seed);
  root_->Crash(draw);
  ++life_;
  dead_ = false;
}

void SimFiles::Kill() {
  const std::scoped_lock lock(mutex_);
  ++life_;
  dead_ = false;
}

std::uint64_t SimFiles::life() const {
  const std::scoped_lock lock(mutex_);
  return life_;
}

std::uint64_t SimFiles::operations() const {
  const std::scoped_lock lock(mutex_);
  return operations_;
}

void SimFiles::FailAt(std::uint64_t operation, Fault fault) {
  const std::scoped_lock lock(mutex_);
  fail_at_ = operation;
  fault_ = fault;
}

void SimFiles::CrashAt(std::uint64_t operation) {
  const std::scoped_lock lock(mutex_);
  crash_at_ = operation;
}

bool SimFiles::dead() const {
  const std::scoped_lock lock(mutex_);
  return dead_;
}

void SimFiles::SetCapacity(std::uint64_t bytes) {
  const std::scoped_lock lock(mutex_);
  capacity_ = bytes;
}

std::uint64_t SimFiles::used() const {
  const std::scoped_lock lock(mutex_);
  return UsedBy(*root_);
}

std::vector<std::byte> SimFiles::Contents(const std::string& path) const {
  const std::scoped_lock lock(mutex_);
  return Find(path)->bytes;
}

void SimFiles::SetContents(const std::string& path, std::vector<std::byte> bytes) {
  const std::scoped_lock lock(mutex_);
  const Place place = FindPlace(path);
  auto node = std::make_shared<Node>();
  node->bytes = node->synced = std::move(bytes);
  place.folder->names[place.name] = node;
  place.folder->synced_names[place.name] = node;
}

void SimFiles::Lose(const std::string& path) {
  const std::scoped_lock lock(mutex_);
  const Place place = FindPlace(path);
  place.folder->names.erase(place.name);
  place.folder->synced_names.erase(place.name);
  std::erase_if(place.folder->pending_names, [&](const auto& change) { return change.to == place.name; });
}

}  // namespace slotwise
