#include "kernels/ops/onednn_adapter.h"

#include <algorithm>
#include <exception>
#include <numeric>
#include <oneapi/dnnl/dnnl.hpp>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/base/status_macros.h"
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

const dnnl::engine& Engine() {
  static const auto* engine = new dnnl::engine(dnnl::engine::kind::cpu, 0);
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
      return absl::ResourceExhaustedError("no memory for a oneDNN primitive");
    }
    return absl::InternalError(
        absl::StrCat("oneDNN: ", error.what(), " (status ",
                     static_cast<int>(error.status), ")"));
  } catch (const std::exception& error) {
    return absl::ResourceExhaustedError(absl::StrCat("oneDNN: ", error.what()));
  }
}

constexpr size_t kAlignment = 64;

size_t AlignUp(size_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Rows of the first spatial axis that are computed as one piece.
struct Band {
  int64_t out_begin = 0;
  int64_t out_rows = 0;
  int64_t in_begin = 0;
  int64_t in_rows = 0;
  int64_t pad_begin = 0;
  size_t primitive = 0;  // index in State::convolutions
};

struct BandPrimitive {
  Band shape;  // of the first band that uses it
  dnnl::convolution_forward convolution;
  dnnl::reorder to_output;
  memory::desc input;
  memory::desc output;         // channels last
  memory::desc output_planes;  // the band inside the dense output
  size_t scratchpad_bytes = 0;
};

// A piece of some 20 Mflop keeps a core busy for 0.1 to 0.5 ms. Bands of fewer
// pixels would mostly load weights; slices of fewer channels waste registers.
constexpr double kFlopsPerPiece = 20e6;
constexpr int64_t kMaxPieces = 8;
constexpr int64_t kMinPixelsPerBand = 196;
constexpr int64_t kChannelsPerSlice = 64;

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
    return absl::ResourceExhaustedError("no memory for a matrix product");
  }
  return absl::InternalError(absl::StrCat("oneDNN sgemm of ", m, " x ", n,
                                          " x ", k, ": status ",
                                          static_cast<int>(status)));
}

// Channels lie last inside: bands of rows are then contiguous, and oneDNN's
// fastest kernels take that layout as it is.
struct Convolution::State {
  ConvolutionSpec spec;
  std::vector<Band> bands;
  int64_t slices = 1;  // of the output channels, where there are few pixels
  std::vector<BandPrimitive> convolutions;
  dnnl::reorder pack_weights;
  memory::desc weights_plain;  // of one slice
  memory::desc weights_packed;
  memory::desc bias;
  dnnl::reorder input_to_channels_last;  // one image
  memory::desc input_planes;
  memory::desc input_channels_last;

  size_t packed_bytes = 0;  // one slice of the weights
  size_t image_bytes = 0;   // one input image, channels last
  size_t piece_bytes = 0;   // output and scratchpad of one piece
  bool reorders_weights = false;

  int64_t InRowFloats() const {
    return spec.in[1] * spec.in[2] * spec.in_channels;
  }
  int64_t OutRowFloats() const {
    return spec.out[1] * spec.out[2] * spec.out_channels;
  }
  int64_t SliceChannels() const { return spec.out_channels / slices; }

  void MakePieces();
  void MakeBands(int64_t count);
  void Build();
  void BuildPrimitive(const Band& band);
};

void Convolution::State::MakePieces() {
  const auto product = [](const std::array<int64_t, 3>& sizes) {
    return static_cast<double>(sizes[0]) * static_cast<double>(sizes[1]) *
           static_cast<double>(sizes[2]);
  };
  const int64_t channels_of_a_group = spec.in_channels / spec.groups;
  const double flops = 2.0 * product(spec.out) * product(spec.kernel) *
                       static_cast<double>(spec.out_channels) *
                       static_cast<double>(channels_of_a_group);
  // Many images are pieces enough.
  const int64_t most = std::max<int64_t>(1, kMaxPieces / spec.batch);
  const auto limit = static_cast<double>(most);
  const auto pieces =
      static_cast<int64_t>(std::clamp(flops / kFlopsPerPiece, 1.0, limit));
  const int64_t pixels = spec.out[0] * spec.out[1] * spec.out[2];
  MakeBands(std::min(
      {pieces, spec.out[0], std::max<int64_t>(1, pixels / kMinPixelsPerBand)}));
  const int64_t left = pieces / static_cast<int64_t>(bands.size());
  while (spec.groups == 1 && slices * 2 <= left &&
         spec.out_channels % (slices * 2 * kChannelsPerSlice) == 0) {
    slices *= 2;
  }
}

