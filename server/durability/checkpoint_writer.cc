#include "server/durability/checkpoint_writer.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <utility>

namespace slotwise {
namespace {

// Records are split into columns in pieces of this many bytes.
constexpr std::size_t kPieceBytes = std::size_t{1} << 20;

// Indices in TableArrays::All().
constexpr std::size_t kKeys = 0;
constexpr std::size_t kStarts = 1;
constexpr std::size_t kValues = 2;
constexpr std::size_t kFirstState = 3;

Status Internal(std::string message) { return {StatusCode::kInternal, std::move(message)}; }

}  // namespace

// --- One table

Status TableWriter::Begin(std::uint32_t rank, std::uint64_t block_bytes) {
  const auto& starts = options_.starts;
  const auto& erased = options_.erased_starts;
  if (!AreStarts(starts) || (erased && !AreStarts(*erased)))
    return Internal(folder_ + ": the buckets' starts are none");
  if (Status status = files_->MakeFolder(folder_); !status.ok()) return status;
  const TableArrays arrays = ArraysOf(options_.options, options_.value_type, rank, starts.back(),
                                      erased ? std::optional(erased->back()) : std::nullopt);
  for (const ArrayFile& array : arrays.All()) {
    auto writer = BlockWriter::Create(*files_, folder_, array.name, block_bytes);
    if (!writer.ok()) return writer.status();
    if (Status status = writer->Append(std::as_bytes(std::span<const char>(array.header()))); !status.ok())
      return status;
    writers_.push_back(std::move(*writer));
  }
  if (Status status = writers_[kStarts].Append(std::as_bytes(std::span(starts))); !status.ok()) return status;
  if (!erased) return {};
  return writers_.back().Append(std::as_bytes(std::span(*erased)));
}

Status TableWriter::AppendKeys(std::span<const Key> keys) {
  if (!keys_.Take(keys, options_.starts)) return Internal(folder_ + ": keys are not in bucket order");
  return writers_[kKeys].Append(std::as_bytes(keys));
}

Status TableWriter::AppendErased(std::span<const Key> keys) {
  if (!options_.erased_starts || !erased_.Take(keys, *options_.erased_starts))
    return Internal(folder_ + ": erased keys are not in bucket order");
  return writers_[writers_.size() - 2].Append(std::as_bytes(keys));
}

Status TableWriter::AppendRecords(std::span<const float> records) {
  const TableOptions& options = options_.options;
  const std::size_t width = RecordFloats(options);
  if (records.size() % width != 0 || records.size() / width > options_.starts.back() - records_)
    return Internal(folder_ + ": there are more records than keys");
  records_ += records.size() / width;
  const std::size_t piece = std::max<std::size_t>(1, kPieceBytes / (width * sizeof(float))) * width;
  while (!records.empty()) {
    const auto next = records.first(std::min(piece, records.size()));
    if (Status status = AppendPiece(next); !status.ok()) return status;
    records = records.subspan(next.size());
  }
  return {};
}

Status TableWriter::AppendPiece(std::span<const float> records) {
  const TableOptions& options = options_.options;
  const std::size_t state = StateFloats(options.optimizer.kind, options.dim);
  const std::size_t width = RecordFloats(options);
  if (width == options.dim) return AppendValues(records);
  // Copies floats [begin, begin + count) of each record to `column_`.
  const auto take = [&](std::size_t begin, std::size_t count) {
    column_.resize(records.size() / width * count);
    auto out = column_.begin();
    for (std::size_t record = begin; record < records.size(); record += width) {
      out = std::copy_n(records.begin() + static_cast<std::ptrdiff_t>(record), count, out);
    }
  };
  take(0, options.dim);
  if (Status status = AppendValues(column_); !status.ok()) return status;
  const std::size_t states = StatesOf(options.optimizer.kind).size();
  for (std::size_t i = 0; i < states; ++i) {
    take(options.dim + i * (state / states), state / states);
    if (Status status = writers_[kFirstState + i].Append(std::as_bytes(std::span(column_))); !status.ok())
      return status;
  }
  if (!options.has_scores()) return {};
  take(options.dim + state, ScoreFloats(options));
  return writers_[kFirstState + states].Append(std::as_bytes(std::span(column_)));
}

Status TableWriter::AppendValues(std::span<const float> values) {
  const DataType type = options_.value_type;
  if (type == DataType::kFloat32) return writers_[kValues].Append(std::as_bytes(values));
  // A row is finite, so it must also be finite after it is read back.
  const float largest = LargestOf(type);
  std::vector<float> wide(values.size());
  std::ranges::transform(values, wide.begin(), [&](float v) { return std::clamp(v, -largest, largest); });
  narrow_.resize(values.size() * BytesOf(type));
  Narrow(wide, type, narrow_.data());
  Widen(narrow_.data(), type, wide);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double error = std::abs(double{wide[i]} - double{values[i]});
    if (error <= double{largest_error_}) continue;
    // The stated error is never below the true one.
    largest_error_ = static_cast<float>(error);
    if (double{largest_error_} < error)
      largest_error_ = std::nextafter(largest_error_, std::numeric_limits<float>::infinity());
  }
  return writers_[kValues].Append(narrow_);
}

