#include "kernels/ops/onednn_adapter.h"

#include <algorithm>
#include <exception>
#include <oneapi/dnnl/dnnl.hpp>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "kernels/base/alignment.h"
#include "kernels/base/status_macros.h"
#include "kernels/device/device.h"
#include "kernels/ops/convolution_pieces.h"
#include "kernels/ops/living_table.h"
#include "kernels/ops/parallel_for.h"

// From the OpenMP runtime that oneDNN brings. It sets the number of threads of
// the calling thread's own parallel regions; weak, since a oneDNN built without
// OpenMP needs none of this.
extern "C" void omp_set_num_threads(int threads) __attribute__((weak));

namespace weir::onednn {
namespace {

using dnnl::memory;

// oneDNN takes the number of threads at creation and at execution, both from
// the calling thread; a worker of ours is one thread.
void UseOneThread() {
  thread_local const bool done = [] {
    if (omp_set_num_threads != nullptr) omp_set_num_threads(1);
    return true;
  }();
  static_cast<void>(done);
}

// oneDNN's own cache would keep a thousand primitives that nobody holds any
// more, whatever their size: plans share theirs by a LivingTable.
const dnnl::engine& Engine() {
  static const auto* engine = [] {
    dnnl::set_primitive_cache_capacity(0);
    return new dnnl::engine(dnnl::engine::kind::cpu, 0);
  }();
  return *engine;
}

// oneDNN's C++ API throws; nothing above this file does.
template <typename Fn>
absl::Status Guard(const Fn& fn) {
  UseOneThread();
  try {
    fn();
    return absl::OkStatus();
  } catch (const dnnl::error& error) {
    if (error.status == dnnl_out_of_memory) {
      return ShortOfHostMemory(
          absl::ResourceExhaustedError("no memory for a oneDNN primitive"));
    }
    if (error.status == dnnl_unimplemented) {
      return absl::UnimplementedError(absl::StrCat("oneDNN: ", error.what()));
    }
    return absl::InternalError(
        absl::StrCat("oneDNN: ", error.what(), " (status ",
                     static_cast<int>(error.status), ")"));
  } catch (const std::bad_alloc&) {
    return ShortOfHostMemory(
        absl::ResourceExhaustedError("no memory for what oneDNN makes"));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("oneDNN: ", error.what()));
  }
}

memory At(const memory::desc& desc, void* data) {
  return memory(desc, Engine(), data);
}

// Strict float32, and scratch memory from us.
dnnl::primitive_attr Attributes() {
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  return attributes;
}

// What oneDNN makes for one shape: generated code and its tables above all.
struct Prepared {
  dnnl::convolution_forward convolution;
  std::string name;
  memory::desc weights;
  memory::desc scratchpad;
};

using Shape = LivingKey;

// What tells a layout of floats from others.
void AppendLayout(const memory::desc& layout, Shape* shape) {
  const dnnl_memory_desc_t& desc = layout.data;
  const dnnl_blocking_desc_t& blocks = desc.format_desc.blocking;
  shape->insert(shape->end(), {desc.ndims, blocks.inner_nblks});
  for (const dnnl_dim_t* sizes :
       {desc.dims, desc.padded_dims, blocks.strides}) {
    shape->insert(shape->end(), sizes, sizes + desc.ndims);
  }
  for (const dnnl_dim_t* sizes : {blocks.inner_blks, blocks.inner_idxs}) {
    shape->insert(shape->end(), sizes, sizes + blocks.inner_nblks);
  }
}

// A change of layout.
std::shared_ptr<const dnnl::reorder> MakeReorder(const memory::desc& from,
                                                 const memory::desc& to) {
  Shape shape;
  AppendLayout(from, &shape);
  AppendLayout(to, &shape);
  auto& table = LivingTable<dnnl::reorder>::Get();
  if (auto living = table.Find(shape)) return living;
  return table.Share(shape, dnnl::reorder(dnnl::reorder::primitive_desc(
                                Engine(), from, Engine(), to, Attributes())));
}

struct BandPrimitive {
  std::shared_ptr<const Prepared> prepared;
  size_t kept_bytes = 0;
  size_t form = 0;
  // Where the output is row-major.
  std::shared_ptr<const dnnl::reorder> to_planes;
  memory::desc input;
  memory::desc output;         // channels last
  memory::desc output_planes;  // the band inside the row-major output
};

// Its newer kernels, which go by rows (RowBytes).
bool IsBrgconv(const std::string& name) {
  return absl::StartsWith(name, "brgconv");
}

// It has them for AVX-512 alone.
bool MayTakeBrgconv() {
  constexpr auto kNeeded = static_cast<unsigned>(dnnl_cpu_isa_avx512_core);
  static const bool may = (static_cast<unsigned>(dnnl_get_effective_cpu_isa()) &
                           kNeeded) == kNeeded;
  return may;
}

// Some rows of a row-major image to channels last.
struct ImageMove {
  memory::desc planes;
  memory::desc channels_last;
  std::shared_ptr<const dnnl::reorder> reorder;
};
constexpr int64_t kMostMoved = int64_t{1} << 22;

// How some primitives want the weights of one slice.
struct Form {
  memory::desc packed;
  std::shared_ptr<const dnnl::reorder> pack;
};

}  // namespace

