/* Decoding is reading memory. A few rows x through a matrix W, y = x W^T + b, and one query's attention, each reading
   what it needs once and asking the memory for it ahead of time.

   Numbers are float32, bfloat16 (16 bits, the upper half of a float32), or, for W, int8 with one scale a row. Sums are
   kept in float32; those of int8 weights in int32 over blocks, against x in 13 bits with one scale a row. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ROWS = 8, BLOCK = 4096, STEPS = 4095, LINE = 64, AHEAD = 4096, SMALL = 1 << 15 };
enum { FLOAT32, BFLOAT16, INT8 };

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

static inline void put(void *y, long at, float value, int kind) {
    if (kind == BFLOAT16) ((bfloat16 *)y)[at] = narrow(value);
    else ((float *)y)[at] = value;
}

#define SAME(w) (w)
#define SHORT(w) ((int16_t)(w))

/* sums[r] = W's row . row r of x: eight rows of x at once (those beyond n_rows repeat the last), or one. */
#define DOT(NAME, W, X, SUM, VALUE)                                                                                   \
    static inline void NAME(const W *w, const X *const *x, long n_rows, long n_in, float *sums) {                     \
        for (long r = 0; r < MOST_ROWS; r++) sums[r] = 0;                                                             \
        for (long from = 0; from < n_in; from += BLOCK) {                                                             \
            long to = from + BLOCK < n_in ? from + BLOCK : n_in;                                                      \
            for (long i = from; i < to; i += LINE / sizeof(W)) __builtin_prefetch((const char *)(w + i) + AHEAD);     \
            const X *x0 = x[0], *x1 = x[1], *x2 = x[2], *x3 = x[3], *x4 = x[4], *x5 = x[5], *x6 = x[6], *x7 = x[7];   \
            SUM s0 = 0, s1 = 0, s2 = 0, s3 = 0, s4 = 0, s5 = 0, s6 = 0, s7 = 0;                                       \
            if (n_rows == 1) {                                                                                        \
                _Pragma("omp simd reduction(+ : s0)")                                                                 \
                for (long i = from; i < to; i++) s0 += VALUE(w[i]) * x0[i];                                           \
            } else {                                                                                                  \
                _Pragma("omp simd reduction(+ : s0, s1, s2, s3, s4, s5, s6, s7)")                                     \
                for (long i = from; i < to; i++) {                                                                    \
                    SUM wi = VALUE(w[i]);                                                                             \
                    s0 += wi * x0[i]; s1 += wi * x1[i]; s2 += wi * x2[i]; s3 += wi * x3[i];                           \
                    s4 += wi * x4[i]; s5 += wi * x5[i]; s6 += wi * x6[i]; s7 += wi * x7[i];                           \
                }                                                                                                     \
            }                                                                                                         \
            sums[0] += s0; sums[1] += s1; sums[2] += s2; sums[3] += s3;                                               \
            sums[4] += s4; sums[5] += s5; sums[6] += s6; sums[7] += s7;                                               \
        }                                                                                                             \
    }

DOT(dot_float32, float, float, float, SAME)
DOT(dot_bfloat16, bfloat16, float, float, wide)
DOT(dot_int8, int8_t, int16_t, int32_t, SHORT)

/* x as float32, in `to` unless it is so already. */
static const float *widened(const void *from, long n, int kind, float *to) {
    if (kind != BFLOAT16) return from;
    for (long i = 0; i < n; i++) to[i] = wide(((const bfloat16 *)from)[i]);
    return to;
}

/* A row of x in whole steps; gives the size of one. What is no number, or without bound, makes the step so. */
static float stepped(const float *x, long n, int16_t *to) {
    float most = 0;
    int real = 1;
    for (long i = 0; i < n; i++) {
        float size = fabsf(x[i]);
        real &= isfinite(x[i]) != 0;
        most = size > most ? size : most;
    }
    float by = real && most > 0 ? STEPS / most : 0;
    for (long i = 0; i < n; i++) to[i] = (int16_t)lrintf(real ? x[i] * by : 0);
    return real ? most / STEPS : NAN;
}

