#include "server/access/tls_watch.h"

#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <spdlog/sinks/ringbuffer_sink.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

namespace slotwise {
namespace {

constexpr std::chrono::milliseconds kLookEvery{2};
constexpr long kDay = 24 * 60 * 60;

std::string TextOf(const std::function<int(BIO*)>& write) {
  BIO* const to = BIO_new(BIO_s_mem());
  EXPECT_EQ(write(to), 1);
  char* text = nullptr;
  const auto size = static_cast<std::size_t>(BIO_get_mem_data(to, &text));
  std::string copy(text, size);
  BIO_free(to);
  return copy;
}

struct Pair {
  std::string certificate;
  std::string key;
};

// Makes a key, and a certificate that it signs itself, which is valid from and to so many days from now.
Pair MakePair(long from = -1, long to = 1, const char* group = "P-256") {
  EVP_PKEY* const key = EVP_EC_gen(group);
  X509* const certificate = X509_new();
  X509_gmtime_adj(X509_getm_notBefore(certificate), from * kDay);
  X509_gmtime_adj(X509_getm_notAfter(certificate), to * kDay);
  X509_set_pubkey(certificate, key);
  EXPECT_GT(X509_sign(certificate, key, EVP_sha256()), 0);
  Pair pair{
      .certificate = TextOf([&](BIO* bio) { return PEM_write_bio_X509(bio, certificate); }),
      .key = TextOf([&](BIO* bio) {
        return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr);
      }),
  };
  X509_free(certificate);
  EVP_PKEY_free(key);
  return pair;
}

std::string RsaKey() {
  EVP_PKEY* const key = EVP_RSA_gen(2048);
  std::string text = TextOf(
      [&](BIO* bio) { return PEM_write_bio_PrivateKey(bio, key, nullptr, nullptr, 0, nullptr, nullptr); });
  EVP_PKEY_free(key);
  return text;
}

class TlsWatchTest : public testing::Test {
 protected:
  TlsWatchTest() {
    std::filesystem::create_directories(folder_);
    spdlog::set_default_logger(std::make_shared<spdlog::logger>("test", log_));
  }
  ~TlsWatchTest() override {
    spdlog::set_default_logger(before_);
    std::filesystem::remove_all(folder_);
  }

  static std::string FirstOf(const std::vector<TlsError>& errors) {
    return errors.empty() ? "" : errors.front().message;
  }
  std::string Path(const std::string& name) const { return folder_ / name; }
  std::string File(const std::string& name, std::string_view text) const {
    std::ofstream(Path(name) + ".new", std::ios::binary) << text;
    std::filesystem::rename(Path(name) + ".new", Path(name));
    return Path(name);
  }
  TlsFiles Files(const Pair& pair) const {
    return {.certificate_file = File("pem", pair.certificate), .key_file = File("key", pair.key)};
  }
  std::string WhatIsWrong(std::string_view certificate, std::string_view key, std::string_view ca) const {
    const std::string message = FirstOf(CheckTlsFiles({.certificate_file = File("pem", certificate),
                                                       .key_file = File("key", key),
                                                       .client_ca_file = File("ca", ca)}));
    const std::size_t path = message.find(folder_.string());
    return path == std::string::npos ? message : message.substr(path + folder_.string().size() + 1);
  }
  // Returns how often the log has said so.
  long Said(std::string_view what) const {
    long count = 0;
    for (const std::string& line : log_->last_formatted()) count += line.find(what) != std::string::npos;
    return count;
  }
  static bool Becomes(const std::function<bool()>& condition) {
    const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!condition()) {
      if (std::chrono::steady_clock::now() > deadline) return false;
      std::this_thread::yield();
    }
    return true;
  }

  static bool SomeLooksPass() {
    const auto later = std::chrono::steady_clock::now() + 50 * kLookEvery;
    return Becomes([later] { return std::chrono::steady_clock::now() > later; });
  }

 private:
  const std::filesystem::path folder_ =
      std::filesystem::path(testing::TempDir()) /
      ("tls_" + std::to_string(
                    std::hash<std::string>{}(testing::UnitTest::GetInstance()->current_test_info()->name())));
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  const std::shared_ptr<spdlog::sinks::ringbuffer_sink_mt> log_ =
      std::make_shared<spdlog::sinks::ringbuffer_sink_mt>(1000);
};