absl::Status Sgemm(bool transpose_a, bool transpose_b, int64_t m, int64_t n,
                   int64_t k, float alpha, const float* a, int64_t lda,
                   const float* b, int64_t ldb, float beta, float* c,
                   int64_t ldc) {
  UseOneThread();
  const dnnl_status_t status =
      dnnl_sgemm(transpose_a ? 'T' : 'N', transpose_b ? 'T' : 'N', m, n, k,
                 alpha, a, lda, b, ldb, beta, c, ldc);
  if (status == dnnl_success) return absl::OkStatus();
  if (status == dnnl_out_of_memory) {
    return ShortOfHostMemory(
        absl::ResourceExhaustedError("no memory for a matrix product"));
  }
  return absl::InternalError(absl::StrCat("oneDNN sgemm of ", m, " x ", n,
                                          " x ", k, ": status ",
                                          static_cast<int>(status)));
}

// Channels lie last inside: bands of rows are then contiguous, and oneDNN's
// fastest kernels take that layout as it is.
struct Convolution::State : ConvolutionPieces {
  explicit State(ConvolutionPieces pieces)
      : ConvolutionPieces(std::move(pieces)) {}

  std::vector<BandPrimitive> primitives;  // of ShareShapes
  std::vector<Form> forms;
  memory::desc weights_plain;  // of one slice
  memory::desc bias;
  std::vector<ImageMove> moves;  // of move_rows, and of the rows left over
  int64_t move_rows = 1;

  size_t image_bytes = 0;   // one input image, where it is moved
  size_t output_bytes = 0;  // of a piece, where it is not written in place
  size_t piece_bytes = 0;   // that and a scratchpad

  size_t SliceBytes(size_t form) const {
    return AlignUp(forms[form].packed.get_size(), kVectorAlignment);
  }

  void Build(const std::vector<Band>& shapes);
  void BuildPrimitive(const Band& band);
  void BuildImageMove();
  std::shared_ptr<const Prepared> Prepare(const Band& band) const;
  size_t AddForm(const memory::desc& wanted);

  struct Running;
  void MoveImage(const Running& run, int64_t image) const;
  void RunPiece(const Running& run, int64_t image, int64_t piece,
                std::byte* own) const;
  void FillPiece(const Running& run, const Band& band, int64_t image,
                 int64_t slice) const;
  void FinishPiece(const Running& run, const Band& band, int64_t image,
                   int64_t slice, float* from) const;
};

class Convolution::Weights {
 public:
  // By form, then by slice.
  std::vector<memory> slices;
  std::vector<std::shared_ptr<const std::byte>> owners;
};

