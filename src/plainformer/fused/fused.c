/* Training's small steps, each in one reading of its numbers: RMS norms, rotary turns, gated activations, the softmax of
   causal scores, and what a loss's growth with their answers says of their inputs.

   Rows are shared between threads in pieces that hang on the shapes alone, and every sum is taken in one order: the
   bits do not hang on the number of threads. Numbers come as float32 or bfloat16 and are reckoned with in float32. */
#include <math.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#ifdef __GLIBC__
#include <malloc.h>
#endif

#include "numbers.h"
#include "pool.h"

enum { PIECE = 1 << 14, LANES = 16, ENOUGH = 8 }; /* numbers in a piece; in a vector, at most; pieces worth a thread */
enum { RELU, RELU_SQUARED, SILU, GELU, GELU_TANH };

/* n numbers from `from` as float32: in `room`, or where they are. */
static const float *read_row(const void *from, long at, long n, int kind, float *room) {
    if (kind == FLOAT32) return (const float *)from + at;
    const bfloat16 *x = (const bfloat16 *)from + at;
#pragma omp simd
    for (long i = 0; i < n; i++) room[i] = wide(x[i]);
    return room;
}

static void write_row(const float *row, void *to, long at, long n, int kind) {
    if (kind == FLOAT32) {
        if (row != (float *)to + at) memcpy((float *)to + at, row, (size_t)n * sizeof(float));
        return;
    }
    bfloat16 *y = (bfloat16 *)to + at;
#pragma omp simd
    for (long i = 0; i < n; i++) y[i] = narrow(row[i]);
}

/* e^x to two units in the last place: 2^n times a polynomial on half a doubling each way (Cephes' coefficients). */
static inline float exponential(float x) {
    x = x < -87.0f ? -87.0f : x > 88.0f ? 88.0f : x;
    float n = (x * 1.44269504f + 12582912.0f) - 12582912.0f; /* to the nearest whole number */
    float r = x - n * 0.693359375f + n * 2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    int32_t bits = ((int32_t)n + 127) << 23;
    float power;
    memcpy(&power, &bits, sizeof power);
    return p * power;
}

static inline float sigmoid(float x) { return 1.0f / (1.0f + exponential(-x)); }

/* The share of a standard normal below x, and its density at x: Abramowitz and Stegun, 7.1.26, off by 1e-7 at most. */
static inline float below(float x, float *density) {
    float z = fabsf(x) * 0.70710678f, t = 1.0f / (1.0f + 0.3275911f * z), e = exponential(-z * z);
    float tail = ((((1.061405429f * t - 1.453152027f) * t + 1.421413741f) * t - 0.284496736f) * t + 0.254829592f) * t;
    *density = 0.39894228f * e;
    float beyond = 0.5f * tail * e;
    return x < 0 ? beyond : 1.0f - beyond;
}

/* act(x), and its slope. */
static inline float act(int kind, float x, float *slope) {
    if (kind == RELU) return *slope = x > 0 ? 1.0f : 0.0f, x > 0 ? x : 0.0f;
    if (kind == RELU_SQUARED) return *slope = x > 0 ? 2 * x : 0.0f, x > 0 ? x * x : 0.0f;
    if (kind == SILU) {
        float s = sigmoid(x);
        return *slope = s * (1 + x * (1 - s)), x * s;
    }
    if (kind == GELU) {
        float density, share = below(x, &density);
        return *slope = share + x * density, x * share;
    }
    float s = sigmoid(1.59576912f * (x + 0.044715f * x * x * x)); /* 0.5 (1 + tanh(u)) is sigmoid(2 u) */
    return *slope = s + x * s * (1 - s) * 1.59576912f * (1 + 0.134145f * x * x), x * s;
}

static long least(long a, long b) { return a < b ? a : b; }

static long pieces(long n_rows, long width, long *rows_a_piece) {
    *rows_a_piece = PIECE / width > 0 ? PIECE / width : 1;
    return (n_rows + *rows_a_piece - 1) / *rows_a_piece;
}

