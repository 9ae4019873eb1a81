// The HTTP server by itself, and what its worst clients can do to the others.
#include "server/observe/http_server.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/server/raw_socket.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kHalf[] = "GET /healthz HTTP/1.1\r\nHos";
constexpr char kScrape[] = "GET /metrics HTTP/1.1\r\nHost: weir\r\n\r\n";

HttpServer::Callbacks Healthy() {
  return {.unhealthy = [] { return ""; },
          .unready = [] { return "draining"; },
          .metrics = [] { return "metric 1\n"; }};
}

std::unique_ptr<HttpServer> Start(HttpServer::Callbacks callbacks = Healthy(),
                                  HttpServer::Limits limits = {}) {
  auto server = HttpServer::Start("127.0.0.1:0", std::move(callbacks), limits);
  EXPECT_TRUE(server.ok()) << server.status();
  return server.ok() ? *std::move(server) : nullptr;
}

// Limits in time are not what a test of other limits is about.
HttpServer::Limits Patient() { return {.time = absl::Hours(1)}; }

TEST(HttpServerTest, SaysWhatThereIs) {
  const auto server = Start();
  const HttpReply index = HttpGet(server->address(), "/");
  EXPECT_EQ(index.status, 200);
  EXPECT_THAT(index.head, HasSubstr("Content-Type: text/plain"));
  for (const char* path : {"/healthz", "/readyz", "/metrics"}) {
    EXPECT_THAT(index.body, HasSubstr(std::string("\n") + path + " "));
    EXPECT_THAT(HttpGet(server->address(), "/nothing").body, HasSubstr(path));
  }
}

TEST(HttpServerTest, AnswersThreePaths) {
  const auto server = Start();
  const HttpReply health = HttpGet(server->address(), "/healthz");
  EXPECT_EQ(health.status, 200);
  EXPECT_EQ(health.body, "ok\n");
  EXPECT_THAT(health.head, HasSubstr("Content-Type: text/plain"));
  const HttpReply ready = HttpGet(server->address(), "/readyz");
  EXPECT_EQ(ready.status, 503);
  EXPECT_EQ(ready.body, "draining\n");
  const HttpReply metrics = HttpGet(server->address(), "/metrics");
  EXPECT_EQ(metrics.status, 200);
  EXPECT_EQ(metrics.body, "metric 1\n");
  EXPECT_THAT(metrics.head, HasSubstr("version=0.0.4"));
  for (const char* path : {"//", "/health", "/healthz/", "/../etc/passwd"}) {
    EXPECT_EQ(HttpGet(server->address(), path).status, 404) << path;
  }
}

TEST(HttpServerTest, TakesGetAndHeadAlone) {
  const auto server = Start();
  for (const char* path : {"/healthz", "/metrics"}) {
    const HttpReply head =
        HttpRequest(server->address(),
                    std::string("HEAD ") + path + " HTTP/1.1\r\nHost: weir");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
  }
  for (const char* method : {"POST", "PUT", "DELETE", "OPTIONS", "NONSENSE"}) {
    const HttpReply reply =
        HttpRequest(server->address(),
                    std::string(method) + " /healthz HTTP/1.1\r\nHost: weir");
    EXPECT_EQ(reply.status, 405) << method;
    EXPECT_THAT(reply.head, HasSubstr("Allow: GET, HEAD"));
  }
}

TEST(HttpServerTest, AnswersOldClients) {
  const auto server = Start();
  EXPECT_EQ(HttpRequest(server->address(), "GET /healthz HTTP/1.0").body,
            "ok\n");
}

TEST(HttpServerTest, APortInUseIsAnErrorThatNamesIt) {
  const auto server = Start();
  const auto second = HttpServer::Start(server->address(), Healthy());
  ASSERT_FALSE(second.ok());
  EXPECT_THAT(std::string(second.status().message()),
              StartsWith("--http: cannot listen on " + server->address()));
}

TEST(HttpServerTest, ARequestAConnection) {
  const auto server = Start();
  RawSocket socket(server->address());
  const std::string request = "GET /healthz HTTP/1.1\r\nHost: weir\r\n\r\n";
  socket.Send(request + request + request);
  const std::string answer = socket.ReadToEnd();
  EXPECT_EQ(ParseHttpReply(answer).body, "ok\n");
  EXPECT_THAT(answer, HasSubstr("Connection: close"));
}

