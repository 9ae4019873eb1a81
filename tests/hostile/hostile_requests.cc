#include "tests/hostile/hostile_requests.h"

#include <arpa/inet.h>
#include <google/protobuf/text_format.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <netinet/in.h>
#include <onnx/onnx_pb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "client/cpp/client.h"
#include "client/cpp/status_details.h"
#include "tests/hostile/hostile_graphs.h"
#include "tests/models/onnx_model.h"
#include "tests/rpc/connect.h"
#include "tests/rpc/raw_http2.h"

namespace weir::testing {
namespace {

using absl::StatusCode;
using std::chrono::milliseconds;
using std::chrono::seconds;
using std::chrono::steady_clock;

// No answer takes so long.
constexpr seconds kAnswer{30};

constexpr char kEvaluate[] = "/weir.v1.Evaluator/Evaluate";
constexpr char kInfer[] = "/inference.GRPCInferenceService/ModelInfer";

// -- Calls --------------------------------------------------------------------

std::shared_ptr<grpc::Channel> Connect(const HostileTarget& target) {
  return weir::testing::Connect(target.grpc);
}

// Any bytes to any method.
absl::Status CallRaw(const std::shared_ptr<grpc::Channel>& channel,
                     const std::string& method, const std::string& message,
                     std::chrono::nanoseconds patience, bool gzip = false) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  context.set_deadline(
      std::chrono::system_clock::now() +
      std::chrono::duration_cast<std::chrono::system_clock::duration>(
          patience));
  if (gzip) context.set_compression_algorithm(GRPC_COMPRESS_GZIP);
  grpc::CompletionQueue queue;
  const grpc::Slice slice(message);
  const auto call = stub.PrepareUnaryCall(&context, method,
                                          grpc::ByteBuffer(&slice, 1), &queue);
  call->StartCall();
  grpc::ByteBuffer reply;
  grpc::Status status;
  call->Finish(&reply, &status, nullptr);
  void* tag = nullptr;
  bool ok = false;
  queue.Next(&tag, &ok);
  return client::ToStatus(status);
}

using Message = std::function<std::string(const HostileTarget&)>;

HostileRequest Call(std::string name, std::string method, Message message,
                    std::vector<StatusCode> codes) {
  return {std::move(name),
          [method = std::move(method),
           message = std::move(message)](const HostileTarget& target) {
            return HostileAnswer{
                CallRaw(Connect(target), method, message(target), kAnswer)};
          },
          std::move(codes)};
}

// -- Bytes of messages --------------------------------------------------------

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) {
    bytes += static_cast<char>(value | 0x80);
  }
  bytes += static_cast<char>(value);
  return bytes;
}

std::string Field(int number, const std::string& bytes) {
  return absl::StrCat(Varint(static_cast<uint64_t>(number) << 3 | 2),
                      Varint(bytes.size()), bytes);
}

// `count` empty messages: two bytes each, and an object of the receiver.
std::string Empties(int number, size_t count) {
  const std::string one = Field(number, "");
  std::string bytes;
  bytes.reserve(one.size() * count);
  for (size_t i = 0; i < count; ++i) bytes += one;
  return bytes;
}

std::string Replaced(std::string bytes, const std::string& from,
                     const std::string& to) {
  const size_t at = bytes.find(from);
  if (at != std::string::npos) bytes.replace(at, from.size(), to);
  return bytes;
}

template <typename T>
std::string Bytes(const std::vector<T>& values) {
  return std::string(reinterpret_cast<const char*>(values.data()),
                     values.size() * sizeof(T));
}

v1::EvaluateRequest Evaluation(const std::string& definition) {
  v1::EvaluateRequest request;
  if (!google::protobuf::TextFormat::ParseFromString(
          definition, request.mutable_graph()->mutable_definition())) {
    std::abort();
  }
  return request;
}

void AddInput(v1::EvaluateRequest* request, const std::string& name,
              v1::DataType dtype, const std::vector<int64_t>& dims,
              const std::string& raw) {
  v1::NamedTensor* input = request->add_inputs();
  input->set_name(name);
  v1::TensorSpec* spec = input->mutable_value()->mutable_spec();
  spec->set_dtype(dtype);
  for (const int64_t dim : dims) spec->add_shape(dim);
  input->mutable_value()->set_raw(raw);
}