TEST_F(TlsWatchTest, FilesAreRightOrOneSentenceSaysWhyNot) {
  const Pair one = MakePair();
  const Pair other = MakePair();
  const std::string& ca = other.certificate;
  const std::string damaged = ca.substr(0, ca.size() / 2);
  EXPECT_EQ(WhatIsWrong(one.certificate, one.key, ca), "");
  EXPECT_EQ(WhatIsWrong("of X\n" + one.certificate + ca, one.key, ca + "and a remark\n" + ca), "");
  const std::string no_certificate = "it has no certificate in PEM";
  EXPECT_EQ(WhatIsWrong("", one.key, ca), "pem: " + no_certificate);
  EXPECT_EQ(WhatIsWrong(damaged, one.key, ca), "pem: " + no_certificate);
  EXPECT_EQ(WhatIsWrong(one.certificate + damaged, one.key, ca), "pem: one of its certificates is damaged");
  EXPECT_EQ(WhatIsWrong(one.certificate, one.key, "x"), "ca: " + no_certificate);
  EXPECT_EQ(WhatIsWrong(one.certificate, one.key, ca + damaged), "ca: one of its certificates is damaged");
  const std::string no_key = "key: it has no key in PEM, or not the certificate's";
  EXPECT_EQ(WhatIsWrong(one.certificate, "", ca), no_key);
  EXPECT_EQ(WhatIsWrong(one.certificate, other.key, ca), no_key);
  EXPECT_EQ(WhatIsWrong(one.certificate, MakePair(-1, 1, "P-384").key, ca), no_key);
  EXPECT_EQ(WhatIsWrong(one.certificate, RsaKey(), ca), no_key);
  // gRPC would read to the NUL.
  EXPECT_EQ(WhatIsWrong(std::string(1, '\0') + one.certificate, one.key, ca),
            "pem: it has a NUL, so it is no text");
  const Pair old = MakePair(-2, -1);
  const Pair early = MakePair(1, 2);
  EXPECT_EQ(WhatIsWrong(old.certificate, old.key, ca), "pem: the certificate has expired");
  EXPECT_EQ(WhatIsWrong(early.certificate, early.key, ca), "pem: the certificate is not valid yet");
  EXPECT_EQ(WhatIsWrong(one.certificate + old.certificate, one.key, ca),
            "pem: a certificate of the chain has expired");
  const Pair weak = MakePair(-1, 1, "secp192k1");
  EXPECT_EQ(WhatIsWrong(weak.certificate, weak.key, ca),
            "pem: OpenSSL refuses the certificate: ee key too small");
}

TEST_F(TlsWatchTest, FilesHaveAMibAtMost) {
  const Pair one = MakePair();
  const auto filled = [](std::string text, std::size_t size) {
    text.resize(size, '\n');
    return text;
  };
  EXPECT_EQ(WhatIsWrong(filled(one.certificate, kMostTlsFileBytes), one.key, one.certificate), "");
  EXPECT_EQ(WhatIsWrong(filled(one.certificate, kMostTlsFileBytes + 1), one.key, one.certificate),
            "pem: it is longer than 1048576 bytes");
}

TEST_F(TlsWatchTest, OnlyRegularFilesAreRead) {
  TlsFiles files = Files(MakePair());
  const std::string key = files.key_file;
  for (const std::string& place : {std::string("/dev/zero"), std::string("/"), Path("fifo")}) {
    mkfifo(Path("fifo").c_str(), 0600);
    files.key_file = place;
    EXPECT_EQ(FirstOf(CheckTlsFiles(files)),
              "security.tls.key_file: " + place + ": it cannot be read: it is no regular file");
  }
  std::filesystem::create_symlink(key, Path("link"));
  files.key_file = Path("link");
  EXPECT_EQ(FirstOf(CheckTlsFiles(files)), "");
}

TEST_F(TlsWatchTest, OnlyTheirOwnerMayWriteFiles) {
  const Pair one = MakePair();
  TlsFiles files = Files(one);
  files.client_ca_file = File("ca", one.certificate);
  for (const std::string& file : {files.certificate_file, files.key_file, files.client_ca_file}) {
    std::filesystem::permissions(file, std::filesystem::perms(0660));
    const std::string why = FirstOf(CheckTlsFiles(files));
    EXPECT_TRUE(
        why.ends_with(file + ": it has mode 0660: only its owner may be able to write it (chmod go-w)"))
        << why;
    std::filesystem::permissions(file, std::filesystem::perms(0640));
  }
  EXPECT_EQ(FirstOf(CheckTlsFiles(files)), "");
}