/* Waking a thread takes as long as a few pieces: few of them are not shared. */
static void run(Piece piece, const void *job, long n_pieces, int n_threads) {
    share(piece, job, n_pieces, (int)least(n_threads, n_pieces / ENOUGH > 0 ? n_pieces / ENOUGH : 1));
}

/* How many pieces so many rows are cut into: as many rows of sums `norm_back` fills. */
long norm_pieces(long n_rows, long width) {
    long rows_a_piece;
    return pieces(n_rows, width, &rows_a_piece);
}

typedef struct {
    int kind_x, kind_y, centred; /* centred: each row's mean is taken off first */
    const void *x, *dy;
    const float *gain, *bias;
    void *y, *dx;
    float *mean, *by, *dgain, *dbias; /* mean and 1 / deviation of each row; a row of sums for each piece */
    long n_rows, width, rows_a_piece;
    float eps;
} Norm;

static void norm_piece(const void *job, long piece) {
    const Norm *n = job;
    float room[n->width], out[n->width];
    for (long r = piece * n->rows_a_piece; r < least((piece + 1) * n->rows_a_piece, n->n_rows); r++) {
        const float *x = read_row(n->x, r * n->width, n->width, n->kind_x, room);
        float sum = 0, squares = 0;
        if (n->centred) {
#pragma omp simd reduction(+ : sum)
            for (long i = 0; i < n->width; i++) sum += x[i];
        }
        float mean = n->mean[r] = sum / n->width;
#pragma omp simd reduction(+ : squares)
        for (long i = 0; i < n->width; i++) squares += (x[i] - mean) * (x[i] - mean);
        float by = n->by[r] = 1.0f / sqrtf(squares / n->width + n->eps);
#pragma omp simd
        for (long i = 0; i < n->width; i++) out[i] = (x[i] - mean) * by;
        if (n->gain) {
#pragma omp simd
            for (long i = 0; i < n->width; i++) out[i] *= n->gain[i];
        }
        if (n->bias) {
#pragma omp simd
            for (long i = 0; i < n->width; i++) out[i] += n->bias[i];
        }
        write_row(out, n->y, r * n->width, n->width, n->kind_y);
    }
}

/* With z = (x - mean) by and u = gain dy: dx = by (u - mean(u) - z mean(u z)), the first mean where rows are centred;
   dgain sums z dy and dbias dy over the piece's rows. */
static void norm_back_piece(const void *job, long piece) {
    const Norm *n = job;
    float room_x[n->width], room_dy[n->width], z[n->width], u[n->width];
    float *dgain = n->dgain ? n->dgain + piece * n->width : NULL, *dbias = n->dbias ? n->dbias + piece * n->width : NULL;
    if (dgain) memset(dgain, 0, (size_t)n->width * sizeof(float));
    if (dbias) memset(dbias, 0, (size_t)n->width * sizeof(float));
    for (long r = piece * n->rows_a_piece; r < least((piece + 1) * n->rows_a_piece, n->n_rows); r++) {
        const float *x = read_row(n->x, r * n->width, n->width, n->kind_x, room_x);
        const float *dy = read_row(n->dy, r * n->width, n->width, n->kind_y, room_dy);
        float by = n->by[r], mean = n->mean[r], along = 0, all = 0;
#pragma omp simd
        for (long i = 0; i < n->width; i++) z[i] = (x[i] - mean) * by;
        if (n->gain) {
#pragma omp simd
            for (long i = 0; i < n->width; i++) u[i] = n->gain[i] * dy[i];
        } else {
            memcpy(u, dy, (size_t)n->width * sizeof(float));
        }
#pragma omp simd reduction(+ : along, all)
        for (long i = 0; i < n->width; i++) {
            along += u[i] * z[i];
            all += u[i];
        }
        if (dgain) {
#pragma omp simd
            for (long i = 0; i < n->width; i++) dgain[i] += z[i] * dy[i];
        }
        if (dbias) {
#pragma omp simd
            for (long i = 0; i < n->width; i++) dbias[i] += dy[i];
        }
        along /= n->width;
        all = n->centred ? all / n->width : 0;
#pragma omp simd
        for (long i = 0; i < n->width; i++) u[i] = by * (u[i] - all - z[i] * along);
        write_row(u, n->dx, r * n->width, n->width, n->kind_x);
    }
}