// Each primitive gets the weights that it asks for: in another's form oneDNN
// may have nothing but its reference code.
size_t Convolution::State::AddForm(const memory::desc& wanted) {
  for (size_t i = 0; i < forms.size(); ++i) {
    if (forms[i].packed == wanted) return i;
  }
  forms.push_back({wanted, MakeReorder(weights_plain, wanted)});
  return forms.size() - 1;
}

// Throws dnnl::error where oneDNN has nothing for it.
std::shared_ptr<const Prepared> Convolution::State::Prepare(
    const Band& band) const {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  memory::dims in = {1, s.in_channels};
  memory::dims out = {1, SliceChannels()};
  memory::dims before, after, stride, dilation;
  for (size_t i = 0; i <= LastAxis(); ++i) {
    const Extent extent = Along(band, i);
    in.push_back(extent.in);
    out.push_back(extent.out);
    before.push_back(extent.before);
    after.push_back(extent.after);
    stride.push_back(s.stride[i]);
    dilation.push_back(s.dilation[i] - 1);
  }
  const memory::dims weights = weights_plain.dims();
  Shape shape = {s.bias};
  for (const memory::dims& dims :
       {in, out, before, after, stride, dilation, weights}) {
    shape.push_back(static_cast<int64_t>(dims.size()));
    shape.insert(shape.end(), dims.begin(), dims.end());
  }
  auto& table = LivingTable<Prepared>::Get();
  if (auto living = table.Find(shape)) return living;

  const Tag channels_last = Flat() ? Tag::nhwc : Tag::ndhwc;
  const dnnl::convolution_forward::desc description(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      memory::desc(in, f32, channels_last),
      memory::desc(weights, f32, Tag::any), bias,
      memory::desc(out, f32, channels_last), stride, dilation, before, after);
  dnnl::convolution_forward::primitive_desc primitive(description, Attributes(),
                                                      Engine());
  if (!TrustsRows(band)) {
    while (IsBrgconv(primitive.impl_info_str())) {
      if (!primitive.next_impl()) {
        throw dnnl::error(dnnl_unimplemented, "no other implementation");
      }
    }
  }
  return table.Share(
      shape, {dnnl::convolution_forward(primitive), primitive.impl_info_str(),
              primitive.weights_desc(), primitive.scratchpad_desc()});
}

void Convolution::State::BuildPrimitive(const Band& band) {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  const bool flat = Flat();
  const auto cut = [flat](memory::dims dims) {
    if (flat) dims.pop_back();
    return dims;
  };
  const Tag channels_last = flat ? Tag::nhwc : Tag::ndhwc;
  memory::dims in = {1, s.in_channels, s.in[0], s.in[1], s.in[2]};
  memory::dims out = {1, SliceChannels(), s.out[0], s.out[1], s.out[2]};
  in[axis + 2] = band.in_rows;
  out[axis + 2] = band.out_rows;

  BandPrimitive made;
  made.input = memory::desc(cut(in), f32, channels_last);
  made.output = memory::desc(cut(out), f32, channels_last);
  made.prepared = Prepare(band);
  made.kept_bytes =
      static_cast<size_t>(KeptBytes(band, IsBrgconv(made.prepared->name)));
  made.form = AddForm(made.prepared->weights);
  if (!s.channels_last) {
    const int64_t plane = s.out[1] * s.out[2];
    made.output_planes =
        memory::desc(cut(out), f32,
                     cut({s.out_channels * s.out[0] * plane, s.out[0] * plane,
                          plane, s.out[2], 1}));
    made.to_planes = MakeReorder(made.output, made.output_planes);
  }
  if (!InPlace()) {
    output_bytes = std::max(output_bytes,
                            AlignUp(made.output.get_size(), kVectorAlignment));
  }
  piece_bytes =
      std::max(piece_bytes,
               AlignUp(made.prepared->scratchpad.get_size(), kVectorAlignment));
  primitives.push_back(std::move(made));
}

