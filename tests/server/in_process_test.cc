// The services over a transport without gRPC, in this process: I/O threads with
// an inbox each, and callers who send at once, leave in the middle and come
// late. ThreadSanitizer sees all of it, which it does not of gRPC.
#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/backend/devices.h"
#include "kernels/base/mutex.h"
#include "kernels/ops/registry.h"
#include "proto/inference/grpc_service.pb.h"
#include "proto/weir/v1/evaluator.pb.h"
#include "server/rpc/peer.h"
#include "server/services/evaluator.h"
#include "server/services/kserve_infer.h"
#include "server/services/service_context.h"
#include "tests/base/event.h"
#include "tests/base/eventually.h"
#include "tests/rpc/reply_bytes.h"
#include "tests/server/model_folder.h"

namespace weir {
namespace {

// Runs what is posted, in order, until it ends.
class InboxThread {
 public:
  InboxThread() : thread_([this] { Run(); }) {}
  ~InboxThread() {
    Post(nullptr);
    thread_.join();
  }
  void Post(std::function<void()> task) {
    MutexLock lock(&mu_);
    tasks_.push_back(std::move(task));
    changed_.NotifyAll();
  }

 private:
  void Run() {
    for (;;) {
      std::function<void()> task;
      {
        MutexLock lock(&mu_);
        while (tasks_.empty()) changed_.Wait(&mu_);
        task = std::move(tasks_.front());
        tasks_.pop_front();
      }
      if (task == nullptr) return;
      task();
    }
  }

  Mutex mu_;
  CondVar changed_;
  std::deque<std::function<void()>> tasks_ WEIR_GUARDED_BY(mu_);
  std::thread thread_;
};

// Lives on its thread from its message to its answer.
class InProcessCall final : public ServerCall {
 public:
  // `done` is called once, on the thread.
  using Done = std::function<void(const absl::Status&, const std::string&)>;

  InProcessCall(InboxThread* io, Admission* admission, std::string message,
                Nanos deadline, std::string peer, Done done)
      : io_(io),
        message_(std::move(message)),
        piece_(reinterpret_cast<const std::byte*>(message_.data()),
               message_.size()),
        connection_(std::move(peer)),
        done_(std::move(done)) {
    request_ = ByteView({&piece_, 1}, message_.size());
    peer_ = PeerKey(connection_);
    deadline_ = deadline;
    received_ = NowNanos();
    auto ticket = admission->Admit(message_.size(), kNoDeadline, received_);
    EXPECT_TRUE(ticket.ok()) << ticket.status();
    if (ticket.ok()) ticket_ = *std::move(ticket);
  }

  // On its thread, if it is not answered yet.
  void Leave() {
    if (!answered_) SetCancelled();
  }

  void Resume(ResumeFn fn, void* arg) override {
    io_->Post([this, fn, arg] { fn(*this, arg); });
  }
  std::string Connection() const override { return connection_; }
  std::optional<std::string_view> Header(std::string_view) const override {
    return std::nullopt;
  }
  void Reply(ReplyBuffer reply) override {
    Answer(absl::OkStatus(), ReplyBytes(reply));
  }
  void Fail(const absl::Status& error) override { Answer(error, ""); }
  void Write(ReplyBuffer, ResumeFn, void*) override {
    ADD_FAILURE() << "no method here streams";
  }

 private:
  void Answer(const absl::Status& status, const std::string& bytes) {
    EXPECT_FALSE(std::exchange(answered_, true)) << "answered twice";
    ForgetCancel();
    ticket_.Answered(bytes.size());
    request_ = ByteView();
    arena_.Reset();
    ticket_.Reset();
    done_(status, bytes);
  }

  InboxThread* const io_;
  const std::string message_;
  const BytePiece piece_;
  const std::string connection_;
  const Done done_;
  bool answered_ = false;
};

class InProcessTest : public ::testing::Test {
 protected:
  InProcessTest()
      : engine_(&engines_.Add(*Engine::Create(MakeCpuDevice({.cpu_threads = 2}),
                                              registry_.get(), SmallEngine()))),
        models_(OpenModels()),
        context_{options_,   engines_,   *models_,    admission_,   metrics_,
                 of_models_, readiness_, long_steps_, evaluations_, "test"},
        evaluator_(&context_),
        kserve_(&context_) {
    evaluator_.Register(&table_);
    kserve_.Register(&table_);
  }

  static EngineOptions SmallEngine() {
    EngineOptions options;
    options.streams.max = 3;  // fewer than callers
    options.pinned_bytes = size_t{64} << 20;
    return options;
  }

  std::unique_ptr<ModelRepository> OpenModels() {
    folder_.Write("copy", testing::IdentityModel(onnx::TensorProto::FLOAT));
    RepositoryOptions options;
    options.root = folder_.path();
    auto models =
        *ModelRepository::Open(options, &engine_->device(), registry_.get());
    models->LoadAll();
    return models;
  }

  const Method& Find(std::string_view name) const {
    for (const Method& method : table_.methods()) {
      if (method.name == name) return method;
    }
    ADD_FAILURE() << name;
    return table_.methods()[0];
  }

  // What `count` floats say of request `number`.
  static std::string Floats(int number, int count) {
    const std::vector<float> values(static_cast<size_t>(count),
                                    static_cast<float>(number));
    return {reinterpret_cast<const char*>(values.data()),
            values.size() * sizeof(float)};
  }