/* y (n_rows, n_out) = x (n_rows, n_in) W^T + bias; x, bias and y of kind_x. 0 when done, 1 when memory lacks. */
int rows(int kind_w, int kind_x, const void *w, const void *x, const void *bias, const float *scale, void *y,
         long n_rows, long n_out, long n_in, int n_threads) {
    size_t n_x = (size_t)(n_rows * n_in);
    float *room = malloc((n_x + (size_t)n_out) * sizeof(float) + n_x * sizeof(int16_t));
    if (!room) return 1;
    const float *wide_x = widened(x, n_rows * n_in, kind_x, room);
    const float *wide_bias = bias ? widened(bias, n_out, kind_x, room + n_x) : NULL;
    int16_t *steps = (int16_t *)(room + n_x + n_out);
    for (long first = 0; first < n_rows; first += MOST_ROWS) {
        long some = n_rows - first < MOST_ROWS ? n_rows - first : MOST_ROWS;
        const float *x_at[MOST_ROWS];
        const int16_t *steps_at[MOST_ROWS];
        float step[MOST_ROWS];
        for (long r = 0; r < MOST_ROWS; r++) {
            long at = (first + (r < some ? r : some - 1)) * n_in;
            x_at[r] = wide_x + at;
            steps_at[r] = steps + at;
            step[r] = kind_w == INT8 && r < some ? stepped(x_at[r], n_in, steps + at) : 1;
        }
#pragma omp parallel for num_threads(n_threads) schedule(static) if (n_out * n_in > SMALL)
        for (long o = 0; o < n_out; o++) {
            float sums[MOST_ROWS];
            if (kind_w == FLOAT32) dot_float32((const float *)w + o * n_in, x_at, some, n_in, sums);
            else if (kind_w == BFLOAT16) dot_bfloat16((const bfloat16 *)w + o * n_in, x_at, some, n_in, sums);
            else dot_int8((const int8_t *)w + o * n_in, steps_at, some, n_in, sums);
            for (long r = 0; r < some; r++) {
                float scaled = sums[r] * step[r] * (scale ? scale[o] : 1);
                put(y, (first + r) * n_out + o, scaled + (wide_bias ? wide_bias[o] : 0), kind_x);
            }
        }
    }
    free(room);
    return 0;
}

#define VALUE_AT(from, i) (kind == BFLOAT16 ? wide(((const bfloat16 *)(from))[i]) : ((const float *)(from))[i])

/* What one query a head takes: out (B, H, J) = softmax(q . keys * scale) values. q (B, H, K); keys (B, G, S, K) and
   values (B, G, S, J) with the given steps from row to row of B and G; allowed (B, S), or none. H / G heads share keys.
   A query that may see nothing takes 0. 0 when done, 1 when memory lacks. */
int attend(int kind, const void *q, const void *keys, const void *values, const uint8_t *allowed, void *out, long B,
           long H, long G, long S, long K, long J, long keys_b, long keys_g, long values_b, long values_g, float scale,
           int n_threads) {
    float *room = malloc((size_t)(B * H * (S + K + J)) * sizeof(float));
    if (!room) return 1;
#pragma omp parallel for num_threads(n_threads) schedule(static) if (B * H * S * K > SMALL)
    for (long bh = 0; bh < B * H; bh++) {
        long b = bh / H, g = bh % H / (H / G), size = kind == BFLOAT16 ? 2 : 4;
        const char *key = (const char *)keys + (b * keys_b + g * keys_g) * size;
        const char *value = (const char *)values + (b * values_b + g * values_g) * size;
        float *score = room + bh * (S + K + J), *query = score + S, *sum = query + K, most = -INFINITY, total = 0;
        for (long i = 0; i < K; i++) query[i] = VALUE_AT(q, bh * K + i) * scale;
        for (long s = 0; s < S; s++) {
            float dot = 0;
            if (kind == BFLOAT16) {
                const bfloat16 *k = (const bfloat16 *)key + s * K;
#pragma omp simd reduction(+ : dot)
                for (long i = 0; i < K; i++) dot += query[i] * wide(k[i]);
            } else {
                const float *k = (const float *)key + s * K;
#pragma omp simd reduction(+ : dot)
                for (long i = 0; i < K; i++) dot += query[i] * k[i];
            }
            score[s] = allowed && !allowed[b * S + s] ? -INFINITY : dot;
            most = score[s] > most || isnan(score[s]) ? score[s] : most;
        }
        memset(sum, 0, (size_t)J * sizeof(float));
        for (long s = 0; s < S; s++) {
            float weight = most == -INFINITY || score[s] == -INFINITY ? 0 : expf(score[s] - most);
            if (weight == 0) continue;
            total += weight;
            if (kind == BFLOAT16) {
                const bfloat16 *v = (const bfloat16 *)value + s * J;
#pragma omp simd
                for (long j = 0; j < J; j++) sum[j] += weight * wide(v[j]);
            } else {
                const float *v = (const float *)value + s * J;
#pragma omp simd
                for (long j = 0; j < J; j++) sum[j] += weight * v[j];
            }
        }
        for (long j = 0; j < J; j++) put(out, bh * J + j, total == 0 ? 0 : sum[j] / total, kind);
    }
    free(room);
    return 0;
}
