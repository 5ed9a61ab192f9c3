// SPDX-License-Identifier: Apache-2.0
#include "reward/remote/http_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/check.h"
#include "tests/support/http_stub.h"
#include "tests/support/test_folder.h"

namespace tlt::reward {
namespace {

using ::testing::HasSubstr;
using tests::closed_port;
using tests::HttpStub;
using tests::RawServer;

constexpr double kAmple = 60;   // seconds
constexpr double kShort = 0.5;  // for what never comes

HttpUrl parsed(const std::string& url) { return parse_http_url("reward.http", url); }

HttpAnswer post(const std::string& url, double seconds = kAmple, const std::string& body = "{}") {
  return exchange(parsed(url), {.body = body}, http_deadline(seconds));
}

void send_text(int fd, const std::string& text) {
  send(fd, text.data(), text.size(), MSG_NOSIGNAL);
}

// Until the client has sent its request and is waiting, or closed.
void read_request(int fd) {
  std::array<char, 1 << 12> bytes{};
  recv(fd, bytes.data(), bytes.size(), 0);
}

void read_until_closed(int fd) {
  std::array<char, 1 << 12> bytes{};
  while (recv(fd, bytes.data(), bytes.size(), 0) > 0) {
  }
}

TEST(HttpUrlTest, Parts) {
  EXPECT_EQ(parsed("http://a.example").path, "/");
  EXPECT_EQ(parsed("http://a.example:80/x?y=1").origin, "http://a.example:80");
  EXPECT_EQ(parsed("http://a.example:80/x?y=1").path, "/x?y=1");
  EXPECT_EQ(parsed("https://[::1]:5000/r").origin, "https://[::1]:5000");
}

TEST(HttpUrlTest, NonsenseIsRefusedWithoutSecrets) {
  for (const char* url : {"", "localhost:5000", "ftp://a/b", "http://", "http:///x", "http://a b/",
                          "http://a/\r\nX: y", "http://a?x", "http://a/#b", "http://a:port/",
                          "http://a:0/", "http://[::1]:99999/", "http://[::1/"})
    EXPECT_THAT(thrown_message<InputError>([&] { parsed(url); }),
                HasSubstr("write it as http://host:port/path"))
        << url;
  const std::string message = thrown_message<InputError>([] { parsed("http://me:word@host/x"); });
  EXPECT_THAT(message, HasSubstr("leave out what is before the @"));
  EXPECT_EQ(message.find("word@"), message.npos);
}

TEST(HttpClientTest, PostsJsonWithTheKey) {
  HttpStub stub([](const httplib::Request& request, httplib::Response& response) {
    response.set_content(request.method + request.path + request.body + "|" +
                             request.get_header_value("Authorization") + "|" +
                             request.get_header_value("Content-Type"),
                         "text/plain");
  });
  const HttpAnswer answer =
      exchange(parsed(stub.url("/a/b?c=d")), {.body = "{\"x\": 1}", .bearer_token = "k"},
               http_deadline(kAmple));
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.body, "POST/a/b{\"x\": 1}|Bearer k|application/json");
  EXPECT_THAT(exchange(parsed(stub.url("/")), {}, http_deadline(kAmple)).body, HasSubstr("GET/|"));
}

TEST(HttpClientTest, FaultsAreSaid) {
  EXPECT_THAT(post("http://127.0.0.1:" + std::to_string(closed_port()) + "/").fault,
              HasSubstr("refused the connection"));
  const RawServer dies([](int fd) {
    read_request(fd);
    send_text(fd, "HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{\"rew");
  });
  EXPECT_THAT(post(dies.url("/")).fault, HasSubstr("without a complete answer"));
  const RawServer is_no_http([](int fd) {
    read_request(fd);
    send_text(fd, "220 mail ready\r\n\r\n");
  });
  EXPECT_THAT(post(is_no_http.url("/")).fault, HasSubstr("without a complete answer"));
  EXPECT_EQ(exchange(parsed("http://127.0.0.1:1/"), {.body = "{}"}, HttpClock::now()).fault,
            "was not asked before the time for an answer was over");
}

TEST(HttpClientTest, SilentServerIsLate) {
  const RawServer silent([](int fd) { read_until_closed(fd); });
  EXPECT_EQ(post(silent.url("/"), kShort).fault, "gave no answer in time");
}

// Each byte comes in time; without the timer the client would read for ever.
TEST(HttpClientTest, DrippingServerIsLate) {
  for (const std::string begin : {"HTTP/1.1 200 OK\r\nX: ", "HTTP/1.1 200 OK\r\n\r\n"}) {
    std::atomic<bool> is_closed = false;
    const RawServer dripping([&](int fd) {
      read_request(fd);
      send_text(fd, begin);
      for (int i = 0; i < 3000 && !is_closed; ++i) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        is_closed = send(fd, "x", 1, MSG_NOSIGNAL) < 0;
      }
    });
    EXPECT_EQ(post(dripping.url("/"), kShort).fault, "gave no answer in time");
    for (int i = 0; i < 2000 && !is_closed; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_TRUE(is_closed) << begin;
  }
}

TEST(HttpClientTest, HugeAnswerIsCut) {
  HttpStub stub([](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider("text/plain", [](size_t, httplib::DataSink& sink) {
      const std::string text(1 << 16, 'x');
      return sink.write(text.data(), text.size());
    });
  });
  const HttpAnswer answer = post(stub.url("/"));
  EXPECT_EQ(answer.fault, "answered more than 4194304 bytes");
  EXPECT_LE(answer.body.size(), static_cast<size_t>(kMaxHttpAnswerBytes));
}

// A large request to a server that closes without reading it raises SIGPIPE.
TEST(HttpClientTest, ClosedConnectionDoesNotEndTheProcess) {
  const RawServer closes([](int) {});
  const auto before = ::signal(SIGPIPE, SIG_DFL);
  EXPECT_EQ(post(closes.url("/"), kAmple, std::string(64 << 20, ' ')).status, 0);
  ::signal(SIGPIPE, before);
}

TEST(HttpClientTest, TransientFaultsAreTriedAgainElsewhere) {
  std::atomic<int> calls = 0;
  HttpStub stub([&](const httplib::Request&, httplib::Response& response) {
    response.status = ++calls < 3 ? 503 : 200;
    response.set_content("good", "text/plain");
  });
  const HttpUrl one = parsed(stub.url("/"));
  EXPECT_EQ(post_json({&one, 1}, {.body = "{}"}, http_deadline(kAmple)), "good");
  EXPECT_EQ(stub.requests(), 3);
  const std::array two = {parsed("http://127.0.0.1:" + std::to_string(closed_port())), one};
  EXPECT_EQ(post_json(two, {.body = "{}"}, http_deadline(kAmple)), "good");
}

TEST(HttpClientTest, LastingFaultsEndInOneSentence) {
  int status = 500;
  HttpStub stub([&](const httplib::Request&, httplib::Response& response) {
    response.status = status;
    response.set_content("line\n\"two\"\x01" + std::string(1000, 'x'), "text/plain");
  });
  const HttpUrl url = parsed(stub.url("/score"));
  const auto message = [&] {
    return thrown_message<Error>([&] {
      post_json({&url, 1}, {.body = "{}"}, http_deadline(kAmple));
    });
  };
  const std::string text = message();
  EXPECT_THAT(text, HasSubstr("/score answered status 500: `line \"two\" xxx"));
  EXPECT_THAT(text, HasSubstr("(try 4)"));
  EXPECT_LT(text.size(), 400U);
  EXPECT_EQ(stub.requests(), kMaxTries);
  status = 404;
  EXPECT_THAT(message(), HasSubstr("answered status 404"));
  EXPECT_EQ(stub.requests(), kMaxTries + 1) << "a client's error is not tried again";
  status = 302;  // not followed
  EXPECT_THAT(message(), HasSubstr("answered status 302"));
}

TEST(HttpClientTest, AnswerThatIsTooLongIsNotTriedAgain) {
  HttpStub stub([](const httplib::Request&, httplib::Response& response) {
    response.set_content(std::string(2000, 'x'), "text/plain");
  });
  const HttpUrl url = parsed(stub.url("/"));
  HttpRequest request{.body = "{}", .max_answer_bytes = 1000};
  EXPECT_THAT(thrown_message<Error>([&] {
                post_json({&url, 1}, request, http_deadline(kAmple));
              }),
              HasSubstr("answered more than 1000 bytes"));
  EXPECT_EQ(stub.requests(), 1);
}

TEST(HttpClientTest, StopEndsAnExchangeAndItsTries) {
  const RawServer silent([](int fd) { read_until_closed(fd); });
  HttpStub down(
      [](const httplib::Request&, httplib::Response& response) { response.status = 503; });
  for (const std::string& place : {silent.url("/"), down.url("/")}) {
    const HttpUrl url = parsed(place);
    std::atomic<int> looks = 0;
    const HttpRequest request{
        .body = "{}", .max_tries = 1 << 30, .should_stop = [&] { return ++looks > 5; }};
    // Without the stop it would take ten minutes.
    EXPECT_THROW(post_json({&url, 1}, request, http_deadline(600)), Error);
    EXPECT_GT(looks, 5);
  }
}

// ---- TLS

struct Certificate {
  std::unique_ptr<EVP_PKEY, decltype(&EVP_PKEY_free)> key{EVP_RSA_gen(2048), &EVP_PKEY_free};
  std::unique_ptr<X509, decltype(&X509_free)> x509{X509_new(), &X509_free};

