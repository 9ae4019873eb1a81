// MaxPool and AveragePool over up to three spatial dims. Defines given before
// this text: S the storage type, A the type accumulated in, MAX 1 or 0, and for
// MAX LOWEST, the greatest of no elements.
namespace weir {

struct Args {
  const S* in;
  S* out;
  int64_t* indices;  // MaxPool's second output, may be null
  uint64_t elements;
  int64_t in_dims[3], out_dims[3], kernel[3], stride[3], dilation[3], pad[3];
  int64_t pad_end[3];
  uint64_t count_include_pad;
  uint64_t column_major;  // order of the spatial dims in an index
};

// How many of a window's taps from `start` on lie below `limit`.
__device__ __forceinline__ int64_t TapsBelow(int64_t limit, int64_t start,
                                             int64_t dilation, int64_t kernel) {
  if (limit <= start) return 0;
  const int64_t reach = limit - start;
  const int64_t n = dilation == 1 ? reach : (reach + dilation - 1) / dilation;
  return n < kernel ? n : kernel;
}

extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  int64_t at[3];
  uint64_t rest = i;
  for (int d = 2; d >= 0; --d) {
    at[d] = static_cast<int64_t>(rest % static_cast<uint64_t>(a.out_dims[d]));
    rest /= static_cast<uint64_t>(a.out_dims[d]);
  }
  const int64_t plane = a.in_dims[0] * a.in_dims[1] * a.in_dims[2];
  const S* in = a.in + static_cast<int64_t>(rest) * plane;
  // The taps inside the input, [first, past) of each dim, and where the first
  // of them lies; those in the padding are never walked over.
  int64_t first[3], past[3], begin[3];
  double padded = 1;
  for (int d = 0; d < 3; ++d) {
    const int64_t start = at[d] * a.stride[d] - a.pad[d];
    first[d] = TapsBelow(0, start, a.dilation[d], a.kernel[d]);
    past[d] = TapsBelow(a.in_dims[d], start, a.dilation[d], a.kernel[d]);
    begin[d] = start + first[d] * a.dilation[d];
    // Beyond the end padding (ceil_mode) a tap never counts.
    padded *= static_cast<double>(TapsBelow(a.in_dims[d] + a.pad_end[d], start,
                                            a.dilation[d], a.kernel[d]));
  }
#if MAX
  A best = static_cast<A>(LOWEST);
  S best_stored = Store<S>(static_cast<Compute<S>>(best));
  int64_t best_index = -1;
#else
  A sum = A(0);
#endif
  int64_t c0 = begin[0];
  for (int64_t k0 = first[0]; k0 < past[0]; ++k0, c0 += a.dilation[0]) {
    int64_t c1 = begin[1];
    for (int64_t k1 = first[1]; k1 < past[1]; ++k1, c1 += a.dilation[1]) {
      const int64_t row = (c0 * a.in_dims[1] + c1) * a.in_dims[2];
      int64_t c2 = begin[2];
      for (int64_t k2 = first[2]; k2 < past[2]; ++k2, c2 += a.dilation[2]) {
        const A value = static_cast<A>(Load(in[row + c2]));
#if MAX
        if (best_index < 0 || value > best || value != value) {
          if (best_index >= 0 && best != best) continue;
          best = value;
          best_stored = in[row + c2];
          best_index = a.column_major
                           ? (c2 * a.in_dims[1] + c1) * a.in_dims[0] + c0
                           : row + c2;
        }
#else
        sum += value;
#endif
      }
    }
  }
#if MAX
  a.out[i] = best_stored;
  if (a.indices != nullptr) {
    a.indices[i] =
        best_index < 0 ? -1 : best_index + static_cast<int64_t>(rest) * plane;
  }
#else
  double count = padded;
  if (!a.count_include_pad) {
    count = static_cast<double>(past[0] - first[0]) *
            static_cast<double>(past[1] - first[1]) *
            static_cast<double>(past[2] - first[2]);
  }
  const A mean = count == 0 ? A(0) : sum / static_cast<A>(count);
  a.out[i] = Store<S>(static_cast<Compute<S>>(mean));
#endif
}

}  // namespace weir
