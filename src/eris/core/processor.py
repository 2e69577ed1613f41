"""Instructions of the processor that compiled loops have no word for.

- ``will_read(array, i)``, ``will_write(array, i)``: value i will be needed soon. Where a loop jumps
  between many places, the processor does not see what comes next and waits for memory at every
  turn; told in time, it has it in the cache. It changes no value, and beyond an array's end it does
  nothing.
- ``lowest_bit(word)``: the number of the lowest bit that is set in a 64-bit word other than 0.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

_READ, _WRITE = 0, 1
_KEEP, _DATA = 3, 1


def _hint(kind: int) -> Any:
    def prefetch(_: Any, array: Any, at: Any) -> Any:
        def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
            values = context.make_array(signature.args[0])(context, builder, given[0])
            byte, number = ir.IntType(8).as_pointer(), ir.IntType(32)
            place = builder.bitcast(builder.gep(values.data, [given[1]]), byte)
            hints = [ir.Constant(number, hint) for hint in (kind, _KEEP, _DATA)]
            form = ir.FunctionType(ir.VoidType(), [byte, number, number, number])
            function = builder.module.declare_intrinsic("llvm.prefetch", [byte], form)
            builder.call(function, [place, *hints])
            return context.get_dummy_value()

        return types.void(array, at), generate

    return intrinsic(prefetch)


will_read, will_write = _hint(_READ), _hint(_WRITE)


def _lowest_bit(_: Any, word: Any) -> Any:
    def generate(context: Any, builder: Any, signature: Any, given: Any) -> Any:
        return builder.cttz(given[0], ir.Constant(ir.IntType(1), 1))

    return types.uint64(types.uint64), generate


lowest_bit: Any = intrinsic(_lowest_bit)
