#include "tests/sim/world.h"

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "kernels/base/error_info.h"
#include "kernels/base/thread.h"
#include "kernels/base/thread_role.h"
#include "kernels/device/cpu/cpu_device.h"
#include "tests/sim/scheduler.h"

namespace weir::sim {
namespace {

// In the salt that the kernel gets.
constexpr uint64_t kFaultBit = uint64_t{1} << 63;
constexpr uint64_t kUnfinished = 0xeeeeeeeeeeeeeeee;
constexpr const char* kInputs[] = {"salt", "a", "b"};

template <typename T>
T Must(absl::StatusOr<T> value) {
  if (!value.ok()) Fail(value.status().ToString());
  return *std::move(value);
}

absl::Status InferNumber(InferContext& context) {
  context.SetOutput(0, DType::kUint64, SymbolicDims{Dim(1)});
  return absl::OkStatus();
}

NodeCost CostOfOne(const NodeInfo&, Pace, const PlanArgs&) {
  return {.operations = 1};
}

}  // namespace

// What a work computes. It takes two steps, so that what should not happen
// meanwhile may.
class MixPlan final : public KernelPlan {
 public:
  MixPlan(size_t launches, World* world) : launches_(launches), world_(world) {}

  size_t launches() const override { return launches_; }

  absl::Status Run(const RunArgs& args) const override {
    const Memory memory = {static_cast<const uint64_t*>(args.inputs[0]),
                           static_cast<const uint64_t*>(args.inputs[1]),
                           static_cast<const uint64_t*>(args.inputs[2]),
                           static_cast<uint64_t*>(args.outputs[0])};
    if (args.team != nullptr) {
      if (memory.faulty()) return FaultStatus(FaultCode::kInjected);
      Begin(memory);
      End(memory);
      return absl::OkStatus();
    }
    auto& stream = static_cast<SimStream&>(args.stream);
    stream.Launch([this, memory] {
      if (!memory.faulty()) Begin(memory);
    });
    stream.Launch(
        [this, memory, slot = stream.fault_slot(), node = args.node_index] {
          if (!memory.faulty()) return End(memory);
          if (slot->word == 0) {
            slot->word = (uint64_t{node} + 1) << 32 |
                         static_cast<uint32_t>(FaultCode::kInjected);
          }
        });
    return absl::OkStatus();
  }

 private:
  struct Memory {
    const uint64_t* salt;
    const uint64_t* a;
    const uint64_t* b;
    uint64_t* out;

    bool faulty() const { return (*salt & kFaultBit) != 0; }
    std::array<uint64_t, 3> Read() const { return {*salt, *a, *b}; }
  };

  void Begin(const Memory& memory) const {
    if (SimWork* const work = world_->WorkOf(*memory.salt)) {
      work->BeginKernel(memory.Read());
    }
    *memory.out = kUnfinished;
  }

  void End(const Memory& memory) const {
    const std::array<uint64_t, 3> in = memory.Read();
    if (SimWork* const work = world_->WorkOf(in[0])) work->EndKernel(in);
    *memory.out = MixResult(in[0], in[1], in[2]);
  }

  const size_t launches_;
  World* const world_;
};

namespace {

class EchoPlan final : public KernelPlan {
 public:
  absl::Status Run(const RunArgs& args) const override {
    const void* const in = args.inputs[0];
    void* const out = args.outputs[0];
    const auto echo = [in, out] { std::memcpy(out, in, sizeof(uint64_t)); };
    if (args.team != nullptr) {
      echo();
    } else {
      static_cast<SimStream&>(args.stream).Launch(echo);
    }
    return absl::OkStatus();
  }
};

using MakePlan = std::function<std::unique_ptr<const KernelPlan>()>;

class SimKernel final : public Kernel {
 public:
  explicit SimKernel(MakePlan make) : make_(std::move(make)) {}
  absl::StatusOr<std::unique_ptr<const KernelPlan>> Plan(
      const PlanArgs&) const override {
    return make_();
  }

