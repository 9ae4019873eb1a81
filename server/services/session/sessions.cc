#include "server/services/session/sessions.h"

#include <utility>
#include <vector>

#include "server/services/session/session.h"

namespace weir {

void Sessions::AddStream(SessionPeer* stream) {
  MutexLock lock(&mu_);
  streams_.insert(stream);
}

void Sessions::RemoveStream(SessionPeer* stream) {
  MutexLock lock(&mu_);
  streams_.erase(stream);
}

void Sessions::Add(Session* key, std::weak_ptr<Session> session) {
  MutexLock lock(&mu_);
  sessions_[key] = std::move(session);
}

void Sessions::Remove(Session* session) {
  MutexLock lock(&mu_);
  sessions_.erase(session);
}

void Sessions::Drain(int64_t deadline_unix_ns) {
  std::vector<std::shared_ptr<Session>> all;
  deadline_.store(deadline_unix_ns, std::memory_order_release);
  {
    MutexLock lock(&mu_);
    for (SessionPeer* const stream : streams_) stream->Wake();
    for (const auto& [key, session] : sessions_) {
      if (auto living = session.lock()) all.push_back(std::move(living));
    }
  }
  for (const auto& session : all) session->EndUnlessAttached();
}

size_t Sessions::streams() const {
  MutexLock lock(&mu_);
  return streams_.size();
}

size_t Sessions::sessions() const {
  MutexLock lock(&mu_);
  return sessions_.size();
}

}  // namespace weir
