"""Muon and AdamW in float64 as docs/design/numerics.md writes them ([N1], [N5], [M1]-[M5], [A1]-[A3])."""

import numpy

JORDAN = (3.4445, -4.7750, 2.0315)


def newton_schulz(direction):
    x = direction.T if direction.shape[0] > direction.shape[1] else direction
    x = x / numpy.linalg.norm(x)
    a, b, c2 = JORDAN
    for _ in range(5):
        gram = x @ x.T
        x = a * x + (b * gram + c2 * gram @ gram) @ x
    return x.T if direction.shape[0] > direction.shape[1] else x


class Muon:
    """The ema form with Nesterov momentum, scale match_rms_adamw."""

    def __init__(self, lr, weight_decay=0.1, momentum=0.95):
        self.lr, self.weight_decay, self.momentum = lr, weight_decay, momentum
        self.buffer = 0

    def step(self, weights, gradient, factor=1):
        lr, mu = self.lr * factor, self.momentum
        self.buffer = mu * self.buffer + (1 - mu) * gradient
        update = newton_schulz(mu * self.buffer + (1 - mu) * gradient) * 0.2 * max(weights.shape) ** 0.5
        return weights * (1 - lr * self.weight_decay) - lr * update


class AdamW:
    """With eps outside of the root and bias correction."""

    def __init__(self, lr, weight_decay=0.1, beta1=0.9, beta2=0.95, eps=1e-8):
        self.lr, self.weight_decay, self.betas, self.eps = lr, weight_decay, (beta1, beta2), eps
        self.m = self.v = self.t = 0

    def step(self, weights, gradient, factor=1):
        lr, (beta1, beta2) = self.lr * factor, self.betas
        self.t += 1
        self.m = beta1 * self.m + (1 - beta1) * gradient
        self.v = beta2 * self.v + (1 - beta2) * gradient**2
        update = self.m / (1 - beta1**self.t) / (numpy.sqrt(self.v / (1 - beta2**self.t)) + self.eps)
        return weights * (1 - lr * self.weight_decay) - lr * update