  static std::string InferMessage(const std::string& floats) {
    inference::ModelInferRequest request;
    request.set_model_name("copy");
    auto* const input = request.add_inputs();
    input->set_name("x");
    input->set_datatype("FP32");
    input->add_shape(static_cast<int64_t>(floats.size() / sizeof(float)));
    request.add_raw_input_contents(floats);
    return request.SerializeAsString();
  }

  // y = -(-x), with names that make another program of every `program`.
  static std::string EvaluateMessage(const std::string& floats, int program) {
    v1::EvaluateRequest request;
    auto* const graph = request.mutable_graph()->mutable_definition();
    graph->add_inputs()->set_name("x");
    v1::Node* const first = graph->add_nodes();
    first->set_op("Neg");
    first->add_inputs("x");
    first->add_outputs(absl::StrCat("m", program));
    v1::Node* const second = graph->add_nodes();
    second->set_op("Neg");
    second->add_inputs(absl::StrCat("m", program));
    second->add_outputs("y");
    graph->add_outputs("y");
    v1::NamedTensor* const input = request.add_inputs();
    input->set_name("x");
    auto* const spec = input->mutable_value()->mutable_spec();
    spec->set_dtype(v1::DATA_TYPE_FLOAT);
    spec->add_shape(static_cast<int64_t>(floats.size() / sizeof(float)));
    input->mutable_value()->set_raw(floats);
    return request.SerializeAsString();
  }

  static std::string Output(bool infer, const std::string& reply) {
    if (infer) {
      inference::ModelInferResponse response;
      return response.ParseFromString(reply) &&
                     response.raw_output_contents_size() == 1
                 ? response.raw_output_contents(0)
                 : "";
    }
    v1::EvaluateResponse response;
    return response.ParseFromString(reply) && response.outputs_size() == 1
               ? response.outputs(0).value().raw()
               : "";
  }

  // One caller's requests, one after the other.
  void Call(int caller, int requests) {
    InboxThread& io = *io_[static_cast<size_t>(caller) % io_.size()];
    for (int i = 0; i < requests; ++i) {
      const bool infer = (caller + i) % 2 == 0;
      // Of 64 bytes, and of so many that they are read and copied elsewhere.
      const int count = i % 16 == 7 ? 300'000 : 16;
      const std::string floats = Floats(caller * 1000 + i, count);
      const bool leaves = i % 3 == 1;
      const Nanos deadline = i % 7 == 5 ? NowNanos() + 200'000 : kNoDeadline;
      Event answered;
      absl::Status status;
      std::string reply;
      InProcessCall call(
          &io, &admission_,
          infer ? InferMessage(floats) : EvaluateMessage(floats, i % 5),
          deadline, absl::StrCat("caller ", caller),
          [&](const absl::Status& of, const std::string& bytes) {
            status = of;
            reply = bytes;
            answered.Set();
          });
      io.Post([&] { Find(infer ? "ModelInfer" : "Evaluate").handler(call); });
      Event left;
      if (leaves) {
        io.Post([&] {
          call.Leave();
          left.Set();
        });
        left.Wait();
      }
      answered.Wait();
      // What the call posted last may still be on its way.
      Event idle;
      io.Post([&] { idle.Set(); });
      idle.Wait();
      if (status.ok()) {
        EXPECT_EQ(Output(infer, reply), floats);
        ++answers_;
      } else {
        EXPECT_TRUE(
            (leaves && absl::IsCancelled(status)) ||
            (deadline != kNoDeadline && absl::IsDeadlineExceeded(status)))
            << status;
      }
    }
  }

  const testing::ModelFolder folder_;
  const ServerOptions options_;
  const std::unique_ptr<OpRegistry> registry_ = MakeOpRegistry({});
  Engines engines_;
  Engine* const engine_;
  const std::unique_ptr<ModelRepository> models_;
  Admission admission_{100, size_t{1} << 30};
  Metrics metrics_;
  ModelMetrics of_models_{&metrics_};
  Readiness readiness_;
  FairThreads long_steps_{2};
  EvaluationPool evaluations_;
  ServiceContext context_;
  EvaluatorService evaluator_;
  KserveInferService kserve_;
  MethodTable table_;
  std::atomic<int> answers_{0};
  std::array<std::unique_ptr<InboxThread>, 2> io_ = {
      std::make_unique<InboxThread>(), std::make_unique<InboxThread>()};
};

TEST_F(InProcessTest, EveryCallIsAnsweredOnceAndRightly) {
  constexpr int kCallers = 6;
  constexpr int kRequests = 60;
  std::vector<std::thread> callers;
  for (int caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([this, caller] { Call(caller, kRequests); });
  }
  // What tells of the server is asked meanwhile.
  std::atomic<bool> over{false};
  std::thread reader([this, &over] {
    while (!over) {
      metrics_.Text();
      engine_->streams().stats();
    }
  });
  for (std::thread& caller : callers) caller.join();
  over = true;
  reader.join();
  EXPECT_GE(answers_, kCallers * kRequests / 3);
  // Nothing is held when all are answered.
  EXPECT_EQ(admission_.bytes(), 0);
  EXPECT_TRUE(testing::Eventually([this] {
    return engine_->streams().stats().leased == 0 &&
           engine_->pinned().stats().leased_bytes == 0;
  }));
}

}  // namespace
}  // namespace weir