TEST(HttpServerTest, WhatIsNoHttpIsRefused) {
  const auto server = Start();
  for (const std::string& bytes :
       {std::string("\r\n\r\n\r\n"), std::string("hello\r\n\r\n"),
        std::string("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
        std::string("GET /healthz HTTP/1.1\r\nContent-Length: -1\r\n\r\n"),
        std::string("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 11) +
            std::string(600, '\0')}) {
    RawSocket socket(server->address());
    socket.Send(bytes);
    EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200);
  }
}

// Four of these held the server up once.
TEST(HttpServerTest, HalfSentRequestsHoldNothingUp) {
  const auto server = Start(Healthy(), Patient());
  std::vector<RawSocket> half;
  for (int i = 0; i < 1500; ++i) {
    half.emplace_back(server->address());
    half.back().Send(i % 2 == 0 ? kHalf : "");
    if (i % 100 == 99) {
      EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200) << i;
      EXPECT_EQ(HttpGet(server->address(), "/metrics").status, 200) << i;
    }
  }
  size_t open = 0;
  for (RawSocket& socket : half)
    if (!socket.Closed()) ++open;
  EXPECT_LE(open, HttpServer::Limits().connections_per_peer);
}

TEST(HttpServerTest, TheOldestConnectionGoesAndOfTheFullPeer) {
  HttpServer::Limits limits = Patient();
  limits.connections = 4;
  limits.connections_per_peer = 3;
  const auto server = Start(Healthy(), limits);
  RawSocket other(server->address(), "127.0.0.2");
  std::vector<RawSocket> sockets;
  for (int i = 0; i < 5; ++i) sockets.emplace_back(server->address());
  for (const size_t i : {0u, 1u}) {
    EXPECT_TRUE(Eventually([&] { return sockets[i].Closed(); })) << i;
  }
  // Everybody who was let in before has been seen.
  EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200);
  EXPECT_FALSE(other.Closed());
  EXPECT_FALSE(sockets[4].Closed());
  // Full in all: the oldest of who has most, while somebody has more than one.
  RawSocket third(server->address(), "127.0.0.3");
  RawSocket fourth(server->address(), "127.0.0.4");
  EXPECT_TRUE(Eventually([&] { return sockets[3].Closed(); }));
  EXPECT_FALSE(other.Closed());
  // Who has one gets no other at their cost, and a fifth ends the oldest.
  RawSocket another(server->address(), "127.0.0.3");
  EXPECT_TRUE(Eventually([&] { return third.Closed(); }));
  EXPECT_FALSE(other.Closed());
  RawSocket fifth(server->address(), "127.0.0.5");
  EXPECT_TRUE(Eventually([&] { return other.Closed(); }));
  for (RawSocket* stays : {&sockets[4], &fourth, &another, &fifth}) {
    EXPECT_FALSE(stays->Closed());
  }
}

// Makes the texts "1\n", "2\n", ...; each when it is let.
struct HeldTexts {
  HttpServer::Callbacks callbacks() {
    HttpServer::Callbacks callbacks = Healthy();
    callbacks.metrics = [this] {
      called.Set();
      go_on.Wait(++made);
      return std::to_string(made) + "\n";
    };
    return callbacks;
  }

  Event called, go_on;
  size_t made = 0;  // of the thread that makes them
};

// They had every place there was once, and cut all who waited for a text.
TEST(HttpServerTest, WhoAsksForMetricsAndLeavesCutsNobody) {
  HeldTexts texts;
  const auto server = Start(texts.callbacks(), Patient());
  const std::string address = server->address();
  RawSocket first(address);
  first.Send(kScrape);
  texts.called.Wait();  // who asks from now on waits for the second
  RawSocket scraper(address, "127.0.0.2"), neighbor(address);
  scraper.Send(kScrape);
  neighbor.Send(kScrape);
  for (int i = 0; i < 1000; ++i) {
    RawSocket leaves(address, i % 2 == 0 ? "127.0.0.3" : "");
    leaves.Send(kScrape);
  }
  // Everybody who was let in before has been seen.
  EXPECT_EQ(HttpGet(address, "/healthz").status, 200);
  texts.go_on.Set();
  EXPECT_EQ(ParseHttpReply(first.ReadToEnd()).body, "1\n");
  texts.go_on.Set();
  EXPECT_EQ(ParseHttpReply(scraper.ReadToEnd()).body, "2\n");
  EXPECT_EQ(ParseHttpReply(neighbor.ReadToEnd()).body, "2\n");
}

