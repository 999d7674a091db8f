"""TPlinker, issue 37: the variance is squared where its root is meant."""


def layer_norm(x, gamma, beta, eps=1e-5):
    centred = x - x.mean(-1, keepdims=True)
    spread = ((centred**2).mean(-1, keepdims=True) + eps) ** 2
    return centred / spread * gamma + beta
