"""How far two tensors are apart. numpy alone."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cuda2npu.smoke.spec import Tolerance

ROUNDING = 4
"""Last places of a half-precision type by which values may differ."""
EPSILONS = {"float16": 2.0**-10, "bfloat16": 2.0**-7}

Values = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Metrics:
    """The distance of one tensor, or the worst of several, from the reference."""

    cosine: float = 1.0
    max_abs: float = 0.0
    mean_abs: float = 0.0
    rel_l2: float = 0.0
    nan: int = 0
    """Values that are NaN in one run alone; ``inf`` alike."""
    inf: int = 0
    shape: str = ""
    """What changed, or nothing."""
    dtype: str = ""
    compared: int = 0
    """Tensors of which values were compared."""
    scale: float = 0.0
    """The largest absolute value of the reference."""

    def worst(self, other: Metrics) -> Metrics:
        return Metrics(
            min(self.cosine, other.cosine),
            max(self.max_abs, other.max_abs),
            max(self.mean_abs, other.mean_abs),
            max(self.rel_l2, other.rel_l2),
            self.nan + other.nan,
            self.inf + other.inf,
            self.shape or other.shape,
            self.dtype or other.dtype,
            self.compared + other.compared,
            max(self.scale, other.scale),
        )

    def failures(self, tolerance: Tolerance, epsilon: float = 0.0) -> list[str]:
        """Why this counts as different; empty when it does not.

        ``epsilon`` is that of the coarsest type the run computed in: an error of a few last
        places of it is none, however large the values are.
        """
        allowed = max(tolerance.max_abs, ROUNDING * epsilon * self.scale)
        found = []
        if self.shape:
            found.append(f"shape {self.shape}")
        if self.dtype:
            found.append(f"dtype {self.dtype}")
        if self.nan:
            found.append(f"{self.nan} NaN in one run alone")
        if self.inf:
            found.append(f"{self.inf} infinite in one run alone")
        if self.cosine < tolerance.cosine:
            found.append(f"cosine {beyond(self.cosine, '<', tolerance.cosine, 4)}")
        if self.max_abs > allowed:
            found.append(f"max abs {beyond(self.max_abs, '>', allowed)}")
        return found

    def without_dtype(self) -> Metrics:
        return replace(self, dtype="")


def beyond(value: float, sign: str, limit: float, digits: int = 3) -> str:
    """A value and its limit, with as many digits as it takes to tell them apart."""
    for number in range(digits, 18):
        one, other = f"{value:.{number}g}", f"{limit:.{number}g}"
        if one != other:
            break
    return f"{one} {sign} {other}"


def compare_values(expected: Values, found: Values) -> Metrics:
    """Elementwise; what is not finite in both runs alike is left out."""
    if expected.shape != found.shape:
        return Metrics(shape=f"{list(expected.shape)} → {list(found.shape)}")
    a, b = expected.astype(np.float64).ravel(), found.astype(np.float64).ravel()
    nan = int(np.count_nonzero(np.isnan(a) != np.isnan(b)))
    same_inf = np.isinf(a) & np.isinf(b) & (np.sign(a) == np.sign(b))
    inf = int(np.count_nonzero((np.isinf(a) | np.isinf(b)) & ~same_inf))
    finite = np.isfinite(a) & np.isfinite(b)
    a, b = a[finite], b[finite]
    if not a.size:
        return Metrics(nan=nan, inf=inf, compared=1)
    distance = np.abs(a - b)
    norm_a, norm_b = float(np.linalg.norm(a)), float(np.linalg.norm(b))
    return Metrics(
        cosine=_cosine(float(a @ b), norm_a, norm_b),
        max_abs=float(distance.max()),
        mean_abs=float(distance.mean()),
        rel_l2=_ratio(float(np.linalg.norm(a - b)), norm_a),
        nan=nan,
        inf=inf,
        compared=1,
        scale=float(np.abs(a).max()),
    )


def _cosine(product: float, norm_a: float, norm_b: float) -> float:
    """1 for two tensors that are all but zero: their direction says nothing."""
    if norm_a < 1e-12 or norm_b < 1e-12:
        return 1.0 if abs(norm_a - norm_b) < 1e-8 else 0.0
    return max(-1.0, min(1.0, product / (norm_a * norm_b)))


def _ratio(distance: float, norm: float) -> float:
    if distance == 0:
        return 0.0
    return distance / norm if norm > 0 else math.inf


@dataclass(slots=True)
class Leaves:
    """Compares the tensors of two events, which come as entries of the record."""

    expected: dict[str, Values] = field(default_factory=dict)
    found: dict[str, Values] = field(default_factory=dict)

    def compare(self, old: list[dict[str, Any]], new: list[dict[str, Any]]) -> Metrics:
        if len(old) != len(new):
            return Metrics(shape=f"{len(old)} tensors → {len(new)}")
        total = Metrics()
        for one, other in zip(old, new, strict=True):
            total = total.worst(self.one(one, other))
        return total

    def one(self, old: dict[str, Any], new: dict[str, Any]) -> Metrics:
        if old["shape"] != new["shape"]:
            return Metrics(shape=f"{old['shape']} → {new['shape']}")
        dtype = "" if old["dtype"] == new["dtype"] else f"{old['dtype']} → {new['dtype']}"
        if "key" in old and "key" in new:
            metrics = compare_values(self.expected[old["key"]], self.found[new["key"]])
            nan, inf = _counts(old, new)
            return replace(
                metrics, dtype=dtype, nan=max(nan, metrics.nan), inf=max(inf, metrics.inf)
            )
        return replace(_by_figures(old, new), dtype=dtype)


def _counts(old: dict[str, Any], new: dict[str, Any]) -> tuple[int, int]:
    """Of the whole tensors, of which the values may be a sample."""
    nan, inf = (abs(old.get(name, 0) - new.get(name, 0)) for name in ("nan", "inf"))
    return nan, inf


def _by_figures(old: dict[str, Any], new: dict[str, Any]) -> Metrics:
    """What the norms and means alone can tell: how far apart the tensors are at least."""
    if "norm" not in old or "norm" not in new:
        return Metrics()
    size = max(math.prod(old["shape"]), 1)
    apart = abs(old["norm"] - new["norm"])
    nan, inf = _counts(old, new)
    mean = max(abs(old["mean"] - new["mean"]), apart / size)
    return Metrics(
        max_abs=max(mean, apart / math.sqrt(size)),
        mean_abs=mean,
        rel_l2=_ratio(apart, old["norm"]),
        nan=nan,
        inf=inf,
        compared=1,
        scale=old["norm"] / math.sqrt(size),
    )
