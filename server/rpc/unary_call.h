// A call over gRPC's completion queues: the one implementation of ServerCall
// for calls, and of ServerStream. Objects are reused by their I/O thread, so
// that a call costs no heap block of ours. Used by its I/O thread only, but for
// Resume.
//
// It speaks to gRPC's core, not to its C++ classes, for what those do not
// offer: a call is there with its headers and may be refused before its message
// is read; a message's compression is ours to undo; and the end of a call that
// is answered at once comes with the end of its answer, in one event. So a call
// has three events, as many as where gRPC reads the message itself:
//
//   arrived → [admission] → message → [handler, answer] → finished
//
// A fourth, closed, tells a handler that answers later that the caller has
// gone. A large reply is written first (written), and its status follows. So is
// each message of a method that streams its replies. One whose caller streams
// its messages has its handler called when it has arrived, and a message read
// when that asks for one (unary_call_stream.cc).
#pragma once

#include <grpc/grpc.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/rpc/call_list.h"
#include "server/rpc/io_thread.h"
#include "server/rpc/message_inflater.h"
#include "server/rpc/method_table.h"
#include "server/rpc/received_message.h"
#include "server/rpc/server_stream.h"

namespace weir {

class UnaryCall final : public ServerStream, private CallLink {
 public:
  explicit UnaryCall(IoThread* io);
  ~UnaryCall() override;

  // Waits for a call of the service's method number `index`; where that has no
  // handle, of any method that nobody registered. False if no call comes any
  // more.
  bool Request(RawService* service, int index);

  // Forgets the call, ready for the next Request.
  void Clear();

  // Those of the thread's calls that have waited too long for their clients: to
  // send the rest of a message, or to take a reply.
  static void CutUploads(IoThread& io, Nanos now);
  static void CutReplies(IoThread& io, Nanos now);
  // The connections of those that were cut and stay: what gRPC writes to a
  // socket it holds until it has written it, or the socket is shut down.
  static void EndStuck(const IoThread& io, Nanos now);

  void Resume(ResumeFn fn, void* arg) override;
  std::string Connection() const override;
  std::optional<std::string_view> Header(std::string_view name) const override;
  void Reply(ReplyBuffer reply) override;
  void Fail(const absl::Status& error) override;
  void Write(ReplyBuffer message, ResumeFn written, void* arg) override;
  void Read(ReadFn fn, void* arg) override;
  void Defer(ResumeFn fn, void* arg) override;
  void Finish() override;
  IoThread& thread() const override { return *io_; }

 private:
  struct Node : InboxNode {
    UnaryCall* call = nullptr;
    ResumeFn fn = nullptr;
    void* arg = nullptr;
  };

  // Every way into the call; the last one out gives the object back.
  class Entry {
   public:
    explicit Entry(UnaryCall* call) : call_(call) { ++call_->depth_; }
    ~Entry() { call_->Leave(); }
    Entry(const Entry&) = delete;
    Entry& operator=(const Entry&) = delete;

   private:
    UnaryCall* const call_;
  };

  void OnArrived(bool ok);
  void OnMessage(bool ok);
  void OnWritten(bool ok);
  void OnFinished(bool ok);
  void OnClosed();
  void OnResume();
  void Leave();
  void ForgetRequest();
  void Over();
  void End();

  void Start(const grpc_op* ops, size_t count, IoEvent* event);
  std::string FindIdentity() const override;
  // Whose connection it is, and whether that may call.
  void Recognize();
  absl::Status CheckCaller() const;
  // Whether there is such a method and it is offered.
  absl::Status CheckMethod() const;
  gpr_timespec ForgetWanted();
  void ReadMessage();
  void AwaitMessage();
  void BeginUpload();
  // Nothing happens if there is none.
  void EndUpload();
  // With this, of whoever reads it.
  void CutUpload(const absl::Status& error);
  // If too many are awaited, one is cut. False if it is this one.
  bool MayAwait();
  static UnaryCall* ToDisplace(const IoThread& io);
  absl::Status TakeMessage();
  void OnInflateTurn();
  void Inflate();
  absl::Status ViewMessage();
  void RunHandler();
  void BeginStream();
  void OnStreamMessage();
  absl::Status TakeStreamMessage();
  void GoOnInflating();
  void InflateStreamMessage();
  void Deliver(MessageOr message);
  void OnDeferred();
  void WatchForClose();
  bool BeginAnswer(const absl::Status& status);
  // Nobody waits for its handler any more, or never did.
  void CountNoMore();
  // False if too many calls that count nowhere are being answered already, of
  // this peer or in all.
  bool BeginRefusal();
  void TakeReply(ReplyBuffer* reply);
  void Send(const absl::Status& status, bool begins);
  bool OthersNeedTheRoom() const;
  void EnterSending(Nanos now);
  void LeaveSending();
  void Cut();

  const Method& method() const;
  // It stands for those that nobody registered.
  bool unknown() const;
  Admission::Kind kind() const;
  Admission* admission() const;  // null: every call is admitted
  size_t max_message_bytes() const;
  // What stays of it until it ends, beside its reply.
  size_t call_bytes() const { return kCallBytes + arena_.kept_bytes(); }
  // Of a message that gRPC has not written yet: who made it may be gone.
  size_t UnwrittenBytes() const { return writes_ ? writing_bytes_ : 0; }
  // Whose bound that is, for errors.
  const char* message_bound() const;

  IoThread* const io_;
  RawService* service_ = nullptr;
  int index_ = 0;

  // gRPC's side of the call; null before it arrives.
  grpc_call* call_ = nullptr;
  gpr_timespec raw_deadline_ = {};
  grpc_call_details wanted_ = {};  // of an unknown method's call, as it arrives
  grpc_metadata_array headers_ = {};
  std::string connection_;  // gRPC's name of the connection
  ReceivedMessage message_;
  MessageCopies copies_;
  grpc_byte_buffer reply_ = {};
  grpc_slice details_ = {};  // of a status that is being sent
  int cancelled_ = 0;        // set with the event that says closed

  int depth_ = 0;
  int events_ = 0;            // that will come, turns among them
  bool owed_ = false;         // IoThread counts it
  bool open_ = false;         // the same, among its open calls
  bool begun_ = false;        // a stream: its headers are sent
  bool writes_ = false;       // a stream: a message is being written
  bool uploads_ = false;      // the message, a stream's first, is awaited
  bool watched_ = false;      // an event tells when the call is closed
  bool closed_ = false;       // gRPC says that the call is over
  bool answered_ = false;     // Reply or Fail was called
  bool sent_ = false;         // gRPC has written the whole answer
  bool cut_ = false;          // by us, while it was being sent
  bool refused_ = false;      // IoThread counts it among its refusals
  absl::Status answer_;       // what it was
  size_t reply_bytes_ = 0;    // of the reply that is being sent
  size_t writing_bytes_ = 0;  // held for a stream's message that is written

  ResumeFn written_ = nullptr;  // of the message that is being written
  void* written_arg_ = nullptr;

  // Of a stream that is read.
  std::shared_ptr<StreamMessage> stream_message_;  // until it is whole
  bool opened_ = false;                            // one was asked for
  ReadFn read_ = nullptr;  // of the message that is asked for
  void* read_arg_ = nullptr;

  std::unique_ptr<MessageInflater> inflater_;
  IoEvent arrived_event_;
  IoEvent message_event_;
  IoEvent written_event_;
  IoEvent finished_event_;
  IoEvent closed_event_;
  Node resume_;
  Node inflate_;
  Node deferred_;
};

}  // namespace weir
