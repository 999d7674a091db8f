"""Beside `child`, and alone like it: from what was sent to what their code takes, and back."""

from __future__ import annotations

import base64
import random
import struct
import sys
from contextlib import suppress
from types import ModuleType
from typing import Any

SIMPLE = (bool, int, float, str, type(None))


def plain_list(values: tuple[Any, ...], shape: list[int]) -> Any:
    if not shape:
        return values[0]
    step = len(values) // shape[0] if shape[0] else 0
    return [plain_list(values[i * step : (i + 1) * step], shape[1:]) for i in range(shape[0])]


class Values:
    """From what was sent to what their code takes, and back."""

    def __init__(self, module: ModuleType, kind: str, precision: str) -> None:
        self.module, self.kind, self.precision = module, kind, precision

    def taken(self, sent: Any) -> Any:
        if isinstance(sent, dict) and "bytes" in sent:
            return self.array(sent)
        if isinstance(sent, dict) and "rng" in sent:
            return self.source(sent["rng"])
        if isinstance(sent, dict) and "list" in sent:
            return [self.taken(one) for one in sent["list"]]
        return sent

    def source(self, number: int) -> Any:
        """A source of chance, as their library has it."""
        if self.kind == "torch":
            return sys.modules["torch"].Generator().manual_seed(number)
        if self.kind == "lists":
            return random.Random(number)
        import numpy as np

        return np.random.default_rng(number)

    def array(self, sent: dict[str, Any]) -> Any:
        raw, shape, code = base64.b64decode(sent["bytes"]), sent["shape"], sent["code"]
        if self.kind == "lists":
            return plain_list(struct.unpack(f"<{len(raw) // struct.calcsize(code)}{code}", raw), shape)
        import numpy as np

        array = np.frombuffer(raw, dtype="<" + {"d": "f8", "q": "i8", "?": "b1"}[code].replace("b1", "?")).reshape(
            shape
        )
        array = array.astype(self.precision) if code == "d" else array.copy()
        if self.kind == "torch":
            return sys.modules["torch"].tensor(array)
        return vars(self.module)["Tensor"](array) if self.kind == "theirs" else array

    def sent(self, value: Any) -> Any:
        """Arrays as bytes in float64 (or whole numbers), with the dtype that they had."""
        if isinstance(value, SIMPLE):
            return value
        if hasattr(value, "detach"):
            value = value.detach().cpu()
        elif hasattr(value, "data") and not hasattr(value, "__array_interface__"):
            value = value.data
        if type(value).__module__.split(".")[0] == "torch":
            dtype = str(value.dtype).removeprefix("torch.")
            value = value.double().numpy() if value.dtype.is_floating_point else value.numpy()
            return self.packed(value, dtype)
        if hasattr(value, "__array_interface__") or hasattr(value, "dtype"):
            import numpy as np

            return self.packed(np.asarray(value), str(value.dtype))
        if isinstance(value, dict):
            return {"tree": [self.sent(one) for one in value.values()]}
        if isinstance(value, (list, tuple)):
            if numbers_only(value):
                import numpy as np

                with suppress(ValueError):
                    return self.packed(np.asarray(value), "list")
            return {"tree": [self.sent(one) for one in value]}
        if hasattr(value, "logits"):  # an answer with names, as Hugging Face's
            return self.sent(value.logits)
        return {"other": type(value).__name__}

    def packed(self, array: Any, dtype: str) -> Any:
        import numpy as np

        if array.dtype.kind not in "fiub":
            return {"other": f"array of {array.dtype}"}
        code = "d" if array.dtype.kind == "f" else "q"
        raw = np.ascontiguousarray(array.astype("<f8" if code == "d" else "<i8")).tobytes()
        return {"bytes": base64.b64encode(raw).decode(), "shape": list(array.shape), "code": code, "dtype": dtype}


def numbers_only(value: Any) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(numbers_only(one) for one in value)
    return isinstance(value, (int, float)) or (hasattr(value, "item") and getattr(value, "ndim", 1) == 0)