// An image is moved in parts of some 16 MB, for what is one call is not asked
// within.
void Convolution::State::BuildImageMove() {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  const int64_t in_plane = s.in[1] * s.in[2];
  const int64_t rows = s.in[axis];
  move_rows = std::clamp<int64_t>(kMostMoved / InRowFloats(), 1, rows);
  for (const int64_t part : {move_rows, rows % move_rows}) {
    if (part == 0) continue;
    memory::dims dims = {1, s.in_channels, s.in[0], s.in[1], s.in[2]};
    dims[axis + 2] = part;
    memory::dims strides = {s.in_channels * s.in[0] * in_plane,
                            s.in[0] * in_plane, in_plane, s.in[2], 1};
    if (Flat()) {
      dims.pop_back();
      strides.pop_back();
    }
    ImageMove move;
    move.planes = memory::desc(dims, f32, strides);
    move.channels_last =
        memory::desc(dims, f32, Flat() ? Tag::nhwc : Tag::ndhwc);
    move.reorder = MakeReorder(move.planes, move.channels_last);
    moves.push_back(std::move(move));
  }
  image_bytes =
      AlignUp(static_cast<size_t>(rows * InRowFloats()) * sizeof(float),
              kVectorAlignment);
}

void Convolution::State::Build(const std::vector<Band>& shapes) {
  const auto f32 = memory::data_type::f32;
  memory::dims weights = {SliceChannels() / spec.groups,
                          spec.in_channels / spec.groups, spec.kernel[0],
                          spec.kernel[1], spec.kernel[2]};
  if (spec.groups > 1) weights.insert(weights.begin(), spec.groups);
  if (Flat()) weights.pop_back();
  memory::dims strides(weights.size());
  int64_t step = 1;
  for (size_t i = weights.size(); i-- > 0; step *= weights[i]) {
    strides[i] = step;
  }
  weights_plain = memory::desc(weights, f32, strides);
  if (spec.bias) {
    bias = memory::desc({SliceChannels()}, f32, memory::format_tag::a);
  }
  if (!spec.channels_last && !shapes.empty()) BuildImageMove();
  for (const Band& band : shapes) BuildPrimitive(band);
  piece_bytes += output_bytes;
}

Convolution::Convolution(std::unique_ptr<const State> state)
    : state_(std::move(state)) {}
Convolution::~Convolution() = default;

absl::StatusOr<std::unique_ptr<const Convolution>> Convolution::Create(
    const ConvolutionSpec& spec) {
  std::optional<ConvolutionPieces> pieces = ConvolutionPieces::Cut(spec);
  if (!pieces.has_value()) return nullptr;
  auto state = std::make_unique<State>(*std::move(pieces));
  const std::vector<Band> shapes = state->ShareShapes();
  double kept = 2.0 * kReorderBytes;  // which move the image
  for (const Band& band : shapes) {
    kept += state->MostBytes(band, MayTakeBrgconv());
  }
  if (kept > kMostKeptBytes) return nullptr;
  const absl::Status built = Guard([&] { state->Build(shapes); });
  if (absl::IsUnimplemented(built)) return nullptr;
  WEIR_RETURN_IF_ERROR(built);
  return std::unique_ptr<const Convolution>(new Convolution(std::move(state)));
}

size_t Convolution::forms() const { return state_->forms.size(); }

std::string Convolution::FormName(size_t form) const {
  const dnnl_memory_desc_t& desc = state_->forms[form].packed.data;
  const dnnl_blocking_desc_t& blocks = desc.format_desc.blocking;
  std::string name = absl::StrCat("conv/", state_->slices);
  for (int i = 0; i < desc.ndims; ++i) {
    absl::StrAppend(&name, "/", desc.dims[i], ":", desc.padded_dims[i], ":",
                    blocks.strides[i]);
  }
  for (int i = 0; i < blocks.inner_nblks; ++i) {
    absl::StrAppend(&name, "/", blocks.inner_idxs[i], "x",
                    blocks.inner_blks[i]);
  }
  return name;
}