// y = x.
v1::EvaluateRequest Copy() {
  return Evaluation(R"(inputs { name: "x" }
      nodes { name: "copy" op: "Identity" inputs: "x" outputs: "y" }
      outputs: "y")");
}

v1::EvaluateRequest HonestEvaluation() {
  v1::EvaluateRequest request = Copy();
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4}, Bytes<float>({1, 2, 3, 4}));
  return request;
}

// More than one channel, which a library convolves on CUDA.
v1::EvaluateRequest HonestConvolution() {
  v1::EvaluateRequest request = Evaluation(R"(
      inputs { name: "x" } inputs { name: "w" }
      nodes { name: "conv" op: "Conv" inputs: "x" inputs: "w" outputs: "y" }
      outputs: "y")");
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {1, 2, 8, 8},
           Bytes(std::vector<float>(2 * 8 * 8, 1)));
  AddInput(&request, "w", v1::DATA_TYPE_FLOAT, {2, 2, 3, 3},
           Bytes(std::vector<float>(2 * 2 * 3 * 3, 1)));
  return request;
}

inference::ModelInferRequest Inference(const std::string& model,
                                       const std::string& datatype,
                                       const std::vector<int64_t>& dims,
                                       const std::string& raw) {
  inference::ModelInferRequest request;
  request.set_model_name(model);
  auto* input = request.add_inputs();
  input->set_name("x");
  input->set_datatype(datatype);
  for (const int64_t dim : dims) input->add_shape(dim);
  request.add_raw_input_contents(raw);
  return request;
}

// 2 n^3 operations in each of its eight products.
inference::ModelInferRequest SlowInference(const HostileTarget& target) {
  const int64_t n = target.on_cuda ? 4096 : 512;
  return Inference("slow", "FP32", {n, 1},
                   std::string(static_cast<size_t>(n) * sizeof(float), '\0'));
}

v1::EvaluateRequest ModelEvaluation(const std::string& onnx) {
  v1::EvaluateRequest request;
  request.mutable_graph()->set_onnx_model(onnx);
  AddInput(&request, "x", v1::DATA_TYPE_FLOAT, {4}, Bytes<float>({1, 2, 3, 4}));
  return request;
}

// -- Models -------------------------------------------------------------------

onnx::ModelProto CopyModel(int dtype) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", dtype, {"N"});
  AddValue(model.mutable_graph()->add_output(), "y", dtype, {"N"});
  AddNode(&model, "Identity", {"x"}, {"y"}, "copy");
  return model;
}

// For x [n,1]: the sum of (x xT)^9.
onnx::ModelProto SlowModel() {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N", "1"});
  AddValue(model.mutable_graph()->add_output(), "y", onnx::TensorProto::FLOAT,
           {"A", "B"});
  AddNode(&model, "Transpose", {"x"}, {"t"});
  AddNode(&model, "MatMul", {"x", "t"}, {"p0"});
  for (int i = 0; i < 8; ++i) {
    AddNode(&model, "MatMul", {absl::StrCat("p", i), "p0"},
            {absl::StrCat("p", i + 1)});
  }
  AddNode(&model, "ReduceSum", {"p8"}, {"y"});
  return model;
}

// y = x w, for weights that are declared and not there.
onnx::ModelProto HollowModel(const std::vector<int64_t>& dims, int count) {
  onnx::ModelProto model = EmptyModel();
  AddValue(model.mutable_graph()->add_input(), "x", onnx::TensorProto::FLOAT,
           {"N"});
  AddValue(model.mutable_graph()->add_output(), "y0", onnx::TensorProto::FLOAT,
           {"N"});
  for (int i = 0; i < count; ++i) {
    onnx::TensorProto* weights = model.mutable_graph()->add_initializer();
    weights->set_name(absl::StrCat("w", i));
    weights->set_data_type(onnx::TensorProto::FLOAT);
    for (const int64_t dim : dims) weights->add_dims(dim);
    AddNode(&model, "Mul", {"x", weights->name()}, {absl::StrCat("y", i)});
  }
  return model;
}