 private:
  const MakePlan make_;
};

OpDef MakeOp(std::string_view name) {
  OpDef def;
  def.domain = "weir";
  def.name = name;
  def.outputs = {{.name = "out"}};
  def.infer = InferNumber;
  def.cost = CostOfOne;
  return def;
}

void Register(OpRegistry& registry, OpDef def,
              std::function<MakePlan(const NodeInfo&)> make) {
  const std::string_view name = def.name;
  const KernelFactory factory =
      [make = std::move(make)](
          const NodeInfo& node,
          Device&) -> absl::StatusOr<std::unique_ptr<const Kernel>> {
    return std::make_unique<SimKernel>(make(node));
  };
  Check(registry.Register(std::move(def), factory).ok() &&
            registry.RegisterKernel(DeviceKind::kCuda, "weir", name, factory)
                .ok(),
        "an operator cannot be registered");
}

GraphNode MakeNode(const char* op) {
  GraphNode node;
  node.name = op;
  node.domain = "weir";
  node.op = op;
  return node;
}

Graph MakeGraph(const ProgramKind& kind) {
  Graph graph;
  graph.opsets = {{"weir", 1}};
  GraphNode mix = MakeNode("Mix");
  mix.attributes.Set("launches", int64_t{kind.launches});
  for (const char* input : kInputs) {
    // Open: a joined graph would not check it.
    graph.inputs.push_back({input, DType::kUint64, SymbolicDims{Dim()}});
    mix.inputs.emplace_back(input);
  }
  mix.outputs = {"out"};
  graph.nodes = {mix};
  graph.outputs = {"out"};
  if (kind.two_outputs) {
    GraphNode echo = MakeNode("Echo");
    echo.inputs = {"out"};
    echo.outputs = {"again"};
    graph.nodes.push_back(echo);
    graph.outputs.emplace_back("again");
  }
  return graph;
}

EngineOptions MakeEngineOptions(const WorldOptions& options) {
  EngineOptions engine;
  engine.streams.max = options.lanes;
  if (!options.trims) engine.streams.idle_ttl = absl::InfiniteDuration();
  engine.pinned_bytes = options.pinned_bytes;
  engine.tensor_bytes = options.tensor_bytes;
  engine.max_parked = options.max_parked;
  engine.programs.threads = 1;
  engine.programs.plan_threads = 1;
  return engine;
}

void CheckClean(Engine& engine) {
  Check(engine.pinned().stats().leased_bytes == 0, "pinned memory is leaked");
  Check(engine.memory().stats().used_bytes == 0, "tensors are leaked");
  // What nobody uses is free, unless it waits for a point that is not reached.
  engine.memory().Trim();
  Check(engine.memory().stats().cached_bytes == 0,
        "a block of tensor memory waits for a point that is never reached");
}

}  // namespace

uint64_t MixResult(uint64_t salt, uint64_t a, uint64_t b) {
  uint64_t x = salt * 0x9e3779b97f4a7c15 + a * 3 + b * 7 + 1;
  x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9;
  return x ^ (x >> 32);
}

// -- Works --------------------------------------------------------------------

SimWork::SimWork(World* world, uint64_t salt)
    : world_(world), salt_(salt), work_(std::make_shared<Work>()) {
  bytes_ = {salt, salt + 1, salt + 2};
  work_->request.label = absl::StrCat("w", salt);
  work_->request.inputs.resize(3);
  for (size_t i = 0; i < 3; ++i) {
    InputSource& input = work_->request.inputs[i];
    input.dtype = DType::kUint64;
    input.dims = {1};
    input.pieces = {std::string_view(reinterpret_cast<const char*>(&bytes_[i]),
                                     sizeof(uint64_t))};
  }
}

SimWork::~SimWork() = default;

void SimWork::ReadProducer(SimWork& producer) {
  InputSource input;
  input.producer = producer.work_;
  reads_.push_back(&producer);
  follows_.push_back(&producer);
  work_->request.inputs[reads_.size()] = std::move(input);
}

void SimWork::ReadTensor(SimWork& producer) {
  InputSource input;
  input.tensor = producer.work_->OutputTensor(0);
  reads_.push_back(&producer);
  follows_.push_back(&producer);
  work_->request.inputs[reads_.size()] = std::move(input);
}

void SimWork::After(SimWork& other) {
  follows_.push_back(&other);
  After(other.point());
}

Point SimWork::Signal() {
  auto timeline = world_->MakeTimeline();
  work_->request.signal.push_back({timeline, 1});
  signals_.emplace_back(timeline, 1);
  return {timeline, 1};
}

void SimWork::Fill(EvalContext& context) {
  engine_ = world_->SiteOf(context.engine());
  context_ = context.id();
  WorkRequest& request = work_->request;
  if (faulty_) bytes_[0] |= kFaultBit;
  request.program = world_->ProgramFor(program_, engine_);
  if (world_->options_.graphs) request.graph = world_->GraphFor(program_);
  request.outputs.assign(program_.two_outputs ? 2 : 1,
                         result_ == Result::kInline ? OutputWish::kInline
                         : result_ == Result::kKept ? OutputWish::kKeep
                                                    : OutputWish::kDrop);
  deadline_ = request.deadline;
  submitted_ = true;
}

void SimWork::Submit(Activation& activation) {
  Fill(activation.context());
  Note(absl::StrCat("submits ", Describe()));
  const std::shared_ptr<Work> work = work_;
  activation.Submit(work.get(), this);
  end_ = HeldPoint(work->point());
}

void SimWork::Defer(Activation& activation) {
  Fill(activation.context());
  Note(absl::StrCat("defers ", Describe()));
  deferred_ = true;
  const std::shared_ptr<Work> work = work_;
  activation.Defer(work, this);
  end_ = HeldPoint(work->point());
}

std::string SimWork::Describe() const {
  std::string text = absl::StrCat("w", salt_);
  for (const SimWork* other : follows_) {
    absl::StrAppend(&text, " after w", other->salt_);
  }
  absl::StrAppend(&text, ", mode ", static_cast<int>(mode()), ", result ",
                  static_cast<int>(result_), ", launches ", program_.launches,
                  faulty_ ? ", faulty" : "",
                  deadline_ != kNoDeadline ? ", with a deadline" : "");
  return text;
}

void SimWork::Cancel() {
  Note(absl::StrCat("cancels w", salt_));
  cancelled_ = true;
  work_->Cancel();
}

void SimWork::Abandon() {
  droppable_ = deferred_;
  end_ = HeldPoint();
  work_ = nullptr;
}

void SimWork::WaitScheduled() {
  while (work_->state() < WorkState::kScheduled) AwaitChange(kNever);
}

void SimWork::WaitReturned() {
  while (returned_.load() == 0) AwaitChange(kNever);
}

void SimWork::WaitDone() {
  while (!done_.load()) AwaitChange(kNever);
}

// Invariant 6: nobody writes what others read, or reads what is not whole. Who
// comes before or after whom is decided by other things, if all is well: then
// nobody is switched away from for these.
void SimWork::BeginKernel(const std::array<uint64_t, 3>& in) {
  const std::string name = absl::StrCat("the kernel of w", salt_);
  Check(!computes_.exchange(true), absl::StrCat(name, " runs twice at once"));
  for (const SimWork* read : reads_) {
    Check(!read->computes_.load(),
          absl::StrCat(name, " reads what w", read->salt_, " is writing"));
  }
  in_ = in;
  ++runs_;
}

void SimWork::EndKernel(const std::array<uint64_t, 3>& in) {
  Check(in == in_, absl::StrCat("what the kernel of w", salt_,
                                " reads is written meanwhile"));
  for (const SimWork* read : reads_) {
    Check(!read->computes_.load(),
          absl::StrCat("w", read->salt_, " writes what is being read"));
  }
  computes_.store(false);
}

void SimWork::OnReturn(Work&) {
  Progress();
  Check(!done_.load() && ++returned_ == 1,
        absl::StrCat("w", salt_, " returns twice, or when it is done"));
}

// Plans and launches may wait for the driver.
void SimWork::CheckThread() const {
  Check(CurrentThreadRole() != ThreadRole::kCompletion,
        absl::StrCat("the completion thread runs w", salt_));
}

absl::Status SimWork::OnPlanned(Work&) {
  CheckThread();
  Check(!done_.load(), absl::StrCat("w", salt_, " is planned when it is done"));
  return absl::OkStatus();
}

void SimWork::OnLaunch(Work& work) {
  Progress();
  CheckThread();
  Note(absl::StrCat("launches w", salt_));
  Check(!done_.load() && ++launched_ == 1,
        absl::StrCat("w", salt_, " is launched twice, or when it is done"));
  // Invariants 2 and 3 of reference-systems.md, section 8.
  const SyncReport& report = work.report();
  const uint64_t context = work.point().timeline->owner().number;
  const auto now = std::make_pair(report.lease_generation, context);
  auto& [generation, owner] = world_->leases_[{engine_, report.stream_id}];
  if (generation == report.lease_generation) {
    Check(owner == context,
          absl::StrCat("contexts ", owner, " and ", context,
                       " have one lease of stream ", report.stream_id));
  } else if (!world_->options_.graphs && !world_->options_.cpu) {
    Check(world_->device(engine_).IsIdle(report.stream_id),
          absl::StrCat("stream ", report.stream_id,
                       " has a new owner and is not idle"));
  }
  world_->leases_[{engine_, report.stream_id}] = now;
}

void SimWork::OnDone(Work& work) {
  Progress();
  Check(returned_.load() == 1,
        absl::StrCat("w", salt_, " is done and not returned"));
  Check(work.done(), absl::StrCat("w", salt_, " is done and says it is not"));
  status_ = work.status();
  joined_works_ = work.report().joined_works;
  if (status_.ok() && result_ != Result::kDropped) {
    for (size_t i = 0; i < work.request.outputs.size(); ++i) {
      uint64_t value = 0;
      const std::byte* const data = result_ == Result::kInline
                                        ? work.OutputBytes(i).data()
                                        : work.OutputTensor(i).data();
      std::memcpy(&value, data, sizeof(value));
      Check(value == world_->Expected(*this),
            absl::StrCat("w", salt_, " completed on garbage"));
    }
  }
  Note(absl::StrCat("w", salt_, " is done: ", status_.ToString()));
  Check(!done_.exchange(true), absl::StrCat("w", salt_, " is done twice"));
}

// -- The world ----------------------------------------------------------------

World::World(const WorldOptions& options) : options_(options) {
  OpDef mix = MakeOp("Mix");
  mix.doc = "A number from three.";
  for (const char* input : kInputs) {
    mix.inputs.push_back({.name = input, .types = {DType::kUint64}});
  }
  mix.attributes = {
      {.name = "launches", .type = AttributeType::kInt, .doc = ""}};
  Register(registry_, std::move(mix), [this](const NodeInfo& node) -> MakePlan {
    const auto launches =
        static_cast<size_t>(node.attributes.Int("launches", 1));
    return
        [this, launches] { return std::make_unique<MixPlan>(launches, this); };
  });
  OpDef echo = MakeOp("Echo");
  echo.doc = "The number.";
  echo.inputs = {{.name = "in", .types = {DType::kUint64}}};
  Register(registry_, std::move(echo), [](const NodeInfo&) -> MakePlan {
    return [] { return std::make_unique<EchoPlan>(); };
  });
  while (sites_.size() < options.engines) sites_.push_back(MakeSite());
}

World::Site World::MakeSite() {
  Site site;
  std::unique_ptr<Device> device;
  if (options_.cpu) {
    constexpr int kThreads = 2;
    device = std::make_unique<CpuDevice>(kThreads, int64_t{1} << 30);
  } else {
    auto simulated = std::make_unique<SimDevice>(options_.faults);
    site.device = simulated.get();
    device = std::move(simulated);
  }
  site.engine = Must(Engine::Create(std::move(device), &registry_,
                                    MakeEngineOptions(options_)));
  return site;
}

World::~World() {
  End();
  CheckEnd();
  works_.clear();
  Quiesce();
  for (const Site& site : sites_) CheckClean(*site.engine);
  graphs_.clear();
  for (Site& site : sites_) {
    site.programs.clear();
    site.engine = nullptr;
  }
}

size_t World::SiteOf(const Engine& engine) const {
  size_t site = 0;
  while (sites_[site].engine.get() != &engine) ++site;
  return site;
}

std::shared_ptr<const Program> World::ProgramFor(const ProgramKind& kind,
                                                 size_t engine) {
  Site& site = sites_[engine];
  std::shared_ptr<const Program>& program = site.programs[kind];
  if (program != nullptr) return program;
  program =
      Must(Program::Compile(MakeGraph(kind), site.engine->device(), registry_));
  // Planned now, so that a scenario's steps are not about plans.
  std::vector<HostTensor> inputs(3);
  for (HostTensor& input : inputs) {
    input.dtype = DType::kUint64;
    input.dims = {1};
  }
  Must(program->MakePlan(inputs));
  return program;
}

const std::shared_ptr<const Graph>& World::GraphFor(const ProgramKind& kind) {
  std::shared_ptr<const Graph>& graph = graphs_[kind];
  if (graph == nullptr) {
    graph = std::make_shared<const Graph>(MakeGraph(kind));
  }
  return graph;
}

std::shared_ptr<EvalContext> World::MakeContext(EvalMode mode, size_t engine) {
  ContextOptions options;
  options.mode = mode;
  return EvalContext::Create(sites_[engine].engine.get(), options);
}

void World::NoteEntered(const EvalContext& context) {
  Check(++inside_[context.id()] == 1, "two handlers are in one context");
}

void World::NoteLeft(const EvalContext& context) { --inside_[context.id()]; }

Activation World::Enter(EvalContext& context) {
  Activation activation = Must(context.Enter(NewHandlerId()));
  NoteEntered(context);
  return activation;
}

void World::Leave(Activation& activation) {
  NoteLeft(activation.context());
  activation.Leave();
}

void World::Close(std::shared_ptr<EvalContext>& context) {
  for (const auto& work : works_) {
    // Those that have neither been run nor ended: nothing but the context has
    // them.
    if (work->deferred_ && work->context_ == context->id() &&
        work->work_ != nullptr && work->work_->number() == 0 &&
        !work->work_->done()) {
      work->droppable_ = true;
    }
  }
  context = nullptr;
}

SimWork* World::WorkOf(uint64_t salt) const {
  return salt - 1 < works_.size() ? works_[salt - 1].get() : nullptr;
}

SimWork& World::MakeWork() {
  works_.push_back(std::make_unique<SimWork>(this, works_.size() + 1));
  return *works_.back();
}

std::shared_ptr<Timeline> World::MakeTimeline() {
  timelines_.push_back(std::make_shared<Timeline>("caller's"));
  return timelines_.back();
}

void World::Begin() {
  for (size_t i = 0; i < sites_.size(); ++i) {
    for (const auto& work : works_) ProgramFor(work->program_, i);
  }
  Quiesce();
  AfterEveryStep([this] { CheckStep(); });
  SetExploring(true);
}

void World::End() {
  SetExploring(false);
  AfterEveryStep(nullptr);
  Quiesce();
}

uint64_t World::Expected(const SimWork& work) const {
  std::array<uint64_t, 2> read = {work.salt_ + 1, work.salt_ + 2};
  for (size_t i = 0; i < work.reads_.size(); ++i) {
    read[i] = Expected(*work.reads_[i]);
  }
  return MixResult(work.salt_, read[0], read[1]);
}

}  // namespace weir::sim
