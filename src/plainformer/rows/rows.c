/* A few rows x through a matrix W, y = x W^T + b, reading each weight once: decoding is reading memory.

   W (n_out, n_in) in float32, bfloat16, or int8 with one scale a row of W; x (n_rows, n_in) and y (n_rows, n_out) in
   float32 or bfloat16 (16 bits: the upper half of a float32). Sums are kept in float32. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 8 };

typedef uint16_t bfloat16;

static inline float wide(bfloat16 x) {
    uint32_t bits = (uint32_t)x << 16;
    float y;
    memcpy(&y, &bits, sizeof y);
    return y;
}

static inline bfloat16 narrow(float x) { /* to the nearest, ties to even; what is no number stays none */
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if ((bits & 0x7fffffff) > 0x7f800000) return (bfloat16)((bits >> 16) | 0x40);
    return (bfloat16)((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

static inline void put(void *y, long at, float value, int narrow_y) {
    if (narrow_y) ((bfloat16 *)y)[at] = narrow(value);
    else ((float *)y)[at] = value;
}

#define FLOAT(w) (w)
#define INTEGER(w) ((float)(w))

/* One row of x: four rows of W at a time, so that memory is asked for in four places at once. */
#define ONE_ROW(TYPE, VALUE)                                                                                          \
    _Pragma("omp parallel for num_threads(n_threads) schedule(static)")                                               \
    for (long four = 0; four < (n_out + 3) / 4; four++) {                                                             \
        long o = 4 * four, left = n_out - o;                                                                          \
        const TYPE *w0 = w + o * n_in, *w1 = left > 1 ? w0 + n_in : w0, *w2 = left > 2 ? w1 + n_in : w0,              \
                   *w3 = left > 3 ? w2 + n_in : w0;                                                                   \
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0;                                                                         \
        _Pragma("omp simd reduction(+ : s0, s1, s2, s3)")                                                             \
        for (long i = 0; i < n_in; i++) {                                                                             \
            float xi = x[i];                                                                                          \
            s0 += VALUE(w0[i]) * xi; s1 += VALUE(w1[i]) * xi; s2 += VALUE(w2[i]) * xi; s3 += VALUE(w3[i]) * xi;       \
        }                                                                                                             \
        float sums[4] = {s0, s1, s2, s3};                                                                             \
        for (long k = 0; k < (left < 4 ? left : 4); k++)                                                              \
            put(y, o + k, sums[k] * (scale ? scale[o + k] : 1) + (bias ? bias[o + k] : 0), narrow_y);                 \
    }

/* Up to eight rows of x (the missing ones repeat the last): one row of W at a time meets them all. */
#define EIGHT_ROWS(TYPE, VALUE)                                                                                       \
    const float *x1 = x + (n_rows > 1 ? 1 : n_rows - 1) * n_in, *x2 = x + (n_rows > 2 ? 2 : n_rows - 1) * n_in,       \
                *x3 = x + (n_rows > 3 ? 3 : n_rows - 1) * n_in, *x4 = x + (n_rows > 4 ? 4 : n_rows - 1) * n_in,       \
                *x5 = x + (n_rows > 5 ? 5 : n_rows - 1) * n_in, *x6 = x + (n_rows > 6 ? 6 : n_rows - 1) * n_in,       \
                *x7 = x + (n_rows > 7 ? 7 : n_rows - 1) * n_in;                                                       \
    _Pragma("omp parallel for num_threads(n_threads) schedule(static)")                                               \
    for (long o = 0; o < n_out; o++) {                                                                                \
        const TYPE *row = w + o * n_in;                                                                               \
        float s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;                                         \
        _Pragma("omp simd reduction(+ : s0, s1, s2, s3, s4, s5, s6, s7)")                                             \
        for (long i = 0; i < n_in; i++) {                                                                             \
            float wi = VALUE(row[i]);                                                                                 \
            s0 += wi * x[i]; s1 += wi * x1[i]; s2 += wi * x2[i]; s3 += wi * x3[i];                                    \
            s4 += wi * x4[i]; s5 += wi * x5[i]; s6 += wi * x6[i]; s7 += wi * x7[i];                                   \
        }                                                                                                             \
        float sums[MOST_ROWS] = {s0, s1, s2, s3, s4, s5, s6, s7};                                                     \
        for (long r = 0; r < n_rows; r++)                                                                             \
            put(y, r * n_out + o, sums[r] * (scale ? scale[o] : 1) + (bias ? bias[o] : 0), narrow_y);                 \
    }

#define PRODUCT(NAME, TYPE, VALUE)                                                                                    \
    static void NAME(const TYPE *w, const float *x, const float *bias, const float *scale, void *y, long n_rows,      \
                     long n_out, long n_in, int narrow_y, int n_threads) {                                            \
        if (n_rows == 1) { ONE_ROW(TYPE, VALUE) }                                                                     \
        else { EIGHT_ROWS(TYPE, VALUE) }                                                                              \
    }

PRODUCT(of_float32, float, FLOAT)
PRODUCT(of_bfloat16, bfloat16, wide)
PRODUCT(of_int8, int8_t, INTEGER)

static float *widened(const void *from, long n, int is_narrow, float *to) {
    if (!from || !is_narrow) return (float *)from;
    for (long i = 0; i < n; i++) to[i] = wide(((const bfloat16 *)from)[i]);
    return to;
}

/* kind of W: 0 float32, 1 bfloat16, 2 int8. narrow: x, bias and y are bfloat16. 0 when done, 1 when memory lacks. */
int rows(int kind, const void *w, const void *x, const void *bias, const float *scale, void *y, long n_rows,
         long n_out, long n_in, int is_narrow, int n_threads) {
    float *room = NULL;
    if (is_narrow && !(room = malloc((size_t)(n_rows * n_in + n_out) * sizeof(float)))) return 1;
    const float *xs = widened(x, n_rows * n_in, is_narrow, room);
    const float *biases = widened(bias, n_out, is_narrow, room + n_rows * n_in);
    for (long first = 0; first < n_rows; first += MOST_ROWS) {
        long some = n_rows - first < MOST_ROWS ? n_rows - first : MOST_ROWS;
        const float *from = xs + first * n_in;
        void *to = is_narrow ? (void *)((bfloat16 *)y + first * n_out) : (void *)((float *)y + first * n_out);
        if (kind == 0) of_float32(w, from, biases, scale, to, some, n_out, n_in, is_narrow, n_threads);
        else if (kind == 1) of_bfloat16(w, from, biases, scale, to, some, n_out, n_in, is_narrow, n_threads);
        else of_int8(w, from, biases, scale, to, some, n_out, n_in, is_narrow, n_threads);
    }
    free(room);
    return 0;
}