  Certificate() {
    X509* const c = x509.get();
    X509_set_version(c, 2);
    ASN1_INTEGER_set(X509_get_serialNumber(c), 1);
    X509_gmtime_adj(X509_getm_notBefore(c), -3600);
    X509_gmtime_adj(X509_getm_notAfter(c), 3600);
    X509_set_pubkey(c, key.get());
    X509_NAME* const name = X509_get_subject_name(c);
    X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                               reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
    X509_set_issuer_name(c, name);
    X509_EXTENSION* const names =
        X509V3_EXT_conf_nid(nullptr, nullptr, NID_subject_alt_name, "DNS:localhost,IP:127.0.0.1");
    X509_add_ext(c, names, -1);
    X509_EXTENSION_free(names);
    X509_sign(c, key.get(), EVP_sha256());
  }
  void write(const std::string& path) const {
    FILE* const file = fopen(path.c_str(), "w");
    PEM_write_X509(file, x509.get());
    fclose(file);
  }
};

TEST(HttpClientTest, CertificateIsVerified) {
  const Certificate certificate;
  HttpStub stub(
      [](const httplib::Request&, httplib::Response& response) {
        response.set_content("secret", "text/plain");
      },
      std::make_unique<httplib::SSLServer>(certificate.x509.get(), certificate.key.get()));
  const std::string url = "https://127.0.0.1:" + std::to_string(stub.port()) + "/";
  EXPECT_THAT(post(url).fault, HasSubstr("certificate"));
  EXPECT_EQ(stub.requests(), 0);
  const TestFolder folder;
  certificate.write(folder / "authority.pem");
  setenv("SSL_CERT_FILE", (folder / "authority.pem").c_str(), 1);
  EXPECT_EQ(post(url).body, "secret");
  unsetenv("SSL_CERT_FILE");
}

}  // namespace
}  // namespace tlt::reward