// If in If in If ...
std::string NestedModel(int depth) {
  constexpr int kModelGraph = 7, kGraphNode = 1, kNodeAttribute = 5,
                kAttributeGraph = 6;
  std::string graph;
  for (int i = 0; i < depth; ++i) {
    onnx::NodeProto node;
    node.set_op_type("If");
    node.add_input("x");
    node.add_output("y");
    onnx::AttributeProto branch;
    branch.set_name("then_branch");
    branch.set_type(onnx::AttributeProto::GRAPH);
    graph = Field(kGraphNode,
                  node.SerializeAsString() +
                      Field(kNodeAttribute, branch.SerializeAsString() +
                                                Field(kAttributeGraph, graph)));
  }
  return EmptyModel().SerializeAsString() + Field(kModelGraph, graph);
}

// A function that calls itself.
onnx::ModelProto RecursiveModel() {
  onnx::ModelProto model = EmptyModel();
  AddForeignNode(&model, "mine", "Again");
  onnx::FunctionProto* function = model.add_functions();
  function->set_domain("mine");
  function->set_name("Again");
  function->add_input("x");
  function->add_output("y");
  *function->add_node() = model.graph().node(0);
  *function->add_opset_import() = model.opset_import(1);
  return model;
}

std::string Noise(size_t size) {
  std::string bytes(size, '\0');
  uint64_t state = 88172645463325252u;
  for (char& byte : bytes) {
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    byte = static_cast<char>(state);
  }
  return bytes;
}

// -- Plain sockets ------------------------------------------------------------

class Socket {
 public:
  explicit Socket(const std::string& address) {
    const size_t colon = address.rfind(':');
    sockaddr_in to = {};
    to.sin_family = AF_INET;
    int port = 0;
    if (colon == std::string::npos ||
        !absl::SimpleAtoi(address.substr(colon + 1), &port) ||
        inet_pton(AF_INET, address.substr(0, colon).c_str(), &to.sin_addr) !=
            1) {
      return;
    }
    to.sin_port = htons(static_cast<uint16_t>(port));
    fd_ = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof(to)) != 0) {
      close(fd_);
      fd_ = -1;
    }
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;

  bool open() const { return fd_ >= 0; }
  // Of each Send and Receive.
  void SetPatience(milliseconds patience) {
    timeval time;
    time.tv_sec = patience.count() / 1000;
    time.tv_usec = patience.count() % 1000 * 1000;
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &time, sizeof(time));
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &time, sizeof(time));
  }
  bool Send(const std::string& bytes) {
    size_t sent = 0;
    while (sent < bytes.size()) {
      const ssize_t n =
          send(fd_, bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
      if (n <= 0) return false;
      sent += static_cast<size_t>(n);
    }
    return true;
  }
  // Until the other side is done, or patience is over.
  std::string ReceiveAll() {
    std::string bytes;
    char buffer[4096];
    for (ssize_t n; (n = recv(fd_, buffer, sizeof(buffer), 0)) > 0;) {
      bytes.append(buffer, static_cast<size_t>(n));
    }
    return bytes;
  }

 private:
  int fd_ = -1;
};

// Many connections on which `text` was sent, and nothing more.
HostileRequest Stalled(std::string name, int count, std::string text) {
  return {std::move(name),
          [count, text = std::move(text)](const HostileTarget& target) {
            auto open =
                std::make_shared<std::vector<std::unique_ptr<Socket>>>();
            for (int i = 0; i < count; ++i) {
              open->push_back(std::make_unique<Socket>(target.http));
              // One that is refused or closed is as good.
              if (open->back()->open()) open->back()->Send(text);
            }
            return HostileAnswer{absl::OkStatus(), open};
          }};
}

// Frames of HTTP/2 that take a server more than they cost a client.
HostileRequest Framed(std::string name, std::function<void(RawHttp2&)> send) {
  return {.name = std::move(name),
          .send =
              [send = std::move(send)](const HostileTarget& target) {
                auto client = std::make_shared<RawHttp2>(target.grpc, 1 << 16);
                send(*client);
                return HostileAnswer{absl::OkStatus(), client};
              },
          .peak_limit = kHostileMemoryLeft};
}

// Sends chunks until it is dropped, or the server has had enough.
class EndlessPost {
 public:
  explicit EndlessPost(const std::string& address) : socket_(address) {
    socket_.SetPatience(milliseconds(200));
    socket_.Send(
        "POST /nothing HTTP/1.1\r\nHost: weir\r\n"
        "Transfer-Encoding: chunked\r\n\r\n");
    thread_ = std::thread([this] {
      const std::string chunk =
          absl::StrCat("10000\r\n", std::string(1 << 16, 'x'), "\r\n");
      for (int i = 0; i < kChunks && !stop_ && socket_.Send(chunk); ++i) {
      }
      sent_ = true;
    });
  }
  ~EndlessPost() {
    stop_ = true;
    thread_.join();
  }
  // Until it was cut off, or most machines would have felt it.
  void Wait(seconds patience) const {
    const auto end = steady_clock::now() + patience;
    while (!sent_ && steady_clock::now() < end) {
      std::this_thread::sleep_for(milliseconds(1));
    }
  }