size_t Convolution::FormBytes(size_t form) const {
  return static_cast<size_t>(state_->slices) * state_->SliceBytes(form);
}

absl::Status Convolution::Pack(size_t form, const float* weights,
                               std::byte* packed) const {
  return PackAsking(nullptr, form, weights, packed);
}

absl::Status Convolution::PackAsking(CpuTeam* team, size_t form,
                                     const float* weights,
                                     std::byte* packed) const {
  const State& s = *state_;
  return Guard([&] {
    dnnl::stream stream(Engine());
    for (int64_t i = 0; i < s.slices; ++i) {
      if (team != nullptr && team->GivenUp()) return;
      memory from = At(s.weights_plain,
                       const_cast<float*>(weights + i * s.SliceWeights()));
      memory to = At(s.forms[form].packed,
                     packed + static_cast<size_t>(i) * s.SliceBytes(form));
      s.forms[form].pack->execute(stream, from, to);
    }
    stream.wait();
  });
}

// To make a memory object writes nothing: others may read a shared copy.
absl::StatusOr<std::shared_ptr<const Convolution::Weights>> Convolution::Hold(
    std::vector<std::shared_ptr<const std::byte>> packed) const {
  const State& s = *state_;
  auto weights = std::make_shared<Weights>();
  WEIR_RETURN_IF_ERROR(Guard([&] {
    for (size_t form = 0; form < s.forms.size(); ++form) {
      auto* at = const_cast<std::byte*>(packed[form].get());
      for (int64_t i = 0; i < s.slices; ++i, at += s.SliceBytes(form)) {
        weights->slices.push_back(At(s.forms[form].packed, at));
      }
    }
  }));
  weights->owners = std::move(packed);
  return weights;
}

size_t Convolution::held_bytes() const {
  const State& s = *state_;
  size_t bytes =
      sizeof(State) + s.bands.size() * sizeof(Band) +
      s.primitives.size() * sizeof(BandPrimitive) +
      s.moves.size() * sizeof(ImageMove) +
      s.forms.size() * (sizeof(Form) + static_cast<size_t>(s.slices) *
                                           sizeof(dnnl_memory_desc_t));
  for (const SharedHold& hold : shared_holds()) bytes += hold.bytes;
  return bytes;
}

std::vector<SharedHold> Convolution::shared_holds() const {
  std::vector<SharedHold> holds;
  std::set<const void*> seen;
  const auto add = [&](const void* object, size_t bytes) {
    if (object != nullptr && seen.insert(object).second) {
      holds.push_back({object, bytes});
    }
  };
  for (const BandPrimitive& made : state_->primitives) {
    add(made.prepared.get(), made.kept_bytes);
    add(made.to_planes.get(), kReorderBytes);
  }
  for (const Form& form : state_->forms) add(form.pack.get(), kReorderBytes);
  for (const ImageMove& move : state_->moves) {
    add(move.reorder.get(), kReorderBytes);
  }
  return holds;
}

size_t Convolution::scratch_bytes(bool packs) const {
  const State& s = *state_;
  size_t bytes =
      static_cast<size_t>(s.spec.batch) *
      (s.image_bytes + static_cast<size_t>(s.Runs()) * s.piece_bytes);
  for (size_t form = 0; packs && form < s.forms.size(); ++form) {
    bytes += FormBytes(form);
  }
  return bytes;
}

std::string Convolution::implementation() const {
  std::vector<std::string> names;
  for (const BandPrimitive& made : state_->primitives) {
    const std::string& name = made.prepared->name;
    if (std::find(names.begin(), names.end(), name) == names.end()) {
      names.push_back(name);
    }
  }
  return absl::StrJoin(names, " ");
}

struct Convolution::State::Running {
  CpuTeam* team;  // may be null
  const Operands& operands;
  const Weights& weights;
  std::byte* images;
  std::byte* pieces;
};

