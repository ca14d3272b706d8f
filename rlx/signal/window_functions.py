"""Window functions in float64, as ``scipy.signal.get_window`` names and defines them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeGuard

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import InputError, UnknownNameError, did_you_mean
from rlx.ir.opdef import Array, HasArray
from rlx.resource_limits import charge

# A name, a tuple of a name and its parameters, or the samples themselves.
WindowLike = str | tuple[Any, ...] | HasArray | Sequence[float]


@dataclass(frozen=True)
class _Window:
    """A window by its formula.

    Attributes:
        formula: Number of samples m >= 2 and the parameters -> the symmetric window.
        parameters: Names of the parameters.
        defaults: Values of the last of them, where they may be left out.
    """

    formula: Callable[..., Array]
    parameters: tuple[str, ...] = ()
    defaults: tuple[Any, ...] = ()


def _cosine_sum(m: int, weights: Sequence[float]) -> Array:
    """a0 - a1 cos(t) + a2 cos(2t) - ..., t from 0 to 2 pi (Harris 1978)."""
    t = 2 * math.pi * np.arange(m) / (m - 1)
    terms = [(-1) ** k * weight * np.cos(k * t) for k, weight in enumerate(weights)]
    return np.sum(terms, axis=0) if terms else np.zeros(m)


def _centred(m: int) -> Array:
    """Distance from the middle, in samples."""
    return np.arange(m) - (m - 1) / 2


def _unit(m: int) -> Array:
    """Distance from the middle; the ends are -1 and 1."""
    return np.linspace(-1, 1, m)


def _parzen(m: int) -> Array:
    r = np.abs(_centred(m)) / (m / 2)
    return np.where(r <= 0.5 * (m - 1) / m, 1 - 6 * r**2 * (1 - r), 2 * (1 - r) ** 3)


def _bohman(m: int) -> Array:
    t = np.abs(_unit(m))
    w = (1 - t) * np.cos(math.pi * t) + np.sin(math.pi * t) / math.pi
    w[[0, -1]] = 0.0
    return w


def _barthann(m: int) -> Array:
    t = np.abs(np.arange(m) / (m - 1) - 0.5)
    return 0.62 - 0.48 * t + 0.38 * np.cos(2 * math.pi * t)


def _tukey(m: int, alpha: float) -> Array:
    if alpha <= 0:
        return np.ones(m)
    edge = np.minimum(np.arange(m), np.arange(m)[::-1]) / (m - 1)
    taper = 0.5 * (1 - np.cos(2 * math.pi * edge / min(alpha, 1.0)))
    return np.where(edge < min(alpha, 1.0) / 2, taper, 1.0)


def _exponential(m: int, center: float | None, tau: float) -> Array:
    middle = (m - 1) / 2 if center is None else center
    return np.asarray(np.exp(-np.abs(np.arange(m) - middle) / tau))


def _chebwin(m: int, attenuation: float) -> Array:
    """Dolph-Chebyshev: the inverse transform of a Chebyshev polynomial (Lynch 1997)."""
    order = m - 1
    beta = math.cosh(math.acosh(10 ** (abs(attenuation) / 20)) / order)
    x = beta * np.cos(math.pi * np.arange(m) / m)
    inside = np.cos(order * np.arccos(np.clip(x, -1, 1)))
    outside = np.cosh(order * np.arccosh(np.maximum(np.abs(x), 1)))
    sign = np.where(x < 0, (-1.0) ** order, 1.0)
    p = np.where(np.abs(x) <= 1, inside, sign * outside).astype(np.complex128)
    if m % 2:
        half = np.fft.fft(p).real[: (m + 1) // 2]
        w = np.concatenate([half[:0:-1], half])
    else:
        half = np.fft.fft(p * np.exp(1j * math.pi * np.arange(m) / m)).real
        w = np.concatenate([half[m // 2 : 0 : -1], half[1 : m // 2 + 1]])
    return np.asarray(w / w.max())


def _taylor(m: int, nbar: int, sll: float) -> Array:
    """Taylor's window, normalised to 1 in the middle (Carrara et al. 1995, appendix D)."""
    a = math.acosh(10 ** (sll / 20)) / math.pi
    spread = nbar**2 / (a**2 + (nbar - 0.5) ** 2)
    orders = np.arange(1, nbar)
    w = np.ones(m)
    middle = 1.0
    for k in orders:
        zeros = np.prod(1 - k**2 / spread / (a**2 + (orders - 0.5) ** 2))
        others = orders[orders != k]
        weight = (-1) ** (k + 1) * zeros / np.prod(1 - k**2 / others**2)
        w += weight * np.cos(2 * math.pi * k * _centred(m) / m)
        middle += weight
    return w / middle