 private:
  static constexpr int kChunks = 1 << 14;  // 1 GiB

  Socket socket_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> sent_ = false;
  std::thread thread_;
};

// -- The list -----------------------------------------------------------------

void AddGraphs(std::vector<HostileRequest>* all) {
  for (const HostileGraph& graph : HostileGraphs()) {
    v1::EvaluateRequest request = Evaluation(graph.definition);
    for (const HostileInput& input : graph.inputs) {
      AddInput(&request, input.name, static_cast<v1::DataType>(input.dtype),
               input.dims, input.Bytes());
    }
    std::vector<StatusCode> codes = {graph.code};
    if (graph.may_be_too_long) {
      codes.push_back(StatusCode::kResourceExhausted);
    }
    if (graph.cpu_only) codes.push_back(StatusCode::kUnimplemented);
    all->push_back(Call(
        graph.name, kEvaluate,
        [bytes = request.SerializeAsString()](const auto&) { return bytes; },
        std::move(codes)));
  }
}

void AddMessages(std::vector<HostileRequest>* all) {
  const auto fixed = [&](std::string name, const char* method,
                         std::string bytes, std::vector<StatusCode> codes) {
    all->push_back(Call(
        std::move(name), method,
        [bytes = std::move(bytes)](const auto&) { return bytes; },
        std::move(codes)));
  };
  // 4 bytes for 2^30.
  fixed("raw bytes that disagree with their shape, ModelInfer", kInfer,
        Inference("copy", "FP32", {1 << 28}, "four").SerializeAsString(),
        {StatusCode::kInvalidArgument});
  v1::EvaluateRequest lying = Copy();
  AddInput(&lying, "x", v1::DATA_TYPE_FLOAT, {1 << 28}, "four");
  fixed("raw bytes that disagree with their shape, Evaluate", kEvaluate,
        lying.SerializeAsString(), {StatusCode::kInvalidArgument});
  // The second string says that it has 4 GiB. A CUDA server may have no text.
  fixed("text whose lengths lie", kInfer,
        Inference("text", "BYTES", {2},
                  absl::StrCat(Bytes<uint32_t>({1}), "a",
                               Bytes<uint32_t>({UINT32_MAX}), "b"))
            .SerializeAsString(),
        {StatusCode::kInvalidArgument, StatusCode::kNotFound,
         StatusCode::kUnavailable});
  fixed("text of 2^40 empty strings", kInfer,
        Inference("text", "BYTES", {int64_t{1} << 40}, "").SerializeAsString(),
        {StatusCode::kInvalidArgument, StatusCode::kNotFound,
         StatusCode::kUnavailable});

  v1::EvaluateRequest many = Evaluation("inputs { name: \"x\" }");
  for (int i = 0; i < 1000; ++i) {
    v1::GraphDefinition* graph = many.mutable_graph()->mutable_definition();
    v1::Node* node = graph->add_nodes();
    node->set_op("Neg");
    node->add_inputs(std::string("x"));
    node->add_outputs(absl::StrCat("y", i));
    graph->add_outputs(node->outputs(0));
  }
  AddInput(&many, "x", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  fixed("a thousand tiny outputs", kEvaluate, many.SerializeAsString(),
        {StatusCode::kOk});

  v1::EvaluateRequest deep = Evaluation("inputs { name: \"v0\" }");
  constexpr int kDepth = 20'000;
  for (int i = 0; i < kDepth; ++i) {
    v1::Node* node = deep.mutable_graph()->mutable_definition()->add_nodes();
    node->set_op("Neg");
    node->add_inputs(absl::StrCat("v", i));
    node->add_outputs(absl::StrCat("v", i + 1));
  }
  deep.mutable_graph()->mutable_definition()->add_outputs(
      absl::StrCat("v", kDepth));
  AddInput(&deep, "v0", v1::DATA_TYPE_FLOAT, {1}, Bytes<float>({1}));
  fixed("a chain of 20,000 nodes", kEvaluate, deep.SerializeAsString(),
        {StatusCode::kOk});

  const std::string bad("\xff\xfe\xff\xfe");
  const std::vector<StatusCode> refused = {StatusCode::kInvalidArgument};
  fixed("a model's name that is not UTF-8", kInfer,
        Replaced(Inference("NAME", "FP32", {1}, "four").SerializeAsString(),
                 "NAME", bad),
        {StatusCode::kInvalidArgument, StatusCode::kNotFound});
  fixed("a node's name that is not UTF-8", kEvaluate,
        Replaced(HonestEvaluation().SerializeAsString(), "copy", bad), refused);
  fixed("noise, Evaluate", kEvaluate, Noise(1 << 20), {});
  fixed("noise, ModelInfer", kInfer, Noise(1 << 20), {});
}

void AddModels(std::vector<HostileRequest>* all) {
  const auto model = [&](std::string name, const std::string& onnx,
                         StatusCode code) {
    all->push_back(Call(std::move(name), kEvaluate,
                        [bytes = ModelEvaluation(onnx).SerializeAsString()](
                            const auto&) { return bytes; },
                        {code}));
  };
  const std::string good =
      CopyModel(onnx::TensorProto::FLOAT).SerializeAsString();
  model("a model of noise", Noise(1 << 20), StatusCode::kInvalidArgument);
  model("half a model", good.substr(0, good.size() / 2),
        StatusCode::kInvalidArgument);
  model("weights of 128 GiB that are not there",
        HollowModel({1 << 20, 1 << 15}, 1).SerializeAsString(),
        StatusCode::kInvalidArgument);
  model(
      "weights of 2^80 bytes that are not there",
      HollowModel({int64_t{1} << 40, int64_t{1} << 38}, 1).SerializeAsString(),
      StatusCode::kInvalidArgument);
  model("a thousand weights of 1 GiB that are not there",
        HollowModel({1 << 28}, 1000).SerializeAsString(),
        StatusCode::kInvalidArgument);
  model("32 branches, each in another", NestedModel(32),
        StatusCode::kUnimplemented);
  model("10,000 branches, each in another", NestedModel(10'000),
        StatusCode::kInvalidArgument);
  model("a function that calls itself", RecursiveModel().SerializeAsString(),
        StatusCode::kUnimplemented);
}

// Messages of which each byte becomes many.
void AddAmplified(std::vector<HostileRequest>* all) {
  const auto large = [&](std::string name, const char* method, Message message,
                         std::vector<StatusCode> codes = {}) {
    all->push_back(
        Call(std::move(name), method, std::move(message), std::move(codes)));
  };
  constexpr int kInputs = 5, kContents = 5, kInt64Contents = 3;
  large("250 million numbers of one byte", kInfer,
        [](const auto&) {
          constexpr size_t kCount = 250'000'000;
          inference::ModelInferRequest request =
              Inference("numbers", "INT64", {kCount}, "");
          const std::string input = request.inputs(0).SerializeAsString();
          request.clear_inputs();
          request.clear_raw_input_contents();
          const std::string numbers =
              Field(kInt64Contents, std::string(kCount, 1));
          return absl::StrCat(
              request.SerializeAsString(),
              Field(kInputs, absl::StrCat(input, Field(kContents, numbers))));
        },
        {StatusCode::kResourceExhausted});
  large("50 million shapes of samples", kEvaluate, [](const auto&) {
    constexpr int kRequestInputs = 2, kValue = 2, kSpec = 1, kSampleShapes = 4;
    v1::NamedTensor input;
    input.set_name("x");
    return Copy().SerializeAsString() +
           Field(kRequestInputs,
                 input.SerializeAsString() +
                     Field(kValue,
                           Field(kSpec, Empties(kSampleShapes, 50'000'000))));
  });
  large("50 million empty inputs, ModelInfer", kInfer, [](const auto&) {
    inference::ModelInferRequest request;
    request.set_model_name("copy");
    return request.SerializeAsString() + Empties(kInputs, 50'000'000);
  });
  constexpr int kGraph = 1, kDefinition = 1, kOnnxModel = 2, kNodes = 1;
  large("50 million empty nodes", kEvaluate, [](const auto&) {
    return Field(kGraph, Field(kDefinition, Empties(kNodes, 50'000'000)));
  });
  constexpr int kModelGraph = 7;
  large("50 million empty nodes of an ONNX model", kEvaluate, [](const auto&) {
    return Field(
        kGraph,
        Field(kOnnxModel, EmptyModel().SerializeAsString() +
                              Field(kModelGraph, Empties(kNodes, 50'000'000))));
  });
}

void AddConnections(std::vector<HostileRequest>* all) {
  // 300 KB on the wire, beyond what a message may be.
  all->push_back({"300 MB of zeros, compressed to little",
                  [](const HostileTarget& target) {
                    constexpr int64_t kCount = 75'000'000;
                    return HostileAnswer{CallRaw(
                        Connect(target), kInfer,
                        Inference("copy", "FP32", {kCount},
                                  std::string(kCount * sizeof(float), 0))
                            .SerializeAsString(),
                        kAnswer, /*gzip=*/true)};
                  },
                  {StatusCode::kResourceExhausted}});
  // As little on the wire, and once it is whole a field for each two bytes.
  all->push_back({"60 million unknown fields, compressed to little",
                  [](const HostileTarget& target) {
                    constexpr int kUnknown = 15;
                    return HostileAnswer{CallRaw(Connect(target), kInfer,
                                                 Empties(kUnknown, 60'000'000),
                                                 kAnswer, /*gzip=*/true)};
                  },
                  {StatusCode::kResourceExhausted}});
  all->push_back(
      {"16 callers who never read their 16 MB",
       [](const HostileTarget& target) {
         v1::EvaluateRequest request = Evaluation(R"(inputs { name: "n" }
             nodes { op: "ConstantOfShape" inputs: "n" outputs: "y" }
             outputs: "y")");
         AddInput(&request, "n", v1::DATA_TYPE_INT64, {1},
                  Bytes<int64_t>({4'000'000}));
         const std::string message = request.SerializeAsString();
         auto open = std::make_shared<std::vector<std::unique_ptr<RawHttp2>>>();
         for (int i = 0; i < 16; ++i) {
           open->push_back(
               std::make_unique<RawHttp2>(target.grpc, /*window=*/0));
           open->back()->Begin(1, kEvaluate);
           open->back()->Send(1, RawHttp2::Prefix(message.size()) + message,
                              /*last=*/true);
         }
         // Headers come whatever the window is: replies wait behind them.
         for (const auto& connection : *open) connection->Await(1);
         return HostileAnswer{absl::OkStatus(), open};
       }});
  all->push_back(Framed("a message in frames of one byte", [](RawHttp2& to) {
    constexpr size_t kBytes = 4'000'000;
    to.Begin(1, kInfer);
    to.SendAsGranted(1, RawHttp2::Prefix(2 * kBytes) + std::string(kBytes, 'x'),
                     /*last=*/false, /*frame_bytes=*/1);
  }));
  all->push_back(Framed("frames of one byte on many streams", [](RawHttp2& to) {
    const std::string part(400, 'x');
    for (uint32_t stream = 1; stream < 1000; stream += 2) {
      to.Begin(stream, kInfer);
      to.Send(stream, part, /*last=*/false, 1);
    }
  }));
  all->push_back(Framed("frames of no stream", [](RawHttp2& to) {
    for (uint32_t stream = 1; stream < 60'000; ++stream) {
      if (!to.Send(stream, "x", /*last=*/false)) return;
    }
  }));
  all->push_back(Framed("a header without an end", [](RawHttp2& to) {
    to.BeginEndless(1, kInfer);
    const auto end = steady_clock::now() + seconds(10);
    while (steady_clock::now() < end && to.SendHeader(1, size_t{256} << 10)) {
    }
  }));
  all->push_back({.name = "60,000 calls of no method, unread",
                  .send =
                      [](const HostileTarget& target) {
                        auto client = std::make_shared<RawHttp2>(
                            target.grpc, /*window=*/1 << 16, "127.0.0.1",
                            /*receive_buffer=*/4096);
                        client->Flood("/no.such/Method", 60'000, seconds(2));
                        return HostileAnswer{absl::OkStatus(), client};
                      },
                  .peak_limit = kHostileMemoryLeft});
  all->push_back(Stalled("64 half-sent HTTP requests", 64,
                         "POST /nothing HTTP/1.1\r\nHost: weir\r\n"
                         "Content-Length: 1000000\r\n\r\nhalf"));
  all->push_back(Stalled("64 half-sent lines of HTTP", 64, "GET /healthz HT"));
  all->push_back(
      {"an HTTP body without an end", [](const HostileTarget& target) {
         auto post = std::make_shared<EndlessPost>(target.http);
         post->Wait(seconds(3));
         return HostileAnswer{absl::OkStatus(), post};
       }});
  all->push_back(
      {"64 callers with deadlines of 5 ms on a slow model",
       [](const HostileTarget& target) {
         const std::string message = SlowInference(target).SerializeAsString();
         const auto end = steady_clock::now() + seconds(2);
         std::vector<std::thread> callers;
         for (int i = 0; i < 64; ++i) {
           callers.emplace_back([&] {
             const auto channel = Connect(target);
             while (steady_clock::now() < end) {
               CallRaw(channel, kInfer, message, milliseconds(5)).IgnoreError();
             }
           });
         }
         for (std::thread& caller : callers) caller.join();
         return HostileAnswer{absl::OkStatus()};
       }});
}

// A line of /proc/PID/status.
int64_t StatusBytes(pid_t process, const std::string& name) {
  std::ifstream file(absl::StrCat("/proc/", process, "/status"));
  for (std::string line; std::getline(file, line);) {
    if (line.rfind(name, 0) != 0) continue;
    return int64_t{std::strtoll(line.c_str() + name.size(), nullptr, 10)} << 10;
  }
  return -1;
}

bool IsReady(const std::string& answer) {
  return answer.rfind("HTTP/1.1 200", 0) == 0;
}

}  // namespace

HostileTarget HostileTarget::FromReadyLine(const std::string& line) {
  const auto value = [&](const std::string& name) {
    const size_t at = line.find(absl::StrCat(" ", name, "="));
    if (at == std::string::npos) return std::string();
    const size_t start = at + name.size() + 2;
    return line.substr(start, line.find(' ', start) - start);
  };
  HostileTarget target;
  target.grpc = value("grpc");
  target.http = value("http");
  target.on_cuda = value("device").rfind("cuda", 0) == 0;
  return target;
}

std::vector<HostileRequest> HostileRequests() {
  std::vector<HostileRequest> all;
  AddGraphs(&all);
  AddMessages(&all);
  AddModels(&all);
  AddAmplified(&all);
  AddConnections(&all);
  return all;
}

void WriteHostileModels(const std::string& folder) {
  const auto write = [&](const std::string& name,
                         const onnx::ModelProto& model) {
    const std::filesystem::path version =
        std::filesystem::path(folder) / name / "1";
    std::filesystem::create_directories(version);
    std::ofstream file(version / "model.onnx", std::ios::binary);
    file << model.SerializeAsString();
  };
  write("copy", CopyModel(onnx::TensorProto::FLOAT));
  write("numbers", CopyModel(onnx::TensorProto::INT64));
  write("text", CopyModel(onnx::TensorProto::STRING));
  write("slow", SlowModel());
}

std::vector<std::string> HostileServerFlags(const std::string& device,
                                            const std::string& models) {
  return {"--device=" + device,
          "--grpc=127.0.0.1:0",
          "--http=127.0.0.1:0",
          "--cpu-threads=2",
          "--io-threads=2",
          "--streams=4",
          "--drain-delay=0",
          "--log-level=error",
          "--cache-dir=off",
          "--model-repository=" + models,
          absl::StrCat("--max-output-bytes=", kHostileOutputBytes),
          absl::StrCat("--max-scratch-bytes=", kHostileScratchBytes)};
}

absl::Status WarmUp(const HostileTarget& target) {
  const std::string message = SlowInference(target).SerializeAsString();
  std::vector<std::thread> callers;
  std::vector<absl::Status> statuses(32);
  for (absl::Status& status : statuses) {
    callers.emplace_back([&] {
      const auto channel = Connect(target);
      for (int i = 0; i < 3 && status.ok(); ++i) {
        status = CallRaw(channel, kInfer, message, kAnswer);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  for (const absl::Status& status : statuses) {
    if (!status.ok()) return status;
  }
  const absl::Status convolved =
      CallRaw(Connect(target), kEvaluate,
              HonestConvolution().SerializeAsString(), kAnswer);
  if (!convolved.ok()) return convolved;
  for (const HostileGraph& graph : HostileGraphs()) {
    if (graph.code != StatusCode::kOk) continue;
    v1::EvaluateRequest request = Evaluation(graph.definition);
    for (const HostileInput& input : graph.inputs) {
      AddInput(&request, input.name, static_cast<v1::DataType>(input.dtype),
               input.dims, input.Bytes());
    }
    const absl::Status status = CallRaw(Connect(target), kEvaluate,
                                        request.SerializeAsString(), kAnswer);
    if (!status.ok() && !absl::IsUnimplemented(status)) return status;
  }
  return AskHonestly(target, kAnswer);
}

absl::Status AskHonestly(const HostileTarget& target, milliseconds patience) {
  const auto end = steady_clock::now() + patience;
  const auto left = [&] {
    return std::max(milliseconds(1), std::chrono::duration_cast<milliseconds>(
                                         end - steady_clock::now()));
  };
  const auto options = [&] {
    client::ClientOptions chosen;
    chosen.address = target.grpc;
    chosen.timeout = absl::FromChrono(left());
    chosen.own_connection = true;
    return chosen;
  };
  const std::string data = Bytes<float>({1, 2, 3, 4});
  client::Client client(options());
  const auto inferred = client.ModelInfer(Inference("copy", "FP32", {4}, data));
  if (!inferred.ok()) return inferred.status();
  if (inferred->raw_output_contents_size() != 1 ||
      inferred->raw_output_contents(0) != data) {
    return absl::InternalError("ModelInfer: " + inferred->ShortDebugString());
  }
  const auto evaluated = client.Evaluate(HonestEvaluation());
  if (!evaluated.ok()) return evaluated.status();
  if (evaluated->outputs_size() != 1 ||
      evaluated->outputs(0).value().raw() != data) {
    return absl::InternalError("Evaluate: " + evaluated->ShortDebugString());
  }
  Socket http(target.http);
  http.SetPatience(left());
  http.Send("GET /healthz HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\r\n");
  const std::string health = http.ReceiveAll();
  if (!IsReady(health)) {
    return absl::UnavailableError(absl::StrCat("/healthz: '", health, "'"));
  }
  return absl::OkStatus();
}

HostileOutcome Attack(const HostileRequest& request,
                      const HostileTarget& target, pid_t server,
                      const ResidentMemory& baseline) {
  HostileOutcome outcome;
  outcome.before = MemoryOf(server);
  // The peak begins anew.
  std::ofstream(absl::StrCat("/proc/", server, "/clear_refs")) << "5";
  {
    const HostileAnswer answer = request.send(target);
    outcome.answer = answer.status;
    outcome.right = request.codes.empty() ||
                    std::find(request.codes.begin(), request.codes.end(),
                              answer.status.code()) != request.codes.end();
    const auto start = steady_clock::now();
    outcome.honest = AskHonestly(target, kAnswer);
    outcome.honest_ms =
        std::chrono::duration<double, std::milli>(steady_clock::now() - start)
            .count();
  }
  const int64_t peak = StatusBytes(server, "VmHWM:");
  outcome.peak_bytes = peak - baseline.all;
  outcome.within = peak - outcome.before.all <= request.peak_limit;
  const auto end = steady_clock::now() + seconds(5);
  do {
    outcome.after = MemoryOf(server);
    outcome.left_bytes = outcome.after.all - baseline.all;
    if (outcome.left_bytes <= kHostileMemoryLeft) break;
    std::this_thread::sleep_for(milliseconds(20));
  } while (steady_clock::now() < end);
  return outcome;
}

ResidentMemory MemoryOf(pid_t process) {
  return {.all = StatusBytes(process, "VmRSS:"),
          .anonymous = StatusBytes(process, "RssAnon:"),
          .file = StatusBytes(process, "RssFile:"),
          .shared = StatusBytes(process, "RssShmem:")};
}

std::string DescribeMemory(const ResidentMemory& before,
                           const ResidentMemory& after) {
  const auto change = [](const char* what, int64_t from, int64_t to) {
    constexpr double kMiB = 1 << 20;
    return absl::StrFormat("%s %.1f -> %.1f", what,
                           static_cast<double>(from) / kMiB,
                           static_cast<double>(to) / kMiB);
  };
  return absl::StrCat(change("resident", before.all, after.all), " MiB (",
                      change("anonymous", before.anonymous, after.anonymous),
                      ", ", change("file", before.file, after.file), ", ",
                      change("shared", before.shared, after.shared), ")");
}

}  // namespace weir::testing