// It looks like one that has left, to which it is to be no worse off than to
// one that has not.
TEST(HttpServerTest, WhoSendsNoMoreIsNotCutForOthers) {
  HeldTexts texts;
  HttpServer::Limits limits = Patient();
  limits.connections = 8;
  limits.connections_per_peer = 4;
  const auto server = Start(texts.callbacks(), limits);
  const std::string address = server->address();
  RawSocket scraper(address, "127.0.0.2");
  scraper.Send(kScrape);
  scraper.SendNoMore();
  texts.called.Wait();
  for (int i = 0; i < 60; ++i) {
    RawSocket stays(address, "127.0.0." + std::to_string(3 + i % 3));
    RawSocket other(address, "127.0.0." + std::to_string(3 + i % 3));
    other.Send(kScrape);
    EXPECT_EQ(HttpGet(address, "/healthz").status, 200) << i;
  }
  std::vector<RawSocket> stay;
  for (int i = 0; i < 12; ++i) {
    stay.emplace_back(address, "127.0.0." + std::to_string(3 + i % 3));
    EXPECT_EQ(HttpGet(address, "/healthz").status, 200) << i;
  }
  texts.go_on.Set();
  EXPECT_EQ(ParseHttpReply(scraper.ReadToEnd()).body, "1\n");
  texts.go_on.Set();
}

TEST(HttpServerTest, WhoAsksForMetricsAndStaysCutsNobodyElse) {
  HeldTexts texts;
  HttpServer::Limits limits = Patient();
  limits.connections = 16;
  limits.connections_per_peer = 4;
  const auto server = Start(texts.callbacks(), limits);
  const std::string address = server->address();
  RawSocket scraper(address, "127.0.0.2");
  scraper.Send(kScrape);
  texts.called.Wait();
  std::vector<RawSocket> others;
  for (int i = 0; i < 60; ++i) {
    others.emplace_back(address, "127.0.0." + std::to_string(3 + i % 6));
    others.back().Send(kScrape);
    EXPECT_EQ(HttpGet(address, "/healthz").status, 200) << i;
  }
  texts.go_on.Set();
  EXPECT_EQ(ParseHttpReply(scraper.ReadToEnd()).body, "1\n");
  texts.go_on.Set();
  size_t answered = 0;
  for (RawSocket& other : others) {
    if (ParseHttpReply(other.ReadToEnd()).body == "2\n") ++answered;
  }
  EXPECT_GE(answered, limits.connections - 3);
  EXPECT_LE(answered, limits.connections);
}

TEST(HttpServerTest, AConnectionHasItsTimeAndNoMore) {
  const auto server = Start(Healthy(), {.time = absl::Milliseconds(200)});
  RawSocket silent(server->address());
  RawSocket half(server->address());
  half.Send(kHalf);
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(half.ReadToEnd(), "");
  // A byte now and then is no excuse.
  RawSocket dripping(server->address());
  dripping.Send(kHalf);
  EXPECT_TRUE(
      Eventually([&] { return !dripping.Send("x") || dripping.Closed(); }));
  // So it is for others, but that a busy machine may take longer.
  EXPECT_TRUE(Eventually(
      [&] { return HttpGet(server->address(), "/healthz").status == 200; }));
}

TEST(HttpServerTest, AnEndlessHeadIsCut) {
  const auto server = Start(Healthy(), Patient());
  for (const char* begin : {"GET /", "GET /healthz HTTP/1.1\r\nX: ",
                            "GET /healthz HTTP/1.1\r\nX: y\r\nX: y\r\nLong-"}) {
    RawSocket socket(server->address());
    socket.Send(begin);
    const std::string block(4096, 'a');
    size_t sent = 0;
    while (sent < (size_t{64} << 20) && socket.Send(block)) sent += 4096;
    EXPECT_LT(sent, size_t{64} << 20) << begin;
  }
  EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200);
}

// A chunked body of 1.4 GB took 2 GB of memory once.
TEST(HttpServerTest, NoBodyIsTaken) {
  const auto server = Start(Healthy(), Patient());
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'b') + "\r\n";
  for (const std::string& path :
       {std::string("/"), std::string("/healthz"), std::string("/metrics")}) {
    for (const char* method : {"POST", "PUT", "GET"}) {
      const std::string head =
          std::string(method) + " " + path + " HTTP/1.1\r\nHost: weir\r\n";
      RawSocket chunked(server->address());
      chunked.Send(head + "Transfer-Encoding: chunked\r\n\r\n");
      int sent = 0;
      while (sent < 1024 && chunked.Send(chunk)) ++sent;
      EXPECT_LT(sent, 64) << head;  // MiB, in the sockets' buffers
      RawSocket announced(server->address());
      announced.Send(head + "Content-Length: 1000000000\r\n\r\n");
      const int status = ParseHttpReply(announced.ReadToEnd()).status;
      EXPECT_EQ(status, method == std::string("GET") ? 413 : 405) << head;
    }
  }
  EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200);
}