void Convolution::State::MakeBands(int64_t count) {
  const int64_t rows = spec.out[0];
  // oneDNN's layout changes are four times as fast for whole vectors of pixels.
  const int64_t unit = 16 / std::gcd(int64_t{16}, spec.out[1] * spec.out[2]);
  const auto edge = [&](int64_t i) {
    const int64_t row = rows * i / count;
    return i == count ? rows : row / unit * unit;
  };
  const int64_t reach = (spec.kernel[0] - 1) * spec.dilation[0] + 1;
  for (int64_t i = 0; i < count && count > 1; ++i) {
    Band band;
    band.out_begin = edge(i);
    band.out_rows = edge(i + 1) - band.out_begin;
    if (band.out_rows == 0) continue;
    const int64_t first = band.out_begin * spec.stride[0] - spec.pad_begin[0];
    const int64_t last = first + (band.out_rows - 1) * spec.stride[0] + reach;
    if (first >= spec.in[0] || last <= 0) {  // sees padding alone
      bands.clear();
      break;
    }
    band.in_begin = std::max<int64_t>(first, 0);
    band.in_rows = std::min(last, spec.in[0]) - band.in_begin;
    band.pad_begin = band.in_begin - first;
    bands.push_back(band);
  }
  if (bands.empty()) {
    bands.push_back({.out_rows = rows,
                     .in_rows = spec.in[0],
                     .pad_begin = spec.pad_begin[0]});
  }
}