TEST_F(TlsWatchTest, AllThatIsWrongIsSaid) {
  const Pair old = MakePair(-2, -1);
  TlsFiles files{.certificate_file = File("pem", old.certificate),
                 .key_file = File("key", "x"),
                 .client_ca_file = File("ca", "x")};
  const auto fields = [&files] {
    std::vector<std::string_view> found;
    for (const TlsError& error : CheckTlsFiles(files)) found.push_back(error.field);
    return found;
  };
  EXPECT_EQ(fields(), (std::vector<std::string_view>{"key_file", "certificate_file", "client_ca_file"}));
  std::filesystem::remove(files.certificate_file);
  std::filesystem::permissions(files.key_file, std::filesystem::perms(0622));
  EXPECT_EQ(fields(), (std::vector<std::string_view>{"certificate_file", "key_file"})) << "others need these";
  files.certificate_file.clear();
  EXPECT_TRUE(fields().empty()) << "there is no TLS";
}

TEST_F(TlsWatchTest, FilesThatOthersMayWriteLeaveWhatWasThere) {
  const Pair one = MakePair();
  const auto watch = TlsWatch::Make(Files(one), kLookEvery);
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  EXPECT_TRUE((*watch)->TakeNew());
  std::filesystem::permissions(Path("key"), std::filesystem::perms(0602));
  ASSERT_TRUE(Becomes([&] { return Said("it has mode 0602: only its owner") == 1; }));
  EXPECT_FALSE((*watch)->TakeNew());
  std::filesystem::permissions(Path("key"), std::filesystem::perms(0600));
  ASSERT_TRUE(Becomes([&] { return Said("the certificates are read again") == 1; }));
}

TEST_F(TlsWatchTest, TextsAreTakenOnce) {
  const Pair one = MakePair();
  const auto watch = TlsWatch::Make(Files(one), kLookEvery);
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  const auto texts = (*watch)->TakeNew();
  ASSERT_TRUE(texts);
  EXPECT_EQ(texts->certificates.view(), one.certificate);
  EXPECT_EQ(texts->key.view(), one.key);
  EXPECT_EQ(texts->client_cas.view(), "");
  EXPECT_FALSE((*watch)->TakeNew());
}

TEST_F(TlsWatchTest, ACertificateAndItsKeyChangeTogether) {
  const Pair one = MakePair();
  const auto watch = TlsWatch::Make(Files(one), kLookEvery);
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  EXPECT_TRUE((*watch)->TakeNew());
  const Pair other = MakePair();
  File("pem", other.certificate);
  ASSERT_TRUE(Becomes([&] { return Said("the certificates stay as they were: ") == 1; }));
  ASSERT_TRUE(SomeLooksPass());
  EXPECT_FALSE((*watch)->TakeNew());
  std::filesystem::remove(Path("key"));
  ASSERT_TRUE(Becomes([&] { return Said("No such file") == 1; }));
  EXPECT_EQ(Said("the certificates stay as they were: "), 2);
  EXPECT_FALSE((*watch)->TakeNew());
  File("key", other.key);
  ASSERT_TRUE(Becomes([&] { return Said("the certificates are read again") == 1; }));
  const auto texts = (*watch)->TakeNew();
  ASSERT_TRUE(texts);
  EXPECT_EQ(texts->certificates.view(), other.certificate);
  EXPECT_EQ(texts->key.view(), other.key);
  ASSERT_TRUE(SomeLooksPass());
  EXPECT_FALSE((*watch)->TakeNew());
  EXPECT_EQ(Said("the certificates are read again"), 1);
}

TEST_F(TlsWatchTest, AReasonIsLoggedAgainWhenItComesAgain) {
  const Pair one = MakePair();
  const auto watch = TlsWatch::Make(Files(one), kLookEvery);
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  for (long times = 1; times <= 3; ++times) {
    File("pem", "junk");
    ASSERT_TRUE(Becomes([&] { return Said("it has no certificate in PEM") == times; }));
    File("pem", one.certificate);
    ASSERT_TRUE(Becomes([&] { return Said("the certificates are read again") == times; }));
  }
}

TEST_F(TlsWatchTest, NothingWaitsForAPipeAtTheEnd) {
  auto watch = TlsWatch::Make(Files(MakePair()), kLookEvery);
  ASSERT_TRUE(watch.ok()) << watch.status().message();
  std::filesystem::remove(Path("key"));
  ASSERT_EQ(mkfifo(Path("key").c_str(), 0600), 0);
  ASSERT_TRUE(Becomes([&] { return Said("it is no regular file") == 1; }));
  watch->reset();
}

}  // namespace
}  // namespace slotwise