void Convolution::State::MoveImage(const Running& run, int64_t image) const {
  dnnl::stream stream(Engine());
  const int64_t rows = spec.in[axis];
  const float* from = run.operands.input + image * rows * InRowFloats();
  auto* to = reinterpret_cast<float*>(run.images +
                                      static_cast<size_t>(image) * image_bytes);
  for (int64_t row = 0; row < rows; row += move_rows) {
    if (row > 0 && run.team != nullptr && run.team->GivenUp()) return;
    const ImageMove& move = rows - row < move_rows ? moves.back() : moves[0];
    memory planes =
        At(move.planes, const_cast<float*>(from + row * RowPixels(spec.in)));
    memory channels_last = At(move.channels_last, to + row * InRowFloats());
    move.reorder->execute(stream, planes, channels_last);
    stream.wait();
  }
}

// Slices innermost: neighbors share a band of the input.
void Convolution::State::RunPiece(const Running& run, int64_t image,
                                  int64_t piece, std::byte* own) const {
  const int64_t slice = piece % slices;
  const Band& band = bands[static_cast<size_t>(piece / slices)];
  if (band.in_rows == 0) return FillPiece(run, band, image, slice);
  const BandPrimitive& made = primitives[band.primitive];
  const float* const input =
      spec.channels_last
          ? run.operands.input + image * spec.in[axis] * InRowFloats()
          : reinterpret_cast<const float*>(
                run.images + static_cast<size_t>(image) * image_bytes);
  float* const result =
      InPlace() ? run.operands.output +
                      (image * spec.out[axis] + band.out_begin) * OutRowFloats()
                : reinterpret_cast<float*>(own);
  dnnl::stream stream(Engine());
  // oneDNN's handles are not const; sources are only read.
  std::unordered_map<int, memory> arguments = {
      {DNNL_ARG_SRC,
       At(made.input,
          const_cast<float*>(input + band.in_begin * InRowFloats()))},
      {DNNL_ARG_WEIGHTS,
       run.weights.slices[made.form * static_cast<size_t>(slices) +
                          static_cast<size_t>(slice)]},
      {DNNL_ARG_DST, At(made.output, result)},
  };
  if (spec.bias) {
    const float* from = run.operands.bias + slice * SliceChannels();
    arguments.emplace(DNNL_ARG_BIAS, At(bias, const_cast<float*>(from)));
  }
  const Prepared& prepared = *made.prepared;
  if (prepared.scratchpad.get_size() > 0) {
    arguments.emplace(DNNL_ARG_SCRATCHPAD,
                      At(prepared.scratchpad, own + output_bytes));
  }
  prepared.convolution.execute(stream, arguments);
  stream.wait();
  FinishPiece(run, band, image, slice, result);
}

// Adds the residual, applies the activation, and takes the result to its place.
void Convolution::State::FinishPiece(const Running& run, const Band& band,
                                     int64_t image, int64_t slice,
                                     float* from) const {
  const int64_t row = RowPixels(spec.out);
  const int64_t pixels = band.out_rows * row;
  const int64_t first_channel = slice * SliceChannels();
  if (!spec.channels_last) {
    const BandPrimitive& made = primitives[band.primitive];
    const int64_t plane = spec.out[axis] * row;
    int64_t begin = (image * spec.out_channels + first_channel) * plane +
                    band.out_begin * row;
    dnnl::stream stream(Engine());
    memory planes = At(made.output_planes, run.operands.output + begin);
    memory piece = At(made.output, from);
    made.to_planes->execute(stream, piece, planes);
    stream.wait();
    for (int64_t c = 0; Finishes() && c < SliceChannels(); ++c) {
      float* const part = run.operands.output + begin;
      Finish(spec, part,
             spec.residual ? run.operands.residual + begin : nullptr, part,
             pixels);
      begin += plane;
    }
    return;
  }
  if (InPlace() && !Finishes()) return;
  const int64_t begin =
      (image * spec.out[axis] + band.out_begin) * OutRowFloats() +
      first_channel;
  const float* residual =
      spec.residual ? run.operands.residual + begin : nullptr;
  float* to = run.operands.output + begin;
  if (InPlace()) {
    return Finish(spec, from, residual, to, pixels * SliceChannels());
  }
  for (int64_t p = 0; p < pixels; ++p) {
    Finish(spec, from, residual, to, SliceChannels());
    from += SliceChannels();
    to += spec.out_channels;
    if (residual != nullptr) residual += spec.out_channels;
  }
}