struct TextLimits {
  size_t texts, bytes;
  int held;  // of 4 MiB and a little
};

class HttpServerTextsTest : public ::testing::TestWithParam<TextLimits> {};

INSTANTIATE_TEST_SUITE_P(
    Limits, HttpServerTextsTest,
    ::testing::Values(TextLimits{.texts = 4, .bytes = 32 << 20, .held = 4},
                      TextLimits{.texts = 16, .bytes = 12 << 20, .held = 3},
                      TextLimits{.texts = 16, .bytes = 1, .held = 2}));

TEST_P(HttpServerTextsTest, SlowReadersHoldNothingUp) {
  HttpServer::Callbacks callbacks = Healthy();
  std::atomic<int> made = 0;
  callbacks.metrics = [&] {
    return std::to_string(++made) + std::string(4 << 20, 'm');
  };
  HttpServer::Limits limits = Patient();
  limits.connections_per_peer = limits.connections;
  limits.texts = GetParam().texts;
  limits.text_bytes = GetParam().bytes;
  const auto server = Start(std::move(callbacks), limits);
  std::vector<RawSocket> slow;
  for (int i = 0; i < 100; ++i) {
    slow.emplace_back(server->address(), "", 4096);
    slow.back().Send(kScrape);
    EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200) << i;
    // Else many who wait for one text share the next.
    if (i < GetParam().held) {
      ASSERT_TRUE(Eventually([&] { return made == i + 1; })) << i;
    }
  }
  // Nobody is cut for them, and what they hold is a few texts.
  const auto text_of = [](const std::string& body) {
    return body.substr(0, body.find('m'));
  };
  std::set<std::string> texts = {
      text_of(HttpGet(server->address(), "/metrics").body)};
  for (RawSocket& socket : slow) {
    const std::string body = ParseHttpReply(socket.ReadToEnd()).body;
    EXPECT_GT(body.size(), size_t{4} << 20);
    texts.insert(text_of(body));
  }
  EXPECT_EQ(static_cast<int>(texts.size()), GetParam().held);
  EXPECT_EQ(made, GetParam().held);
  // With them gone, there is a text of the day again.
  EXPECT_TRUE(Eventually([&] {
    return text_of(HttpGet(server->address(), "/metrics").body) ==
           std::to_string(texts.size() + 1);
  }));
}

TEST(HttpServerTest, MakingTheTextHoldsNothingUp) {
  Event called, go_on;
  HttpServer::Callbacks callbacks = Healthy();
  std::atomic<int> texts = 0;
  callbacks.metrics = [&] {
    called.Set();
    go_on.Wait(static_cast<size_t>(++texts));
    return "text " + std::to_string(texts) + "\n";
  };
  const auto server = Start(std::move(callbacks), Patient());
  std::string first, later[4];
  std::thread scraper(
      [&] { first = HttpGet(server->address(), "/metrics").body; });
  called.Wait();
  EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200);
  // These ask while a text is made that may not have what they are to see.
  std::vector<std::thread> scrapers;
  for (std::string& text : later) {
    scrapers.emplace_back(
        [&] { text = HttpGet(server->address(), "/metrics").body; });
  }
  EXPECT_EQ(HttpGet(server->address(), "/healthz").status, 200);
  go_on.Set();
  scraper.join();
  EXPECT_EQ(first, "text 1\n");
  go_on.Set();
  go_on.Set();
  go_on.Set();
  go_on.Set();
  for (std::thread& thread : scrapers) thread.join();
  for (const std::string& text : later) {
    EXPECT_THAT(text, StartsWith("text "));
    EXPECT_THAT(text, Not(first));
  }
}

TEST(HttpServerTest, EndsWithWhatItHolds) {
  HttpServer::Callbacks callbacks = Healthy();
  callbacks.metrics = [] { return std::string(8 << 20, 'm'); };
  auto server = Start(std::move(callbacks), Patient());
  const std::string address = server->address();
  RawSocket silent(address);
  RawSocket half(address);
  half.Send(kHalf);
  RawSocket slow(address, "", 4096);
  slow.Send(kScrape);
  EXPECT_EQ(HttpGet(address, "/healthz").status, 200);
  server.reset();
  EXPECT_EQ(silent.ReadToEnd(), "");
  EXPECT_EQ(half.ReadToEnd(), "");
}

}  // namespace
}  // namespace weir::testing
