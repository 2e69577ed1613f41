"""The inverse of the normal distribution function, the same bits on every platform.

Wichura's AS 241 (PPND16, Applied Statistics 37, 1988), relative accuracy about 1e-16, with a
logarithm of our own: the C library's differs between platforms in the last place, and a stream
must not.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from eris.core.kernels import compiled, log

# Coefficients of AS 241 as published, lowest power first: (numerator, denominator) near the
# centre, in the near tail and in the far tail.
_A = np.array(
    [3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
     1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
     3.3430575583588128105e4, 2.5090809287301226727e3]
)  # fmt: skip
_B = np.array(
    [1.0, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
     2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
     5.2264952788528545610e3]
)  # fmt: skip
_C = np.array(
    [1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
     3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
     2.27238449892691845833e-2, 7.74545014278341407640e-4]
)  # fmt: skip
_D = np.array(
    [1.0, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
     1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
     1.05075007164441684324e-9]
)  # fmt: skip
_E = np.array(
    [6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
     2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
     2.71155556874348757815e-5, 2.01033439929228813265e-7]
)  # fmt: skip
_F = np.array(
    [1.0, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
     7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
     2.04426310338993978564e-15]
)  # fmt: skip


@compiled
def _ratio(x: float, numerator: NDArray[np.float64], denominator: NDArray[np.float64]) -> float:
    above, below = numerator[7], denominator[7]
    for i in range(6, -1, -1):
        above = above * x + numerator[i]
        below = below * x + denominator[i]
    return float(above / below)


@compiled
def inverse_normal(values: NDArray[np.float64]) -> None:
    """Replace uniforms u = j·2⁻⁵³ by standard normals, in place.

    u is taken at the middle of its cell, (j + ½)·2⁻⁵³, so that no draw is infinite and the
    distribution is symmetric.
    """
    for i in range(values.shape[0]):
        # In this order the sum is exact; (u + ½ cell) − ½ would round where u ≥ ½.
        q = (values[i] - 0.5) + 2.0**-54
        if abs(q) <= 0.425:
            values[i] = q * _ratio(0.180625 - q * q, _A, _B)
            continue
        tail = values[i] + 2.0**-54 if q < 0 else (1.0 - values[i]) - 2.0**-54
        r = np.sqrt(-log(tail))
        magnitude = _ratio(r - 1.6, _C, _D) if r <= 5.0 else _ratio(r - 5.0, _E, _F)
        values[i] = -magnitude if q < 0 else magnitude
