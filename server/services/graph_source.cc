#include "server/services/graph_source.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/absl_view.h"
#include "kernels/base/error_info.h"
#include "kernels/base/status_macros.h"
#include "proto/weir/v1/graph.pb.h"
#include "server/evaluation/input_places.h"
#include "server/evaluation/request_fields.h"
#include "server/models/bad_text.h"
#include "server/models/definition_import.h"
#include "server/models/onnx_import.h"
#include "server/models/parsed_size.h"
#include "server/rpc/wire/call_sites.h"
#include "server/rpc/wire/wire_reader.h"

namespace weir {
namespace {

constexpr char kDefinition = 'D';
constexpr char kOnnx = 'O';

// The key's head, one entry for each input that the graph does not declare; the
// name follows it.
struct KeyInput {
  int32_t dtype;
  uint32_t rank;
  uint32_t name_size;
};

struct KeyHead {
  char kind;
  uint32_t inputs;
};

template <typename T>
void Put(char** out, const T& value) {
  std::memcpy(*out, &value, sizeof(value));
  *out += sizeof(value);
}

template <typename T>
bool Get(std::string_view* in, T* value) {
  if (in->size() < sizeof(*value)) return false;
  std::memcpy(value, in->data(), sizeof(*value));
  in->remove_prefix(sizeof(*value));
  return true;
}

const ByteView& GraphBytes(const WireGraph& graph) {
  const auto* definition = std::get_if<WireGraphDefinition>(&graph);
  return definition != nullptr ? definition->bytes
                               : std::get<WireOnnxModel>(graph).bytes;
}

// What a request gives, by name; of a name, the first.
class GivenByName {
 public:
  static absl::StatusOr<GivenByName> Make(std::span<const WireTensor> given,
                                          CallArena* arena) {
    GivenByName result;
    WEIR_ASSIGN_OR_RETURN(result.given_,
                          arena->TryAllocateSpan<Given>(given.size()));
    for (size_t i = 0; i < given.size(); ++i) {
      result.given_[i] = {.input = &given[i], .known = false};
    }
    std::sort(result.given_.begin(), result.given_.end(),
              [](const Given& a, const Given& b) {
                return std::tie(a.input->name, a.input) <
                       std::tie(b.input->name, b.input);
              });
    return result;
  }

  // The graph has an input of that name. Null if it is not given, or if the
  // graph has had another: such a graph is refused.
  const WireTensor* Take(std::string_view name) {
    const auto at =
        std::lower_bound(given_.begin(), given_.end(), name,
                         [](const Given& given, std::string_view wanted) {
                           return given.input->name < wanted;
                         });
    if (at == given_.end() || at->input->name != name) return nullptr;
    return std::exchange(at->known, true) ? nullptr : at->input;
  }

  // All, by name, in `room` for as many.
  std::span<const WireTensor*> All(std::span<const WireTensor*> room) const {
    size_t count = 0;
    for (const Given& given : given_) {
      if (count > 0 && room[count - 1]->name == given.input->name) continue;
      room[count++] = given.input;
    }
    return room.first(count);
  }

  // The first that is given and no input of the graph's, or null.
  const WireTensor* Unknown() const {
    const WireTensor* unknown = nullptr;
    std::string_view last;
    bool known = true;
    for (size_t i = 0; i < given_.size(); ++i) {
      const WireTensor* const input = given_[i].input;
      if (i == 0 || input->name != last) known = given_[i].known;
      last = input->name;
      if (known) continue;
      unknown = unknown == nullptr ? input : std::min(unknown, input);
    }
    return unknown;
  }

 private:
  struct Given {
    const WireTensor* input;
    bool known;
  };

