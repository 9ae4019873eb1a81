// Lines on their way to somebody who reads slowly, or not at all.
#include "server/observe/line_writer.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <deque>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/observe/logger.h"
#include "tests/base/eventually.h"

namespace weir::testing {
namespace {

using ::testing::HasSubstr;

// What a process has for standard error in a container.
class Pipe {
 public:
  explicit Pipe(int flags = 0) {
    signal(SIGPIPE, SIG_IGN);
    EXPECT_EQ(pipe2(fds_, O_CLOEXEC | flags), 0);
  }
  ~Pipe() {
    CloseReader();
    CloseWriter();
  }
  int writer() const { return fds_[1]; }
  // Leaves no room, so that whoever writes waits from the first byte on.
  // Returns how many bytes that took.
  size_t Fill() {
    const int flags = fcntl(fds_[1], F_GETFL);
    EXPECT_EQ(fcntl(fds_[1], F_SETFL, flags | O_NONBLOCK), 0);
    const std::string page(4096, '.');
    size_t filled = 0;
    for (ssize_t n = 0; n >= 0;) {
      n = write(fds_[1], page.data(), page.size());
      if (n > 0) filled += static_cast<size_t>(n);
    }
    EXPECT_EQ(fcntl(fds_[1], F_SETFL, flags), 0);
    return filled;
  }
  void CloseReader() { Close(&fds_[0]); }
  void CloseWriter() { Close(&fds_[1]); }

  // Reads until there are so many bytes.
  std::string Read(size_t size) {
    std::string text(size, '\0');
    size_t got = 0;
    while (got < size) {
      const ssize_t n = read(fds_[0], text.data() + got, size - got);
      if (n <= 0) break;
      got += static_cast<size_t>(n);
    }
    text.resize(got);
    return text;
  }
  // Of a pipe with O_DIRECT: what was written at once.
  std::string ReadPiece() {
    std::string text(2 * PIPE_BUF, '\0');
    const ssize_t n = read(fds_[0], text.data(), text.size());
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
  }
  // Reads until `last` was read.
  std::string ReadUntil(const std::string& last) {
    std::string text;
    while (text.find(last) == std::string::npos) {
      const std::string byte = Read(1);
      if (byte.empty()) break;
      text += byte;
    }
    return text;
  }

