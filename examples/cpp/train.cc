// Trains a logistic regression whose weights live in a Slotwise table: a sample is one id in each of three
// columns, its logit the sum of the three ids' weights. The server keeps the weights and runs AdaGrad on
// them.
//
// Usage: train [HOST:PORT], with a server running there (127.0.0.1:7070 if left out).
#include <slotwise/client.h>

#include <cmath>
#include <cstdint>
#include <iostream>
#include <random>
#include <vector>

namespace {

constexpr std::size_t kSamples = 512;
constexpr std::size_t kColumns = 3;
constexpr int kSteps = 60;

struct Batch {
  std::vector<slotwise::Key> keys;  // [kSamples][kColumns]
  std::vector<float> labels;        // [kSamples]
};

// Ids are raw 64-bit numbers, as a hash of a string would be. The hidden truth: an id's weight is a wave of
// it.
Batch Draw(std::mt19937_64& random) {
  Batch batch;
  for (std::size_t s = 0; s < kSamples; ++s) {
    double logit = 0;
    for (std::size_t c = 0; c < kColumns; ++c) {
      const std::uint64_t id = random() % 50 + 50 * c;
      logit += 3 * std::sin(static_cast<double>(id) * 12.9898);
      batch.keys.push_back(slotwise::Key{id * 0x9E3779B97F4A7C15U});
    }
    batch.labels.push_back(logit > 0 ? 1.0F : 0.0F);
  }
  return batch;
}

slotwise::Status Train(const std::string& address) {
  auto client = slotwise::Client::Connect({address});
  if (!client.ok()) return client.status();

  slotwise::TableOptions options;
  options.name = slotwise::TableName("cpp-example");
  options.dim = 1;
  options.slots = kColumns;
  options.optimizer.kind = slotwise::OptimizerKind::kAdaGrad;
  options.optimizer.learning_rate = 0.5F;
  const auto table = client->CreateTable(options);
  if (!table.ok()) return table.status();

  std::mt19937_64 random(1);
  std::vector<float> weights(kSamples * kColumns);
  std::vector<float> gradients(kSamples * kColumns);
  for (int step = 1; step <= kSteps; ++step) {
    const Batch batch = Draw(random);
    // No offsets: one key a bag.
    slotwise::Status found =
        client->Lookup("cpp-example", {batch.keys, {}}, slotwise::LookupMode::kTrain, weights);
    if (!found.ok()) return found;

    double loss = 0;
    std::size_t right = 0;
    for (std::size_t s = 0; s < kSamples; ++s) {
      float logit = 0;
      for (std::size_t c = 0; c < kColumns; ++c) logit += weights[s * kColumns + c];
      const float probability = 1 / (1 + std::exp(-logit));
      loss -= std::log(batch.labels[s] > 0.5F ? probability : 1 - probability);
      right += (probability > 0.5F) == (batch.labels[s] > 0.5F) ? 1 : 0;
      for (std::size_t c = 0; c < kColumns; ++c) gradients[s * kColumns + c] = probability - batch.labels[s];
    }
    const auto applied = client->Push("cpp-example", {batch.keys, {}}, gradients);
    if (!applied.ok()) return applied.status();
    if (step == 1 || step % 20 == 0) {
      std::cout << "step " << *applied << ": loss " << loss / kSamples << ", " << 100 * right / kSamples
                << " % right\n";
    }
  }

  const auto digest = client->Digest("cpp-example");
  if (!digest.ok()) return digest.status();
  std::cout << "the table has " << digest->rows << " rows after " << digest->steps << " steps, digest "
            << digest->digest << "\n";
  return client->DropTable("cpp-example");
}

}  // namespace

int main(int argc, char** argv) {
  const slotwise::Status status = Train(argc > 1 ? argv[1] : "127.0.0.1:7070");
  if (status.ok()) return 0;
  std::cerr << "train: " << slotwise::ToString(status.code()) << ": " << status.message() << "\n";
  return 1;
}