/* y = (x - mean) / sqrt(variance + eps) gain + bias; without `centred` the mean counts as 0. */
void norm(int kind_x, int kind_y, int centred, const void *x, const float *gain, const float *bias, void *y,
          float *mean, float *by, long n_rows, long width, float eps, int n_threads) {
    Norm n = {.kind_x = kind_x, .kind_y = kind_y, .centred = centred, .x = x, .gain = gain, .bias = bias, .y = y};
    n.mean = mean;
    n.by = by;
    n.n_rows = n_rows;
    n.width = width;
    n.eps = eps;
    long n_pieces = pieces(n_rows, width, &n.rows_a_piece);
    run(norm_piece, &n, n_pieces, n_threads);
}

void norm_back(int kind_x, int kind_y, int centred, const void *x, const float *gain, float *mean, float *by,
               const void *dy, void *dx, float *dgain, float *dbias, long n_rows, long width, int n_threads) {
    Norm n = {.kind_x = kind_x, .kind_y = kind_y, .centred = centred, .x = x, .gain = gain, .mean = mean, .by = by};
    n.dy = dy;
    n.dx = dx;
    n.dgain = dgain;
    n.dbias = dbias;
    n.n_rows = n_rows;
    n.width = width;
    long n_pieces = pieces(n_rows, width, &n.rows_a_piece);
    run(norm_back_piece, &n, n_pieces, n_threads);
}

typedef struct {
    int kind, interleaved;
    const void *x;
    void *y;
    const float *cos, *sin;
    long T, H, K, n_turned, x_b, x_t, x_h, y_b, y_t, y_h, n_rows, rows_a_piece;
} Turn;

static void turn_piece(const void *job, long piece) {
    const Turn *p = job;
    long half = p->n_turned / 2;
    float room[p->K], out[p->K];
    for (long r = piece * p->rows_a_piece; r < least((piece + 1) * p->rows_a_piece, p->n_rows); r++) {
        long b = r / p->T, t = r % p->T;
        const float *cos = p->cos + t * half, *sin = p->sin + t * half;
        for (long h = 0; h < p->H; h++) {
            const float *x = read_row(p->x, b * p->x_b + t * p->x_t + h * p->x_h, p->K, p->kind, room);
            if (p->interleaved) {
                for (long i = 0; i < half; i++) {
                    out[2 * i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i];
                    out[2 * i + 1] = x[2 * i + 1] * cos[i] + x[2 * i] * sin[i];
                }
            } else {
#pragma omp simd
                for (long i = 0; i < half; i++) {
                    out[i] = x[i] * cos[i] - x[half + i] * sin[i];
                    out[half + i] = x[half + i] * cos[i] + x[i] * sin[i];
                }
            }
            for (long i = p->n_turned; i < p->K; i++) out[i] = x[i];
            write_row(out, p->y, b * p->y_b + t * p->y_t + h * p->y_h, p->K, p->kind);
        }
    }
}

/* y[b, t, h] = x[b, t, h] with its first n_turned numbers turned in pairs; each at its own steps of b, t and h. */
void turn(int kind, const void *x, void *y, const float *cos, const float *sin, int interleaved, long B, long T, long H,
          long K, long n_turned, long x_b, long x_t, long x_h, long y_b, long y_t, long y_h, int n_threads) {
    Turn p = {kind, interleaved, x, y, cos, sin, T, H, K, n_turned, x_b, x_t, x_h, y_b, y_t, y_h, B * T, 0};
    long n_pieces = pieces(p.n_rows, H * K, &p.rows_a_piece);
    run(turn_piece, &p, n_pieces, n_threads);
}

