#include "server/observe/line_writer.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <string>
#include <utility>

#include "kernels/base/mutex.h"

namespace weir {
namespace {

// A pipe that has room at all takes so much without waiting, and in one piece
// whoever else writes to it.
constexpr size_t kPieceBytes = PIPE_BUF;

// False if nobody will ever read it.
bool WritePiece(int fd, std::string_view piece) {
  while (!piece.empty()) {
    pollfd entry{fd, POLLOUT, 0};
    if (poll(&entry, 1, -1) < 0 && errno != EINTR) return false;
    const ssize_t written = write(fd, piece.data(), piece.size());
    if (written >= 0) {
      piece.remove_prefix(static_cast<size_t>(written));
    } else if (errno != EINTR && errno != EAGAIN) {
      return false;
    }
  }
  return true;
}

// As many whole lines as fit one piece, or the beginning of a longer one.
std::string_view FirstPiece(std::string_view text) {
  if (text.size() <= kPieceBytes) return text;
  const size_t end = text.rfind('\n', kPieceBytes - 1);
  return text.substr(0, end == std::string_view::npos ? kPieceBytes : end + 1);
}

}  // namespace

struct LineWriter::State {
  State(int f, size_t bytes) : fd(f), max_bytes(bytes) {}

  void Run();
  // Waits for lines; "" when it is time to end.
  std::string Take();
  void Written();
  void Tell();

  const int fd;
  const size_t max_bytes;

  Mutex mu;
  CondVar changed;
  std::string waiting WEIR_GUARDED_BY(mu);
  size_t leaving WEIR_GUARDED_BY(mu) = 0;  // bytes that the thread has taken
  uint64_t dropped WEIR_GUARDED_BY(mu) = 0;
  uint64_t told WEIR_GUARDED_BY(mu) = 0;  // of those
  bool ending WEIR_GUARDED_BY(mu) = false;
  bool ended WEIR_GUARDED_BY(mu) = false;

  // Held while it is called; taken before `mu`.
  Mutex tell_mu;
  std::function<void(uint64_t)> tell WEIR_GUARDED_BY(tell_mu);
};

void LineWriter::State::Run() {
  for (std::string text = Take(); !text.empty(); text = Take()) {
    std::string_view left = text;
    while (!left.empty()) {
      const std::string_view piece = FirstPiece(left);
      if (!WritePiece(fd, piece)) {
        // Without a reader there is nothing to keep the rest for.
        const MutexLock lock(&mu);
        const auto lines =
            static_cast<uint64_t>(std::count(left.begin(), left.end(), '\n'));
        dropped += lines;
        told += lines;  // nobody reads that either
        break;
      }
      left.remove_prefix(piece.size());
    }
    Written();
    Tell();
  }
}

std::string LineWriter::State::Take() {
  const MutexLock lock(&mu);
  while (waiting.empty() && !ending) changed.Wait(&mu);
  std::string text;
  text.swap(waiting);
  leaving = text.size();
  if (text.empty()) {
    ended = true;
    changed.NotifyAll();
  }
  return text;
}

void LineWriter::State::Written() {
  const MutexLock lock(&mu);
  leaving = 0;
  changed.NotifyAll();
}

void LineWriter::State::Tell() {
  const MutexLock telling(&tell_mu);
  if (tell == nullptr) return;
  uint64_t count = 0;
  {
    const MutexLock lock(&mu);
    count = dropped - std::exchange(told, dropped);
  }
  if (count > 0) tell(count);
}

LineWriter::LineWriter(int fd, size_t max_bytes)
    : state_(std::make_shared<State>(fd, max_bytes)),
      thread_([state = state_] { state->Run(); }) {
  pthread_setname_np(thread_.native_handle(), "weir-log");
}

LineWriter::~LineWriter() {
  Flush();
  bool ended = false;
  {
    const MutexLock lock(&state_->mu);
    state_->ending = true;
    state_->changed.NotifyAll();
    // Whether it ends at once is known: it has nothing left, or is held.
    if (state_->leaving == 0 && state_->waiting.empty()) {
      while (!state_->ended) state_->changed.Wait(&state_->mu);
      ended = true;
    }
  }
  if (ended) {
    thread_.join();
  } else {
    thread_.detach();
  }
}

void LineWriter::Write(std::string_view line) {
  State& state = *state_;
  const MutexLock lock(&state.mu);
  if (state.waiting.size() + state.leaving + line.size() > state.max_bytes) {
    ++state.dropped;
    return;
  }
  if (state.waiting.empty()) state.changed.NotifyAll();
  state.waiting.append(line);
}

uint64_t LineWriter::dropped() const {
  const MutexLock lock(&state_->mu);
  return state_->dropped;
}

void LineWriter::OnDropped(std::function<void(uint64_t)> tell) {
  const MutexLock lock(&state_->tell_mu);
  state_->tell = std::move(tell);
}

bool LineWriter::Flush() {
  const auto until =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(kPatience);
  State& state = *state_;
  const MutexLock lock(&state.mu);
  while (!state.waiting.empty() || state.leaving > 0) {
    if (!state.changed.WaitUntil(&state.mu, until)) break;
  }
  return state.waiting.empty() && state.leaving == 0;
}

}  // namespace weir