void Convolution::State::BuildPrimitive(const Band& band) {
  using Tag = memory::format_tag;
  const auto f32 = memory::data_type::f32;
  const auto& s = spec;
  const memory::dims in = {1, s.in_channels, band.in_rows, s.in[1], s.in[2]};
  const memory::dims out = {1, SliceChannels(), band.out_rows, s.out[1],
                            s.out[2]};
  const memory::dims stride = {s.stride[0], s.stride[1], s.stride[2]};
  const memory::dims dilation = {s.dilation[0] - 1, s.dilation[1] - 1,
                                 s.dilation[2] - 1};
  const memory::dims before = {band.pad_begin, s.pad_begin[1], s.pad_begin[2]};
  memory::dims after(3);
  for (size_t i = 0; i < 3; ++i) {
    const int64_t size = in[i + 2];
    after[i] = (out[i + 2] - 1) * s.stride[i] +
               (s.kernel[i] - 1) * s.dilation[i] + 1 - size - before[i];
  }

  // Two spatial axes where the last of three is unused: oneDNN has more
  // kernels for them.
  const bool flat =
      s.in[2] == 1 && s.out[2] == 1 && s.kernel[2] == 1 && s.pad_begin[2] == 0;
  const auto cut = [flat](memory::dims dims) {
    if (flat) dims.pop_back();
    return dims;
  };
  const Tag channels_last = flat ? Tag::nhwc : Tag::ndhwc;

  BandPrimitive made;
  made.shape = band;
  made.input = memory::desc(cut(in), f32, channels_last);
  made.output = memory::desc(cut(out), f32, channels_last);
  const int64_t plane = s.out[1] * s.out[2];
  made.output_planes =
      memory::desc(cut(out), f32,
                   cut({s.out_channels * s.out[0] * plane, s.out[0] * plane,
                        plane, s.out[2], 1}));

  memory::dims weights = {SliceChannels() / s.groups, s.in_channels / s.groups,
                          s.kernel[0], s.kernel[1], s.kernel[2]};
  if (s.groups > 1) weights.insert(weights.begin(), s.groups);
  weights = cut(weights);
  bias = s.bias ? memory::desc({SliceChannels()}, f32, Tag::a) : memory::desc();
  // The first primitive chooses how weights are packed; the others follow.
  const memory::desc wanted = convolutions.empty()
                                  ? memory::desc(weights, f32, Tag::any)
                                  : weights_packed;

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  attributes.set_fpmath_mode(dnnl::fpmath_mode::strict);
  const dnnl::convolution_forward::desc description(
      dnnl::prop_kind::forward_inference, dnnl::algorithm::convolution_direct,
      made.input, wanted, bias, made.output, cut(stride), cut(dilation),
      cut(before), cut(after));
  const dnnl::convolution_forward::primitive_desc primitive(
      description, attributes, Engine());
  made.scratchpad_bytes = primitive.scratchpad_desc().get_size();
  made.convolution = dnnl::convolution_forward(primitive);
  made.to_output = dnnl::reorder(dnnl::reorder::primitive_desc(
      Engine(), made.output, Engine(), made.output_planes, attributes));
  if (convolutions.empty()) {
    memory::dims strides(weights.size());
    int64_t step = 1;
    for (size_t i = weights.size(); i-- > 0; step *= weights[i]) {
      strides[i] = step;
    }
    weights_plain = memory::desc(weights, f32, strides);
    weights_packed = primitive.weights_desc();
    packed_bytes = AlignUp(weights_packed.get_size());
    reorders_weights = weights_packed != weights_plain;
    pack_weights = dnnl::reorder(dnnl::reorder::primitive_desc(
        Engine(), weights_plain, Engine(), weights_packed, attributes));
    const memory::dims image = {1, s.in_channels, s.in[0], s.in[1], s.in[2]};
    const int64_t in_plane = s.in[1] * s.in[2];
    input_planes =
        memory::desc(cut(image), f32,
                     cut({s.in_channels * s.in[0] * in_plane,
                          s.in[0] * in_plane, in_plane, s.in[2], 1}));
    input_channels_last = memory::desc(cut(image), f32, channels_last);
    image_bytes = AlignUp(input_channels_last.get_size());
    input_to_channels_last = dnnl::reorder(dnnl::reorder::primitive_desc(
        Engine(), input_planes, Engine(), input_channels_last, attributes));
  }
  piece_bytes = std::max(piece_bytes, AlignUp(made.output.get_size()) +
                                          AlignUp(made.scratchpad_bytes));
  convolutions.push_back(std::move(made));
}

void Convolution::State::Build() {
  MakePieces();
  for (Band& band : bands) {
    const auto same = std::find_if(
        convolutions.begin(), convolutions.end(), [&](const auto& made) {
          return made.shape.out_rows == band.out_rows &&
                 made.shape.in_rows == band.in_rows &&
                 made.shape.pad_begin == band.pad_begin;
        });
    band.primitive = static_cast<size_t>(same - convolutions.begin());
    if (same == convolutions.end()) BuildPrimitive(band);
  }
}

Convolution::Convolution(std::unique_ptr<const State> state)
    : state_(std::move(state)) {}
Convolution::~Convolution() = default;

absl::StatusOr<std::unique_ptr<const Convolution>> Convolution::Create(
    const ConvolutionSpec& spec) {
  auto state = std::make_unique<State>();
  state->spec = spec;
  WEIR_RETURN_IF_ERROR(Guard([&] { state->Build(); }));
  return std::unique_ptr<const Convolution>(new Convolution(std::move(state)));
}

size_t Convolution::scratch_bytes() const {
  const State& s = *state_;
  const auto images = static_cast<size_t>(s.spec.batch);
  const auto slices = static_cast<size_t>(s.slices);
  return slices * s.packed_bytes +
         images * (s.image_bytes + s.bands.size() * slices * s.piece_bytes);
}