typedef struct {
    int kind, act;
    const void *gate, *up, *dy;
    void *y, *dgate, *dup;
    long n_rows, width, gate_row, up_row, rows_a_piece;
} Gate;

#define EVERY(KIND, BODY)                                                                                             \
    case KIND: {                                                                                                      \
        _Pragma("omp simd") for (long i = 0; i < n; i++) {                                                            \
            float slope, said = act(KIND, read[i], &slope);                                                           \
            BODY                                                                                                      \
        }                                                                                                             \
        break;                                                                                                        \
    }
#define BY_KIND(BODY)                                                                                                 \
    switch (p->act) {                                                                                                 \
        EVERY(RELU, BODY) EVERY(RELU_SQUARED, BODY) EVERY(SILU, BODY) EVERY(GELU, BODY) EVERY(GELU_TANH, BODY)        \
    }

static void gate_piece(const void *job, long piece) {
    const Gate *p = job;
    long n = p->width;
    float room_gate[n], room_up[n], out[n];
    for (long r = piece * p->rows_a_piece; r < least((piece + 1) * p->rows_a_piece, p->n_rows); r++) {
        const float *up = read_row(p->up, r * p->up_row, n, p->kind, room_up);
        const float *read = p->gate ? read_row(p->gate, r * p->gate_row, n, p->kind, room_gate) : up;
        if (p->gate) BY_KIND(out[i] = said * up[i]; (void)slope;)
        else BY_KIND(out[i] = said; (void)slope;)
        write_row(out, p->y, r * n, n, p->kind);
    }
}

static void gate_back_piece(const void *job, long piece) {
    const Gate *p = job;
    long n = p->width;
    float room_gate[n], room_up[n], room_dy[n], out_gate[n], out_up[n];
    for (long r = piece * p->rows_a_piece; r < least((piece + 1) * p->rows_a_piece, p->n_rows); r++) {
        const float *up = read_row(p->up, r * p->up_row, n, p->kind, room_up);
        const float *read = p->gate ? read_row(p->gate, r * p->gate_row, n, p->kind, room_gate) : up;
        const float *dy = read_row(p->dy, r * n, n, p->kind, room_dy);
        if (p->gate) {
            BY_KIND(out_gate[i] = dy[i] * up[i] * slope; out_up[i] = dy[i] * said;)
            write_row(out_gate, p->dgate, r * n, n, p->kind);
        } else {
            BY_KIND(out_up[i] = dy[i] * slope; (void)said;)
        }
        write_row(out_up, p->dup, r * n, n, p->kind);
    }
}

/* y = act(gate) up, or act(up) without a gate; gate and up with their own steps from row to row. */
void gate(int kind, int act, const void *gate, const void *up, void *y, long n_rows, long width, long gate_row,
          long up_row, int n_threads) {
    Gate p = {.kind = kind, .act = act, .gate = gate, .up = up, .y = y, .n_rows = n_rows, .width = width};
    p.gate_row = gate_row;
    p.up_row = up_row;
    long n_pieces = pieces(n_rows, width, &p.rows_a_piece);
    run(gate_piece, &p, n_pieces, n_threads);
}

void gate_back(int kind, int act, const void *gate, const void *up, const void *dy, void *dgate, void *dup, long n_rows,
               long width, long gate_row, long up_row, int n_threads) {
    Gate p = {.kind = kind, .act = act, .gate = gate, .up = up, .dy = dy, .dgate = dgate, .dup = dup};
    p.n_rows = n_rows;
    p.width = width;
    p.gate_row = gate_row;
    p.up_row = up_row;
    long n_pieces = pieces(n_rows, width, &p.rows_a_piece);
    run(gate_back_piece, &p, n_pieces, n_threads);
}

