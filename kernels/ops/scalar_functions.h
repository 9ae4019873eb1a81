// The scalar functions of the elementwise operators, one definition for both
// devices: compiled by the host compiler for the CPU kernels, and by NVRTC in
// front of every generated kernel (see ScalarExpression in op.h). Pure.
// Includes nothing under NVRTC, which has the math functions built in.
#pragma once

#ifndef __CUDACC_RTC__
#include <bit>
#include <cmath>
#endif

#if defined(__CUDACC__) || defined(__CUDACC_RTC__)
#define WEIR_SCALAR __host__ __device__ inline
#else
#define WEIR_SCALAR inline
#endif

namespace weir {
namespace scalar {

#ifndef __CUDACC_RTC__
using std::erf;
using std::erfc;
using std::exp;
using std::fabs;
using std::floor;
using std::fma;
using std::log;
using std::pow;
using std::sqrt;
using std::tanh;
#endif

// What NVRTC has no standard headers for, by the standard's names.
// NOLINTBEGIN(readability-identifier-naming, google-runtime-int)
template <typename T>
struct IsFloating {
  static constexpr bool value = false;
};
template <>
struct IsFloating<float> {
  static constexpr bool value = true;
};
template <>
struct IsFloating<double> {
  static constexpr bool value = true;
};

template <typename A, typename B>
struct IsSame {
  static constexpr bool value = false;
};
template <typename A>
struct IsSame<A, A> {
  static constexpr bool value = true;
};

// Limits of an integer type.
template <typename T>
struct Limits {
  static constexpr bool is_signed = T(-1) < T(0);
  static constexpr T max =
      static_cast<T>(~0ull >> (64 - 8 * sizeof(T) + (is_signed ? 1 : 0)));
  static constexpr T min = static_cast<T>(is_signed ? -max - 1 : 0);
};

// The unsigned type in which integers of T are computed: it wraps, and no
// promotion to int interferes.
template <int size>
struct Unsigned {
  using Type = unsigned int;
};
template <>
struct Unsigned<8> {
  using Type = unsigned long long;
};
template <typename T>
using Wide = typename Unsigned<sizeof(T)>::Type;
// NOLINTEND(readability-identifier-naming, google-runtime-int)

template <typename T>
WEIR_SCALAR T Add(T a, T b) {
  if constexpr (IsFloating<T>::value) {
    return a + b;
  } else {
    return static_cast<T>(static_cast<Wide<T>>(a) + static_cast<Wide<T>>(b));
  }
}

template <typename T>
WEIR_SCALAR T Sub(T a, T b) {
  if constexpr (IsFloating<T>::value) {
    return a - b;
  } else {
    return static_cast<T>(static_cast<Wide<T>>(a) - static_cast<Wide<T>>(b));
  }
}

template <typename T>
WEIR_SCALAR T Mul(T a, T b) {
  if constexpr (IsFloating<T>::value) {
    return a * b;
  } else {
    return static_cast<T>(static_cast<Wide<T>>(a) * static_cast<Wide<T>>(b));
  }
}

template <typename T>
WEIR_SCALAR T Neg(T a) {
  if constexpr (IsFloating<T>::value) {
    return -a;
  } else {
    return static_cast<T>(Wide<T>(0) - static_cast<Wide<T>>(a));
  }
}

// Integers: toward zero, INT_MIN / -1 wraps, 0 for a zero divisor (which the
// expression reports).
template <typename T>
WEIR_SCALAR T Div(T a, T b) {
  if constexpr (IsFloating<T>::value) {
    return a / b;
  } else {
    if (b == T(0)) return T(0);
    if constexpr (Limits<T>::is_signed) {
      if (b == T(-1)) return Neg(a);
    }
    return static_cast<T>(a / b);
  }
}

template <typename T>
WEIR_SCALAR T Abs(T a) {
  if constexpr (IsFloating<T>::value) {
    return fabs(a);
  } else if constexpr (Limits<T>::is_signed) {
    return a < T(0) ? Neg(a) : a;
  } else {
    return a;
  }
}

// NaN in either operand gives NaN. Nested like this, compilers vectorize it.
template <typename T>
WEIR_SCALAR T Minimum(T a, T b) {
  if constexpr (IsFloating<T>::value) {
    return a < b ? a : (a != a ? a : b);
  } else {
    return a < b ? a : b;
  }
}

template <typename T>
WEIR_SCALAR T Maximum(T a, T b) {
  if constexpr (IsFloating<T>::value) {
    return a > b ? a : (a != a ? a : b);
  } else {
    return a > b ? a : b;
  }
}

template <typename T>
WEIR_SCALAR T Clip(T x, T low, T high) {
  return Minimum(Maximum(x, low), high);
}

template <typename T>
WEIR_SCALAR T Sqrt(T x) {
  return sqrt(x);
}
template <typename T>
WEIR_SCALAR T Exp(T x) {
  return exp(x);
}
template <typename T>
WEIR_SCALAR T Log(T x) {
  return log(x);
}
// ONNX allows integers; their result is cut to -1, 0 or 1.
template <typename T>
WEIR_SCALAR T Erf(T x) {
  if constexpr (IsFloating<T>::value) {
    return erf(x);
  } else {
    return static_cast<T>(erf(static_cast<double>(x)));
  }
}
template <typename T>
WEIR_SCALAR T Tanh(T x) {
  return tanh(x);
}

template <typename T>
WEIR_SCALAR T Sigmoid(T x) {
  const T e = exp(x < T(0) ? x : -x);  // which never overflows
  return (x < T(0) ? e : T(1)) / (T(1) + e);
}

template <typename T>
WEIR_SCALAR T Relu(T x) {
  return x < T(0) ? T(0) : x;
}

// erfc keeps its relative accuracy where 1 + erf cancels.
template <typename T>
WEIR_SCALAR T Gelu(T x) {
  return T(0.5) * x * erfc(x * T(-0.70710678118654752440));
}

// sqrt(2 / pi) (x + 0.044715 x^3). 0.5 (1 + tanh(u)) is 1 / (1 + exp(-2 u)).
template <typename T>
WEIR_SCALAR T GeluTanh(T x) {
  const T u = T(0.79788456080286535588) * (x + T(0.044715) * x * x * x);
  return x / (T(1) + exp(T(-2) * u));
}

// Integers by squaring; they wrap. 1 / a^|b| toward zero for a negative b, and
// 0 for a = 0.
template <typename T, typename E>
WEIR_SCALAR T IntegerPow(T a, E b) {
  if (b < E(0)) {
    if (a == T(1)) return T(1);
    if constexpr (Limits<T>::is_signed) {
      if (a == T(-1)) return (b & E(1)) != E(0) ? T(-1) : T(1);
    }
    return T(0);
  }
  Wide<T> base = static_cast<Wide<T>>(a);
  Wide<T> result = 1;
  for (; b != E(0); b = static_cast<E>(b >> 1)) {
    if ((b & E(1)) != E(0)) result *= base;
    base *= base;
  }
  return static_cast<T>(result);
}

// Conversions. Floating to integer truncates toward zero, saturates, and makes
// NaN 0; integers wrap; to bool is "not zero".
template <typename R, typename T>
WEIR_SCALAR R Convert(T x) {
  if constexpr (IsSame<R, bool>::value) {
    return x != T(0);
  } else if constexpr (IsFloating<T>::value && !IsFloating<R>::value) {
    // A limit that T cannot hold rounds away from zero, to the first value that
    // does not fit.
    if (!(x > static_cast<T>(Limits<R>::min))) {
      return x == x ? Limits<R>::min : R(0);
    }
    return x < static_cast<T>(Limits<R>::max) ? static_cast<R>(x)
                                              : Limits<R>::max;
  } else {
    return static_cast<R>(x);
  }
}

// A float for x that rounds to half types as x itself would: where x does not
// fit, the neighbor whose last bit is set ("round to odd").
template <typename T>
WEIR_SCALAR float ToHalfSource(T x) {
  if constexpr (sizeof(T) <= 2 || IsSame<T, float>::value) {
    return static_cast<float>(x);
  } else {
    const float near = static_cast<float>(x);
    bool farther;  // from zero than x
    if constexpr (IsFloating<T>::value || sizeof(T) < 8) {
      const double exact = static_cast<double>(x);
      const double back = static_cast<double>(near);
      if (back == exact || exact != exact) return near;
      farther = fabs(back) > fabs(exact);
    } else {
      // Doubles do not hold every x. A power of two above all of them: 2^63,
      // 2^64.
      const float limit = static_cast<float>(Limits<T>::max);
      if (near == limit) {
        farther = true;
      } else {
        const T back = static_cast<T>(near);
        if (back == x) return near;
        farther = x < T(0) ? back < x : back > x;
      }
    }
#if defined(__CUDACC_RTC__) || defined(__CUDA_ARCH__)
    unsigned int bits = __float_as_uint(near);
#else
    unsigned int bits = std::bit_cast<unsigned int>(near);
#endif
    if (farther) --bits;  // toward zero
    bits |= 1u;
#if defined(__CUDACC_RTC__) || defined(__CUDA_ARCH__)
    return __uint_as_float(bits);
#else
    return std::bit_cast<float>(bits);
#endif
  }
}

// pow(a, b) for a result that is truncated to an integer. A power that is a
// whole number is exact: CUDA's pow is off by up to two units in the last
// place, which truncation would turn into the integer before.
WEIR_SCALAR double WholePow(double a, double b) {
  const double near = pow(a, b);
  // From 2^53 on every double is whole; 1 / a^|b| is below 1.
  if (!(fabs(near) < 9007199254740992.0) || !(fabs(a) >= 2.0) || !(b > 0.0)) {
    return near;
  }
  // With a fraction in b, a^b is whole only if a is a square.
  while (b != floor(b)) {
    const double root = sqrt(a);
    if (root != floor(root) || fma(root, root, -a) != 0.0) return near;
    a = root;
    b += b;
  }
  double power = 1.0;
  for (int n = static_cast<int>(b); n > 0; n >>= 1) {
    if ((n & 1) != 0) power *= a;
    a *= a;
  }
  return power;
}

// The result has the type of the base. Both floats: in float; both integers:
// exact, wrapping; else in double.
template <typename T, typename E>
WEIR_SCALAR T Pow(T a, E b) {
  if constexpr (!IsFloating<T>::value && !IsFloating<E>::value) {
    return IntegerPow(a, b);
  } else if constexpr (IsSame<T, float>::value && IsSame<E, float>::value) {
    return pow(a, b);
  } else if constexpr (!IsFloating<T>::value) {
    return Convert<T>(WholePow(static_cast<double>(a), static_cast<double>(b)));
  } else {
    return Convert<T>(pow(static_cast<double>(a), static_cast<double>(b)));
  }
}

}  // namespace scalar
}  // namespace weir
