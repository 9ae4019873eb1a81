// A session of a test's, over a stream of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "proto/weir/v1/session.pb.h"
#include "tests/server/server_fixture.h"
#include "tests/services/space_call_fixture.h"

namespace weir::testing {

class SessionClient {
 public:
  // Of the space with this token. Nothing is sent yet.
  SessionClient(TestServer& server, const std::string& token)
      : stub_(v1::Evaluator::NewStub(server.Connect())) {
    SetPatience(&context_);
    context_.AddMetadata(kSpaceHeader, token);
    stream_ = stub_->Session(&context_);
  }
  ~SessionClient() { context_.TryCancel(); }

  // Opens it, and awaits that it is.
  bool Open(uint64_t session, bool push_completions = false) {
    v1::SessionRequest request;
    request.mutable_open()->set_session(session);
    request.mutable_open()->set_push_completions(push_completions);
    return Open(request);
  }
  bool Resume(uint64_t session, uint64_t acknowledged = 0) {
    v1::SessionRequest request;
    request.mutable_open()->set_session(session);
    request.mutable_open()->set_resume(true);
    request.set_acknowledged(acknowledged);
    return Open(request);
  }
  bool Open(const v1::SessionRequest& request) {
    Send(request);
    while (!opened_.has_value() && Receive()) {
    }
    return opened_.has_value();
  }
  const v1::SessionOpened& opened() const { return *opened_; }

  bool Send(const v1::SessionRequest& request) {
    return stream_->Write(request);
  }
  // One command, with the next number, which is returned.
  uint64_t Send(v1::Command command) {
    v1::SessionRequest request;
    request.set_first_sequence(++last_);
    *request.add_commands() = std::move(command);
    Send(request);
    return last_;
  }
  void SendAgain(uint64_t sequence, v1::Command command) {
    v1::SessionRequest request;
    request.set_first_sequence(sequence);
    *request.add_commands() = std::move(command);
    Send(request);
  }
  void Acknowledge(uint64_t sequence) {
    v1::SessionRequest request;
    request.set_acknowledged(sequence);
    Send(request);
  }
  void set_last(uint64_t sequence) { last_ = sequence; }
  bool EndSending() { return stream_->WritesDone(); }

  // Takes one event. False once the stream is over.
  bool Receive() {
    v1::SessionEvent event;
    if (!stream_->Read(&event)) return false;
    ++events_;
    if (event.has_opened()) opened_ = event.opened();
    if (event.has_going_away()) going_away_ = event.going_away();
    for (const v1::SessionResult& result : event.results()) {
      order_.push_back(result.sequence());
      results_[result.sequence()] = result.result();
    }
    for (const v1::WorkCompletion& completion : event.completions()) {
      completions_.push_back(completion);
    }
    return true;
  }
  // Awaits the answer of a command, the first if it comes more than once.
  v1::CommandResult Result(uint64_t sequence) {
    while (!results_.contains(sequence)) {
      if (Receive()) continue;
      ADD_FAILURE() << "the stream ended before command " << sequence
                    << " was answered: " << stream_->Finish().error_message();
      return {};
    }
    return results_[sequence];
  }
  // The same, sent now.
  v1::CommandResult Run(v1::Command command) {
    return Result(Send(std::move(command)));
  }
  // Another answer of one that was answered.
  v1::CommandResult NextResult(uint64_t sequence) {
    results_.erase(sequence);
    return Result(sequence);
  }
  const v1::WorkCompletion& Completion(size_t index) {
    while (completions_.size() <= index && Receive()) {
    }
    return completions_.at(index);
  }
  // Takes what is left.
  grpc::Status Finish() {
    while (Receive()) {
    }
    return stream_->Finish();
  }
  void Break() { context_.TryCancel(); }

  // The numbers of answers, as they came.
  const std::vector<uint64_t>& order() const { return order_; }
  bool answered(uint64_t sequence) const { return results_.contains(sequence); }
  size_t completions() const { return completions_.size(); }
  size_t events() const { return events_; }
  const std::optional<v1::SessionGoingAway>& going_away() const {
    return going_away_;
  }

 private:
  const std::unique_ptr<v1::Evaluator::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<
      grpc::ClientReaderWriter<v1::SessionRequest, v1::SessionEvent>>
      stream_;
  uint64_t last_ = 0;
  size_t events_ = 0;
  std::optional<v1::SessionOpened> opened_;
  std::optional<v1::SessionGoingAway> going_away_;
  std::map<uint64_t, v1::CommandResult> results_;
  std::vector<uint64_t> order_;
  std::vector<v1::WorkCompletion> completions_;
};

// Commands.

inline v1::Command SignalCommand(uint64_t timeline, uint64_t value) {
  v1::Command command;
  command.mutable_timeline_signal()->set_timeline(timeline);
  command.mutable_timeline_signal()->set_value(value);
  return command;
}

inline v1::Command WaitCommand(uint64_t timeline, uint64_t value) {
  v1::Command command;
  v1::Point* const point = command.mutable_wait()->add_points();
  point->set_timeline(timeline);
  point->set_value(value);
  return command;
}

inline v1::Command FlushCommand(uint64_t context) {
  v1::Command command;
  command.mutable_context_flush()->set_context(context);
  return command;
}

inline v1::Command EvaluateCommand(v1::EvaluateRequest request) {
  v1::Command command;
  *command.mutable_evaluate() = std::move(request);
  return command;
}

inline v1::Command GetCommand(uint64_t tensor) {
  v1::Command command;
  command.mutable_tensor_get()->set_tensor(tensor);
  return command;
}

}  // namespace weir::testing