Status TableWriter::BeginFinish() {
  for (BlockWriter& writer : writers_) {
    if (Status status = writer.BeginFinish(); !status.ok()) return status;
  }
  return {};
}

Result<RankEntry> TableWriter::Finish() {
  const std::uint64_t rows = options_.starts.back();
  if (keys_.taken() != rows || records_ != rows)
    return Internal(folder_ + ": there are fewer keys or records than announced");
  RankEntry entry{.rows = rows, .erased = {}, .largest_error = largest_error_, .files = {}};
  if (options_.erased_starts) {
    entry.erased = options_.erased_starts->back();
    if (erased_.taken() != *entry.erased)
      return Internal(folder_ + ": there are fewer erased keys than announced");
  }
  if (Status status = BeginFinish(); !status.ok()) return status;
  for (BlockWriter& writer : writers_) {
    auto file = writer.Finish();
    if (!file.ok()) return file.status();
    entry.files.push_back(std::move(*file));
  }
  if (Status status = files_->SyncFolder(folder_); !status.ok()) return status;
  return entry;
}

// --- All tables

std::string PartialFolder(const std::string& folder, const std::string& id) {
  return folder + "/." + id + ".partial";
}

Result<CheckpointWriter> CheckpointWriter::Begin(FileSystem& files, const std::string& folder,
                                                 const std::string& id, std::uint32_t rank,
                                                 std::uint64_t block_bytes) {
  std::string partial = PartialFolder(folder, id);
  if (Status status = files.MakeFolder(partial); !status.ok()) return status;
  return CheckpointWriter(files, std::move(partial), rank, block_bytes);
}

Result<TableWriter> CheckpointWriter::BeginTable(TableWriterOptions options) {
  std::string folder = partial_ + "/" + TableFolder(options.table);
  TableWriter writer(*files_, std::move(folder), std::move(options));
  if (Status status = writer.Begin(rank_, block_bytes_); !status.ok()) return status;
  return writer;
}

Result<FileEntry> CheckpointWriter::WriteLedger(std::span<const std::byte> bytes) {
  auto writer = BlockWriter::Create(*files_, partial_, std::string(kLedgerName), block_bytes_);
  if (!writer.ok()) return writer.status();
  if (Status status = writer->Append(bytes); !status.ok()) return status;
  return writer->Finish();
}

Status CheckpointWriter::Finish() { return files_->SyncFolder(partial_); }

// --- The manifest

namespace {

Status WriteManifest(FileSystem& files, const std::string& partial, const std::string& text) {
  const std::string path = partial + "/" + std::string(kManifestName);
  const std::string temporary = path + ".new";
  auto file = files.Create(temporary);
  if (!file.ok()) return file.status();
  const auto bytes = std::as_bytes(std::span(text));
  if (Status status = (*file)->WriteAt(0, std::array{bytes}); !status.ok()) return status;
  if (Status status = (*file)->Sync(); !status.ok()) return status;
  file->reset();
  if (Status status = files.Rename(temporary, path); !status.ok()) return status;
  return files.SyncFolder(partial);
}

}  // namespace

Status PublishCheckpoint(FileSystem& files, const std::string& folder, Manifest& manifest) {
  const auto text = SerializeManifest(manifest);
  if (!text.ok()) return text.status();
  const std::string partial = PartialFolder(folder, manifest.id);
  const std::string final_path = folder + "/" + manifest.id;
  const auto there = files.List(final_path);
  if (there.ok()) return AlreadyExists("there is a checkpoint " + final_path);
  if (there.status().code() != StatusCode::kNotFound) return there.status();
  if (Status status = WriteManifest(files, partial, *text); !status.ok()) return status;
  if (Status status = files.Rename(partial, final_path); !status.ok()) return status;
  return files.SyncFolder(folder);
}

}  // namespace slotwise