def _sum(*weights: float) -> _Window:
    return _Window(lambda m: _cosine_sum(m, weights))


_WINDOWS: dict[str, _Window] = {
    "boxcar": _sum(1.0),
    "hann": _sum(0.5, 0.5),
    "hamming": _sum(0.54, 0.46),
    "blackman": _sum(0.42, 0.5, 0.08),
    "nuttall": _sum(0.3635819, 0.4891775, 0.1365995, 0.0106411),
    "blackmanharris": _sum(0.35875, 0.48829, 0.14128, 0.01168),
    "flattop": _sum(0.21557895, 0.41663158, 0.277263158, 0.083578947, 0.006947368),
    "bartlett": _Window(lambda m: 1 - np.abs(_unit(m))),
    "triang": _Window(lambda m: 1 - np.abs(_centred(m)) / ((m + m % 2) / 2)),
    "parzen": _Window(_parzen),
    "bohman": _Window(_bohman),
    "barthann": _Window(_barthann),
    "cosine": _Window(lambda m: np.sin(math.pi / m * (np.arange(m) + 0.5))),
    "lanczos": _Window(lambda m: np.sinc(_unit(m))),
    "tukey": _Window(_tukey, ("alpha",), (0.5,)),
    "gaussian": _Window(lambda m, std: np.exp(-0.5 * (_centred(m) / std) ** 2), ("std",)),
    "general_gaussian": _Window(
        lambda m, p, sig: np.exp(-0.5 * np.abs(_centred(m) / sig) ** (2 * p)), ("p", "sig")
    ),
    "general_hamming": _Window(lambda m, alpha: _cosine_sum(m, (alpha, 1 - alpha)), ("alpha",)),
    "general_cosine": _Window(_cosine_sum, ("weights",)),
    "exponential": _Window(_exponential, ("center", "tau"), (None, 1.0)),
    "kaiser": _Window(
        lambda m, beta: np.i0(beta * np.sqrt(np.maximum(0.0, 1 - _unit(m) ** 2))) / np.i0(beta), ("beta",)
    ),
    "chebwin": _Window(_chebwin, ("attenuation",)),
    "taylor": _Window(_taylor, ("nbar", "sll"), (4, 30.0)),
}  # fmt: skip


def window(name: str | tuple[Any, ...], n: int, periodic: bool = True) -> Array:
    """A window of n samples.

    Args:
        name: A name of ``scipy.signal.get_window``; a window with parameters is a tuple of the name and their values,
            ``("kaiser", 8.0)``.
        n: Number of samples, >= 1.
        periodic: For spectra (SciPy's default); False gives the symmetric one, for filter design.

    Returns:
        float64 ``[n]``.

    Raises:
        UnknownNameError: There is no such window.
        InputError: ``n`` is below 1, or the parameters are not the window's.

    Example:
        >>> window("hann", 4).round(6).tolist()
        [0.0, 0.5, 1.0, 0.5]
    """
    called, *args = (name,) if isinstance(name, str) else name
    record = _WINDOWS.get(called) if isinstance(called, str) else None
    if record is None:
        raise UnknownNameError(
            f"no window is named {called!r}", hint=did_you_mean(str(called), _WINDOWS)
        )
    missing = len(record.parameters) - len(args)
    if not 0 <= missing <= len(record.defaults):
        raise InputError(
            f"[window] parameters of {called!r}",
            got=tuple(args),
            expected=f"({', '.join((repr(called), *record.parameters))})",
        )
    if n < 1:
        raise InputError("[window] length", got=n, expected="at least 1")
    if n == 1:
        return np.ones(1)
    values = (*args, *record.defaults[len(record.defaults) - missing :])
    # A periodic window is the symmetric one of one sample more, without its last sample.
    return np.asarray(record.formula(n + periodic, *values)[:n], np.float64)


def named(value: WindowLike) -> TypeGuard[str | tuple[Any, ...]]:
    """Returns whether a window is given by its name, not by its samples."""
    return isinstance(value, str) or (
        isinstance(value, tuple) and bool(value) and isinstance(value[0], str)
    )


def samples(value: WindowLike, n: int, where: str) -> Array:
    """A periodic window of n samples by name, or the samples that were given.

    Raises:
        InputError: Samples were given, and they are not n real numbers.
    """
    if named(value):
        charge(f"[{where}] a window of {n} samples", elements=n)
        return window(value, n)
    try:
        values = np.asarray(value)
        good = values.dtype.kind in "fiub" and bool(np.isfinite(values).all())
    except ValueError:  # rows of different lengths
        good = False
    if not good or values.shape != (n,):
        raise InputError(
            f"[{where}] the window's samples",
            got=values.shape if good else "not finite real numbers",
            expected=f"({n},)",
        )
    return values.astype(np.float64)