absl::Status Convolution::Run(CpuTeam* team, const float* input,
                              const float* weights, const float* bias,
                              float* output, void* scratch) const {
  const State& s = *state_;
  const ConvolutionSpec& spec = s.spec;
  auto* const packed = static_cast<std::byte*>(scratch);
  std::byte* const images =
      packed + static_cast<size_t>(s.slices) * s.packed_bytes;
  std::byte* const pieces =
      images + static_cast<size_t>(spec.batch) * s.image_bytes;
  // oneDNN's handles are not const; sources are only read.
  const auto source = [](const void* data) { return const_cast<void*>(data); };
  const auto at = [](const memory::desc& desc, void* data) {
    return memory(desc, Engine(), data);
  };

  const int64_t in_image = spec.in[0] * s.InRowFloats();
  const int64_t slice_weights =
      s.SliceChannels() * (spec.in_channels / spec.groups) * spec.kernel[0] *
      spec.kernel[1] * spec.kernel[2];
  const int64_t packs = s.reorders_weights ? s.slices : 0;
  WEIR_RETURN_IF_ERROR(
      ParallelForStatus(team, packs + spec.batch, [&](int64_t i) {
        return Guard([&] {
          dnnl::stream stream(Engine());
          if (i < packs) {
            memory from =
                at(s.weights_plain, source(weights + i * slice_weights));
            memory to = at(s.weights_packed,
                           packed + static_cast<size_t>(i) * s.packed_bytes);
            s.pack_weights.execute(stream, from, to);
          } else {
            const int64_t image = i - packs;
            memory from = at(s.input_planes, source(input + image * in_image));
            memory to = at(s.input_channels_last,
                           images + static_cast<size_t>(image) * s.image_bytes);
            s.input_to_channels_last.execute(stream, from, to);
          }
          stream.wait();
        });
      }));

  const auto bands = static_cast<int64_t>(s.bands.size());
  const int64_t out_row = spec.out[1] * spec.out[2];
  const int64_t out_plane = spec.out[0] * out_row;
  // Slices innermost: neighbors share a band of the input.
  return ParallelForStatus(team, spec.batch * bands * s.slices, [&](int64_t i) {
    const int64_t slice = i % s.slices;
    const int64_t image_index = i / s.slices / bands;
    const Band& band = s.bands[static_cast<size_t>(i / s.slices % bands)];
    const BandPrimitive& made = s.convolutions[band.primitive];
    const auto* image = reinterpret_cast<const float*>(
        images + static_cast<size_t>(image_index) * s.image_bytes);
    const void* used_weights =
        s.reorders_weights
            ? static_cast<const void*>(packed + static_cast<size_t>(slice) *
                                                    s.packed_bytes)
            : weights + slice * slice_weights;
    std::byte* const piece = pieces + static_cast<size_t>(i) * s.piece_bytes;
    const int64_t first_channel = slice * s.SliceChannels();
    return Guard([&] {
      dnnl::stream stream(Engine());
      memory result = at(made.output, piece);
      std::unordered_map<int, memory> arguments = {
          {DNNL_ARG_SRC,
           at(made.input, source(image + band.in_begin * s.InRowFloats()))},
          {DNNL_ARG_WEIGHTS, at(s.weights_packed, source(used_weights))},
          {DNNL_ARG_DST, result},
      };
      if (spec.bias) {
        arguments.emplace(DNNL_ARG_BIAS,
                          at(s.bias, source(bias + first_channel)));
      }
      if (made.scratchpad_bytes > 0) {
        const auto scratchpad =
            memory::desc({static_cast<int64_t>(made.scratchpad_bytes)},
                         memory::data_type::u8, memory::format_tag::a);
        arguments.emplace(
            DNNL_ARG_SCRATCHPAD,
            at(scratchpad, piece + AlignUp(made.output.get_size())));
      }
      made.convolution.execute(stream, arguments);
      memory target =
          at(made.output_planes,
             output +
                 (image_index * spec.out_channels + first_channel) * out_plane +
                 band.out_begin * out_row);
      made.to_output.execute(stream, result, target);
      stream.wait();
    });
  });
}

}  // namespace weir::onednn
