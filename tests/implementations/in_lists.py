"""Correct functions on plain lists, nothing imported but math. Written for the tests."""

import math


def softmax(xs):
    top = max(xs)
    e = [math.exp(x - top) for x in xs]
    total = sum(e)
    return [one / total for one in e]


def layer_norm(xs, gain, bias, eps=1e-5):
    mean = sum(xs) / len(xs)
    variance = sum((x - mean) ** 2 for x in xs) / len(xs)
    return [(x - mean) / math.sqrt(variance + eps) * g + b for x, g, b in zip(xs, gain, bias)]


def rms_norm(xs, gain, eps=1e-6):
    square = sum(x * x for x in xs) / len(xs)
    return [x / math.sqrt(square + eps) * g for x, g in zip(xs, gain)]


def attention(q, k, v):
    out = []
    for i, query in enumerate(q):
        last = len(k) - len(q) + i
        scores = [sum(a * b for a, b in zip(query, key)) / math.sqrt(len(query)) for key in k[: last + 1]]
        weights = softmax(scores)
        out.append([sum(w * row[j] for w, row in zip(weights, v)) for j in range(len(v[0]))])
    return out


def cross_entropy(logits, targets):
    losses = []
    for row, target in zip(logits, targets):
        top = max(row)
        losses.append(math.log(sum(math.exp(x - top) for x in row)) + top - row[target])
    return sum(losses) / len(losses)