typedef struct {
    int kind;
    void *weights; /* scores, in whose place the weights are left */
    void *dweights; /* in whose place what the scores get is left */
    long n_rows, T, rows_a_piece;
    float scale;
} Weights;

static void weights_piece(const void *job, long piece) {
    const Weights *w = job;
    float room[w->T], out[w->T];
    for (long r = piece * w->rows_a_piece; r < least((piece + 1) * w->rows_a_piece, w->n_rows); r++) {
        long n = r % w->T + 1, m = least(n + LANES - 1 - (n - 1) % LANES, w->T); /* what this query may see; in vectors */
        const float *x = read_row(w->weights, r * w->T, n, w->kind, room);
        if (x != room) memcpy(room, x, (size_t)n * sizeof(float));
        for (long i = n; i < m; i++) room[i] = room[0]; /* whole vectors, and nothing of later keys */
        float most = room[0], sum = 0;
#pragma omp simd reduction(max : most)
        for (long i = 0; i < m; i++) most = room[i] > most ? room[i] : most;
#pragma omp simd
        for (long i = 0; i < m; i++) out[i] = exponential((room[i] - most) * w->scale);
        for (long i = n; i < m; i++) out[i] = 0;
#pragma omp simd reduction(+ : sum)
        for (long i = 0; i < m; i++) sum += out[i];
        float by = 1.0f / sum; /* what is no number among the scores is in the sum too */
#pragma omp simd
        for (long i = 0; i < m; i++) out[i] *= by;
        memset(out + n, 0, (size_t)(w->T - n) * sizeof(float));
        write_row(out, w->weights, r * w->T, w->T, w->kind);
    }
}

/* dscores = scale weights (dweights - sum(dweights weights)). */
static void weights_back_piece(const void *job, long piece) {
    const Weights *w = job;
    float room_w[w->T], room_dw[w->T], out[w->T];
    for (long r = piece * w->rows_a_piece; r < least((piece + 1) * w->rows_a_piece, w->n_rows); r++) {
        long n = r % w->T + 1;
        const float *weights = read_row(w->weights, r * w->T, n, w->kind, room_w);
        const float *dweights = read_row(w->dweights, r * w->T, n, w->kind, room_dw);
        float along = 0;
#pragma omp simd reduction(+ : along)
        for (long i = 0; i < n; i++) along += weights[i] * dweights[i];
#pragma omp simd
        for (long i = 0; i < n; i++) out[i] = w->scale * weights[i] * (dweights[i] - along);
        memset(out + n, 0, (size_t)(w->T - n) * sizeof(float));
        write_row(out, w->dweights, r * w->T, w->T, w->kind);
    }
}

/* Of n_rows queries, the i-th at position i % T among T keys: softmax(scale scores), 0 at later keys. In their place. */
void weights(int kind, void *scores, long n_rows, long T, float scale, int n_threads) {
    Weights w = {.kind = kind, .weights = scores, .n_rows = n_rows, .T = T, .scale = scale};
    long n_pieces = pieces(n_rows, T, &w.rows_a_piece);
    run(weights_piece, &w, n_pieces, n_threads);
}

void weights_back(int kind, void *weights, void *dweights, long n_rows, long T, float scale, int n_threads) {
    Weights w = {.kind = kind, .weights = weights, .dweights = dweights, .n_rows = n_rows, .T = T, .scale = scale};
    long n_pieces = pieces(n_rows, T, &w.rows_a_piece);
    run(weights_back_piece, &w, n_pieces, n_threads);
}

/* Memory that is given back is kept for the next step: asking the system for its pages anew takes as long as the
   numbers that are written on them. */
void keep_memory(void) {
#ifdef __GLIBC__
    mallopt(M_MMAP_THRESHOLD, 1 << 25);
    mallopt(M_TRIM_THRESHOLD, INT32_MAX);
#endif
}
