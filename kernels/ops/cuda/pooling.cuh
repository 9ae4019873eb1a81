// MaxPool and AveragePool over up to three spatial dims. Defines given before
// this text: S the storage type, A the type accumulated in, MAX 1 or 0.
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
  int64_t start[3];
  for (int d = 0; d < 3; ++d) start[d] = at[d] * a.stride[d] - a.pad[d];
#if MAX
  S best_stored = in[0];
  A best = A(0);
  int64_t best_index = -1;
#else
  A sum = A(0);
  int64_t inside = 0;
  int64_t padded = 0;
#endif
  for (int64_t k0 = 0; k0 < a.kernel[0]; ++k0) {
    const int64_t c0 = start[0] + k0 * a.dilation[0];
    for (int64_t k1 = 0; k1 < a.kernel[1]; ++k1) {
      const int64_t c1 = start[1] + k1 * a.dilation[1];
      for (int64_t k2 = 0; k2 < a.kernel[2]; ++k2) {
        const int64_t c2 = start[2] + k2 * a.dilation[2];
        const bool in_range = c0 >= 0 && c0 < a.in_dims[0] && c1 >= 0 &&
                              c1 < a.in_dims[1] && c2 >= 0 && c2 < a.in_dims[2];
#if !MAX
        // Beyond the end padding (ceil_mode) an element never counts.
        if (c0 < a.in_dims[0] + a.pad_end[0] &&
            c1 < a.in_dims[1] + a.pad_end[1] &&
            c2 < a.in_dims[2] + a.pad_end[2]) {
          ++padded;
        }
#endif
        if (!in_range) continue;
        const int64_t offset = (c0 * a.in_dims[1] + c1) * a.in_dims[2] + c2;
        const A value = static_cast<A>(Load(in[offset]));
#if MAX
        if (best_index < 0 || value > best || value != value) {
          if (best_index >= 0 && best != best) continue;
          best = value;
          best_stored = in[offset];
          best_index = a.column_major
                           ? (c2 * a.in_dims[1] + c1) * a.in_dims[0] + c0
                           : offset;
        }
#else
        sum += value;
        ++inside;
#endif
      }
    }
  }
#if MAX
  a.out[i] = best_stored;
  if (a.indices != nullptr) {
    a.indices[i] =
        best_index < 0 ? 0 : best_index + static_cast<int64_t>(rest) * plane;
  }
#else
  const int64_t count = a.count_include_pad ? padded : inside;
  const A mean = count == 0 ? A(0) : sum / static_cast<A>(count);
  a.out[i] = Store<S>(static_cast<Compute<S>>(mean));
#endif
}

}  // namespace weir