  std::span<Given> given_;
};

NameList InputNames(const ByteView& definition, CallArena* arena) {
  NameList names;
  ReadGraphInputs(definition, arena,
                  [&](std::string_view each, bool) { names.Add(each); });
  return names;
}

// Of `given`, the inputs that the graph leaves to the request to declare, each
// once, in the graph's order. All of them for one that cannot be read here:
// what is wrong with it, if anything is, its import says.
absl::StatusOr<std::span<const WireTensor*>> Declaring(
    const ByteView& definition, std::span<const WireTensor> given,
    CallArena* arena) {
  WEIR_ASSIGN_OR_RETURN(GivenByName by_name, GivenByName::Make(given, arena));
  WEIR_ASSIGN_OR_RETURN(
      const std::span<const WireTensor*> declaring,
      arena->TryAllocateSpan<const WireTensor*>(given.size()));
  size_t found = 0;
  const bool whole = ReadGraphInputs(
      definition, arena, [&](std::string_view name, bool declared) {
        const WireTensor* const input = by_name.Take(name);
        if (input != nullptr && !declared) declaring[found++] = input;
      });
  if (arena->refused()) return arena->refusal();
  if (!whole) return by_name.All(declaring);
  if (const WireTensor* const unknown = by_name.Unknown(); unknown != nullptr) {
    const auto index = static_cast<size_t>(unknown - given.data());
    return NoSuch("input", unknown->name, InputNames(definition, arena),
                  /*model=*/nullptr, InputField(index));
  }
  return declaring.first(found);
}

}  // namespace

absl::Status CheckGraph(const WireGraph& graph) {
  if (!std::holds_alternative<std::monostate>(graph)) return absl::OkStatus();
  return WithField(
      absl::InvalidArgumentError("a graph, an ONNX model or a model is needed"),
      "graph");
}

absl::StatusOr<std::shared_ptr<const ServedModel>> FindServedModel(
    const ModelRepository& models, const WireModelReference& reference) {
  if (!reference.version_label.empty()) {
    return WithField(
        WithReason(absl::NotFoundError(absl::StrCat(
                       "model \"", AbslView(reference.name),
                       "\" has no version labeled \"",
                       AbslView(reference.version_label),
                       "\": this server labels none; give its number")),
                   "MODEL_NOT_FOUND"),
        "graph.model.version_label");
  }
  if (reference.name.empty()) {
    return InvalidField("graph.model.name", "the model's name is not set");
  }
  auto model = models.Find(
      reference.name,
      reference.version == 0 ? "" : absl::StrCat(reference.version));
  if (!model.ok()) return WithField(model.status(), "graph.model");
  return model;
}

absl::StatusOr<ProgramKey> ProgramKey::Make(const WireGraph& graph,
                                            std::span<const WireTensor> given,
                                            CallArena* arena) {
  ProgramKey key;
  const auto* definition = std::get_if<WireGraphDefinition>(&graph);
  const ByteView& bytes = GraphBytes(graph);
  // An ONNX model declares its inputs.
  std::span<const WireTensor*> inputs;
  if (definition != nullptr) {
    WEIR_ASSIGN_OR_RETURN(inputs, Declaring(bytes, given, arena));
  }
  size_t size = sizeof(KeyHead);
  for (const WireTensor* input : inputs) {
    size += sizeof(KeyInput) + input->name.size();
  }
  WEIR_ASSIGN_OR_RETURN(const std::span<char> described,
                        arena->TryAllocateSpan<char>(size));
  char* out = described.data();
  KeyHead head;
  std::memset(&head, 0, sizeof(head));  // padding is part of the key
  head.kind = definition != nullptr ? kDefinition : kOnnx;
  head.inputs = static_cast<uint32_t>(inputs.size());
  Put(&out, head);
  for (const WireTensor* input : inputs) {
    Put(&out, KeyInput{input->spec.dtype,
                       static_cast<uint32_t>(input->spec.shape.size()),
                       static_cast<uint32_t>(input->name.size())});
    out = std::copy(input->name.begin(), input->name.end(), out);
  }
  if (definition != nullptr) {
    if (const auto without = WithoutCallSites(bytes, arena)) {
      WEIR_ASSIGN_OR_RETURN(key.pieces_,
                            arena->TryAllocateSpan<std::string_view>(2));
      key.pieces_[0] = {described.data(), described.size()};
      key.pieces_[1] = {without->data(), without->size()};
      key.size_ = size + without->size();
      key.has_call_sites_ = true;
      return key;
    }
  }
  key.size_ = size + bytes.size();
  WEIR_ASSIGN_OR_RETURN(key.pieces_, arena->TryAllocateSpan<std::string_view>(
                                         1 + bytes.pieces().size()));
  key.pieces_[0] = {described.data(), described.size()};
  for (size_t i = 0; i < bytes.pieces().size(); ++i) {
    const BytePiece& piece = bytes.pieces()[i];
    key.pieces_[1 + i] = {reinterpret_cast<const char*>(piece.data()),
                          piece.size()};
  }
  return key;
}

std::shared_ptr<const std::string> ProgramKey::Copy() const {
  auto key = std::make_shared<std::string>();
  key->reserve(size_);
  for (std::string_view piece : pieces_) key->append(piece);
  return key;
}

void ProgramSearch::Run(const WireGraph& graph,
                        std::span<const WireTensor> inputs, Then then,
                        void* arg) {
  graph_ = &graph;
  inputs_ = inputs;
  then_ = then;
  arg_ = arg;
  // An ONNX model is hashed, a definition read for its inputs too.
  const bool is_read = std::holds_alternative<WireGraphDefinition>(graph);
  const size_t bytes =
      GraphBytes(graph).size() * (is_read ? kFieldByteWeight : 1) +
      inputs.size() * kLongStepTensorBytes;
  RunStep<&ProgramSearch::Look, &ProgramSearch::Looked>(*call_, *beside_, bytes,
                                                        this);
}

absl::Status ProgramSearch::Look() {
  WEIR_ASSIGN_OR_RETURN(key_,
                        ProgramKey::Make(*graph_, inputs_, &call_->arena()));
  if (keeps_call_sites_ && key_.has_call_sites()) {
    call_sites_ = std::make_shared<const CallSites>(
        ReadCallSites(GraphBytes(*graph_), &call_->arena()));
  }
  found_.hash = ProgramCache::Hash(key_.pieces());
  found_.program = programs_->Find(key_.pieces(), found_.hash);
  return absl::OkStatus();
}

void ProgramSearch::Looked(absl::Status status) {
  if (!status.ok() || found_.program != nullptr) {
    return Finish(std::move(status));
  }
  RunStep<&ProgramSearch::Copy, &ProgramSearch::Finish>(*call_, *beside_,
                                                        key_.size(), this);
}

absl::Status ProgramSearch::Copy() {
  WEIR_RETURN_IF_ERROR(call_->Charge(key_.size()));
  found_.key = key_.Copy();
  return absl::OkStatus();
}

void ProgramSearch::Finish(absl::Status status) {
  found_.status = std::move(status);
  then_(std::move(found_), arg_);
}

std::shared_ptr<const Graph> ProgramSearch::SmallGraph() const {
  if (key_.size() > kSmallGraphBytes) return nullptr;
  auto graph = ImportKey(*key_.Copy());
  if (!graph.ok()) return nullptr;  // it was compiled: this cannot be
  return std::make_shared<const Graph>(*std::move(graph));
}

void ProgramRequest::Run(const WireGraph& graph,
                         std::span<const WireTensor> inputs, Then then,
                         void* arg) {
  graph_ = &graph;
  then_ = then;
  arg_ = arg;
  search_.Run(
      graph, inputs,
      [](ProgramSearch::Found found, void* self) {
        static_cast<ProgramRequest*>(self)->Found(std::move(found));
      },
      this);
}

void ProgramRequest::Found(ProgramSearch::Found found) {
  if (!found.status.ok()) return then_({.program = found.status}, arg_);
  if (found.program != nullptr) {
    return then_({.program = std::move(found.program), .cached = true}, arg_);
  }
  // No reference to the key is left here: it may be large.
  auto make_graph = [key = found.key] { return ImportKey(*key); };
  wait_ = programs_->GetOrCompile(
      std::move(found.key), found.hash, std::move(make_graph),
      call_->deadline(),
      [this](ProgramCache::ProgramOr program) {
        compiled_ = std::move(program);
        call_->Resume(
            [](ServerCall&, void* self) {
              static_cast<ProgramRequest*>(self)->Compiled();
            },
            this);
      },
      call_->peer());
  call_->OnCancel(
      [](ServerCall&, void* self) {
        const ProgramRequest& request = *static_cast<ProgramRequest*>(self);
        request.programs_->Cancel(request.wait_);
      },
      this);
}

void ProgramRequest::Compiled() {
  ProgramCache::ProgramOr program = std::move(compiled_);
  if (!program.ok()) program = WithGraphField(program.status(), *graph_);
  then_({.program = std::move(program)}, arg_);
}

absl::Status WithCallSite(const absl::Status& status, const WireGraph& graph,
                          CallArena* arena) {
  const auto* definition = std::get_if<WireGraphDefinition>(&graph);
  if (definition == nullptr || !NodeIndex(status).has_value()) return status;
  return ReadCallSites(definition->bytes, arena).Tell(status);
}

absl::Status WithGraphField(const absl::Status& status,
                            const WireGraph& graph) {
  if (!absl::IsInvalidArgument(status) && !absl::IsUnimplemented(status)) {
    return status;
  }
  const std::string field = Field(status);
  if (field.rfind("graph.", 0) == 0) return status;
  if (field.rfind(kRequestField, 0) == 0) {
    return WithField(status, field.substr(1));
  }
  if (std::holds_alternative<WireOnnxModel>(graph)) {
    return WithField(status, "graph.onnx_model");
  }
  return WithField(status, absl::StrCat("graph.definition",
                                        field.empty() ? "" : ".", field));
}

absl::StatusOr<Graph> ImportKey(std::string_view key) {
  KeyHead head;
  if (!Get(&key, &head)) return absl::InternalError("short program key");
  if (head.kind == kOnnx) return ImportOnnx(key, OnnxImportOptions{});
  std::vector<GivenInput> given(head.inputs);
  for (GivenInput& input : given) {
    KeyInput entry;
    if (!Get(&key, &entry) || key.size() < entry.name_size) {
      return absl::InternalError("short program key");
    }
    input.name = key.substr(0, entry.name_size);
    key.remove_prefix(entry.name_size);
    input.rank = static_cast<int>(entry.rank);
    // CheckSpecs has seen it.
    input.dtype = DTypeFromOnnx(entry.dtype).value_or(DType::kInvalid);
  }
  const absl::Status size =
      CheckParsedSize(*v1::GraphDefinition::descriptor(), key);
  if (!size.ok()) return WithField(size, "graph.definition");
  v1::GraphDefinition definition;
  if (key.size() > static_cast<size_t>(std::numeric_limits<int>::max()) ||
      !definition.ParseFromArray(key.data(), static_cast<int>(key.size()))) {
    const auto bad = FindBadText(*v1::GraphDefinition::descriptor(), key);
    if (bad.has_value()) {
      const std::string field = absl::StrCat("graph.definition.", bad->path);
      return InvalidField(field, absl::StrCat(field, " ", NotUtf8(bad->text)));
    }
    return WithField(
        absl::InvalidArgumentError("the graph's definition is malformed"),
        "graph.definition");
  }
  return ImportDefinition(std::move(definition), given);
}

}  // namespace weir