 private:
  static void Close(int* fd) {
    if (*fd >= 0) close(*fd);
    *fd = -1;
  }
  int fds_[2] = {-1, -1};
};

std::string Line(size_t i, size_t size = 100) {
  std::string line = std::to_string(i) + " ";
  line.resize(size - 1, 'x');
  return line + "\n";
}

TEST(LineWriterTest, WritesEveryLineInOrder) {
  Pipe pipe;
  std::string expected;
  {
    LineWriter writer(pipe.writer());
    for (size_t i = 0; i < 300; ++i) {
      // Some longer than a pipe takes at once.
      const std::string line = Line(i, i % 100 == 50 ? 10000 : 100);
      expected += line;
      writer.Write(line);
    }
    std::string got;
    std::thread reader([&] { got = pipe.Read(expected.size()); });
    reader.join();
    EXPECT_EQ(got, expected);
    EXPECT_TRUE(writer.Flush());
    EXPECT_EQ(writer.dropped(), 0u);
    writer.Write("the end\n");
  }
  pipe.CloseWriter();
  EXPECT_EQ(pipe.Read(100), "the end\n");
}

// Others write to the same pipe: what they write stands between lines.
TEST(LineWriterTest, APieceIsWholeLines) {
  constexpr size_t kLines = 200;
  Pipe pipe(O_DIRECT);
  size_t left = pipe.Fill();
  LineWriter writer(pipe.writer());
  for (size_t i = 0; i < kLines; ++i) writer.Write(Line(i));
  while (left > 0) left -= pipe.ReadPiece().size();
  for (size_t got = 0; got < kLines * Line(0).size();) {
    const std::string piece = pipe.ReadPiece();
    ASSERT_LE(piece.size(), size_t{PIPE_BUF});
    ASSERT_EQ(piece.back(), '\n');
    got += piece.size();
  }
}

// Whoever writes goes on; whoever reads later gets the oldest lines whole, and
// is told how many are missing.
TEST(LineWriterTest, DropsAndCountsWhatAStalledReaderLeaves) {
  constexpr size_t kBytes = 100'000;
  constexpr size_t kLines = 10'000;
  Pipe pipe;
  const size_t filled = pipe.Fill();
  LineWriter writer(pipe.writer(), kBytes);
  Logger logger(LogFormat::kJson, LogLevel::kInfo, writer);
  for (size_t i = 0; i < kLines; ++i) {
    logger.Log(LogLevel::kInfo, "a line",
               {{"i", static_cast<int64_t>(i)}, {"x", std::string(100, 'x')}});
  }
  const uint64_t dropped = writer.dropped();
  EXPECT_GT(dropped, kLines / 2);
  EXPECT_EQ(pipe.Read(filled).size(), filled);
  std::istringstream text(
      pipe.ReadUntil("were dropped: whoever reads them is "
                     "too slow\",\"count\":" +
                     std::to_string(dropped) + "}\n"));
  size_t lines = 0;
  for (std::string line; std::getline(text, line); ++lines) {
    const auto event = nlohmann::json::parse(line);
    if (event["message"] == "a line") {
      EXPECT_EQ(event["i"], lines);
    } else {
      EXPECT_EQ(event["level"], "warning");
      EXPECT_EQ(event["count"], dropped);
    }
  }
  EXPECT_EQ(lines, kLines - dropped + 1);
  logger.Log(LogLevel::kInfo, "and on");
  EXPECT_THAT(pipe.ReadUntil("\n"), HasSubstr("and on"));
}

TEST(LineWriterTest, AStalledReaderDoesNotHoldItsEnd) {
  // Never ends: the thread that is left behind may write to it for as long as
  // the process lives.
  static std::deque<Pipe>& pipes = *new std::deque<Pipe>;
  Pipe& pipe = pipes.emplace_back();
  {
    LineWriter writer(pipe.writer());
    for (size_t i = 0; i < 10'000; ++i) writer.Write(Line(i));
    EXPECT_FALSE(writer.Flush());
  }
  pipe.CloseReader();
}

TEST(LineWriterTest, WithoutAReaderLinesAreCountedAndThatIsAll) {
  Pipe pipe;
  pipe.CloseReader();
  LineWriter writer(pipe.writer());
  Logger logger(LogFormat::kText, LogLevel::kInfo, writer);
  for (int i = 0; i < 100; ++i) logger.Log(LogLevel::kInfo, "a line");
  EXPECT_TRUE(writer.Flush());
  EXPECT_EQ(writer.dropped(), 100u);
}

TEST(LineWriterTest, ADescriptorThatDoesNotWaitIsWaitedFor) {
  Pipe pipe;
  ASSERT_EQ(fcntl(pipe.writer(), F_SETFL, O_NONBLOCK), 0);
  LineWriter writer(pipe.writer());
  std::string expected;
  for (size_t i = 0; i < 10'000; ++i) {
    expected += Line(i);
    writer.Write(Line(i));
  }
  EXPECT_EQ(pipe.Read(expected.size()), expected);
  EXPECT_EQ(writer.dropped(), 0u);
}

TEST(LineWriterTest, TakesLinesFromManyThreads) {
  Pipe pipe;
  LineWriter writer(pipe.writer());
  constexpr size_t kThreads = 4, kEach = 1000, kSize = 64;
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&writer, t] {
      for (size_t i = 0; i < kEach; ++i) writer.Write(Line(t, kSize));
    });
  }
  std::istringstream text(pipe.Read(kThreads * kEach * kSize));
  for (std::thread& thread : threads) thread.join();
  std::vector<size_t> count(kThreads);
  for (std::string line; std::getline(text, line);) {
    const size_t t = std::stoul(line);
    ASSERT_LT(t, kThreads);
    EXPECT_EQ(line + "\n", Line(t, kSize));
    ++count[t];
  }
  EXPECT_EQ(count, std::vector<size_t>(kThreads, kEach));
}

}  // namespace
}  // namespace weir::testing
