// Kernels that move whole elements. Defines given before this text: E, the word
// of an element's size, and one of
//   MOVE_COLUMNS  between a matrix and the operands that lie side by side in
//   it,
//                 COLUMNS of them at most: into it with JOIN 1 (Concat), out of
//                 it with JOIN 0 (Split)
//   MOVE_PAD      Pad in all modes
//   MOVE_GATHER   Gather with indices of type INDEX, bounds-checked
namespace weir {

#if defined(MOVE_COLUMNS)
struct Args {
  E* matrix;             // where the first operand begins in its first row
  uint64_t rows, pitch;  // of the matrix, in words
  uint64_t count;        // of operands, 1 or more; none is empty
  // Columns of the operands up to and with each of them.
  uint64_t ends[COLUMNS];
  E* operands[COLUMNS];  // dense
};
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t width = a.ends[a.count - 1];
  const uint64_t elements = a.rows * width;
  const uint64_t step = static_cast<uint64_t>(gridDim.x) * blockDim.x;
  for (uint64_t i = GlobalThread(); i < elements; i += step) {
    const uint64_t row = i / width;
    const uint64_t column = i - row * width;
    uint64_t k = 0;  // the first operand that ends behind the column
    for (uint64_t last = a.count - 1; k < last;) {
      const uint64_t middle = (k + last) / 2;
      if (column < a.ends[middle]) {
        last = middle;
      } else {
        k = middle + 1;
      }
    }
    const uint64_t begin = k == 0 ? 0 : a.ends[k - 1];
    E& inside = a.matrix[row * a.pitch + column];
    E& alone = a.operands[k][row * (a.ends[k] - begin) + (column - begin)];
#if JOIN
    inside = alone;
#else
    alone = inside;
#endif
  }
}
#elif defined(MOVE_PAD)
struct Args {
  const E* in;
  E* out;
  const E* value;  // null: zero bits
  uint64_t elements;
  uint64_t rank;
  uint64_t mode;  // 0 constant, 1 reflect, 2 edge, 3 wrap
  uint64_t out_dims[8];
  int64_t in_dims[8];
  int64_t in_strides[8];
  int64_t before[8];
};
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  uint64_t rest = i;
  int64_t offset = 0;
  bool outside = false;
  for (uint64_t d = a.rank; d-- > 0;) {
    const uint64_t q = rest / a.out_dims[d];
    int64_t c = static_cast<int64_t>(rest - q * a.out_dims[d]) - a.before[d];
    rest = q;
    const int64_t n = a.in_dims[d];
    if (c < 0 || c >= n) {
      if (a.mode == 0) {
        outside = true;
        c = 0;
      } else if (a.mode == 1) {
        const int64_t period = n > 1 ? 2 * (n - 1) : 1;
        c %= period;
        if (c < 0) c += period;
        if (c >= n) c = period - c;
      } else if (a.mode == 2) {
        c = c < 0 ? 0 : n - 1;
      } else {
        c %= n;
        if (c < 0) c += n;
      }
    }
    offset += c * a.in_strides[d];
  }
  if (!outside) {
    a.out[i] = a.in[offset];
  } else {
    a.out[i] = a.value != nullptr ? *a.value : E(0);
  }
}
#elif defined(MOVE_GATHER)
// out[outer, i, inner] = data[outer, indices[i], inner]
struct Args {
  const E* data;
  const INDEX* indices;
  E* out;
  uint64_t elements;
  uint64_t axis_size;
  uint64_t index_count;
  uint64_t inner;
  CudaFaultSlot* fault;
  uint64_t node;
};
extern "C" __global__ void __launch_bounds__(256)
    weir_kernel(const __grid_constant__ Args a) {
  const uint64_t i = GlobalThread();
  if (i >= a.elements) return;
  const uint64_t rest = i / a.inner;
  const uint64_t inner = i - rest * a.inner;
  const uint64_t outer = rest / a.index_count;
  int64_t index = static_cast<int64_t>(a.indices[rest - outer * a.index_count]);
  const int64_t size = static_cast<int64_t>(a.axis_size);
  if (index < 0) index += size;
  if (index < 0 || index >= size) {
    ReportFault(a.fault, static_cast<unsigned>(a.node),
                static_cast<unsigned>(FaultCode::kIndexOutOfRange));
    a.out[i] = E(0);
    return;
  }
  a.out[i] =
      a.data[(outer * a.axis_size + static_cast<uint64_t>(index)) * a.inner +
             inner];
}
#endif

}  // namespace weir