// What sees padding alone: the bias everywhere, and what follows it.
void Convolution::State::FillPiece(const Running& run, const Band& band,
                                   int64_t image, int64_t slice) const {
  constexpr int64_t kPart = int64_t{1} << 16;
  GiveUpQuestion given_up(run.team);
  const int64_t row = RowPixels(spec.out), plane = spec.out[axis] * row;
  const int64_t channels = SliceChannels(), first = slice * channels;
  const auto bias_of = [&](int64_t c) {
    return spec.bias ? run.operands.bias[first + c] : 0.0f;
  };
  const auto finish = [&](int64_t at, int64_t n) {
    float* const to = run.operands.output + at;
    Finish(spec, to, spec.residual ? run.operands.residual + at : nullptr, to,
           n);
  };
  const int64_t begin = band.out_begin * row;
  const int64_t past = begin + band.out_rows * row;
  for (int64_t p = begin; spec.channels_last && p < past; ++p) {
    if (given_up.Asked(channels)) return;
    const int64_t at = (image * plane + p) * spec.out_channels + first;
    for (int64_t c = 0; c < channels; ++c) {
      run.operands.output[at + c] = bias_of(c);
    }
    finish(at, channels);
  }
  for (int64_t c = 0; !spec.channels_last && c < channels; ++c) {
    const int64_t base = (image * spec.out_channels + first + c) * plane;
    for (int64_t p = begin; p < past; p += kPart) {
      const int64_t n = std::min(kPart, past - p);
      if (given_up.Asked(n)) return;
      std::fill_n(run.operands.output + base + p, n, bias_of(c));
      finish(base + p, n);
    }
  }
}

absl::Status Convolution::Run(CpuTeam* team, const Operands& operands,
                              void* scratch) const {
  const State& s = *state_;
  auto* next = static_cast<std::byte*>(scratch);
  std::shared_ptr<const Weights> packed;
  if (operands.held == nullptr) {
    std::vector<std::shared_ptr<const std::byte>> forms;
    for (size_t form = 0; form < s.forms.size(); ++form) {
      // The scratch memory is the caller's: nothing to free.
      forms.emplace_back(std::shared_ptr<void>(), next);
      WEIR_RETURN_IF_ERROR(PackAsking(team, form, operands.weights, next));
      next += FormBytes(form);
    }
    WEIR_ASSIGN_OR_RETURN(packed, Hold(std::move(forms)));
  }
  const State::Running run = {
      team, operands, operands.held == nullptr ? *packed : *operands.held, next,
      next + static_cast<size_t>(s.spec.batch) * s.image_bytes};
  if (!s.moves.empty()) {
    WEIR_RETURN_IF_ERROR(
        ParallelForStatus(team, s.spec.batch, [&](int64_t image) {
          return Guard([&] { s.MoveImage(run, image); });
        }));
  }
  // Which pieces are one run depends on shapes alone, as the pieces do.
  return ParallelForStatus(team, s.spec.batch * s.Runs(), [&](int64_t i) {
    return Guard([&] {
      std::byte* const own =
          run.pieces + static_cast<size_t>(i) * s.piece_bytes;
      const int64_t begin = i % s.Runs() * s.PiecesOfRun();
      const int64_t end = std::min(begin + s.PiecesOfRun(), s.Pieces());
      for (int64_t piece = begin; piece < end; ++piece) {
        if (piece > begin && team != nullptr && team->GivenUp()) return;
        s.RunPiece(run, i / s.Runs(), piece, own);
      }
    });
  });
}

}  // namespace weir::onednn
